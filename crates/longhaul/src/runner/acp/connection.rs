//! The process of another program's agent, and the lines it sends and gets.
//!
//! One task polls all three pipes, so an agent that reads nothing while it floods its output blocks only itself.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::wire::{self, AgentMessage};
use crate::agent::AcpAgent;
use crate::process::ProcessGroup;
#[cfg(feature = "toolsets")]
use crate::toolset::{ConfinedProgram, remove_paths};

/// The longest line that an agent may send.
const LINE: usize = 32 << 20;
/// How much of its stderr is kept, for messages.
const LAST_WORDS: usize = 2000;
/// How long an agent may take to exit after its stdin was closed, and after SIGTERM.
const LEAVING: Duration = Duration::from_millis(300);
const TERMINATING: Duration = Duration::from_millis(700);

/// A running agent.
pub(super) struct Connection {
    group: ProcessGroup,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    outbox: Vec<u8>,
    written: usize,
    inbox: Vec<u8>,
    /// How much of the inbox has no end of a line.
    searched: usize,
    last_words: Vec<u8>,
    remove_afterwards: Vec<PathBuf>,
}

/// Why there is no further message.
#[derive(Debug)]
pub(super) enum ConnectionLost {
    /// It exited, or closed its output.
    Ended(String),
    /// It does not speak the protocol.
    TooLong,
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionLost::Ended(how) => f.write_str(how),
            ConnectionLost::TooLong => write!(f, "it sent a line longer than {} MiB", LINE >> 20),
        }
    }
}

impl Connection {
    /// Starts the agent's program in a directory.
    pub(super) async fn start(agent: &AcpAgent, dir: &Path) -> io::Result<Connection> {
        prepare_home(agent)?;
        let launch = ProgramLaunch::new(agent, dir).await?;
        let mut group = ProcessGroup::start(&launch.program, agent.process_guardian(), |command| {
            command.args(&launch.args).current_dir(&launch.dir).env_clear().envs(agent.environment());
            command.env("HOME", agent.home());
            if let Some(temporary) = &launch.temporary {
                command.env("TMPDIR", temporary);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        })?;
        let stdout = group.child.stdout.take().ok_or_else(|| io::Error::other("it has no stdout"))?;
        let (stdin, stderr) = (group.child.stdin.take(), group.child.stderr.take());
        Ok(Connection {
            group,
            stdin,
            stdout,
            stderr,
            outbox: Vec::new(),
            written: 0,
            inbox: Vec::new(),
            searched: 0,
            last_words: Vec::new(),
            remove_afterwards: launch.remove_afterwards,
        })
    }

    /// Adds a message to those that are written while [`receive`](Self::receive) is polled.
    pub(super) fn send(&mut self, message: &Value) {
        self.outbox.extend(message.to_string().into_bytes());
        self.outbox.push(b'\n');
    }

    /// The next message. Nothing is lost if this is dropped.
    pub(super) async fn receive(&mut self) -> Result<AgentMessage, ConnectionLost> {
        let mut words = [0; 1024];
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(wire::parse_line(&line));
            }
            self.inbox.reserve(16 << 10);
            let Connection { stdin, stdout, stderr, outbox, written, inbox, .. } = self;
            let can_write = stdin.is_some() && *written < outbox.len();
            let read = tokio::select! {
                read = stdout.read_buf(inbox) => read,
                read = read_some(stderr.as_mut(), &mut words), if stderr.is_some() => {
                    self.keep_last_words(&words[..read]);
                    continue;
                }
                sent = write_some(stdin.as_mut(), &outbox[*written..]), if can_write => {
                    match sent {
                        Ok(sent) => *written += sent,
                        // It reads no more. What it says counts still.
                        Err(_) => *stdin = None,
                    }
                    if *written == outbox.len() || stdin.is_none() {
                        outbox.clear();
                        *written = 0;
                    }
                    continue;
                }
            };
            if !matches!(read, Ok(read) if read > 0) {
                return Err(ConnectionLost::Ended(self.how_it_ended().await));
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>, ConnectionLost> {
        let Some(end) = memchr::memchr(b'\n', &self.inbox[self.searched..]) else {
            self.searched = self.inbox.len();
            return if self.inbox.len() > LINE { Err(ConnectionLost::TooLong) } else { Ok(None) };
        };
        let rest = self.inbox.split_off(self.searched + end + 1);
        self.searched = 0;
        Ok(Some(std::mem::replace(&mut self.inbox, rest)))
    }

    fn keep_last_words(&mut self, words: &[u8]) {
        if words.is_empty() {
            self.stderr = None;
        }
        self.last_words.extend(words);
        let more = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..more);
    }

    async fn how_it_ended(&mut self) -> String {
        let status = timeout(LEAVING, self.group.wait_for_exit()).await;
        let mut how = match status {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            _ => "it closed its output".to_owned(),
        };
        let mut words = [0; 1024];
        while let Ok(read @ 1..) = timeout(LEAVING, read_some(self.stderr.as_mut(), &mut words)).await {
            self.keep_last_words(&words[..read]);
        }
        let words = String::from_utf8_lossy(&self.last_words);
        if !words.trim().is_empty() {
            how += &format!("; its last words: {}", words.trim());
        }
        how
    }

    /// Ends the process and everything it has started: closes its stdin, then SIGTERM, then SIGKILL.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        let left = timeout(LEAVING, self.group.wait_for_exit()).await;
        match left {
            Ok(_) => drop(self.group.kill().await),
            Err(_) => self.group.terminate(TERMINATING).await,
        }
        remove_paths(&self.remove_afterwards).await;
    }
}

/// What is started: the program, or a sandbox with the program in it.
struct ProgramLaunch {
    program: OsString,
    args: Vec<OsString>,
    dir: PathBuf,
    /// The directory for its temporary files, if it cannot use that of the system.
    temporary: Option<PathBuf>,
    /// Paths to remove when it has ended.
    remove_afterwards: Vec<PathBuf>,
}

impl ProgramLaunch {
    async fn new(agent: &AcpAgent, dir: &Path) -> io::Result<ProgramLaunch> {
        let command = agent.command();
        let (program, args) =
            command.split_first().ok_or_else(|| io::Error::other("its command is empty"))?;
        #[cfg(feature = "toolsets")]
        if let Some(sandbox) = agent.open_sandbox() {
            let temporary = agent.home().join("tmp");
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&temporary)?;
            let path = agent.environment().get("PATH").map(String::as_str).unwrap_or_default();
            // In the sandbox a program that is missing would end with the words of the sandbox.
            let found = find_program(program, path, dir);
            let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let command: Vec<String> = std::iter::once(found).chain(args.iter().cloned()).collect();
            let confined = sandbox.confine_program(&command, dir).await;
            let confined = confined.map_err(|error| io::Error::other(error.to_string()))?;
            let ConfinedProgram { program, args, dir, remove_afterwards } = confined;
            return Ok(ProgramLaunch { program, args, dir, temporary: Some(temporary), remove_afterwards });
        }
        Ok(ProgramLaunch {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            dir: dir.to_owned(),
            temporary: None,
            remove_afterwards: Vec::new(),
        })
    }
}

/// The path of a program, found as the system finds it.
#[cfg(feature = "toolsets")]
fn find_program(program: &str, path: &str, dir: &Path) -> Option<String> {
    if program.contains('/') {
        return dir.join(program).is_file().then(|| program.to_owned());
    }
    let mut found =
        std::env::split_paths(path).map(|place| place.join(program)).filter(|file| file.is_file());
    found.next().and_then(|file| file.to_str().map(str::to_owned))
}

#[cfg(not(feature = "toolsets"))]
async fn remove_paths(_: &[PathBuf]) {}

async fn read_some(pipe: Option<&mut ChildStderr>, words: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(words).await.unwrap_or(0),
        None => 0,
    }
}

async fn write_some(pipe: Option<&mut ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.write(bytes).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Creates the home directory, for the owner alone, with links to the logins that are shared.
fn prepare_home(agent: &AcpAgent) -> io::Result<()> {
    let home = agent.home();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    for (source, path) in agent.logins() {
        let link = home.join(path);
        if let Some(dir) = link.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        match std::os::unix::fs::symlink(source, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
