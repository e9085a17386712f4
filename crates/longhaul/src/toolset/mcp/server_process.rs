//! A server that is a local program: runs in its own process group, is killed with this process, and its
//! stderr is always read.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::McpOptions;
use super::settings::{McpCommand, McpServer};
use super::shared_server::McpServerError;
use crate::process::ProcessGroup;
use crate::toolset::text::{group_digits, truncate};

/// How many lines of stderr are logged per second. Of more, only the number is logged.
const LINES_A_SECOND: u32 = 50;
/// How many bytes of a line are kept, and how many are shown. Fewer are shown, so that a secret split by the
/// cut stays hidden.
const LONGEST_LINE: usize = 4096;
const SHOWN: usize = 400;
/// How many lines are remembered.
const LAST_WORDS: usize = 6;
/// How long to wait for the end of stderr when a server has exited. Only a process that left its group can
/// hold stderr open that long.
const READ_TO_END: Duration = Duration::from_secs(2);
/// How long processes that a server has left behind may still write.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// A running server process.
pub(super) struct ServerProcess {
    pub(super) group: ProcessGroup,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Starts the server. It inherits only the environment variables that the pool gives it.
pub(super) fn spawn_server(
    program: &McpCommand,
    options: &McpOptions,
) -> Result<ServerProcess, McpServerError> {
    let McpCommand { command: name, args, env, cwd } = program;
    let dir = match (&options.working_dir, cwd) {
        (Some(base), Some(dir)) => Some(base.join(dir)),
        (base, dir) => dir.clone().or_else(|| base.clone()),
    };
    if let Some(dir) = dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(McpServerError(format!("there is no directory {} to run '{name}' in", dir.display())));
    }
    let started = ProcessGroup::start(name, &options.guardian, |command| {
        command.args(args).env_clear().envs(options.env.exposed()).envs(env.exposed());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
    });
    let mut group = started.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if name == "docker" => {
            McpServerError(
                "Docker is not installed: there is no 'docker' on the PATH, and a server of `ref: docker:…` runs in it"
                    .to_owned(),
            )
        }
        std::io::ErrorKind::NotFound => {
            McpServerError(format!(
                "the command '{name}' was not found: install it, put it on the PATH or write its whole path"
            ))
        }
        _ => McpServerError(format!("the command '{name}' cannot be started: {error}")),
    })?;
    let pipes = (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(McpServerError(format!("the command '{name}' has no pipes")));
    };
    Ok(ServerProcess { group, stdin, stdout, stderr })
}

/// Describes how a program exited.
pub(super) fn exit_text(status: std::io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => format!("it exited with code {code}"),
        Ok((None, Some(signal))) => format!("it was killed by signal {signal}"),
        _ => "it ended".to_owned(),
    }
}

/// The stderr of a server: logged, with the last lines kept for error messages.
pub(super) struct ServerStderr {
    server: McpServer,
    label: Arc<str>,
    last: Mutex<VecDeque<Vec<u8>>>,
    /// How many pipes are being read.
    open: watch::Sender<usize>,
}

/// Counts a pipe as being read, until dropped.
pub(super) struct StderrReader(Arc<ServerStderr>);

impl StderrReader {
    pub(super) fn new(stderr: &Arc<ServerStderr>) -> Self {
        stderr.open.send_modify(|open| *open += 1);
        StderrReader(stderr.clone())
    }

    /// Reads the pipe until it ends or `cancel` is cancelled. A server blocks when its pipe is full.
    pub(super) async fn read(self, pipe: ChildStderr, cancel: CancellationToken) {
        self.0.read(pipe, cancel).await;
    }
}

impl Drop for StderrReader {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

impl ServerStderr {
    pub(super) fn new(server: &McpServer, label: Arc<str>) -> Self {
        ServerStderr { server: server.clone(), label, last: Mutex::default(), open: watch::Sender::new(0) }
    }

    async fn read(&self, mut pipe: ChildStderr, cancel: CancellationToken) {
        let mut buffer = vec![0; 16 << 10];
        let mut line = Vec::new();
        let mut log =
            RateLimitedLog { label: &self.label, since: Instant::now(), left: LINES_A_SECOND, dropped: 0 };
        loop {
            let read = tokio::select! {
                read = pipe.read(&mut buffer) => read,
                () = cancel.cancelled() => break,
            };
            let Ok(n @ 1..) = read else { break };
            let mut rest = &buffer[..n];
            while let Some(at) = memchr::memchr(b'\n', rest) {
                append(&mut line, &rest[..at]);
                self.add_line(std::mem::take(&mut line), &mut log);
                rest = &rest[at + 1..];
            }
            append(&mut line, rest);
        }
        self.add_line(line, &mut log);
        log.tell_dropped();
    }

    fn add_line(&self, line: Vec<u8>, log: &mut RateLimitedLog<'_>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        log.line(|| self.shown(&line));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == LAST_WORDS {
            last.pop_front();
        }
        last.push_back(line);
    }

    /// Returns the last lines of a server that has exited, for an error message: empty, or a clause that
    /// begins with a semicolon. Reads what is left in the pipe first.
    pub(super) async fn last_lines_after_exit(&self) -> String {
        self.read_to_end(READ_TO_END).await;
        self.last_lines()
    }

    /// Waits until processes that a server left behind have written their last lines. Call it before they are
    /// killed.
    pub(super) async fn wait_for_leftovers(&self) {
        self.read_to_end(LEFT_BEHIND).await;
    }

    async fn read_to_end(&self, longest: Duration) {
        let _ = timeout(longest, self.open.subscribe().wait_for(|open| *open == 0)).await;
    }

    /// Returns the last lines so far, of a server that may still be running.
    pub(super) fn last_lines(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_empty() {
            return String::new();
        }
        let mut lines: Vec<_> = last.iter().map(|line| self.shown(line)).collect();
        // A restarted server often writes the same lines again.
        lines.dedup();
        format!("; its last words were: {}", lines.join(" | "))
    }

    /// Formats a line for people, without secrets.
    fn shown(&self, line: &[u8]) -> String {
        truncate(&self.server.scrub(String::from_utf8_lossy(line.trim_ascii()).into_owned()), SHOWN)
    }
}

fn append(line: &mut Vec<u8>, more: &[u8]) {
    let room = LONGEST_LINE.saturating_sub(line.len());
    line.extend_from_slice(&more[..more.len().min(room)]);
}

/// A log with a limit of lines per second.
struct RateLimitedLog<'a> {
    label: &'a str,
    since: Instant,
    left: u32,
    dropped: u64,
}

impl RateLimitedLog<'_> {
    fn line(&mut self, text: impl FnOnce() -> String) {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.tell_dropped();
            (self.since, self.left) = (Instant::now(), LINES_A_SECOND);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                tracing::debug!(server = self.label, "{}", text());
            }
            None => self.dropped += 1,
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tracing::debug!(server = self.label, "[{} more lines of stderr]", group_digits(dropped));
        }
    }
}
