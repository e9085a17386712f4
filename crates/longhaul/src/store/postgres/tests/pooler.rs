//! A private PgBouncer in transaction mode.

use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use super::*;
use crate::testing::postgres::{free_port, other_user, unprivileged};

/// Runs the pooler until its input ends, however the tests end, and removes everything then.
const KEEPER: &str = r#"
trap '' HUP INT TERM
"$PROGRAM" "$DIR/pgbouncer.ini" >>"$DIR/log" 2>&1 </dev/null & pid=$!
while read -r _; do :; done
kill -KILL "$pid" 2>/dev/null
wait "$pid"
cd / && rm -rf "$DIR"
"#;

/// A pooler with a port of its own. It ends with the process that started it.
pub(super) struct Pooler {
    pub(super) port: u16,
    keeper: Child,
}

impl Pooler {
    /// The one before the shared server, with three connections to it. `None` if none is installed, which is reported.
    pub(super) fn shared() -> Option<&'static Pooler> {
        static SHARED: OnceLock<Option<Pooler>> = OnceLock::new();
        SHARED.get_or_init(|| Pooler::start(TestPostgres::shared()?.port(), 3)).as_ref()
    }

    /// Starts one before this port, with so many connections to it. `None` if none is installed, which is reported.
    pub(super) fn start(server: u16, connections: usize) -> Option<Pooler> {
        let Some(program) = program() else {
            crate::testing::report_skipped("there is no PgBouncer");
            return None;
        };
        let directory = tempfile::Builder::new().prefix("lh-pooler-").tempdir().unwrap().keep();
        let port = free_port();
        let (user, password) = (TestPostgres::USER, TestPostgres::PASSWORD);
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={server} user={user} password={password}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 400\nserver_login_retry = 1\n"
        );
        let file = directory.join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        if let Some((uid, gid)) = other_user() {
            for path in [&directory, &file] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
        }
        let mut keeper = unprivileged(Path::new("/bin/sh"));
        keeper.args(["-c", KEEPER]).env("PROGRAM", program).env("DIR", &directory).current_dir("/");
        keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = keeper.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the pooler does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Pooler { port, keeper })
    }

    /// A store on this server, through the pooler.
    pub(super) fn options(&self, server: &TestPostgres, schema: &str) -> PostgresOptions {
        PostgresOptions::new(&format!("{}&pooled=true", server.url_over(self.port, schema))).unwrap()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut programs = places.map(|place| place.join("pgbouncer"));
    programs.find(|program| Command::new(program).arg("--version").output().is_ok())
}
