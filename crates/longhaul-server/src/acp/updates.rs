//! Events of a tree of tasks as updates of an ACP session: pure.
//!
//! The root's words are the agent's words, its calls are tool calls, and each task below it is a tool-call card
//! that shows what the task does now and how it ended. A client that knows sub-agents gets a session for each task
//! instead: with all that the task says and does, and its letters as messages between sessions.

use std::collections::{HashMap, HashSet};

use longhaul::entry::{ExpectedAnswer, Question, QuestionAnswer, Sender};
use longhaul::id::{CallId, QuestionId};
use longhaul::{Event, EventKind, Status, TaskId};
use serde_json::{Value, json};

/// How much of an output a card shows, in bytes.
const SHOWN: usize = 8000;
/// How long a title is, in characters.
const TITLE: usize = 120;
/// How many bytes of new text change the line of a card.
const LINE: usize = 200;

/// Something that a person has to decide.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EditorQuestion {
    pub(super) task: TaskId,
    pub(super) question: QuestionId,
    pub(super) asks: Question,
}

/// What an event means for the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClientEffect {
    /// News about a session.
    Update(String, Value),
    Ask(Box<EditorQuestion>),
    /// The root has ended.
    Ended {
        status: Status,
        error: Option<String>,
    },
}

/// What was told about a tree so far.
#[derive(Debug)]
pub(super) struct SessionUpdates {
    session: String,
    root: TaskId,
    /// Whether letters of people are told: when a session is loaded.
    replays: bool,
    /// Whether tasks are sessions of their own.
    subagents: bool,
    cards: HashMap<TaskId, Card>,
    /// The tasks that were told as sessions.
    announced: HashSet<TaskId>,
    /// The sessions above them.
    above: HashMap<TaskId, String>,
}

#[derive(Debug, Default)]
struct Card {
    text: String,
    shown: usize,
}

impl SessionUpdates {
    pub(super) fn new(session: &str, root: TaskId, replays: bool, subagents: bool) -> SessionUpdates {
        let session = session.to_owned();
        SessionUpdates {
            session,
            root,
            replays,
            subagents,
            cards: HashMap::new(),
            announced: HashSet::new(),
            above: HashMap::new(),
        }
    }

    /// The session of a task.
    fn session_of(&self, task: TaskId) -> String {
        match self.announced.contains(&task) {
            true => task.to_string(),
            false => self.session.clone(),
        }
    }

    /// The effects of the next event.
    pub(super) fn take(&mut self, event: &Event) -> Vec<ClientEffect> {
        let mut effects = match &event.kind {
            EventKind::Asked { question, asks, .. } => {
                let asks = EditorQuestion { task: event.task, question: *question, asks: (**asks).clone() };
                return vec![ClientEffect::Ask(Box::new(asks))];
            }
            EventKind::Answered { answer: QuestionAnswer::Nobody(why), .. } => {
                let update = thought(&format!("Nobody answered: {why}\n"));
                return vec![ClientEffect::Update(self.session.clone(), update)];
            }
            _ => Vec::new(),
        };
        if self.subagents {
            effects.extend(self.message_between(event));
        }
        if event.task == self.root {
            let session = self.session.clone();
            effects.extend(
                self.own(event).into_iter().map(|update| ClientEffect::Update(session.clone(), update)),
            );
        } else if self.subagents {
            effects.extend(self.subagent(event));
        } else {
            let session = self.session.clone();
            effects.extend(
                self.below(event).into_iter().map(|update| ClientEffect::Update(session.clone(), update)),
            );
        }
        if event.task == self.root
            && let EventKind::Finished { status, error, .. } = &event.kind
        {
            let session = self.session.clone();
            effects.extend(end_note(&event.kind).map(|note| ClientEffect::Update(session, message(&note))));
            effects.push(ClientEffect::Ended { status: *status, error: error.clone() });
        }
        effects
    }

    /// A letter from one task to another, in the session of its reader.
    fn message_between(&self, event: &Event) -> Option<ClientEffect> {
        let EventKind::Letter { from: Sender::Task(sender), text, .. } = &event.kind else { return None };
        let to = self.session_of(event.task);
        let update = session_message(event, &self.session_of(*sender), &to, text);
        Some(ClientEffect::Update(to, update))
    }

    /// The news of a task that is a session of its own.
    fn subagent(&mut self, event: &Event) -> Vec<ClientEffect> {
        let id = event.task.to_string();
        let state = |above: String, state: Value| {
            let update = json!({ "sessionUpdate": "subagent_update", "sessionId": id, "state": state });
            ClientEffect::Update(above, update)
        };
        match &event.kind {
            EventKind::Submitted { agent, headline, parent, .. } => {
                let above = parent.map_or_else(|| self.session.clone(), |parent| self.session_of(parent));
                self.announced.insert(event.task);
                self.above.insert(event.task, above.clone());
                let update = json!({
                    "sessionUpdate": "subagent_update",
                    "sessionId": id,
                    "title": shorten(&format!("{agent} · {headline}")),
                    "description": headline,
                    "state": { "state": "idle" },
                });
                let order = session_message(event, &above, &id, headline);
                vec![ClientEffect::Update(above, update), ClientEffect::Update(id.clone(), order)]
            }
            _ if !self.announced.contains(&event.task) => Vec::new(),
            EventKind::Started { .. } => vec![state(self.above(event.task), json!({ "state": "running" }))],
            EventKind::Finished { status, .. } => {
                let reason = match status {
                    Status::Cancelled => "cancelled",
                    _ => "end_turn",
                };
                let note = end_note(&event.kind);
                let note = note.map(|note| ClientEffect::Update(id.clone(), message(&note)));
                let end = state(self.above(event.task), json!({ "state": "idle", "stopReason": reason }));
                note.into_iter().chain([end]).collect()
            }
            _ => {
                let updates = self.own(event).into_iter();
                updates.map(|update| ClientEffect::Update(id.clone(), update)).collect()
            }
        }
    }

    /// The session of the task above.
    fn above(&self, task: TaskId) -> String {
        self.above.get(&task).cloned().unwrap_or_else(|| self.session.clone())
    }

    fn own(&self, event: &Event) -> Vec<Value> {
        match &event.kind {
            EventKind::Text { text } => vec![message(text)],
            EventKind::Reasoning { text } => vec![thought(text)],
            EventKind::Letter { from: Sender::Person, text, .. } if self.replays => vec![user_message(text)],
            EventKind::Call { call, tool, arguments } => vec![json!({
                "sessionUpdate": "tool_call",
                "toolCallId": call_id(event.task, *call),
                "title": title(tool, arguments),
                "kind": kind(tool),
                "status": "in_progress",
                "rawInput": raw_input(arguments),
            })],
            EventKind::Result { call, output, is_error, .. } => vec![json!({
                "sessionUpdate": "tool_call_update",
                "toolCallId": call_id(event.task, *call),
                "status": if *is_error { "failed" } else { "completed" },
                "content": content(output),
            })],
            EventKind::Warned { text } => vec![thought(&format!("Note: {text}\n"))],
            _ => Vec::new(),
        }
    }

    fn below(&mut self, event: &Event) -> Vec<Value> {
        let id = event.task.to_string();
        let shown = |text: &str| json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "content": content(text) });
        match &event.kind {
            EventKind::Submitted { agent, headline, .. } => {
                self.cards.insert(event.task, Card::default());
                let title = format!("{agent} · {headline}");
                vec![json!({
                    "sessionUpdate": "tool_call",
                    "toolCallId": id,
                    "title": shorten(&title),
                    "kind": "think",
                    "status": "pending",
                })]
            }
            EventKind::Started { .. } => {
                vec![
                    json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress" }),
                ]
            }
            EventKind::Text { text } => {
                let card = self.cards.entry(event.task).or_default();
                card.text.push_str(text);
                if card.text.len() < card.shown + LINE && !text.contains('\n') {
                    return Vec::new();
                }
                card.shown = card.text.len();
                let line = last_line(&card.text).to_owned();
                vec![shown(&line)]
            }
            EventKind::Call { tool, arguments, .. } => vec![shown(&title(tool, arguments))],
            EventKind::Progress { text } => vec![shown(text)],
            EventKind::Finished { status, output, error, cut_short } => {
                self.cards.remove(&event.task);
                let text = match (error, cut_short) {
                    (Some(error), _) if output.trim().is_empty() => error.clone(),
                    (Some(error), _) => format!("{error}\n\n{output}"),
                    // First: a long answer is cut at its end.
                    (None, Some(limit)) => format!("{}\n\n{output}", cut_short_note(limit)),
                    (None, None) => output.to_string(),
                };
                vec![json!({
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": id,
                    "status": if *status == Status::Completed { "completed" } else { "failed" },
                    "content": content(&text),
                })]
            }
            _ => Vec::new(),
        }
    }
}

/// A message from one session to another.
fn session_message(event: &Event, from: &str, to: &str, text: &str) -> Value {
    json!({
        "sessionUpdate": "session_message",
        "messageId": format!("{}/{}", event.task, event.seq.0),
        "senderSessionId": from,
        "recipientSessionId": to,
        "content": [{ "type": "text", "text": text }],
    })
}

fn call_id(task: TaskId, call: CallId) -> String {
    format!("{task}/{call}")
}

pub(super) fn message(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

pub(super) fn thought(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": text } })
}

pub(super) fn user_message(text: &str) -> Value {
    json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": text } })
}

/// What is added to a session whose task has failed, or whose answer was cut short.
fn end_note(end: &EventKind) -> Option<String> {
    match end {
        EventKind::Finished { status: Status::Failed, error: Some(error), .. } => {
            Some(format!("\n\nThe task failed: {error}"))
        }
        EventKind::Finished { cut_short: Some(limit), .. } => Some(format!("\n\n{}", cut_short_note(limit))),
        _ => None,
    }
}

fn cut_short_note(limit: &str) -> String {
    format!("[The answer was cut short by {limit}.]")
}

fn content(text: &str) -> Value {
    let cut = &text[..text.floor_char_boundary(SHOWN)];
    let text = if cut.len() < text.len() { format!("{cut}\n[…]") } else { cut.to_owned() };
    json!([{ "type": "content", "content": { "type": "text", "text": text } }])
}

fn raw_input(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| json!({ "input": arguments }))
}

fn title(tool: &str, arguments: &str) -> String {
    let first = match raw_input(arguments) {
        Value::Object(fields) => ["cmd", "command", "path", "task", "url", "title", "query"]
            .iter()
            .find_map(|key| fields.get(*key).and_then(Value::as_str).map(str::to_owned)),
        _ => None,
    };
    shorten(&match first {
        Some(first) => format!("{tool}: {first}"),
        None => tool.to_owned(),
    })
}

fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TITLE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn last_line(text: &str) -> &str {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
}

fn kind(tool: &str) -> &'static str {
    match tool {
        "shell" | "run_background_job" | "execute" => "execute",
        "read_file" | "read_multiple_files" | "list_directory" | "directory_tree" | "read" => "read",
        "write_file" | "edit_file" | "create_directory" | "edit" => "edit",
        "remove_directory" | "delete" => "delete",
        "search_files_content" | "search" => "search",
        "fetch" => "fetch",
        "think" => "think",
        _ => "other",
    }
}

/// The request for a permission.
pub(super) fn permission_request(session: &str, asked: &EditorQuestion) -> Option<Value> {
    let ExpectedAnswer::Leave { tool, arguments, .. } = &asked.asks.wants else { return None };
    let option = |id: &str, name: &str, kind: &str| json!({ "optionId": id, "name": name, "kind": kind });
    Some(json!({
        "sessionId": session,
        "toolCall": {
            "toolCallId": call_id(asked.task, asked.question.call),
            "title": title(tool, arguments),
            "kind": kind(tool),
            "status": "pending",
            "rawInput": raw_input(arguments),
            "content": content(&asked.asks.text),
        },
        "options": [
            option("yes", "Allow once", "allow_once"),
            option("always", "Always allow exactly this", "allow_always"),
            option("no", "Deny", "reject_once"),
        ],
    }))
}

/// The answer in the outcome of a request for a permission; `None` if there is none.
pub(super) fn permission_answer(result: &Value) -> Option<&'static str> {
    let outcome = result.get("outcome")?;
    if outcome.get("outcome")?.as_str()? != "selected" {
        return None;
    }
    let selected = outcome.get("optionId").and_then(Value::as_str);
    ["yes", "always", "no"].into_iter().find(|answer| selected == Some(*answer))
}

/// The text of a prompt.
pub(super) fn prompt_text(params: &Value) -> String {
    let blocks = params.get("prompt").and_then(Value::as_array).into_iter().flatten();
    let text = |block: &Value| {
        let at = |key: &str| block.get(key).and_then(Value::as_str).map(str::to_owned);
        match block.get("type").and_then(Value::as_str)? {
            "text" => at("text"),
            "resource_link" => at("uri"),
            "resource" => {
                let resource = block.get("resource")?;
                let uri = resource.get("uri").and_then(Value::as_str).unwrap_or_default();
                let text = resource.get("text").and_then(Value::as_str)?;
                Some(format!("<file path=\"{uri}\">\n{text}\n</file>"))
            }
            other => Some(format!("[{other} that cannot be shown]")),
        }
    };
    blocks.filter_map(text).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use longhaul::id::{AgentName, Seq};

    use super::*;

    fn event(task: &str, kind: EventKind) -> Event {
        Event::new(task.parse().unwrap(), Seq(1), jiff::Timestamp::UNIX_EPOCH, kind)
    }

    #[test]
    fn the_root_speaks_and_each_task_below_it_is_a_card() {
        let mut updates = SessionUpdates::new("s", "t-00001".parse().unwrap(), false, false);
        let said = updates.take(&event("t-00001", EventKind::Text { text: "Hello".to_owned() }));
        assert_eq!(said, [ClientEffect::Update("s".to_owned(), message("Hello"))]);
        let submitted = EventKind::Submitted {
            agent: AgentName::from("researcher"),
            headline: "Go".to_owned(),
            parent: None,
            continues: None,
        };
        updates.take(&event("t-00003", submitted.clone()));
        let card = updates.take(&event("t-00002", submitted));
        let [ClientEffect::Update(_, card)] = &card[..] else { panic!("{card:?}") };
        assert_eq!((&card["title"], &card["toolCallId"]), (&json!("researcher · Go"), &json!("t-00002")));
        let silent = updates.take(&event("t-00002", EventKind::Text { text: "a word".to_owned() }));
        assert_eq!(silent, [], "not every word of a child is told");
        let end = EventKind::Finished {
            status: Status::Failed,
            output: "".into(),
            error: Some("it broke".to_owned()),
            cut_short: None,
        };
        let end = updates.take(&event("t-00002", end));
        let [ClientEffect::Update(_, end)] = &end[..] else { panic!("{end:?}") };
        assert_eq!((&end["status"], end.to_string().contains("it broke")), (&json!("failed"), true));
        let end = EventKind::Finished {
            status: Status::Completed,
            output: "42".into(),
            error: None,
            cut_short: Some("the limit of 8 turns".to_owned()),
        };
        let end = updates.take(&event("t-00003", end));
        let [ClientEffect::Update(_, end)] = &end[..] else { panic!("{end:?}") };
        let said = end.to_string();
        assert!(said.contains("42") && said.contains("cut short by the limit of 8 turns"), "{said}");
    }

    #[test]
    fn for_a_client_that_knows_sub_agents_each_task_is_a_session() {
        let mut updates = SessionUpdates::new("s", "t-00001".parse().unwrap(), false, true);
        let mut take = |task: &str, kind| -> Vec<(String, Value)> {
            let effects = updates.take(&event(task, kind)).into_iter();
            effects
                .map(|effect| match effect {
                    ClientEffect::Update(of, update) => (of, update),
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        let submitted = |parent: &str| EventKind::Submitted {
            agent: AgentName::from("researcher"),
            headline: "Go".to_owned(),
            parent: Some(parent.parse().unwrap()),
            continues: None,
        };
        let new = take("t-00002", submitted("t-00001"));
        assert_eq!((new[0].0.as_str(), &new[0].1["sessionId"]), ("s", &json!("t-00002")));
        assert_eq!((new[1].0.as_str(), &new[1].1["sessionUpdate"]), ("t-00002", &json!("session_message")));
        assert_eq!(
            (&new[1].1["senderSessionId"], &new[1].1["recipientSessionId"]),
            (&json!("s"), &json!("t-00002"))
        );
        let below = take("t-00003", submitted("t-00002"));
        assert_eq!(below[0].0, "t-00002", "told on the session right above");
        assert_eq!(
            take("t-00003", EventKind::Text { text: "Hm".to_owned() }),
            [("t-00003".to_owned(), message("Hm"))]
        );
        let letter = EventKind::Letter {
            letter: longhaul::id::LetterId::from("l"),
            from: Sender::Task("t-00002".parse().unwrap()),
            text: "Done.".into(),
            ended: None,
        };
        let told = take("t-00001", letter);
        assert_eq!((told[0].0.as_str(), &told[0].1["senderSessionId"]), ("s", &json!("t-00002")));
        let end = EventKind::Finished {
            status: Status::Completed,
            output: "Go".into(),
            error: None,
            cut_short: None,
        };
        let end = take("t-00002", end);
        assert_eq!((end[0].0.as_str(), &end[0].1["state"]["state"]), ("s", &json!("idle")));
    }

    #[test]
    fn an_answer_is_what_was_selected() {
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert_eq!(permission_answer(&selected("always")), Some("always"));
        assert_eq!(permission_answer(&selected("something else")), None);
        assert_eq!(permission_answer(&json!({ "outcome": { "outcome": "cancelled" } })), None);
    }

    #[test]
    fn a_prompt_is_all_of_its_blocks() {
        let prompt = json!({ "prompt": [
            { "type": "text", "text": "Look at" },
            { "type": "resource_link", "uri": "file:///a.rs", "name": "a.rs" },
            { "type": "resource", "resource": { "uri": "file:///b.rs", "text": "fn b() {}" } },
        ] });
        assert_eq!(
            prompt_text(&prompt),
            "Look at\n\nfile:///a.rs\n\n<file path=\"file:///b.rs\">\nfn b() {}\n</file>"
        );
    }
}
