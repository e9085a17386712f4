//! The arguments of running calls. A task's state has only the names of the tools; the arguments are read
//! from the journals of visible tasks, once per call.

use std::collections::HashMap;

use indexmap::IndexMap;
use longhaul::TaskId;
use longhaul::entry::{Entry, Record};
use longhaul::id::{CallId, Seq};
use longhaul::task::TaskState;
use longhaul::transcript::brief_call;

use super::model::{TuiEffect, TuiModel};
use super::tree::TuiRow;
use crate::view::one_line;

/// How much of a call to keep: a line has no room for more.
const KEPT: usize = 200;

/// The calls that are known or being read.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningCalls(HashMap<TaskId, Vec<(CallId, Option<String>)>>);

impl RunningCalls {
    /// Stores a call that has been read.
    pub(super) fn take(&mut self, task: TaskId, id: CallId, summary: String) {
        let calls = self.0.entry(task).or_default();
        calls.retain(|(known, _)| *known != id);
        calls.push((id, Some(summary)));
    }

    /// Forgets calls that have returned.
    pub(super) fn forget(&mut self, state: &TaskState) {
        if let Some(calls) = self.0.get_mut(&state.id) {
            calls.retain(|(known, _)| state.calling.iter().any(|(id, _)| id == known));
            if calls.is_empty() {
                self.0.remove(&state.id);
            }
        }
    }

    /// Forgets calls that are no longer running, and those of unknown tasks.
    pub(super) fn forget_all_but(&mut self, states: &IndexMap<TaskId, TaskState>) {
        self.0.retain(|id, _| states.contains_key(id));
        states.values().for_each(|state| self.forget(state));
    }

    /// Returns the running calls of a task in short form, or the names of their tools if no more is known.
    pub(crate) fn summaries(&self, state: &TaskState) -> Vec<String> {
        let known = self.0.get(&state.id);
        let summary = |id: &CallId| {
            let (_, summary) = known?.iter().find(|(known, _)| known == id)?;
            summary.clone().filter(|summary| !summary.is_empty())
        };
        state.calling.iter().map(|(id, tool)| summary(id).unwrap_or_else(|| one_line(tool))).collect()
    }

    /// Returns the unknown calls of a task, and marks them as being read.
    fn unknown(&mut self, state: &TaskState) -> Vec<CallId> {
        if state.calling.is_empty() {
            return Vec::new();
        }
        let calls = self.0.entry(state.id).or_default();
        let known = |id: &CallId| calls.iter().any(|(known, _)| known == id);
        let unknown: Vec<CallId> = state.calling.iter().map(|(id, _)| *id).filter(|id| !known(id)).collect();
        calls.extend(unknown.iter().map(|id| (*id, None)));
        unknown
    }
}

impl TuiModel {
    /// Returns the effect that reads the unknown calls of visible tasks.
    pub(crate) fn unknown_calls(&mut self) -> Option<TuiEffect> {
        let height = self.areas()?.list.height;
        let rows = self.tree.rows.iter().skip(self.list_top).take(usize::from(height));
        let in_sight = rows.filter_map(|row| match row {
            TuiRow::Activity(position) => Some(position.id),
            _ => None,
        });
        let mut wanted = Vec::new();
        for id in in_sight.chain(self.selected) {
            if let Some(state) = self.tasks.get(&id) {
                let unknown = self.calls.unknown(state);
                if !unknown.is_empty() {
                    wanted.push((id, state.seq, unknown));
                }
            }
        }
        (!wanted.is_empty()).then_some(TuiEffect::ReadCalls(wanted))
    }
}

/// Finds calls in the last part of a journal, in short form. Returns `None` if the reply that made them is
/// further back.
pub(super) fn found(records: &[Record], ids: &[CallId]) -> Option<Vec<(CallId, String)>> {
    let reply = records.iter().rev().find_map(|record| match &record.entry {
        Entry::Replied(reply) => Some(reply),
        _ => None,
    })?;
    // The entry of a call has its arguments if a person or a hook changed them.
    let changed = |id: &CallId| {
        records.iter().rev().find_map(|record| match &record.entry {
            Entry::Called { call, arguments, .. } if call == id => arguments.clone(),
            _ => None,
        })
    };
    let summary = |id: &CallId| {
        let call = reply.calls().nth(id.index as usize)?;
        let arguments = changed(id).unwrap_or_else(|| call.arguments.clone());
        Some(brief_call(&call.tool, &arguments, KEPT))
    };
    Some(ids.iter().map(|id| (*id, summary(id).unwrap_or_default())).collect())
}

/// Returns the position after which the last `entries` entries up to `end` begin.
pub(super) fn stretch(end: Seq, entries: usize) -> Seq {
    Seq(end.0.saturating_sub(entries as u64))
}
