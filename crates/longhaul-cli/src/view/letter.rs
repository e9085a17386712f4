//! Formats letters that report the end of a task for people: the tags in them are for models.

use longhaul::Status;

/// The content of such a letter.
#[derive(Debug, PartialEq)]
pub(crate) struct TaskEndLetter<'a> {
    /// The agent that has ended, and how.
    pub(crate) agent: String,
    pub(crate) status: Status,
    /// The output of the task.
    pub(crate) text: &'a str,
}

impl TaskEndLetter<'_> {
    /// Returns how it ended, as a verb.
    pub(crate) fn verb(&self) -> &'static str {
        match self.status {
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "was cancelled",
            Status::Pending | Status::Running => "goes on",
        }
    }
}

/// Parses a letter. Anyone can write such tags, so call this only for a letter that the journal marks as the
/// report of an end.
pub(crate) fn ending(letter: &str) -> Option<TaskEndLetter<'_>> {
    let (tag, text) = letter.trim().strip_prefix("<task_ended ")?.split_once('>')?;
    let attribute = |name: &str| {
        let (_, rest) = tag.split_once(&format!("{name}=\""))?;
        rest.split('"').next()
    };
    let status = attribute("status")?;
    let status = Status::ALL.into_iter().find(|known| known.to_string() == status)?;
    let agent = attribute("agent").unwrap_or_default();
    let agent = agent.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
    let text = text.strip_suffix("</task_ended>").unwrap_or(text).trim();
    Some(TaskEndLetter { agent, status, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_another_is_told_in_words_and_not_in_tags() {
        let letter =
            "<task_ended id=\"t-1\" agent=\"a &quot;b&quot;\" status=\"completed\">\nA > B\n</task_ended>";
        let ending = ending(letter).unwrap();
        assert_eq!((ending.agent.as_str(), ending.verb(), ending.text), ("a \"b\"", "completed", "A > B"));
    }

    #[test]
    fn other_letters_tell_of_no_end() {
        for letter in ["", "Hello.", "<b>as it is", "<task_ended id=\"t-1\">x</task_ended>", "<task_ended "] {
            assert_eq!(ending(letter), None, "{letter}");
        }
    }
}
