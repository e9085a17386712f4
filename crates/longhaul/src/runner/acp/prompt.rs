//! Decides what is sent to a session: the next messages, or what an agent needs to go on after a crash. Pure
//! text work.

use crate::conversation::truncate_middle;
use crate::entry::{Entry, LiveTextKind, Record};
use crate::message::Message;

/// How many bytes of what was done before a new session is told.
const TRANSCRIPT: usize = 96 * 1024;
/// How many bytes of one result it is told.
const RESULT: usize = 2000;

/// The result of a call that was open when its process died.
pub(super) const INTERRUPTED: &str =
    "This call was interrupted: the agent's process ended while it ran. It may have happened.";

const GO_ON: &str = "You were interrupted: the program that runs you was stopped in the middle of your last \
                     turn. Continue the task where you stopped. A call that was running may have happened: check \
                     before you repeat it. Do not start over.";
const UNSURE: &str = "You were interrupted: the program that runs you was stopped, and it is not known whether \
                      the message below reached you. If it did, continue where you stopped; a call that was \
                      running may have happened, so check before you repeat it. If it did not, here it is:";
const LOST: &str = "You have worked on this before, in a session that is lost. This is what was said and done in \
                    it. A call that was interrupted may have happened: check before you repeat it. Continue where \
                    it stopped. Do not start over.";

/// What the session is about to be told, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptKind {
    /// The first prompt of a session.
    First,
    /// The next one.
    Next,
    /// The last prompt arrived, and its turn was cut.
    Continue,
    /// The last prompt did not arrive.
    Again,
    /// It is unknown whether the last prompt arrived.
    Unsure,
    /// The session is new, and the task is not.
    Restart,
}

/// What is known about the arrival of the last prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Arrived,
    Missing,
    Unknown,
}

/// Chooses what to send. `outstanding` is a last prompt without a reply.
pub(super) fn choose(has_prompts: bool, lacks_history: bool, outstanding: Option<Arrival>) -> PromptKind {
    match outstanding {
        _ if lacks_history => PromptKind::Restart,
        _ if !has_prompts => PromptKind::First,
        None => PromptKind::Next,
        Some(Arrival::Arrived) => PromptKind::Continue,
        Some(Arrival::Missing) => PromptKind::Again,
        Some(Arrival::Unknown) => PromptKind::Unsure,
    }
}

/// Whether the last prompt is in what a loaded session replays. The texts are compared without white space:
/// agents cut and join them.
pub(super) fn arrival(replayed: &str, prompts: &[impl AsRef<str>]) -> Arrival {
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let Some((last, before)) = prompts.split_last() else { return Arrival::Unknown };
    let (replayed, last) = (bare(replayed), bare(last.as_ref()));
    let before: Vec<String> = before.iter().map(|prompt| bare(prompt.as_ref())).collect();
    if last.is_empty() {
        return Arrival::Unknown;
    }
    // An earlier prompt may have said the same.
    let had: usize = before.iter().map(|prompt| prompt.matches(&last).count()).sum();
    if replayed.matches(&last).count() > had {
        return Arrival::Arrived;
    }
    // A session that does not replay what certainly arrived says nothing about the rest.
    match before.iter().all(|prompt| replayed.contains(prompt)) {
        true => Arrival::Missing,
        false => Arrival::Unknown,
    }
}

/// The text of a prompt.
pub(super) fn compose(
    kind: PromptKind,
    system: &str,
    last: Option<&str>,
    unsent: &[&str],
    transcript: impl FnOnce() -> String,
) -> String {
    let system = match system.trim() {
        "" => String::new(),
        system => format!("<instructions>\n{system}\n</instructions>"),
    };
    let last = last.unwrap_or_default().to_owned();
    let unsent = unsent.iter().map(|text| (*text).to_owned());
    let parts: Vec<String> = match kind {
        PromptKind::First => [system].into_iter().chain(unsent).collect(),
        PromptKind::Next => unsent.collect(),
        PromptKind::Continue => [GO_ON.to_owned()].into_iter().chain(unsent).collect(),
        PromptKind::Again => [last].into_iter().chain(unsent).collect(),
        // Also for several that were sent to one turn.
        PromptKind::Unsure => [UNSURE.to_owned(), last].into_iter().chain(unsent).collect(),
        PromptKind::Restart => {
            vec![system, LOST.to_owned(), format!("<transcript>\n{}\n</transcript>", transcript())]
        }
    };
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// What was said and done before, for an agent that does not remember it: the conversation, and what the
/// journal has of its unfinished turn.
pub(super) fn transcript(messages: &[Message], journal: &[Record]) -> String {
    let mut parts: Vec<String> = messages
        .iter()
        .map(|message| match message {
            Message::User(text) => format!("[user]\n{text}"),
            Message::Assistant(reply) => format!("[you]\n{}", reply.text()),
            Message::Tool(result) => format!("[result]\n{}", result.output),
        })
        .collect();
    let since = journal.iter().rposition(|record| matches!(record.entry, Entry::Replied(_)));
    let mut said = String::new();
    let flush = |said: &mut String, parts: &mut Vec<String>| {
        if !said.trim().is_empty() {
            parts.push(format!("[you, interrupted]\n{}", std::mem::take(said)));
        }
    };
    for record in &journal[since.map_or(0, |at| at + 1)..] {
        match &record.entry {
            Entry::Said { voice: LiveTextKind::Text, text } => said.push_str(text),
            Entry::Called { tool, arguments, foreign: true, .. } => {
                flush(&mut said, &mut parts);
                let arguments = truncate_middle(arguments.as_deref().unwrap_or_default(), RESULT);
                parts.push(format!("[your call: {tool}]\n{arguments}"));
            }
            Entry::Returned(returned) => {
                if let Some(tool) = &returned.foreign {
                    let output = truncate_middle(&returned.output, RESULT);
                    parts.push(format!("[result of your call: {tool}]\n{output}"));
                }
            }
            _ => {}
        }
    }
    flush(&mut said, &mut parts);
    truncate_middle(&parts.join("\n\n"), TRANSCRIPT)
}
