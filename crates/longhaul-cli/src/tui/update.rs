//! What happens to the state: a message in, wishes out. Nothing is done here.

use longhaul::TaskId;
use longhaul::entry::{Order, Record};
use longhaul::id::Seq;
use longhaul::task::Head;

use super::forest::Row;
use super::model::{
    Confirm, Detail, Effect, Focus, KEPT, LOOK, Model, Msg, Notice, Pane, Purpose, STRIDE, Said, TASKS_KEPT,
    Tab,
};
use super::talk::Talk;
use crate::view::Ink;

/// Takes a message in.
pub(crate) fn update(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Key(key) => model.key(key),
        Msg::Mouse(mouse) => model.mouse(mouse),
        Msg::Paste(text) => model.paste(&text),
        Msg::Resize(width, height) => {
            model.size = (width, height);
            (model.stale, model.seek) = (true, true);
            model.hold();
            Vec::new()
        }
        Msg::Loaded(heads, pinned) => model.load(heads, pinned),
        Msg::Heads(heads) => model.take(heads),
        Msg::Records { task, after, limit, records, order } => {
            let mut effects = model.read(task, after, limit, &records, order);
            effects.extend(model.seek_on());
            effects
        }
        Msg::Calls(calls) => {
            calls.into_iter().for_each(|(task, call, told)| model.calls.take(task, call, told));
            Vec::new()
        }
        Msg::Gone(task) => {
            model.heads.shift_remove(&task);
            model.stale = true;
            model.prepare();
            model.look()
        }
        Msg::Done(Ok(Said { text, show })) => {
            let mut effects = model.say(Ink::Good, text);
            if let Some(task) = show {
                effects.extend(model.show(task));
            }
            effects
        }
        Msg::Done(Err(error)) => model.say(Ink::Bad, error),
        Msg::Tick => {
            // A wait for a provider may be over though nothing was written down.
            model.stale = true;
            Vec::new()
        }
        Msg::Forget(number) => {
            if model.notice.as_ref().is_some_and(|notice| notice.number == number) {
                model.notice = None;
            }
            Vec::new()
        }
    }
}

impl Model {
    /// Tells something for a while.
    pub(super) fn say(&mut self, ink: Ink, text: impl Into<String>) -> Vec<Effect> {
        self.notices += 1;
        let text = crate::view::one_line(&text.into());
        self.notice = Some(Notice { number: self.notices, ink, text });
        vec![Effect::Later(self.notices)]
    }

    fn load(&mut self, heads: Vec<Head>, pinned: Vec<TaskId>) -> Vec<Effect> {
        let first = !std::mem::replace(&mut self.loaded, true);
        self.heads = heads.into_iter().map(|head| (head.id, head)).collect();
        self.calls.forget_all_but(&self.heads);
        self.stale = true;
        if first {
            self.pinned = pinned.into_iter().collect();
            // What has ended is a line a tree.
            let open: std::collections::HashSet<TaskId> =
                self.heads.values().filter(|head| !head.status.is_final()).map(|head| head.root).collect();
            let ended = |head: &&Head| head.parent.is_none() && !open.contains(&head.root);
            self.folded = self.heads.values().filter(ended).map(|head| head.id).collect();
        }
        self.prepare();
        let mut effects = self.look();
        let behind =
            |detail: &Detail| self.heads.get(&detail.task).is_some_and(|head| head.seq > detail.talk.last);
        if !first && self.detail.as_ref().is_some_and(behind) {
            effects.extend(self.more());
        }
        effects
    }

    fn take(&mut self, heads: Vec<Head>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for head in heads {
            let id = head.id;
            // What was read first may come last.
            if self.heads.get(&id).is_some_and(|had| had.seq > head.seq) {
                continue;
            }
            let moved = self.heads.get(&id).is_none_or(|had| had.seq != head.seq);
            self.calls.forget(&head);
            self.heads.insert(id, head);
            if moved && self.detail.as_ref().is_some_and(|detail| detail.task == id) {
                effects.extend(self.more());
            }
        }
        self.forget();
        self.stale = true;
        if self.selected.is_none() {
            self.prepare();
            effects.extend(self.look());
        }
        effects
    }

    /// Forgets trees that ended long ago, if there are too many.
    fn forget(&mut self) {
        if self.heads.len() <= TASKS_KEPT {
            return;
        }
        let open: std::collections::HashSet<TaskId> =
            self.heads.values().filter(|head| !head.status.is_final()).map(|head| head.root).collect();
        let chosen = self.head().map(|head| head.root);
        let mut over = self.heads.len() - TASKS_KEPT * 9 / 10;
        self.heads.retain(|_, head| {
            let keep = over == 0
                || open.contains(&head.root)
                || Some(head.root) == chosen
                || self.pinned.contains(&head.root);
            over -= usize::from(!keep);
            keep
        });
        let heads = &self.heads;
        self.folded.retain(|id| heads.contains_key(id));
        self.calls.forget_all_but(heads);
    }

    /// Looks at what is chosen, and chooses something where nothing is.
    pub(super) fn look(&mut self) -> Vec<Effect> {
        let shown = |id: &TaskId| self.forest.line(*id).is_some();
        if self.forest.rows.is_empty() && self.head().is_some() {
            // A search that finds nothing chooses nothing else.
            return self.open_chosen();
        }
        if self.selected.is_none_or(|id| !shown(&id)) {
            // What is folded away is seen in what is above it.
            let mut above = self.head().and_then(|head| head.parent);
            while let Some(id) = above.filter(|id| !shown(id)) {
                above = self.heads.get(&id).and_then(|head| head.parent);
            }
            let first = || self.forest.rows.iter().find_map(Row::task);
            self.selected = match (above, &self.team) {
                (Some(above), _) => Some(above),
                (None, Some(_)) if self.selected.is_none() => None,
                (None, _) => first(),
            };
            self.seek = true;
        }
        self.open_chosen()
    }

    /// Chooses a task and brings it into sight.
    pub(super) fn show(&mut self, task: TaskId) -> Vec<Effect> {
        let mut above = self.heads.get(&task).and_then(|head| head.parent);
        while let Some(id) = above {
            self.folded.remove(&id);
            above = self.heads.get(&id).and_then(|head| head.parent);
        }
        self.select(Some(task))
    }

    pub(super) fn select(&mut self, task: Option<TaskId>) -> Vec<Effect> {
        self.selected = task;
        (self.stale, self.seek) = (true, true);
        self.open_chosen()
    }

    /// Opens the chosen task, unless it is open.
    fn open_chosen(&mut self) -> Vec<Effect> {
        let Some(task) = self.selected else {
            self.detail = None;
            return Vec::new();
        };
        if self.detail.as_ref().is_some_and(|detail| detail.task == task) {
            return Vec::new();
        }
        let detail = Detail::of(task, self.heads.get(&task));
        let after = detail.talk.after;
        self.detail = Some(detail);
        vec![Effect::Read { task, after, limit: LOOK + STRIDE, order: true }]
    }

    /// The journal that is looked at has grown.
    fn more(&mut self) -> Vec<Effect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        if detail.reading {
            detail.again = true;
            return Vec::new();
        }
        // Whoever reads further up is not carried away; what is new is read when they come down.
        if !detail.follow && detail.talk.entries >= KEPT {
            detail.behind = true;
            return Vec::new();
        }
        if detail.behind {
            return Vec::new();
        }
        detail.reading = true;
        vec![Effect::Read { task: detail.task, after: detail.talk.last, limit: STRIDE, order: false }]
    }

    fn read(
        &mut self,
        task: TaskId,
        after: Seq,
        limit: usize,
        records: &[Record],
        order: Option<(Box<Order>, String)>,
    ) -> Vec<Effect> {
        let tab = self.tab;
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.task == task) else {
            return Vec::new();
        };
        detail.reading = false;
        detail.fresh = false;
        if let Some((order, team)) = order {
            (detail.order, detail.team) = (Some(*order), Some(team));
        }
        let whole = records.len() < limit;
        if after == detail.talk.last {
            records.iter().for_each(|record| detail.talk.feed(record));
            detail.behind = !whole && !detail.follow;
            if detail.follow && detail.talk.entries > KEPT {
                // Half of it, so that this is rare.
                detail.talk.keep(detail.talk.blocks.len() / 2);
            }
        } else {
            // Another stretch: what is in sight stays where it is.
            let in_sight = detail.page.block(detail.top).filter(|_| tab == Tab::Transcript);
            detail.anchor = detail.back_to.take().or(in_sight);
            detail.talk = Talk::of(after, records);
            detail.behind = !whole;
        }
        let again = std::mem::take(&mut detail.again) || (detail.follow && !whole);
        if again {
            detail.behind &= !detail.follow;
            return self.more();
        }
        Vec::new()
    }

    /// Where somebody scrolls beyond what was read, more is read.
    pub(super) fn further(&mut self, height: usize) -> Vec<Effect> {
        if !matches!(self.tab, Tab::Transcript | Tab::Timeline | Tab::Letters) {
            return Vec::new();
        }
        let Some(detail) = self.detail.as_mut().filter(|detail| !detail.reading && !detail.fresh) else {
            return Vec::new();
        };
        let talk = &detail.talk;
        let ahead = detail.top + height >= detail.page.total();
        let after = if detail.top == 0 && talk.after.0 > 0 {
            Seq(talk.after.0.saturating_sub(STRIDE as u64))
        } else if ahead && detail.behind {
            Seq(talk.after.0 + STRIDE as u64)
        } else {
            return Vec::new();
        };
        detail.reading = true;
        // With a stretch that has been read before, so that there is something to hold on to.
        vec![Effect::Read { task: detail.task, after, limit: KEPT - STRIDE, order: false }]
    }

    /// Goes to the end, and stays there.
    pub(super) fn follow(&mut self) -> Vec<Effect> {
        let end = self.head().map_or(Seq(0), |head| head.seq);
        let Some(detail) = &mut self.detail else { return Vec::new() };
        detail.follow = true;
        if detail.behind && !detail.reading {
            detail.behind = false;
            detail.reading = true;
            let after = Seq(end.0.saturating_sub(LOOK as u64));
            return vec![Effect::Read { task: detail.task, after, limit: LOOK + STRIDE, order: false }];
        }
        Vec::new()
    }

    /// Goes to the beginning.
    pub(super) fn beginning(&mut self) -> Vec<Effect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        detail.follow = false;
        (detail.top, detail.cursor) = (0, 0);
        if detail.talk.after.0 > 0 && !detail.reading {
            detail.reading = true;
            let limit = KEPT - STRIDE;
            return vec![Effect::Read { task: detail.task, after: Seq(0), limit, order: false }];
        }
        Vec::new()
    }

    /// What is in sight stays there though lines are laid out anew.
    fn hold(&mut self) {
        if let Some(detail) = &mut self.detail
            && !detail.follow
        {
            detail.anchor = detail.page.block(detail.top).map(|(seq, _)| (seq, 0));
        }
    }

    /// What the prompt is for, as things stand.
    pub(crate) fn purpose(&self) -> Option<Purpose> {
        if let Some(purpose) = self.purpose.filter(|_| self.focus == Focus::Prompt) {
            return Some(purpose);
        }
        let Some(selected) = self.selected else { return self.team.as_ref().map(|_| Purpose::Run) };
        Some(match self.asks() {
            Some((head, question)) if question.tool.is_none() => Purpose::Answer(head.id, question.question),
            _ => Purpose::Write(selected),
        })
    }

    /// Sends what was typed.
    pub(super) fn submit(&mut self) -> Vec<Effect> {
        let Some(purpose) = self.purpose() else { return Vec::new() };
        let text = self.draft().text().trim().to_owned();
        if text.is_empty() {
            return Vec::new();
        }
        self.drafts.remove(&purpose);
        self.purpose = None;
        self.recalled = None;
        self.written.retain(|written| *written != text);
        self.written.push(text.clone());
        if self.written.len() > 50 {
            self.written.remove(0);
        }
        self.leave_prompt();
        match purpose {
            Purpose::Write(to) => vec![Effect::Send { to, text }],
            Purpose::Answer(task, question) => vec![Effect::Answer { task, question, words: text }],
            Purpose::Run => vec![Effect::Run(text)],
        }
    }

    /// Back from the prompt to where the keys went before.
    pub(super) fn leave_prompt(&mut self) {
        self.focus = match self.pane {
            Pane::List => Focus::List,
            Pane::Detail => Focus::Detail,
        };
    }

    /// What was asked is to be done.
    pub(super) fn confirmed(&mut self, confirm: Confirm) -> Vec<Effect> {
        match confirm {
            Confirm::Stop(task) => vec![Effect::Stop(task)],
            Confirm::StopAll => vec![Effect::StopAll],
            Confirm::Leave => self.leave(false),
        }
    }

    pub(super) fn leave(&mut self, drain: bool) -> Vec<Effect> {
        self.leaving = true;
        vec![Effect::Leave { drain }]
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
