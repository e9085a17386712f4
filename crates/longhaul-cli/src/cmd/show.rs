//! `longhaul show`.

use jiff::Timestamp;
use longhaul::entry::{Order, Outcome, Question, Wait, Wants};
use longhaul::id::QuestionId;
use longhaul::message::Usage;
use longhaul::snapshot::{Event, Snapshot};
use longhaul::store::Filter;
use longhaul::task::{Head, Waiting};
use longhaul::{Longhaul, Status, TaskId};
use serde::Serialize;

use super::Desk;
use crate::args::ShowArgs;
use crate::exit::{Code, Trouble};
use crate::place::Place;
use crate::team;
use crate::view::{
    self, Detail, Ink, Layout, Teller, Term, ago, clean, count, dollars, fit, many, moment, one_line,
    standing, time_of, visible, waits_for,
};

/// How many of the last events are shown.
const LAST: usize = 8;
/// How wide the names of fields are, with the gap after them.
const FIELD: usize = 12;

/// A task as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    head: &'a Head,
    order: &'a Order,
    children: Vec<&'a Head>,
    /// What it and all below it have used.
    tree: Spent,
    /// The tasks that try its order again.
    retried_as: &'a [TaskId],
    outcome: &'a Option<Outcome>,
    /// What it asks a person, whole.
    questions: Vec<Asking<'a>>,
    output: &'a str,
    events: Vec<&'a Event>,
    /// How many events there were before those.
    dropped: u64,
}

/// A question as JSON.
#[derive(Serialize)]
struct Asking<'a> {
    question: QuestionId,
    #[serde(flatten)]
    asks: &'a Question,
}

/// What tasks have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Spent {
    tasks: usize,
    turns: u64,
    calls: u64,
    usage: Usage,
    /// In millionths of a dollar, as far as it is known.
    cost: u64,
    /// Replies whose price is not known.
    unpriced: u64,
}

impl Spent {
    fn of<'a>(heads: impl IntoIterator<Item = &'a Head>) -> Spent {
        heads.into_iter().fold(Spent::default(), |mut sum, head| {
            sum.tasks += 1;
            sum.turns += u64::from(head.turns);
            sum.calls += u64::from(head.calls);
            sum.usage += head.usage;
            sum.cost = sum.cost.saturating_add(head.cost);
            sum.unpriced += u64::from(head.unpriced);
            sum
        })
    }

    /// What it cost; of what the price is not known, that is said.
    fn cost(&self) -> Option<String> {
        match (self.cost, self.unpriced) {
            _ if self.turns == 0 => None,
            (0, 0) => Some("$0".to_owned()),
            (0, _) => Some("price unknown".to_owned()),
            (cost, 0) => Some(dollars(cost)),
            (cost, 1) => Some(format!("{} and 1 reply of unknown price", dollars(cost))),
            (cost, more) => Some(format!("{} and {more} replies of unknown price", dollars(cost))),
        }
    }

    fn words(&self) -> String {
        let tokens = count(self.usage.total());
        let (input, output) = (count(self.usage.input), count(self.usage.output));
        let turns = many(usize::try_from(self.turns).unwrap_or(usize::MAX), "turn");
        let calls = many(usize::try_from(self.calls).unwrap_or(usize::MAX), "tool call");
        let cost = self.cost().map(|cost| format!(", {cost}")).unwrap_or_default();
        format!("{turns}, {calls}, {tokens} tokens ({input} in, {output} out){cost}")
    }
}

pub(super) async fn run(desk: &Desk, args: &ShowArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    // People see the last events, programs how many there were before.
    let task = if args.json { longhaul.snapshot(id).await? } else { longhaul.glance(id).await? };
    let tree = longhaul.snapshots(Filter::tree(task.head.root)).await?;
    let below = below(&tree, id);
    let again = Filter { retries: Some(id), ..Filter::default() };
    let retried = longhaul.store().ids(again).await?;
    let spent = Spent::of(below.iter().copied().chain([&task.head]));
    let term = desk.term;
    if args.json {
        let Snapshot { head, order, output, outcome, questions, events, dropped, .. } = &task;
        let questions =
            questions.iter().map(|(question, asks)| Asking { question: *question, asks }).collect();
        let children = below.iter().copied().filter(|head| head.parent == Some(id)).collect();
        term.json(&Shown {
            head,
            order,
            children,
            tree: spent,
            retried_as: &retried,
            outcome,
            questions,
            output,
            events: events.iter().collect(),
            dropped: *dropped,
        })?;
    } else {
        let mut page = Page { term, place: desk.place()?, now: Timestamp::now(), lines: Vec::new() };
        let team = team::name(&**longhaul.store(), &task.head.team).await;
        page.head(&task, &team);
        if let Some(since) = silent_since(&longhaul, &task.head).await? {
            let (resume, since) = (page.place.resume(task.head.root), ago(since, page.now));
            page.field(
                "process",
                &format!("silent: its lease ended {since}; if it stays silent, take over: {resume}"),
            );
        }
        page.kin(&task.head, &retried);
        page.used(&task.head, &spent);
        page.order(&task.order);
        page.children(&below);
        page.events(&task);
        page.output(&task);
        term.lines(&page.lines)?;
    }
    super::looked_at(&longhaul, id).await;
    Ok(Code::Fine)
}

/// When the lease of the process that runs a task ended, by the clock on the wall: a process that is stopped, or on a machine whose
/// clock is wrong. That is only shown; whether it is gone, somebody has to watch who wants to take over.
async fn silent_since(longhaul: &Longhaul, head: &Head) -> Result<Option<Timestamp>, Trouble> {
    let Some(worker) = head.worker.clone().filter(|_| head.status == Status::Running) else {
        return Ok(None);
    };
    let lease = longhaul.store().lease(worker).await?;
    Ok(lease.map(|lease| lease.until).filter(|until| *until < Timestamp::now()))
}

/// All tasks below one, in the order of their submission: parents come before their children.
fn below(tree: &[Head], id: TaskId) -> Vec<&Head> {
    let mut above = std::collections::HashSet::from([id]);
    tree.iter()
        .filter(|head| head.parent.is_some_and(|parent| above.contains(&parent)) && above.insert(head.id))
        .collect()
}

struct Page {
    term: Term,
    place: Place,
    now: Timestamp,
    lines: Vec<String>,
}

impl Page {
    /// A name and what it stands for, which goes on below itself.
    fn field(&mut self, name: &str, value: &str) {
        let value = self.term.wrapped_to(value, FIELD);
        for (index, line) in value.lines().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.lines.push(format!("{}  {line}", self.term.paint(Ink::Faint, &format!("{name:<10}"))));
        }
    }

    fn title(&mut self, name: &str) {
        self.lines.push(String::new());
        self.lines.push(self.term.paint(Ink::Strong, name));
    }

    fn head(&mut self, task: &Snapshot, team: &str) {
        let head = &task.head;
        let (sign, word, ink) = standing(head);
        let room = self.term.size().0.saturating_sub(view::width(&format!("{}  {sign} {word}  ", head.id)));
        let state = self.term.paint(ink, &format!("{sign} {word}"));
        let id = self.term.paint(Ink::Id, &head.id.to_string());
        let headline = self.term.paint(Ink::Strong, &fit(&one_line(&head.headline), room));
        self.lines.push(format!("{id}  {state}  {headline}").trim_end().to_owned());
        if let Some(error) = &head.error {
            self.field("why", &one_line(error));
        }
        if let (None, Some(stop), true) = (&head.error, &head.stop, head.status.is_final()) {
            self.field("why", &stop.cause.to_string());
        }
        if let Some(limit) = &head.cut_short {
            self.field("cut short", &format!("by {}", one_line(limit)));
        }
        for (name, question) in &task.questions {
            // The journal has a call in few words, and whole beside it: who is to allow it needs all of it.
            let asks = match &question.wants {
                Wants::Leave { tool, arguments, why, changed, .. } if !question.text.contains(arguments) => {
                    let why = why
                        .as_ref()
                        .map(|why| format!(" A person has to decide: {why}."))
                        .unwrap_or_default();
                    let note =
                        changed.as_ref().map(|changed| format!(" Note: {changed}.")).unwrap_or_default();
                    format!("May {tool} be called with {arguments}?{why}{note}")
                }
                _ => question.text.clone(),
            };
            self.field("asks", &visible(&asks));
            let named = (task.questions.len() > 1).then_some(*name);
            self.field("answer", &self.place.answer(head.id, named, &question.wants));
            if let Some(until) = head.asked.iter().find(|asked| asked.question == *name).and_then(|a| a.until)
            {
                self.field("until", &moment(until));
            }
        }
        let asks = |waiting: &Waiting| matches!(waiting.on, Wait::Person(_));
        if let Some(waiting) = head.waiting.as_ref().filter(|waiting| !asks(waiting)) {
            let since = ago(waiting.since, self.now).replace(" ago", "");
            self.field("waits for", &format!("{}, {since}", waits_for(&waiting.on)));
        }
        if let Some(stop) = head.stop.as_ref().filter(|_| !head.status.is_final()) {
            self.field("to stop", &stop.cause.to_string());
        }
        if standing(head).1 == "interrupted" {
            self.field("resume", &self.place.resume(head.root));
        }
        if !head.calling.is_empty() {
            let tools: Vec<String> = head.calling.iter().map(|(_, tool)| one_line(tool)).collect();
            self.field("calling", &tools.join(", "));
        }
        if let Some(progress) = &head.progress {
            self.field("progress", &one_line(progress));
        }
        if head.unread > 0 {
            self.field("unread", &many(head.unread as usize, "letter"));
        }
        let agent = format!("{} of {}", one_line(head.agent.as_str()), clean(team));
        self.field("agent", &agent);
        let mut created = format!("{} ({})", moment(head.created), ago(head.created, self.now));
        if view::width(&created) + FIELD > self.term.size().0 {
            created = moment(head.created);
        }
        self.field("created", &created);
        if head.started.is_some() {
            let again =
                if head.attempt.0 > 1 { format!(", claimed {} times", head.attempt) } else { String::new() };
            self.field("elapsed", &format!("{}{again}", time_of(head, self.now)));
        }
        if let Some(directory) = &task.order.working_dir {
            self.field("directory", &clean(&directory.display().to_string()));
        }
        if let Some(model) = &task.order.model {
            self.field("model", &one_line(model));
        }
    }

    fn kin(&mut self, head: &Head, retried: &[TaskId]) {
        let links = [
            ("parent", head.parent),
            ("root", Some(head.root).filter(|root| *root != head.id && Some(*root) != head.parent)),
            ("continues", head.continues),
            ("went on as", head.continued_by),
            ("retries", head.retries),
        ];
        let retried = retried.iter().map(|id| ("retried as", Some(*id)));
        for (name, id) in links.into_iter().chain(retried) {
            if let Some(id) = id {
                let id = self.term.paint(Ink::Id, &id.to_string());
                self.lines.push(format!("{}  {id}", self.term.paint(Ink::Faint, &format!("{name:<10}"))));
            }
        }
    }

    fn used(&mut self, head: &Head, tree: &Spent) {
        self.field("used", &Spent::of([head]).words());
        if tree.tasks > 1 {
            self.field("in all", &format!("{} tasks, {}", tree.tasks, tree.words()));
        }
    }

    fn order(&mut self, order: &Order) {
        self.title("Order");
        self.lines.push(self.term.wrapped(clean(&order.task).trim_end()));
        if let Some(expected) = &order.expected_output {
            self.lines.push(self.term.wrapped(&format!("Expected: {}", clean(expected))));
        }
    }

    fn children(&mut self, below: &[&Head]) {
        if below.is_empty() {
            return;
        }
        self.title("Children");
        let heads: Vec<Head> = below.iter().copied().cloned().collect();
        self.lines.extend(view::tasks(&heads, self.term, self.now, Layout::Tree));
    }

    fn events(&mut self, task: &Snapshot) {
        let mut teller = Teller::new(self.term, Detail::Own);
        let told: Vec<String> = task.events.iter().flat_map(|event| teller.tell(event)).collect();
        let all = task.dropped + told.len() as u64;
        let last = &told[told.len().saturating_sub(LAST)..];
        match all > last.len() as u64 {
            true => {
                let logs = format!("logs {}", task.head.id);
                let title = format!("Last events (all: {})", self.place.command(&logs));
                let short = format!("Last events (all: {logs})");
                self.title(if view::width(&title) > self.term.size().0 { &short } else { &title });
            }
            false => self.title("Events"),
        }
        self.lines.extend_from_slice(last);
    }

    fn output(&mut self, task: &Snapshot) {
        let output = clean(&task.output);
        if output.trim().is_empty() {
            return;
        }
        self.title(if task.head.status.is_final() { "Output" } else { "Output so far" });
        self.lines.push(self.term.wrapped(output.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_that_is_not_known_is_said_to_be_unknown() {
        let spent = |cost, unpriced| Spent { turns: 3, cost, unpriced, ..Spent::default() }.cost();
        assert_eq!(Spent::default().cost(), None);
        assert_eq!(spent(0, 3).as_deref(), Some("price unknown"));
        assert_eq!(spent(0, 0).as_deref(), Some("$0"));
        assert_eq!(spent(12_000, 0).as_deref(), Some("$0.0120"));
        assert_eq!(spent(12_000, 1).as_deref(), Some("$0.0120 and 1 reply of unknown price"));
        assert_eq!(spent(12_000, 2).as_deref(), Some("$0.0120 and 2 replies of unknown price"));
    }
}
