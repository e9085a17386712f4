//! Exit codes, and errors with hints.

use std::fmt;
use std::io;

use longhaul::LonghaulError;
use longhaul::store::{DatabaseFault, StoreError};
use longhaul::task::IllegalTransition;

/// The exit codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Exit codes:
    0  success; for a run: its root has answered (sub-agents may have failed, if the root was notified)
    1  a task failed, or a request was refused; for a run: the root failed, or a task whose parent was not notified
    2  the command line is wrong
    3  a task was cancelled
    4  no such task, or several ids with that prefix
    5  the database cannot be used, is damaged, or was deleted during the run (the answer is still printed)
    6  a team file is wrong, or something it needs is missing
    7  something ended the run early: a limit of turns, tokens or money, or a model in a loop (any answer
       produced so far is still printed)
    8  a person has to approve or answer (`run --unattended stop`): answer, then `longhaul resume`; or a call
       was denied because no one was there (`--fail-on-denied`)
    9  another process has taken over the tasks while this one was stopped or could not reach the database
  124  the time is up: for `wait` (the tasks go on), or for `run` and `resume` with `--timeout`
  130  interrupted: `longhaul resume` continues the tasks; for `attach`: detached, the tasks go on";

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CliExitCode {
    /// Success.
    Success = 0,
    /// A task failed, or a request was refused.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A task was cancelled.
    Cancelled = 3,
    /// No task matches the id, or several do.
    NotFound = 4,
    /// The database cannot be used.
    Store = 5,
    /// A team file is wrong.
    Team = 6,
    /// A limit cut the run short.
    Limit = 7,
    /// A person has to approve or answer something.
    NeedsInput = 8,
    /// Another process runs the tasks now.
    TakenOver = 9,
    /// A time limit was reached.
    TimedOut = 124,
    /// The run was interrupted and drained.
    Interrupted = 130,
}

impl CliExitCode {
    /// Returns the exit code with this number, or `Failed` if there is none.
    pub(crate) fn from_number(number: u8) -> CliExitCode {
        use CliExitCode::*;
        [
            Success,
            Failed,
            Usage,
            Cancelled,
            NotFound,
            Store,
            Team,
            Limit,
            NeedsInput,
            TakenOver,
            TimedOut,
            Interrupted,
        ]
        .into_iter()
        .find(|code| *code as u8 == number)
        .unwrap_or(Failed)
    }
}

impl From<CliExitCode> for std::process::ExitCode {
    fn from(code: CliExitCode) -> Self {
        (code as u8).into()
    }
}

/// An error for the user: a message, an optional hint, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    pub(crate) code: CliExitCode,
    message: Option<String>,
    hint: Option<String>,
}

impl CliError {
    /// Creates an error without a hint.
    pub(crate) fn new(code: CliExitCode, what: impl Into<String>) -> Self {
        CliError { code, message: Some(what.into()), hint: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message, or an empty string if the error is silent.
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Turns the error of a closed output pipe into success.
    pub(crate) fn ignore_closed_output(result: Result<(), CliError>) -> Result<(), CliError> {
        result.or_else(|error| if error.message.is_none() { Ok(()) } else { Err(error) })
    }

    /// The silent error for a closed output pipe: no one reads what we would print.
    fn closed_output() -> Self {
        CliError { code: CliExitCode::Success, message: None, hint: None }
    }

    /// Changes the exit code of a closed-pipe error to `Interrupted`, because the tasks were given back
    /// before they ended. Other errors stay as they are.
    pub(crate) fn into_interruption(mut self) -> Self {
        if self.message.is_none() {
            self.code = CliExitCode::Interrupted;
        }
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(what) = &self.message else { return Ok(()) };
        writeln!(f, "error: {}", crate::view::sanitize(what).trim_end())?;
        match &self.hint {
            Some(hint) => writeln!(f, "hint: {}", crate::view::sanitize(hint).trim_end()),
            None => Ok(()),
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::closed_output(),
            _ => CliError::new(CliExitCode::Failed, format!("cannot write the output: {error}")).with_hint(
                "is the disk full, or the terminal gone? Tasks are not harmed: see `longhaul tasks`",
            ),
        }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        CliError::new(CliExitCode::Failed, format!("cannot write JSON: {error}"))
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoTask(id) => CliError::new(CliExitCode::NotFound, format!("there is no task {id}"))
                .with_hint("`longhaul tasks --all` lists all tasks"),
            StoreError::NotFound { typed } if typed.is_empty() => {
                CliError::new(CliExitCode::NotFound, "the id of the task is empty")
                    .with_hint("`longhaul tasks` lists the ids; any unique prefix is enough")
            }
            StoreError::NotFound { typed } if typed.trim().eq_ignore_ascii_case("t-") => {
                CliError::new(CliExitCode::NotFound, "'t-' alone does not identify a task")
                    .with_hint("type more of the id; `longhaul tasks` lists the ids")
            }
            StoreError::NotFound { typed } => CliError::new(
                CliExitCode::NotFound,
                format!("there is no task whose id begins with '{typed}'"),
            )
            .with_hint("`longhaul tasks --all` lists all tasks; `--data DIR` selects another data directory"),
            StoreError::Ambiguous { typed, matches } => {
                let some: Vec<_> = matches.iter().map(ToString::to_string).collect();
                let what = format!("several tasks begin with '{typed}': {}", some.join(", "));
                CliError::new(CliExitCode::NotFound, what).with_hint("type more of the id")
            }
            StoreError::Illegal { task, why: IllegalTransition::MailboxFull } => CliError::new(
                CliExitCode::Failed,
                format!("task {task} has not read its letters: its mailbox is full"),
            )
            .with_hint("try again when it has read some; `longhaul show` shows how many are unread"),
            StoreError::Database { what, fault } => {
                CliError::new(CliExitCode::Store, what).with_hint(match fault {
                    DatabaseFault::Busy => "everything confirmed so far is saved; try again later",
                    DatabaseFault::DiskFull => {
                        "`longhaul prune --older-than 30d --vacuum` deletes old tasks and gives back what they took"
                    }
                    DatabaseFault::Uncertain => {
                        "whether this was stored is not known; `longhaul tasks` shows what is"
                    }
                    DatabaseFault::Permanent => "`--data DIR` selects another data directory",
                })
            }
            StoreError::BadEntry { .. } | StoreError::Damaged { .. } => {
                CliError::new(CliExitCode::Store, error.to_string())
                    .with_hint("other tasks are not affected; `longhaul doctor` checks the whole database")
            }
            other => CliError::new(CliExitCode::Failed, other.to_string()),
        }
    }
}

impl From<LonghaulError> for CliError {
    fn from(error: LonghaulError) -> Self {
        match error {
            LonghaulError::Store(error) => error.into(),
            LonghaulError::Empty(what) => CliError::new(CliExitCode::Usage, format!("the {what} is empty"))
                .with_hint("type some text, or `-` to read it from stdin"),
            LonghaulError::TooLong { what, size, most } => {
                let (size, most) =
                    (crate::view::format_count(size as u64), crate::view::format_count(most as u64));
                CliError::new(
                    CliExitCode::Usage,
                    format!("the {what} is too long: {size} bytes, the limit is {most}"),
                )
                .with_hint("put it in a file, and send the name of the file instead")
            }
            LonghaulError::AmbiguousQuestion { .. } => CliError::new(CliExitCode::Usage, error.to_string())
                .with_hint("choose one with `--question NAME`"),
            LonghaulError::BadAnswer(_) => CliError::new(CliExitCode::Usage, error.to_string()),
            LonghaulError::NotAsking { .. }
            | LonghaulError::AlreadyAnswered { .. }
            | LonghaulError::UnknownQuestion { .. } => CliError::new(CliExitCode::Failed, error.to_string())
                .with_hint("`longhaul tasks --state asks` lists tasks with open questions"),
            other => CliError::new(CliExitCode::Failed, other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_code() {
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 124, 130] {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}");
        }
    }

    #[test]
    fn the_beginning_of_every_id_names_no_task() {
        let error = CliError::from(StoreError::NotFound { typed: "t-".to_owned() });
        assert_eq!(error.code, CliExitCode::NotFound);
        assert!(error.message().contains("'t-' alone does not identify a task"), "{error}");
    }

    #[test]
    fn an_error_is_a_paragraph_and_a_hint_and_a_closed_pipe_is_silent() {
        let text = CliError::new(CliExitCode::Usage, "wrong\x1b[31m").with_hint("do it right").to_string();
        assert_eq!(text, "error: wrong\nhint: do it right\n");
        assert_eq!(CliError::from(io::Error::from(io::ErrorKind::BrokenPipe)).to_string(), "");
    }
}
