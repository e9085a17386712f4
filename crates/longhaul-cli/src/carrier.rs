//! Processes in the background that carry trees on, and how others find and speak to them.
//!
//! Whoever carries a tree signs it: a file with its process id, on which it holds a lock. The kernel frees the lock when
//! the process dies, however it dies, so that an id of a dead process is never taken for that of another.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::args::{Outside, Unattended};
use crate::exit::{Code, Trouble};
use crate::place::Place;

/// How long a process may take to say that it carries the tree.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a carrier's files are.
fn directory(place: &Place) -> PathBuf {
    place.directory().join("carriers")
}

/// Where a carrier writes what goes wrong.
pub(crate) fn log(place: &Place, root: TaskId) -> PathBuf {
    directory(place).join(format!("{root}.log"))
}

/// The logs that nobody writes to any more: those of these trees, and those of others that were last written to before
/// a moment.
pub(crate) fn old_logs(place: &Place, trees: &HashSet<TaskId>, before: Timestamp) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(directory(place)) else { return Vec::new() };
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
            (trees.contains(&root) || is_old(path)) && of(place, root).is_none()
        })
        .collect();
    logs.sort();
    logs
}

/// What a carrier says when it has begun, in a line on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Begun {
    /// It carries the tree.
    Carrying,
    /// It cannot.
    Not { code: u8, what: String, hint: Option<String> },
}

impl Begun {
    /// Why it cannot.
    pub(crate) fn not(trouble: &Trouble) -> Begun {
        Begun::Not {
            code: trouble.code as u8,
            what: trouble.what().to_owned(),
            hint: trouble.help().map(str::to_owned),
        }
    }

    /// Says so.
    pub(crate) fn say(&self) {
        // Whoever started us may be gone: then nobody waits for it.
        if let Ok(line) = serde_json::to_string(self) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}

/// What a process in the background goes by.
pub(crate) struct CarryOptions<'a> {
    pub(crate) outside: &'a Outside,
    pub(crate) unattended: Unattended,
    pub(crate) ask_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
}

impl<'a> CarryOptions<'a> {
    /// Approvals and questions wait for somebody, without end.
    pub(crate) fn new(outside: &'a Outside) -> CarryOptions<'a> {
        CarryOptions { outside, unattended: Unattended::Wait, ask_timeout: None, timeout: None }
    }
}

/// Starts a process in the background that carries a tree on, and returns when it does. Keys are in the environment that
/// it inherits, and nowhere else.
pub(crate) async fn start(place: &Place, root: TaskId, options: CarryOptions<'_>) -> Result<(), Trouble> {
    let CarryOptions { outside, unattended, ask_timeout, timeout } = options;
    let cannot = |why: String| {
        Trouble::new(Code::Failed, format!("no process could be started that carries {root} on: {why}"))
            .hint(format!("carry it on here: {}", place.resume(root)))
    };
    let program = std::env::current_exe().map_err(|error| cannot(error.to_string()))?;
    let mut command = tokio::process::Command::new(program);
    command.arg("--data").arg(whole(place.data())).arg("carry").arg(root.to_string());
    command.arg("--unattended").arg(match unattended {
        Unattended::Deny => "deny",
        Unattended::Wait => "wait",
        Unattended::Stop => "stop",
    });
    for (flag, time) in [("--ask-timeout", ask_timeout), ("--timeout", timeout)] {
        if let Some(time) = time {
            command.arg(flag).arg(format!("{}ms", time.as_millis()));
        }
    }
    for path in &outside.env_from_file {
        command.arg("--env-from-file").arg(whole(path));
    }
    for (flag, path) in
        [("--prices", &outside.prices), ("--record", &outside.record), ("--replay", &outside.replay)]
    {
        if let Some(path) = path {
            command.arg(flag).arg(whole(path));
        }
    }
    let log = open_log(&log(place, root)).map_err(|error| cannot(error.to_string()))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(|error| cannot(error.to_string()))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        let read = tokio::time::timeout(PATIENCE, out.read_line(&mut line)).await;
        read.map_err(|_| cannot("it did not begin in time".to_owned()))?
            .map_err(|error| cannot(error.to_string()))?;
    }
    match serde_json::from_str(&line) {
        Ok(Begun::Carrying) => Ok(()),
        Ok(Begun::Not { code, what, hint }) => {
            let trouble = Trouble::new(Code::of(code), what);
            Err(match hint {
                Some(hint) => trouble.hint(hint),
                None => trouble,
            })
        }
        Err(_) => Err(cannot(format!("it ended at once; see {}", self::log(place, root).display()))),
    }
}

/// Asks whoever carries a tree to drain: steps are finished, tasks given back. Whether there was anybody.
#[cfg(unix)]
pub(crate) fn drain(place: &Place, root: TaskId) -> Result<bool, Trouble> {
    use nix::sys::signal::{Signal, kill};
    let Some(pid) = of(place, root) else { return Ok(false) };
    match kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM) {
        Ok(()) => Ok(true),
        Err(nix::errno::Errno::ESRCH) => Ok(false),
        Err(error) => {
            let what = format!("the process {pid}, which carries {root}, cannot be told to drain: {error}");
            Err(Trouble::new(Code::Failed, what).hint("is it another user's?"))
        }
    }
}

/// The same, where processes cannot be spoken to.
#[cfg(not(unix))]
pub(crate) fn drain(_: &Place, _: TaskId) -> Result<bool, Trouble> {
    Ok(false)
}

/// The process that carries a tree.
pub(crate) fn of(place: &Place, root: TaskId) -> Option<i32> {
    let mut file = File::open(sign_of(place, root)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text).ok()?;
            text.trim().parse().ok().filter(|pid| *pid > 1)
        }
        _ => None,
    }
}

/// That this process carries a tree, for as long as this is held.
pub(crate) struct Signed {
    path: PathBuf,
    _held: File,
}

impl Drop for Signed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Says that this process carries a tree; `None` if another one does, or where there are no locks.
pub(crate) fn sign(place: &Place, root: TaskId) -> Option<Signed> {
    private_dir(&directory(place)).ok()?;
    lock(sign_of(place, root)).ok()
}

/// Whether this process may go on with a conversation.
pub(crate) enum Turn {
    /// It may, for as long as this is held; where there are no locks, nobody can say otherwise.
    Ours { _held: Option<Signed> },
    /// Another process goes on with it now: this one, if that is known.
    Others { process: Option<i32> },
}

/// Says that this process goes on with the conversation that began with this task. Two that did so at once would write to the same
/// task, and each would take its answer for that to its own prompt.
pub(crate) fn take_turn(place: &Place, first: TaskId) -> Turn {
    let path = directory(place).join(format!("{first}.session"));
    let locked =
        private_dir(&directory(place)).map_err(TryLockError::Error).and_then(|()| lock(path.clone()));
    match locked {
        Ok(signed) => Turn::Ours { _held: Some(signed) },
        Err(TryLockError::Error(_)) => Turn::Ours { _held: None },
        Err(TryLockError::WouldBlock) => {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            Turn::Others { process: text.trim().parse().ok() }
        }
    }
}

fn lock(path: PathBuf) -> Result<Signed, TryLockError> {
    let mut options = File::options();
    options.create(true).read(true).write(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let mut file = options.open(&path).map_err(TryLockError::Error)?;
        file.try_lock()?;
        // Whoever had it before may have taken the file away between the two.
        if !is_at(&file, &path) {
            continue;
        }
        file.set_len(0).map_err(TryLockError::Error)?;
        file.rewind().map_err(TryLockError::Error)?;
        write!(file, "{}", std::process::id()).map_err(TryLockError::Error)?;
        return Ok(Signed { path, _held: file });
    }
}

fn sign_of(place: &Place, root: TaskId) -> PathBuf {
    directory(place).join(format!("{root}.pid"))
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same =
        |one: std::fs::Metadata, two: std::fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
    file.metadata().ok().zip(path.metadata().ok()).is_some_and(|(one, two)| same(one, two))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Makes a directory that only its owner enters. One that an earlier Longhaul has made, for all to read, is mended.
fn private_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        builder.mode(0o700).create(path)?;
        // Where it is not ours it stays as it is.
        if path.metadata()?.permissions().mode() & 0o077 != 0 {
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
        }
        Ok(())
    }
    #[cfg(not(unix))]
    builder.create(path)
}

/// A log that only its owner reads: errors may name files.
fn open_log(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        private_dir(directory)?;
    }
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A path that means the same wherever it is read.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_signed_by_one_process_and_only_while_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(Some(dir.path())).unwrap();
        let root: TaskId = "t-aaaaa".parse().unwrap();
        assert_eq!(of(&place, root), None);
        let signed = sign(&place, root).unwrap();
        assert_eq!(of(&place, root), i32::try_from(std::process::id()).ok());
        assert!(sign(&place, root).is_none(), "there is one already");
        drop(signed);
        assert_eq!(of(&place, root), None);
        // What a process that was killed left behind is nobody.
        std::fs::write(sign_of(&place, root), "1234").unwrap();
        assert_eq!(of(&place, root), None);
        assert!(sign(&place, root).is_some());
    }
}
