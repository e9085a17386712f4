//! Background processes that run trees, and how other processes find and signal them.
//!
//! The process that runs a tree writes its process id to a file and holds a lock on it. The kernel releases
//! the lock when the process dies, so a stale id is never mistaken for a live process.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::id::Digest;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::args::{ProviderArgs, UnattendedArg};
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};

/// How long a background process may take to report that it runs the tree.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the directory for the files of background processes.
fn background_dir(data_dir: &DataDir) -> PathBuf {
    data_dir.path().join("carriers")
}

/// Returns the log file of the background process that runs a tree.
pub(crate) fn log_path(data_dir: &DataDir, root: TaskId) -> PathBuf {
    background_dir(data_dir).join(format!("{root}.log"))
}

/// Returns the log files that no process writes to any more: those of `trees`, and others last written before
/// `before`.
pub(crate) fn old_logs(data_dir: &DataDir, trees: &HashSet<TaskId>, before: Timestamp) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(background_dir(data_dir)) else { return Vec::new() };
    let is_old = |path: &Path| {
        let written = path.metadata().and_then(|file| file.modified()).ok();
        written.and_then(|at| Timestamp::try_from(at).ok()).is_some_and(|at| at < before)
    };
    let mut logs: Vec<PathBuf> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| {
            let name =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".log"));
            let Some(root) = name.and_then(|name| name.parse().ok()) else { return false };
            (trees.contains(&root) || is_old(path)) && running_pid(data_dir, root).is_none()
        })
        .collect();
    logs.sort();
    logs
}

/// What a background process prints when it has started, as one line on stdout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackgroundStartup {
    /// It runs the tree.
    Carrying,
    /// It failed to start.
    Not { code: u8, what: String, hint: Option<String> },
}

impl BackgroundStartup {
    /// Creates the report of a failed start.
    pub(crate) fn failed(error: &CliError) -> BackgroundStartup {
        BackgroundStartup::Not {
            code: error.code as u8,
            what: error.message().to_owned(),
            hint: error.hint_text().map(str::to_owned),
        }
    }

    /// Prints the report as a line of JSON.
    pub(crate) fn print(&self) {
        // The process that started us may be gone: then no one reads this.
        if let Ok(line) = serde_json::to_string(self) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}

/// How a background process runs a tree.
pub(crate) struct BackgroundOptions<'a> {
    pub(crate) providers: &'a ProviderArgs,
    pub(crate) unattended: UnattendedArg,
    pub(crate) ask_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
}

impl<'a> BackgroundOptions<'a> {
    /// Creates options in which approvals and questions wait without a time limit.
    pub(crate) fn new(providers: &'a ProviderArgs) -> BackgroundOptions<'a> {
        BackgroundOptions { providers, unattended: UnattendedArg::Wait, ask_timeout: None, timeout: None }
    }
}

/// Starts a background process that runs a tree, and returns once it does. Keys are passed only through the
/// environment that it inherits. Fails if the process does not start or reports an error.
pub(crate) async fn start(
    data_dir: &DataDir,
    root: TaskId,
    options: BackgroundOptions<'_>,
) -> Result<(), CliError> {
    let BackgroundOptions { providers, unattended, ask_timeout, timeout } = options;
    let mut args: Vec<OsString> = vec![root.to_string().into(), "--unattended".into()];
    args.push(
        match unattended {
            UnattendedArg::Deny => "deny",
            UnattendedArg::Wait => "wait",
            UnattendedArg::Stop => "stop",
        }
        .into(),
    );
    for (flag, time) in [("--ask-timeout", ask_timeout), ("--timeout", timeout)] {
        if let Some(time) = time {
            args.extend([flag.into(), format!("{}ms", time.as_millis()).into()]);
        }
    }
    args.extend(providers.to_flags(absolute_path));
    let cannot = |why: String| {
        CliError::new(CliExitCode::Failed, format!("cannot start a background process for {root}: {why}"))
            .with_hint(format!("run it here: {}", data_dir.resume_command(root)))
    };
    spawn_carry(data_dir, args, &log_path(data_dir, root), cannot).await
}

/// Starts the background process that runs the tasks of a served team, and returns once some process does.
/// Fails if the process does not start or reports an error.
pub(crate) async fn start_served(
    data_dir: &DataDir,
    team: &Digest,
    providers: &ProviderArgs,
) -> Result<(), CliError> {
    let mut args: Vec<OsString> = vec!["--served".into(), team.as_str().into()];
    args.extend(providers.to_flags(absolute_path));
    let log = served_log_path(data_dir, team);
    let cannot = |why: String| {
        let what = format!("cannot start a background process for the team: {why}");
        CliError::new(CliExitCode::Failed, what).with_hint(format!("its log is {}", log.display()))
    };
    spawn_carry(data_dir, args, &log, cannot).await
}

/// Starts `longhaul carry` with these arguments, and returns once it reports that it runs its tasks.
async fn spawn_carry(
    data_dir: &DataDir,
    args: Vec<OsString>,
    log: &Path,
    cannot: impl Fn(String) -> CliError,
) -> Result<(), CliError> {
    let program = std::env::current_exe().map_err(|error| cannot(error.to_string()))?;
    let mut command = tokio::process::Command::new(program);
    data_dir.configure(&mut command);
    command.arg("carry").args(args);
    let log_file = open_log(log).map_err(|error| cannot(error.to_string()))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
    let mut child = command.spawn().map_err(|error| cannot(error.to_string()))?;
    let out = child.stdout.take();
    // It outlives this process, usually. If it does not, it leaves no zombie.
    tokio::spawn(async move { child.wait().await });
    let mut line = String::new();
    if let Some(out) = out {
        let mut out = BufReader::new(out);
        let read = tokio::time::timeout(STARTUP_TIMEOUT, out.read_line(&mut line)).await;
        read.map_err(|_| cannot("it did not start in time".to_owned()))?
            .map_err(|error| cannot(error.to_string()))?;
    }
    match serde_json::from_str(&line) {
        Ok(BackgroundStartup::Carrying) => Ok(()),
        Ok(BackgroundStartup::Not { code, what, hint }) => {
            let error = CliError::new(CliExitCode::from_number(code), what);
            Err(match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            })
        }
        Err(_) => Err(cannot(format!("it exited at once; see {}", log.display()))),
    }
}

/// Returns the log file of the background process that runs the tasks of a served team.
pub(crate) fn served_log_path(data_dir: &DataDir, team: &Digest) -> PathBuf {
    background_dir(data_dir).join(format!("served-{}.log", team.as_str()))
}

fn served_pid_file(data_dir: &DataDir, team: &Digest) -> PathBuf {
    background_dir(data_dir).join(format!("served-{}.pid", team.as_str()))
}

/// Returns the id of the process that runs the tasks of a served team, if there is one.
pub(crate) fn served_pid(data_dir: &DataDir, team: &Digest) -> Option<i32> {
    locked_pid(&served_pid_file(data_dir, team))
}

/// Marks the tasks of a served team as run by this process. `WouldBlock` means that another process runs them,
/// or checks at this moment whether one does.
pub(crate) fn lock_served(data_dir: &DataDir, team: &Digest) -> Result<PidFileLock, TryLockError> {
    private_dir(&background_dir(data_dir)).map_err(TryLockError::Error)?;
    lock_pid_file(served_pid_file(data_dir, team))
}

/// Asks the process that runs a tree to drain: it finishes its steps and gives the tasks back. Returns
/// whether there is such a process.
pub(crate) fn drain(data_dir: &DataDir, root: TaskId) -> Result<bool, CliError> {
    use nix::sys::signal::{Signal, kill};
    let Some(pid) = running_pid(data_dir, root) else { return Ok(false) };
    match kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM) {
        Ok(()) => Ok(true),
        Err(nix::errno::Errno::ESRCH) => Ok(false),
        Err(error) => {
            let what = format!(
                "cannot ask process {pid}, which runs {root}, to release its tasks and exit: {error}"
            );
            Err(CliError::new(CliExitCode::Failed, what)
                .with_hint("check whether the process belongs to another user"))
        }
    }
}

/// Returns the id of the process that runs a tree, if there is one.
pub(crate) fn running_pid(data_dir: &DataDir, root: TaskId) -> Option<i32> {
    locked_pid(&pid_file(data_dir, root))
}

/// Returns the process id in a file, if that process holds the lock on it.
fn locked_pid(path: &Path) -> Option<i32> {
    let mut file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text).ok()?;
            text.trim().parse().ok().filter(|pid| *pid > 1)
        }
        _ => None,
    }
}

/// Marks a tree as run by this process until it is dropped.
pub(crate) struct PidFileLock {
    path: PathBuf,
    _held: File,
}

impl Drop for PidFileLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Marks a tree as run by this process. Returns `None` if another process runs it, or if files cannot be
/// locked.
pub(crate) fn lock_tree(data_dir: &DataDir, root: TaskId) -> Option<PidFileLock> {
    private_dir(&background_dir(data_dir)).ok()?;
    lock_pid_file(pid_file(data_dir, root)).ok()
}

/// Whether this process may continue a conversation.
pub(crate) enum SessionLock {
    /// It may, until this is dropped. Without file locks this is always granted.
    Acquired { _held: Option<PidFileLock> },
    /// Another process continues it now.
    HeldElsewhere { process: Option<i32> },
}

/// Reserves the conversation that began with this task for this process. Two processes at once would write to
/// the same task, and each would take the answer to the other's prompt for its own.
pub(crate) fn lock_session(data_dir: &DataDir, first: TaskId) -> SessionLock {
    let path = background_dir(data_dir).join(format!("{first}.session"));
    let locked = private_dir(&background_dir(data_dir))
        .map_err(TryLockError::Error)
        .and_then(|()| lock_pid_file(path.clone()));
    match locked {
        Ok(lock) => SessionLock::Acquired { _held: Some(lock) },
        Err(TryLockError::Error(_)) => SessionLock::Acquired { _held: None },
        Err(TryLockError::WouldBlock) => {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            SessionLock::HeldElsewhere { process: text.trim().parse().ok() }
        }
    }
}

fn lock_pid_file(path: PathBuf) -> Result<PidFileLock, TryLockError> {
    let mut options = File::options();
    options.create(true).read(true).write(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let mut file = options.open(&path).map_err(TryLockError::Error)?;
        file.try_lock()?;
        // The previous owner may have removed the file between `open` and `try_lock`.
        if !is_at(&file, &path) {
            continue;
        }
        file.set_len(0).map_err(TryLockError::Error)?;
        file.rewind().map_err(TryLockError::Error)?;
        write!(file, "{}", std::process::id()).map_err(TryLockError::Error)?;
        return Ok(PidFileLock { path, _held: file });
    }
}

fn pid_file(data_dir: &DataDir, root: TaskId) -> PathBuf {
    background_dir(data_dir).join(format!("{root}.pid"))
}

fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same =
        |one: std::fs::Metadata, two: std::fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
    file.metadata().ok().zip(path.metadata().ok()).is_some_and(|(one, two)| same(one, two))
}

/// Creates a directory that only its owner can enter. Fixes the permissions of one that an earlier version
/// created readable for all.
fn private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // If it belongs to another user, it stays as it is.
    if path.metadata()?.permissions().mode() & 0o077 != 0 {
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    }
    Ok(())
}

/// Opens a log that only its owner can read: errors may name files.
fn open_log(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        private_dir(directory)?;
    }
    let mut options = File::options();
    options.create(true).append(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a path absolute, so that another process can use it.
fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_signed_by_one_process_and_only_while_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::resolve(Some(dir.path())).unwrap();
        let root: TaskId = "t-aaaaa".parse().unwrap();
        assert_eq!(running_pid(&data_dir, root), None);
        let lock = lock_tree(&data_dir, root).unwrap();
        assert_eq!(running_pid(&data_dir, root), i32::try_from(std::process::id()).ok());
        assert!(lock_tree(&data_dir, root).is_none(), "there is one already");
        drop(lock);
        assert_eq!(running_pid(&data_dir, root), None);
        // The file of a killed process does not count.
        std::fs::write(pid_file(&data_dir, root), "1234").unwrap();
        assert_eq!(running_pid(&data_dir, root), None);
        assert!(lock_tree(&data_dir, root).is_some());
    }
}
