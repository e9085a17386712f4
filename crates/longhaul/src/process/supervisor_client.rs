//! Longhaul's side of supervision: the pipes to the helper, and its status messages.

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::process_tree::kill_marked;
use super::supervisor_process::SUPERVISE_COMMAND;

/// How long the helper may take to start the command.
const STARTING: Duration = Duration::from_secs(20);
/// How long the helper may take to end all processes: longer than it tries.
pub(super) const ENDING: Duration = Duration::from_millis(2500);

/// Held while pipes that are meant for one child only could be inherited by others.
static SPAWNING: Mutex<()> = Mutex::new(());

/// A helper that runs one command.
#[derive(Debug)]
pub(super) struct SupervisorClient {
    control: PipeWriter,
    status: Receiver,
    /// The start of an unfinished line.
    line: Vec<u8>,
    /// The resource limit that all descendants of the command carry.
    limit: u64,
    /// How the command itself ended.
    exit: Option<ExitStatus>,
    end: Option<CleanupResult>,
}

/// What happened to everything that a command started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CleanupResult {
    /// None is left; this many were killed.
    None { killed: usize },
    /// This many did not die.
    Left(usize),
    /// The helper is gone without a report.
    Unknown,
}

/// The pipes for a helper that is about to start.
pub(super) struct SupervisorPipes {
    control: PipeWriter,
    status: PipeReader,
    theirs: (PipeReader, PipeWriter),
    limit: u64,
}

impl SupervisorPipes {
    pub(super) fn new(limit: u64) -> io::Result<SupervisorPipes> {
        let (their_control, control) = io::pipe()?;
        let (status, their_status) = io::pipe()?;
        // A suspended helper must not block us.
        fcntl(&control, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(SupervisorPipes { control, status, theirs: (their_control, their_status), limit })
    }

    /// The command line of the helper that will run a program. The program's arguments are added to it.
    pub(super) fn command(&self, helper: &Path, mark: (&str, &str), program: &OsStr) -> Command {
        let mut command = Command::new(helper);
        command.arg0("longhaul");
        command.arg(SUPERVISE_COMMAND);
        command.arg("--control").arg(self.theirs.0.as_raw_fd().to_string());
        command.arg("--status").arg(self.theirs.1.as_raw_fd().to_string());
        command.arg("--limit").arg(self.limit.to_string());
        command.arg("--mark").arg(format!("{}={}", mark.0, mark.1));
        command.arg("--").arg(program);
        command
    }

    /// Starts it, and waits until the command runs. Returns the helper, the connection to it, and the
    /// command's id.
    pub(super) fn start(self, mut command: Command) -> io::Result<(Child, SupervisorClient, i32)> {
        let child = {
            let _spawning = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
            for fd in [self.theirs.0.as_fd(), self.theirs.1.as_fd()] {
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            let child = command.spawn();
            drop(self.theirs);
            child?
        };
        let said = first_line(&self.status, Instant::now() + STARTING)?;
        let mut words = said.split(' ');
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<i32>().ok());
        let id = match (words.next(), number(words.next())) {
            (Some("pid"), Some(id)) if id > 1 => id,
            (Some("error"), Some(code)) => return Err(io::Error::from_raw_os_error(code)),
            _ => {
                return Err(io::Error::other(format!(
                    "the supervisor of the command did not start it: '{said}'"
                )));
            }
        };
        let status = Receiver::from_owned_fd(OwnedFd::from(self.status))?;
        let supervisor = SupervisorClient {
            control: self.control,
            status,
            line: Vec::new(),
            limit: self.limit,
            exit: None,
            end: None,
        };
        Ok((child, supervisor, id))
    }
}

/// The first line of the helper. Only this one is read blocking: it takes some milliseconds.
fn first_line(mut status: &PipeReader, until: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(status.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => {
                let why = "the supervisor of the command does not answer";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        let mut byte = [0];
        match status.read(&mut byte)? {
            1 if byte[0] != b'\n' => line.push(byte[0]),
            _ => return Ok(String::from_utf8_lossy(&line).into_owned()),
        }
    }
}

impl SupervisorClient {
    /// Waits until the command itself has exited. Returns `None` if its exit status is unknown.
    pub(super) async fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        while self.exit.is_none() && self.end.is_none() {
            self.read_status().await;
        }
        self.exit
    }

    /// Waits for the report on everything that the command started.
    pub(super) async fn wait_for_cleanup(&mut self) -> CleanupResult {
        loop {
            match self.end {
                Some(end) => return end,
                None => self.read_status().await,
            }
        }
    }

    /// Sends SIGTERM to all.
    pub(super) fn terminate(&mut self) {
        let _ = self.control.write_all(b"t");
    }

    /// Sends SIGKILL to all.
    pub(super) fn kill(&mut self) {
        let _ = self.control.write_all(b"k");
    }

    /// Ends every process that can be found without the helper.
    pub(super) async fn kill_marked_processes(&mut self) {
        let limit = self.limit;
        let sweep = move || {
            let until = Instant::now() + Duration::from_secs(1);
            // One pass may miss a process that is just being started.
            let mut empty = 0;
            while empty < 2 && Instant::now() < until {
                empty = if kill_marked(limit) == 0 { empty + 1 } else { 0 };
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let _ = tokio::task::spawn_blocking(sweep).await;
        self.end = Some(CleanupResult::Unknown);
    }

    /// Reads more of the helper's status. Cancelling this loses nothing.
    async fn read_status(&mut self) {
        let mut buffer = [0; 256];
        let read = match self.status.readable().await {
            Ok(()) => self.status.try_read(&mut buffer),
            Err(error) => Err(error),
        };
        match read {
            Ok(n @ 1..) => {
                for byte in &buffer[..n] {
                    match byte {
                        b'\n' => self.take_line(),
                        byte => self.line.push(*byte),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.end = self.end.or(Some(CleanupResult::Unknown)),
        }
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let (word, number) = line.split_once(' ').unwrap_or((&line, ""));
        match (word, number.parse::<i32>()) {
            ("exit", Ok(raw)) => self.exit = Some(ExitStatus::from_raw(raw)),
            ("none", Ok(killed)) => {
                self.end = Some(CleanupResult::None { killed: usize::try_from(killed).unwrap_or(0) })
            }
            ("left", Ok(left)) => self.end = Some(CleanupResult::Left(usize::try_from(left).unwrap_or(1))),
            _ => {}
        }
    }
}
