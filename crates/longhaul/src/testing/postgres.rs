//! A private PostgreSQL server for tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot have its server fails")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Runs the server until its input ends, however the tests end, and removes everything then.
const KEEPER: &str = r#"
trap '' HUP INT TERM
start() { "$BIN/postgres" -D "$DIR/data" "$@" >>"$DIR/log" 2>&1 </dev/null & pid=$!; }
start "$@"
while read -r word; do
    case $word in
        fast) kill -INT "$pid" ;;
        kill) kill -KILL "$pid" ;;
        freeze) kill -STOP "$pid" ;;
        thaw) kill -CONT "$pid" ;;
        start) start "$@" ;;
    esac
    case $word in fast | kill) wait "$pid" ;; esac
    echo "$word"
done
kill -INT "$pid" 2>/dev/null
wait "$pid"
cd / && rm -rf "$DIR"
"#;

/// A private PostgreSQL server: a cluster of its own in a temporary directory, on a socket and a free port of loopback,
/// with fsync on, run by an unprivileged user. It ends with the process that started it.
pub struct TestPostgres {
    directory: PathBuf,
    bin: PathBuf,
    port: u16,
    keeper: Mutex<Keeper>,
    schemas: AtomicU32,
}

struct Keeper {
    child: Child,
    orders: Option<ChildStdin>,
    done: BufReader<ChildStdout>,
}

impl TestPostgres {
    /// The user of the server.
    pub const USER: &'static str = "examiner";
    /// Its password, which only connections over the port need.
    pub const PASSWORD: &'static str = "pa55-w0rd-of-the-exam";

    /// The server of this test binary. `None` if none is installed, which is reported as skipped.
    pub fn shared() -> Option<&'static TestPostgres> {
        static SHARED: OnceLock<Option<TestPostgres>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| TestPostgres::start(&[])).as_ref();
        if shared.is_none() {
            super::report_skipped("there is no PostgreSQL server below /usr/lib/postgresql");
        }
        shared
    }

    /// Starts a server with settings of its own (`-c name=value`). `None` if none is installed.
    pub fn start(settings: &[&str]) -> Option<TestPostgres> {
        let bin = newest()?;
        let directory =
            std::env::temp_dir().join(format!("lh-pg-{}", &uuid::Uuid::now_v7().simple().to_string()[20..]));
        std::fs::create_dir(&directory).expect("a directory for the server");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).expect("rights");
        let password = directory.join("password");
        std::fs::write(&password, TestPostgres::PASSWORD).expect("a password");
        if let Some((uid, gid)) = other_user() {
            for path in [&directory, &password] {
                chown(path, Some(uid), Some(gid)).expect("the directory is given to the unprivileged user");
            }
        }
        let made = unprivileged(&bin.join("initdb"))
            .args([
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "--auth-local=trust",
                "--auth-host=scram-sha-256",
            ])
            .arg(format!("--username={}", TestPostgres::USER))
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(directory.join("data"))
            .current_dir("/")
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let server = TestPostgres::keep(directory, bin, port, settings);
        server.wait_until_ready();
        Some(server)
    }

    /// Starts a streaming replica of this server, with settings of its own.
    pub fn start_replica(&self, settings: &[&str]) -> TestPostgres {
        let name = format!("lh-pg-{}", &uuid::Uuid::now_v7().simple().to_string()[20..]);
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory for the replica");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).expect("rights");
        if let Some((uid, gid)) = other_user() {
            chown(&directory, Some(uid), Some(gid)).expect("the directory is given to the unprivileged user");
        }
        let copied = unprivileged(&self.bin.join("pg_basebackup"))
            .args(["-h", &self.directory.display().to_string(), "-p", &self.port.to_string()])
            .args(["-U", TestPostgres::USER, "-R", "-X", "stream", "-c", "fast", "-D"])
            .arg(directory.join("data"))
            .env("PGAPPNAME", "replica")
            .current_dir("/")
            .output()
            .expect("pg_basebackup starts");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        let replica = TestPostgres::keep(directory, self.bin.clone(), free_port(), settings);
        replica.wait_until_ready();
        replica
    }

    /// Makes a replica the primary.
    pub fn promote(&self) {
        let data = self.directory.join("data");
        let promoted = unprivileged(&self.bin.join("pg_ctl"))
            .args(["promote", "-w", "-D"])
            .arg(data)
            .current_dir("/")
            .output();
        let promoted = promoted.expect("pg_ctl starts");
        assert!(promoted.status.success(), "{}", String::from_utf8_lossy(&promoted.stderr));
    }

    fn keep(directory: PathBuf, bin: PathBuf, port: u16, settings: &[&str]) -> TestPostgres {
        let mut keeper = unprivileged(Path::new("/bin/sh"));
        keeper.args([
            "-c",
            KEEPER,
            "keeper",
            "-p",
            &port.to_string(),
            "-k",
            &directory.display().to_string(),
        ]);
        let usual = ["listen_addresses=127.0.0.1", "max_connections=400", "fsync=on", "max_wal_size=2GB"];
        for setting in usual.iter().chain(settings) {
            keeper.args(["-c", setting]);
        }
        keeper.env("BIN", &bin).env("DIR", &directory).current_dir("/");
        // Its own group: what is typed at a terminal is not for it.
        keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = keeper.spawn().expect("a shell starts");
        let (orders, done) = (child.stdin.take(), child.stdout.take().expect("its output"));
        let keeper = Mutex::new(Keeper { child, orders, done: BufReader::new(done) });
        TestPostgres { directory, bin, port, keeper, schemas: AtomicU32::new(0) }
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its socket and its data are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name of a schema that nobody has used.
    pub fn fresh_schema(&self) -> String {
        format!("s{}_{}", std::process::id(), self.schemas.fetch_add(1, Ordering::SeqCst))
    }

    /// The URL of a store, over the socket.
    pub fn url(&self, schema: &str) -> String {
        let socket = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://{}@{socket}:{}/postgres?schema={schema}", TestPostgres::USER, self.port)
    }

    /// The URL of a store, over a port of loopback, which may be that of a proxy.
    pub fn url_over(&self, port: u16, schema: &str) -> String {
        let (user, password) = (TestPostgres::USER, TestPostgres::PASSWORD);
        format!("postgres://{user}:{password}@127.0.0.1:{port}/postgres?schema={schema}")
    }

    /// Stops the server: no session is waited for, but what was committed is written.
    pub fn stop(&self) {
        self.order("fast");
    }

    /// Kills the server, which has to recover when it is started again.
    pub fn kill(&self) {
        self.order("kill");
    }

    /// Starts the server again, and waits until it takes connections.
    pub fn start_again(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        // A killed server's children need a moment to notice.
        loop {
            self.order("start");
            if self.is_ready_within(Duration::from_secs(5)) {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not start again:\n{}", self.log());
        }
    }

    /// Runs SQL with `psql` and returns what it prints.
    pub fn sql(&self, sql: &str) -> String {
        let run = Command::new(self.bin.join("psql"))
            .args(["-h", &self.directory.display().to_string(), "-p", &self.port.to_string()])
            .args(["-U", TestPostgres::USER, "-d", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql starts");
        assert!(run.status.success(), "{sql}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8_lossy(&run.stdout).trim().to_owned()
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn order(&self, word: &str) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = keeper.orders.as_mut().expect("the keeper listens");
        writeln!(orders, "{word}").expect("the keeper listens");
        let mut done = String::new();
        keeper.done.read_line(&mut done).expect("the keeper answers");
        assert_eq!(done.trim(), word, "the keeper of the server does what it is told");
    }

    fn is_ready_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let ready = Command::new(self.bin.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string(), "-t", "1"])
                .status();
            if ready.is_ok_and(|status| status.success()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        false
    }

    fn wait_until_ready(&self) {
        assert!(self.is_ready_within(Duration::from_secs(60)), "the server does not start:\n{}", self.log());
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.orders.take());
        let _ = keeper.child.wait();
    }
}

/// The programs of the newest version that is installed.
fn newest() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter_map(|path| Some((version(&path)?, path.join("bin"))))
        .filter(|(_, bin)| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

/// Who runs the server if this is root, which must not.
pub(crate) fn other_user() -> Option<(u32, u32)> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    is_root.then_some((65534, 65534))
}

/// A program, run by that user.
pub(crate) fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = other_user() {
        command.uid(uid).gid(gid);
    }
    command
}

/// A port of loopback that nobody uses.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}
