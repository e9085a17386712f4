//! `longhaul show`.

use jiff::Timestamp;
use longhaul::entry::{Order, Outcome, Question, WaitReason};
use longhaul::id::QuestionId;
use longhaul::journal::descendants;
use longhaul::message::Usage;
use longhaul::snapshot::{Event, Snapshot};
use longhaul::store::TaskFilter;
use longhaul::task::{TaskState, WaitState};
use longhaul::transcript::{Standing, describe_question};
use longhaul::{Longhaul, Status, TaskId};
use serde::Serialize;

use super::CliContext;
use crate::args::ShowArgs;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::team;
use crate::view::{
    self, EventDetail, EventFormatter, Ink, TaskLayout, TerminalOutput, describe_wait, format_ago,
    format_count, format_dollars, format_timestamp, one_line, pluralize, sanitize, status_label, time_of,
    truncate,
};

/// How many of the last events to show.
const LAST: usize = 8;
/// The width of a field name, including the gap after it.
const FIELD: usize = 12;

/// A task as JSON.
#[derive(Serialize)]
struct ShownTask<'a> {
    #[serde(rename = "head")]
    state: &'a TaskState,
    order: &'a Order,
    children: Vec<&'a TaskState>,
    /// The usage of the task and everything below it.
    tree: UsageTotals,
    /// The tasks that retry it.
    retried_as: &'a [TaskId],
    outcome: &'a Option<Outcome>,
    /// Its open questions, in full.
    questions: Vec<ShownQuestion<'a>>,
    output: &'a str,
    events: Vec<&'a Event>,
    /// How many earlier events are left out.
    dropped: u64,
}

/// A question as JSON.
#[derive(Serialize)]
struct ShownQuestion<'a> {
    question: QuestionId,
    #[serde(flatten)]
    asks: &'a Question,
}

/// The usage of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct UsageTotals {
    tasks: usize,
    turns: u64,
    calls: u64,
    usage: Usage,
    /// In millionths of a dollar, as far as known.
    cost: u64,
    /// Replies with unknown price.
    unpriced: u64,
}

impl UsageTotals {
    fn sum_of<'a>(states: impl IntoIterator<Item = &'a TaskState>) -> UsageTotals {
        states.into_iter().fold(UsageTotals::default(), |mut sum, state| {
            sum.tasks += 1;
            sum.turns += u64::from(state.turns);
            sum.calls += u64::from(state.calls);
            sum.usage += state.usage;
            sum.cost = sum.cost.saturating_add(state.cost);
            sum.unpriced += u64::from(state.unpriced);
            sum
        })
    }

    /// Returns the cost, and says if some of it is unknown.
    fn cost_text(&self) -> Option<String> {
        match (self.cost, self.unpriced) {
            _ if self.turns == 0 => None,
            (0, 0) => Some("$0".to_owned()),
            (0, _) => Some("price unknown".to_owned()),
            (cost, 0) => Some(format_dollars(cost)),
            (cost, 1) => Some(format!("{} and 1 reply of unknown price", format_dollars(cost))),
            (cost, more) => Some(format!("{} and {more} replies of unknown price", format_dollars(cost))),
        }
    }

    fn to_text(self) -> String {
        let tokens = format_count(self.usage.total());
        let (input, output) = (format_count(self.usage.input), format_count(self.usage.output));
        let turns = pluralize(usize::try_from(self.turns).unwrap_or(usize::MAX), "turn");
        let calls = pluralize(usize::try_from(self.calls).unwrap_or(usize::MAX), "tool call");
        let cost = self.cost_text().map(|cost| format!(", {cost}")).unwrap_or_default();
        format!("{turns}, {calls}, {tokens} tokens ({input} in, {output} out){cost}")
    }
}

pub(super) async fn run(context: &CliContext, args: &ShowArgs) -> Result<CliExitCode, CliError> {
    let longhaul = context.client().await?;
    let id = longhaul.find(&args.id).await?;
    // People see the last events; programs also get the number of earlier ones.
    let task = if args.json { longhaul.snapshot(id).await? } else { longhaul.recent_snapshot(id).await? };
    let tree = longhaul.list(TaskFilter::tree(task.state.root)).await?;
    let below: Vec<&TaskState> = descendants(&tree, &[id]).collect();
    let again = TaskFilter::default().retries(Some(id));
    let retried = longhaul.store().ids(again).await?;
    let spent = UsageTotals::sum_of(below.iter().copied().chain([&task.state]));
    let term = context.term;
    if args.json {
        let Snapshot { state, order, output, outcome, questions, events, dropped, .. } = &task;
        let questions =
            questions.iter().map(|(question, asks)| ShownQuestion { question: *question, asks }).collect();
        let children = below.iter().copied().filter(|state| state.parent == Some(id)).collect();
        term.print_json(&ShownTask {
            state,
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
        let mut page =
            ShowPage { term, data_dir: context.data_dir()?, now: Timestamp::now(), lines: Vec::new() };
        let team = team::name(&**longhaul.store(), &task.state.team).await;
        page.status_fields(&task, &team);
        let waits = task.state.status == Status::Pending;
        if waits && let Some(host) = team::awaited_host(&**longhaul.store(), &task.state.team).await {
            page.field("waits for", &format!("the machine '{}', which has its directory", one_line(&host)));
        }
        if let Some(since) = silent_since(&longhaul, &task.state).await? {
            let (resume, since) =
                (page.data_dir.resume_command(task.state.root), format_ago(since, page.now));
            page.field(
                "process",
                &format!("has not renewed its lease, which ended {since}; to take over: {resume}"),
            );
        }
        page.links(&task.state, &retried);
        page.used(&task.state, &spent);
        page.order(&task.order);
        page.children(&below);
        page.events(&task);
        page.output(&task);
        term.print_lines(&page.lines)?;
    }
    super::mark_read(&longhaul, id).await;
    Ok(CliExitCode::Success)
}

/// Returns when the lease of the process that runs a task expired, by the wall clock: the process is stopped,
/// or its clock is wrong. This is only displayed; a process that wants to take over must watch the lease.
async fn silent_since(longhaul: &Longhaul, state: &TaskState) -> Result<Option<Timestamp>, CliError> {
    let Some(worker) = state.worker.clone().filter(|_| state.status == Status::Running) else {
        return Ok(None);
    };
    let lease = longhaul.store().lease(worker).await?;
    Ok(lease.map(|lease| lease.until).filter(|until| *until < Timestamp::now()))
}

struct ShowPage {
    term: TerminalOutput,
    data_dir: DataDir,
    now: Timestamp,
    lines: Vec<String>,
}

impl ShowPage {
    /// Adds a field. A long value continues below itself.
    fn field(&mut self, name: &str, value: &str) {
        let value = self.term.wrap_within(value, FIELD);
        for (index, line) in value.lines().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.lines.push(format!("{}  {line}", self.term.paint(Ink::Faint, &format!("{name:<10}"))));
        }
    }

    fn title(&mut self, name: &str) {
        self.lines.push(String::new());
        self.lines.push(self.term.paint(Ink::Strong, name));
    }

    fn status_fields(&mut self, task: &Snapshot, team: &str) {
        let state = &task.state;
        let (sign, word, ink) = status_label(state);
        let room =
            self.term.size().0.saturating_sub(view::display_width(&format!("{}  {sign} {word}  ", state.id)));
        let status = self.term.paint(ink, &format!("{sign} {word}"));
        let id = self.term.paint(Ink::Id, &state.id.to_string());
        let headline = self.term.paint(Ink::Strong, &truncate(&one_line(&state.headline), room));
        self.lines.push(format!("{id}  {status}  {headline}").trim_end().to_owned());
        if let Some(error) = &state.error {
            self.field("why", &one_line(error));
        }
        if let (None, Some(stop), true) = (&state.error, &state.stop, state.status.is_final()) {
            self.field("why", &stop.cause.to_string());
        }
        if let Some(limit) = &state.cut_short {
            self.field("cut short", &format!("by {}", one_line(limit)));
        }
        for (name, question) in &task.questions {
            // In full: the user has to approve it.
            self.field("asks", &describe_question(question));
            let named = (task.questions.len() > 1).then_some(*name);
            self.field("answer", &self.data_dir.answer_command(state.id, named, &question.wants));
            if let Some(until) =
                state.asked.iter().find(|asked| asked.question == *name).and_then(|a| a.until)
            {
                self.field("until", &format_timestamp(until));
            }
        }
        let asks = |waiting: &WaitState| matches!(waiting.on, WaitReason::Person(_));
        if let Some(waiting) = state.waiting.as_ref().filter(|waiting| !asks(waiting)) {
            let since = format_ago(waiting.since, self.now).replace(" ago", "");
            self.field("waits for", &format!("{}, {since}", describe_wait(&waiting.on)));
        }
        if let Some(stop) = state.stop.as_ref().filter(|_| !state.status.is_final()) {
            self.field("to stop", &stop.cause.to_string());
        }
        if Standing::of(state) == Standing::Interrupted {
            self.field("resume", &self.data_dir.resume_command(state.root));
        }
        if !state.calling.is_empty() {
            let tools: Vec<String> = state.calling.iter().map(|(_, tool)| one_line(tool)).collect();
            self.field("calling", &tools.join(", "));
        }
        if let Some(progress) = &state.progress {
            self.field("progress", &one_line(progress));
        }
        if state.unread > 0 {
            self.field("unread", &pluralize(state.unread as usize, "letter"));
        }
        let agent = format!("{} of {}", one_line(state.agent.as_str()), sanitize(team));
        self.field("agent", &agent);
        let mut created =
            format!("{} ({})", format_timestamp(state.created), format_ago(state.created, self.now));
        if view::display_width(&created) + FIELD > self.term.size().0 {
            created = format_timestamp(state.created);
        }
        self.field("created", &created);
        if state.started.is_some() {
            let again = if state.attempt.0 > 1 {
                format!(", claimed {} times", state.attempt)
            } else {
                String::new()
            };
            self.field("elapsed", &format!("{}{again}", time_of(state, self.now)));
        }
        if let Some(directory) = &task.order.working_dir {
            self.field("directory", &sanitize(&directory.display().to_string()));
        }
        if let Some(model) = &task.order.model {
            self.field("model", &one_line(model));
        }
    }

    fn links(&mut self, state: &TaskState, retried: &[TaskId]) {
        let links = [
            ("parent", state.parent),
            ("root", Some(state.root).filter(|root| *root != state.id && Some(*root) != state.parent)),
            ("continues", state.continues),
            ("went on as", state.continued_by),
            ("retries", state.retries),
        ];
        let retried = retried.iter().map(|id| ("retried as", Some(*id)));
        for (name, id) in links.into_iter().chain(retried) {
            if let Some(id) = id {
                let id = self.term.paint(Ink::Id, &id.to_string());
                self.lines.push(format!("{}  {id}", self.term.paint(Ink::Faint, &format!("{name:<10}"))));
            }
        }
    }

    fn used(&mut self, state: &TaskState, tree: &UsageTotals) {
        self.field("used", &UsageTotals::sum_of([state]).to_text());
        if tree.tasks > 1 {
            self.field("in all", &format!("{} tasks, {}", tree.tasks, tree.to_text()));
        }
    }

    fn order(&mut self, order: &Order) {
        self.title("Order");
        self.lines.push(self.term.wrap(sanitize(&order.task).trim_end()));
        if let Some(expected) = &order.expected_output {
            self.lines.push(self.term.wrap(&format!("Expected: {}", sanitize(expected))));
        }
    }

    fn children(&mut self, below: &[&TaskState]) {
        if below.is_empty() {
            return;
        }
        self.title("Children");
        let states: Vec<TaskState> = below.iter().copied().cloned().collect();
        self.lines.extend(view::task_table(&states, self.term, self.now, TaskLayout::Tree));
    }

    fn events(&mut self, task: &Snapshot) {
        let mut formatter = EventFormatter::new(self.term, EventDetail::OneTask);
        let lines: Vec<String> = task.events.iter().flat_map(|event| formatter.format_event(event)).collect();
        let all = task.dropped + lines.len() as u64;
        let last = &lines[lines.len().saturating_sub(LAST)..];
        match all > last.len() as u64 {
            true => {
                let logs = format!("logs {}", task.state.id);
                let title = format!("Last events (all: {})", self.data_dir.shell_command(&logs));
                let short = format!("Last events (all: {logs})");
                self.title(if view::display_width(&title) > self.term.size().0 { &short } else { &title });
            }
            false => self.title("Events"),
        }
        self.lines.extend_from_slice(last);
    }

    fn output(&mut self, task: &Snapshot) {
        let output = sanitize(&task.output);
        if output.trim().is_empty() {
            return;
        }
        self.title(if task.state.status.is_final() { "Output" } else { "Output so far" });
        self.lines.push(self.term.wrap(output.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_that_is_not_known_is_said_to_be_unknown() {
        let spent =
            |cost, unpriced| UsageTotals { turns: 3, cost, unpriced, ..UsageTotals::default() }.cost_text();
        assert_eq!(UsageTotals::default().cost_text(), None);
        assert_eq!(spent(0, 3).as_deref(), Some("price unknown"));
        assert_eq!(spent(0, 0).as_deref(), Some("$0"));
        assert_eq!(spent(12_000, 0).as_deref(), Some("$0.0120"));
        assert_eq!(spent(12_000, 1).as_deref(), Some("$0.0120 and 1 reply of unknown price"));
        assert_eq!(spent(12_000, 2).as_deref(), Some("$0.0120 and 2 replies of unknown price"));
    }
}
