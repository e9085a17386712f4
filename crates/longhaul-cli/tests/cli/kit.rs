//! What the tests need: a place to work in, processes that are watched, journals that are read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use longhaul::entry::Record;
use longhaul::id::Seq;
use longhaul::store::{SqliteStore, Store, TaskFilter};
use longhaul::task::TaskState;
use longhaul::{Longhaul, TaskId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take before a test gives up on it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// What may be in the environment of whoever runs the tests, and would change what they see.
const NOT_OURS: [&str; 9] = [
    "RUST_LOG",
    "RUST_BACKTRACE",
    "LONGHAUL_",
    "CLICOLOR",
    "NO_COLOR",
    "_API_KEY",
    "OLLAMA",
    "LLAMA_ARG",
    "COLUMNS",
];

/// A directory to take stock of, and one to keep the tasks in.
pub(crate) struct Kit {
    pub(crate) ground: TempDir,
    pub(crate) data: TempDir,
}

impl Kit {
    pub(crate) fn new() -> Kit {
        let ground = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = ground.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("README.md", "# The ground\n\nSome files to look at.\n");
        write("src/lib.rs", "// TODO: everything\n#[test]\nfn t() {}\n");
        write("src/more/mod.rs", "// FIXME\n// TODO\n");
        write("docs/guide.txt", "HACK\nword\n");
        Kit { ground, data: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.data.path().join("longhaul.db")
    }

    /// The command, to be run on the ground.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_at(self.data.path(), args)
    }

    pub(crate) fn command_at(&self, data: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("--data").arg(data).args(args).current_dir(self.ground.path());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if NOT_OURS.iter().any(|part| text.to_uppercase().contains(part)) {
                command.env_remove(&name);
            }
        }
        // A proxy, where there is one, is not for servers of this machine.
        for name in ["NO_PROXY", "no_proxy"] {
            let more = std::env::var(name).map(|hosts| format!("{hosts},")).unwrap_or_default();
            command.env(name, format!("{more}127.0.0.1,localhost"));
        }
        command.env("TZ", "UTC").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Writes a file on the ground.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.ground.path().join(name), text).unwrap();
    }

    /// Writes a team file: all of it but its model `play`, and what that plays.
    pub(crate) fn plays(&self, name: &str, team: &str, play: &str) {
        let play = play.trim().replace('\n', "\n      ");
        let model = format!("models:\n  play:\n    provider: scripted\n    script: |\n      {play}\n");
        self.write(name, &format!("{team}{model}"));
    }

    /// Every file that was left: in the database's directory and on the ground.
    pub(crate) fn left(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut left = Vec::new();
        let mut open = vec![self.data.path().to_owned(), self.ground.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    left.push((path.clone(), std::fs::read(&path).unwrap()));
                }
            }
        }
        left
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.started(self.command(args))
    }

    pub(crate) fn started(&self, mut command: Command) -> Running {
        Running::new(command.spawn().unwrap())
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.database()).unwrap())
    }

    /// Everything that is in the database.
    pub(crate) fn journals(&self) -> Vec<(TaskState, Vec<Record>)> {
        block_on(async {
            let store = self.store();
            let mut journals = Vec::new();
            for state in store.list(TaskFilter::default()).await.unwrap() {
                let journal = store.read(state.id, Seq(0), 100_000).await.unwrap();
                journals.push((state, journal));
            }
            journals
        })
    }

    /// Waits until there is something to be found in the database.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, found: impl Fn(&[(TaskState, Vec<Record>)]) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = found(&self.journals()) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn client<T>(&self, with: impl AsyncFnOnce(Longhaul) -> T) -> T {
        block_on(async { with(Longhaul::client(self.store()).await.unwrap()).await })
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { status: output.status, out: text(output.stdout), err: text(output.stderr) }.checked()
    }
}

impl Ran {
    /// What holds for all: no panic, no backtrace, no escape codes.
    fn checked(self) -> Ran {
        for text in [&self.out, &self.err] {
            assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{self:?}");
            assert!(!text.contains('\x1b'), "{self:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Ran {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.out, self.err);
        self
    }

    /// The error is one paragraph and a hint.
    #[track_caller]
    pub(crate) fn complains(self, code: i32, words: &[&str]) -> Ran {
        let ran = self.ended(code);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
        assert_eq!(ran.err.lines().filter(|line| line.starts_with("hint: ")).count(), 1, "{}", ran.err);
        assert!(ran.err.lines().count() <= 4, "{}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "'{word}' is not in: {}", ran.err);
        }
        ran
    }

    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let values: Vec<serde_json::Value> = self.out.lines().map(parse).collect();
        assert!(values.iter().all(|value| value["v"] == 1), "{}", self.out);
        values
    }
}

/// What the lead said in the end.
#[track_caller]
pub(crate) fn synthesis(out: &str) -> String {
    let begin =
        out.rfind("What four agents found here:\n").unwrap_or_else(|| panic!("no synthesis in: {out}"));
    let end = out[begin..].find("\nTASK").unwrap_or_else(|| panic!("no summary in: {out}"));
    out[begin..begin + end].to_owned()
}

/// A command that runs, line by line.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: String,
}

impl Running {
    fn new(mut child: Child) -> Running {
        let (sender, lines) = channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines, seen: String::new() }
    }

    /// Waits for a line that fits.
    #[track_caller]
    pub(crate) fn until(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                panic!("it did not come in: {}", self.seen);
            };
            self.seen.push_str(&line);
            self.seen.push('\n');
            if fits(&line) {
                return line;
            }
        }
    }

    /// The id of the root, which the first screen tells.
    #[track_caller]
    pub(crate) fn root(&mut self) -> TaskId {
        let line = self.until(|line| line.starts_with("task "));
        line.split_whitespace().last().unwrap().parse().unwrap()
    }

    /// What the kernel says of it: R, S, T and so on.
    #[cfg(target_os = "linux")]
    pub(crate) fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ran {
        let deadline = Instant::now() + TIMEOUT;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
        let status = self.child.wait().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ran { status, out: std::mem::take(&mut self.seen), err }.checked()
    }

    /// Kills it as nothing can be caught, and makes sure that it died of that.
    #[track_caller]
    pub(crate) fn murder(self) -> Ran {
        self.signal(Signal::SIGKILL);
        let ran = self.end();
        assert_eq!(ran.status.signal(), Some(9), "{ran:?}");
        ran
    }
}

/// Waits until a process is gone, and not only a zombie that nobody reaps.
#[track_caller]
pub(crate) fn gone(pid: Pid) {
    let deadline = Instant::now() + TIMEOUT;
    while kill(pid, None).is_ok() {
        assert!(Instant::now() < deadline, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a command with something on its standard input.
pub(crate) fn fed(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Who refuses the input closes the pipe.
    let _ = stdin.write_all(input);
    drop(stdin);
    Ran::from(child.wait_with_output().unwrap())
}

/// A provider on loopback, while a test lasts.
pub(crate) struct Provider {
    server: crate::server::Server,
    _runtime: tokio::runtime::Runtime,
}

impl Provider {
    pub(crate) fn start(
        script: impl Fn(&crate::server::Asked) -> crate::server::Act + Send + Sync + 'static,
    ) -> Provider {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(crate::server::Server::start(script));
        Provider { server, _runtime: runtime }
    }

    /// The base URL.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn address(&self) -> String {
        self.server.at.to_string()
    }

    pub(crate) fn asked(&self) -> Vec<crate::server::Asked> {
        self.server.asked()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.server.most_at_once()
    }
}

/// Says that a test cannot be run here, and why. The harness counts such a test as passed; `./test` counts these lines, and
/// says how many were skipped. The line goes past the harness, which keeps what tests print.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "\nskipped: {}: {why}", thread.name().unwrap_or("a test"));
}
