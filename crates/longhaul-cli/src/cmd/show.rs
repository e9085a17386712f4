//! `longhaul show`.

use jiff::Timestamp;
use longhaul::entry::{Order, Outcome, Question, Wait};
use longhaul::id::QuestionId;
use longhaul::snapshot::{Event, Snapshot};
use longhaul::store::Filter;
use longhaul::task::{Head, Waiting};
use serde::Serialize;

use super::Desk;
use crate::args::ShowArgs;
use crate::exit::{Code, Trouble};
use crate::place::Place;
use crate::view::{
    Detail, Ink, Teller, Term, ago, clean, count, elapsed, many, moment, one_line, standing, waits_for,
};

/// How many of the last events are shown.
const LAST: usize = 8;

/// A task as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    head: &'a Head,
    order: &'a Order,
    children: &'a [Head],
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

pub(super) async fn run(desk: &Desk, args: &ShowArgs) -> Result<Code, Trouble> {
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let task = longhaul.snapshot(id).await?;
    let children = longhaul.snapshots(Filter::children(id)).await?;
    let term = desk.term;
    if args.json {
        let Snapshot { head, order, output, outcome, questions, events, dropped, .. } = &task;
        let questions =
            questions.iter().map(|(question, asks)| Asking { question: *question, asks }).collect();
        let events = events.iter().collect();
        let (children, dropped) = (&children[..], *dropped);
        term.json(&Shown { head, order, children, outcome, questions, output, events, dropped })?;
        return Ok(Code::Fine);
    }
    let now = Timestamp::now();
    let mut page = Page { term, place: desk.place()?, lines: Vec::new() };
    page.head(&task, now);
    page.order(&task.order);
    page.kin(&task.head, &children);
    page.events(&task);
    page.output(&task);
    page.lines.iter().try_for_each(|line| term.line(line))?;
    Ok(Code::Fine)
}

struct Page {
    term: Term,
    place: Place,
    lines: Vec<String>,
}

impl Page {
    fn field(&mut self, name: &str, value: &str) {
        let line = self.term.wrapped(&format!("{name:<10}  {value}"));
        let (name, rest) = line.split_at_checked(10).unwrap_or(("", &line));
        self.lines.push(format!("{}{rest}", self.term.paint(Ink::Faint, name)));
    }

    fn title(&mut self, name: &str) {
        self.lines.push(String::new());
        self.lines.push(self.term.paint(Ink::Strong, name));
    }

    fn head(&mut self, task: &Snapshot, now: Timestamp) {
        let head = &task.head;
        let (sign, word, ink) = standing(head);
        let state = self.term.paint(ink, &format!("{sign} {word}"));
        let id = self.term.paint(Ink::Id, &head.id.to_string());
        self.lines
            .push(format!("{id}  {state}  {}", self.term.paint(Ink::Strong, &one_line(&head.headline))));
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
            self.field("asks", &clean(&question.text));
            let named = (task.questions.len() > 1).then_some(*name);
            self.field("answer", &self.place.answer(head.id, named, &question.wants));
            if let Some(until) = head.asked.iter().find(|asked| asked.question == *name).and_then(|a| a.until)
            {
                self.field("until", &moment(until));
            }
        }
        let asks = |waiting: &Waiting| matches!(waiting.on, Wait::Person(_));
        if let Some(waiting) = head.waiting.as_ref().filter(|waiting| !asks(waiting)) {
            self.field(
                "waits for",
                &format!("{}, {}", waits_for(&waiting.on), ago(waiting.since, now).replace(" ago", "")),
            );
        }
        if let Some(stop) = head.stop.as_ref().filter(|_| !head.status.is_final()) {
            self.field("to stop", &stop.cause.to_string());
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
        self.field(
            "agent",
            &format!("{} of {}", one_line(head.agent.as_str()), clean(&head.team.to_string())),
        );
        self.field("created", &format!("{} ({})", moment(head.created), ago(head.created, now)));
        if head.started.is_some() {
            let again =
                if head.attempt.0 > 1 { format!(", claimed {} times", head.attempt) } else { String::new() };
            self.field("elapsed", &format!("{}{again}", elapsed(head.elapsed(now))));
        }
        let usage = format!(
            "{}, {}, {} tokens ({} in, {} out){}",
            many(head.turns as usize, "turn"),
            many(head.calls as usize, "tool call"),
            count(head.usage.total()),
            count(head.usage.input),
            count(head.usage.output),
            cost(head),
        );
        self.field("used", &usage);
    }

    fn order(&mut self, order: &Order) {
        if let Some(directory) = &order.working_dir {
            self.field("directory", &clean(&directory.display().to_string()));
        }
        if let Some(model) = &order.model {
            self.field("model", &one_line(model));
        }
        self.title("Order");
        self.lines.push(self.term.wrapped(clean(&order.task).trim_end()));
        if let Some(expected) = &order.expected_output {
            self.lines.push(self.term.wrapped(&format!("Expected: {}", clean(expected))));
        }
    }

    fn kin(&mut self, head: &Head, children: &[Head]) {
        let links = [
            ("parent", head.parent),
            ("continues", head.continues),
            ("continued by", head.continued_by),
            ("root", Some(head.root).filter(|root| *root != head.id && Some(*root) != head.parent)),
        ];
        if children.is_empty() && links.iter().all(|(_, id)| id.is_none()) {
            return;
        }
        self.title("Kin");
        for (name, id) in links {
            if let Some(id) = id {
                self.lines.push(format!("{name:<12}  {}", self.term.paint(Ink::Id, &id.to_string())));
            }
        }
        for child in children {
            let (sign, word, ink) = standing(child);
            let state = self.term.paint(ink, &format!("{sign} {word:<9}"));
            let id = self.term.paint(Ink::Id, &child.id.to_string());
            let (agent, headline) = (one_line(child.agent.as_str()), one_line(&child.headline));
            self.lines.push(format!("{:<12}  {id}  {state}  {agent}: {headline}", "child"));
        }
    }

    fn events(&mut self, task: &Snapshot) {
        let mut teller = Teller::new(self.term, Detail::Own);
        let told: Vec<String> = task.events.iter().flat_map(|event| teller.tell(event)).collect();
        let all = task.dropped + told.len() as u64;
        let last = &told[told.len().saturating_sub(LAST)..];
        match all > last.len() as u64 {
            true => self.title(&format!("Last events (all: longhaul logs {})", task.head.id)),
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

/// What it cost, as far as that is known.
fn cost(head: &Head) -> String {
    match (head.cost, head.unpriced) {
        (0, _) => String::new(),
        (cost, 0) => format!(", ${:.4}", cost as f64 / 1e6),
        (cost, unpriced) => format!(", ${:.4} and {unpriced} replies of unknown price", cost as f64 / 1e6),
    }
}
