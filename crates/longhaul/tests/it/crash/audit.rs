//! What must be true of a store, whatever happened to the processes that wrote it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use longhaul::TaskId;
use longhaul::entry::{Entry, Outcome, Record};
use longhaul::id::{CallId, LetterId, Seq};
use longhaul::store::{SqliteOptions, Store, TaskFilter};
use longhaul::task::TaskState;

use crate::crash::store::open;
use crate::crash::team::ledger;

type Call = (TaskId, CallId);

/// Everything that is in a store.
pub(crate) struct Audit {
    pub(crate) tasks: BTreeMap<TaskId, (TaskState, Vec<Record>)>,
}

impl Audit {
    /// Reads a store, and checks that each journal is legal and each state its fold.
    pub(crate) fn of(dir: &Path) -> Audit {
        crate::crash::roles::block_on(async {
            Audit::taken(&*open(dir, SqliteOptions::default()).await).await
        })
    }

    pub(crate) fn read(store: &dyn Store) -> Audit {
        crate::crash::roles::block_on(Audit::taken(store))
    }

    pub(crate) async fn taken(store: &dyn Store) -> Audit {
        let tasks = {
            let mut tasks = BTreeMap::new();
            for listed in store.list(TaskFilter::default()).await.unwrap() {
                // Others may write meanwhile: the journal is compared with a state of the same length.
                let (state, journal) = loop {
                    let journal = store.read(listed.id, Seq(0), 100_000).await.unwrap();
                    let state = store.task_state(listed.id).await.unwrap().unwrap();
                    if state.seq.0 == journal.len() as u64 {
                        break (state, journal);
                    }
                };
                tasks.insert(listed.id, (state, journal));
            }
            tasks
        };
        let audit = Audit { tasks };
        for (id, (state, journal)) in &audit.tasks {
            let fold = TaskState::from_journal(*id, journal).unwrap().unwrap();
            assert_eq!(fold, *state, "the state of {id} is not the fold of its journal");
            assert!(journal.iter().zip(1..).all(|(record, n)| record.seq == Seq(n)), "{id} has gaps");
            audit.attempts_count_up(*id, journal);
        }
        audit
    }

    fn attempts_count_up(&self, id: TaskId, journal: &[Record]) {
        let claims = journal.iter().filter_map(|record| match &record.entry {
            Entry::Claimed { attempt, .. } => Some(attempt.0),
            _ => None,
        });
        assert!(claims.zip(1..).all(|(attempt, n)| attempt == n), "the attempts at {id} do not count up");
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = &TaskState> {
        self.tasks.values().map(|(state, _)| state)
    }

    pub(crate) fn count(&self, id: TaskId, which: impl Fn(&Entry) -> bool) -> usize {
        self.tasks[&id].1.iter().filter(|record| which(&record.entry)).count()
    }

    /// The answer of the one root there is.
    pub(crate) fn answer(&self) -> String {
        let root = self.states().find(|state| state.parent.is_none()).unwrap();
        let outcome = self.outcome(root.id).expect("the root has ended");
        assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
        outcome.output().to_string()
    }

    pub(crate) fn outcome(&self, id: TaskId) -> Option<&Outcome> {
        self.tasks[&id].1.iter().find_map(|record| match &record.entry {
            Entry::Finished(outcome) => Some(&**outcome),
            _ => None,
        })
    }

    /// Every task has one end, and every parent, or whoever goes on in its place, one letter about each child's.
    pub(crate) fn all_ended_once(&self) {
        let mut told: BTreeMap<TaskId, Vec<LetterId>> = BTreeMap::new();
        let mut expected = told.clone();
        for state in self.states() {
            let id = state.id;
            assert!(state.status.is_final(), "{id} has not ended: {state:#?}");
            let ends = self.count(id, |entry| matches!(entry, Entry::Finished(_)));
            assert_eq!(ends, 1, "ends of {id}: {:#?}", self.tasks[&id].1);
            for record in &self.tasks[&id].1 {
                if let Entry::Letter(letter) = &record.entry
                    && letter.ending.is_some()
                {
                    told.entry(self.first(id)).or_default().push(letter.id.clone());
                }
            }
            if let Some(parent) = state.parent {
                expected.entry(self.first(parent)).or_default().push(LetterId::for_task_end(id));
            }
        }
        told.values_mut().chain(expected.values_mut()).for_each(|letters| letters.sort());
        assert_eq!(told, expected, "the letters about the ends of children, by the task that they are for");
    }

    /// The task whose conversation this one has: itself, or the first that it continues.
    fn first(&self, id: TaskId) -> TaskId {
        std::iter::successors(Some(id), |id| self.tasks[id].0.continues).last().unwrap_or(id)
    }

    /// No letter, whether it was delivered or made a task go on, is there twice.
    pub(crate) fn letters_went_once(&self) {
        let mut seen = HashSet::new();
        for record in self.tasks.values().flat_map(|(_, journal)| journal) {
            let letter = match &record.entry {
                Entry::Letter(letter) => Some(&letter.id),
                Entry::Submitted(submitted) => submitted.letter.as_ref(),
                _ => None,
            };
            assert!(letter.is_none_or(|letter| seen.insert(letter)), "the letter {letter:?} went twice");
        }
    }

    /// No call was made twice unless it may be, and none whose result the model has not been told truly.
    pub(crate) fn side_effects_are_as_told(&self, dir: &Path) {
        let mut runs: HashMap<Call, usize> = HashMap::new();
        let ledger = ledger(dir);
        for line in &ledger {
            let Run { call, tool, .. } = parse(line);
            let times = runs.entry(call).or_default();
            *times += 1;
            assert!(tool == "twice" || *times == 1, "{call:?} of '{tool}' ran {times} times");
        }
        for (id, (_, journal)) in &self.tasks {
            for (call, tool, result, interrupted) in calls(journal) {
                let times = runs.get(&(*id, call)).copied().unwrap_or(0);
                let Some(result) = result else { continue };
                let told = result.contains("interrupted");
                match tool.as_str() {
                    "once" | "hold" => {
                        assert_eq!(told, interrupted, "{id} {call}: '{result}'");
                        assert!(told || times == 1, "{id} {call} was not made: '{result}'");
                    }
                    "twice" => {
                        assert!(times >= 1 && !told, "{id} {call}: '{result}' after {times} runs");
                        let attempts = self.count(*id, |entry| matches!(entry, Entry::Claimed { .. }));
                        assert!(times <= attempts, "{id} {call} ran {times} times in {attempts} attempts");
                    }
                    _ => assert!(!told, "{id} {call} of '{tool}' may be repeated: '{result}'"),
                }
            }
        }
    }

    /// A finished step never runs again: whatever was stopped, woken up or superseded meanwhile, nobody begins a call whose
    /// result was written down.
    ///
    /// A process can be stopped between its last look at its lease and the first line of the tool, and no look can close that gap:
    /// each of its threads may be there once. It said so before (the journal has the call as begun), so whoever took the task over
    /// told the model that the call may have had an effect.
    pub(crate) fn nothing_began_after_its_result(&self, dir: &Path) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let ledger = ledger(dir);
        let mut late: HashMap<&str, usize> = HashMap::new();
        for (line, run) in ledger.iter().map(|line| (line, parse(line))) {
            let (task, call) = run.call;
            let journal = &self.tasks[&task].1;
            let result = calls(journal).into_iter().find(|(of, ..)| *of == call);
            let returned = journal
                .iter()
                .find(|record| matches!(&record.entry, Entry::Returned(returned) if returned.call == call));
            let Some(returned) = returned.filter(|record| record.at.as_millisecond() < run.begun) else {
                continue;
            };
            let was_begun_before = result.is_some_and(|(.., interrupted)| interrupted);
            let times = late.entry(run.process).or_default();
            *times += 1;
            let runs: Vec<_> = ledger.iter().filter(|line| parse(line).call == run.call).collect();
            let journal: Vec<_> =
                journal.iter().map(|record| format!("{} {:?}", record.at, record.entry)).collect();
            assert!(
                was_begun_before && *times <= threads,
                "begun after its result of {}: {line}\nits runs: {runs:#?}\n{}",
                returned.at,
                journal.join("\n")
            );
        }
    }
}

/// Each call, its tool, its result, and whether an attempt that began it ended without one.
fn calls(journal: &[Record]) -> Vec<(CallId, String, Option<String>, bool)> {
    let mut calls: Vec<(CallId, String, Option<String>, bool)> = Vec::new();
    for record in journal {
        match &record.entry {
            Entry::Called { call, tool, .. } if !calls.iter().any(|(had, ..)| had == call) => {
                calls.push((*call, tool.to_string(), None, false));
            }
            Entry::Returned(returned) => {
                let call = calls.iter_mut().find(|(call, ..)| *call == returned.call).expect("called before");
                assert!(call.2.is_none(), "{} returned twice", call.0);
                call.2 = Some(returned.output.to_string());
            }
            Entry::Claimed { .. } => calls.iter_mut().filter(|c| c.2.is_none()).for_each(|c| c.3 = true),
            _ => {}
        }
    }
    calls
}

/// A line of the ledger.
struct Run<'a> {
    call: Call,
    tool: &'a str,
    process: &'a str,
    /// When it was begun, in milliseconds.
    begun: i64,
}

fn parse(line: &str) -> Run<'_> {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap_or_else(|| panic!("a torn line: '{line}'"));
    let task = next().parse().unwrap();
    let (turn, index) = next().split_once('.').unwrap();
    let call = CallId { turn: turn.parse().unwrap(), index: index.parse().unwrap() };
    let (tool, process) = (next(), next());
    Run { call: (task, call), tool, process, begun: next().parse().unwrap() }
}
