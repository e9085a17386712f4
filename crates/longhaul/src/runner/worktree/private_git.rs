//! Git calls with a private git directory: nothing that an agent has configured runs.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use uuid::Uuid;

use super::WorktreeError;
use super::repository::{CancelFlag, Repository, plain};

/// How long git may take: a large working tree is checked out file by file.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long git may take for somebody who only looks.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variables that would make git use another directory or run a program.
const REMOVED: [&str; 31] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
    "GIT_ATTR_SOURCE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_REF_STORAGE_FORMAT",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_PROXY_COMMAND",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
];
/// Environment variables that keep git from other configuration and from the network.
const SET: [(&str, &str); 9] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", NOTHING),
    ("GIT_CONFIG_GLOBAL", NOTHING),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("LC_ALL", "C"),
];
const NOTHING: &str = "/dev/null";
/// The private configuration, while nothing is known about the repository's.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n\tlogallrefupdates = false\n\
                      \thooksPath = /dev/null\n\tfsmonitor = false\n\tuntrackedCache = false\n\
                      \tattributesFile = /dev/null\n\texcludesFile = /dev/null\n\
                      [protocol]\n\tallow = never\n[submodule]\n\trecurse = false\n";

/// A private directory that sandboxed commands cannot reach, removed when dropped.
#[derive(Debug)]
pub(super) struct TempGitDir(PathBuf, CancelFlag);

impl TempGitDir {
    pub(super) fn new(given_up: &CancelFlag) -> Result<TempGitDir, WorktreeError> {
        // Sandboxes may grant write access to `/tmp`, but never to `/dev/shm`.
        let bases = [Path::new("/dev/shm"), Path::new("/tmp")];
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        for base in bases {
            let path = base.join(format!("longhaul-git-{}", Uuid::now_v7().simple()));
            match own_dir(&path) {
                Ok(()) => return Ok(TempGitDir(path, given_up.clone())),
                Err(error) => why = error,
            }
        }
        Err(WorktreeError(format!("no directory can be created for git's own files: {why}")))
    }

    /// Reads a configuration. Files that it includes are not read.
    pub(super) fn config(&self, file: &Path) -> Result<Vec<(String, String)>, WorktreeError> {
        match fs::metadata(file) {
            Err(_) => return Ok(Vec::new()),
            Ok(meta) if !meta.is_file() => {
                return Err(WorktreeError("its config is not a plain file".to_owned()));
            }
            Ok(_) => {}
        }
        let mut command = git_command(&self.0);
        command.args(["config", "--file"]).arg(file).args(["--no-includes", "--null", "--list"]);
        let text = run_git(command.current_dir(&self.0), &self.1)?;
        let pairs = text.split('\0').filter(|pair| !pair.is_empty());
        Ok(pairs.map(|pair| pair.split_once('\n').unwrap_or((pair, "true"))).map(owned).collect())
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

impl Drop for TempGitDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn own_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// A private git directory with a repository's data.
#[derive(Debug)]
pub(super) struct PrivateGit {
    dir: TempGitDir,
}

impl PrivateGit {
    pub(super) fn new(repository: &Repository, head: &str) -> Result<PrivateGit, WorktreeError> {
        let git = PrivateGit { dir: TempGitDir::new(&repository.given_up)? };
        let made = || -> io::Result<()> {
            fs::write(git.dir.0.join("config"), CONFIG)?;
            fs::write(git.dir.0.join("HEAD"), head_of(head)?)?;
            for name in ["objects", "refs", "packed-refs", "shallow"] {
                if repository.dir.symlink_metadata(name).is_ok() {
                    link(&repository.common.join(name), &git.dir.0.join(name))?;
                }
            }
            Ok(())
        };
        made().map_err(|error| WorktreeError(format!("git's own files cannot be made: {error}")))?;
        let known = git.dir.config(&repository.common.join("config"))?;
        let config = format!("{CONFIG}{}", copied_config(&known)?);
        fs::write(git.dir.0.join("config"), config)
            .map_err(|error| WorktreeError(format!("git's own files cannot be made: {error}")))?;
        Ok(git)
    }

    /// Runs git outside of any working tree.
    pub(super) fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, WorktreeError> {
        run_git(git_command(&self.dir.0).args(args).current_dir(&self.dir.0), &self.dir.1)
    }

    /// Runs git in a working tree, with the private index.
    pub(super) fn run_in_worktree(
        &self,
        top: &Dir,
        path: &Path,
        args: &[&str],
    ) -> Result<String, WorktreeError> {
        run_git(&mut self.in_worktree(top, path, args), &self.dir.1)
    }

    fn in_worktree(&self, top: &Dir, path: &Path, args: &[&str]) -> Command {
        let mut command = git_command(&self.dir.0);
        command.env("GIT_WORK_TREE", ".").env("GIT_INDEX_FILE", self.index()).args(args);
        command.current_dir(by_handle(top, path));
        command
    }

    /// Runs git, in a working tree if one is given, for a reader who does not wait long: returns at most
    /// `most` bytes, and whether that is all of its output.
    pub(super) fn read(
        &self,
        tree: Option<(&Dir, &Path)>,
        args: &[&str],
        most: usize,
    ) -> Result<(Vec<u8>, bool), WorktreeError> {
        let mut command = match tree {
            Some((top, path)) => self.in_worktree(top, path, args),
            None => {
                let mut command = git_command(&self.dir.0);
                command.args(args).current_dir(&self.dir.0);
                command
            }
        };
        let output = run_git_within(command.stdin(Stdio::null()), &self.dir.1, READ_TIMEOUT, most)?;
        Ok((output.bytes, output.is_whole))
    }

    /// Adds entries to the private index, in the format of `update-index --index-info -z`.
    pub(super) fn add_to_index(&self, entries: &[u8]) -> Result<(), WorktreeError> {
        let list = self.dir.0.join("index-info");
        let opened = fs::write(&list, entries).and_then(|()| fs::File::open(&list));
        let opened =
            opened.map_err(|error| WorktreeError(format!("git's own files cannot be made: {error}")))?;
        let mut command = git_command(&self.dir.0);
        command.env("GIT_INDEX_FILE", self.index()).args(["update-index", "-z", "--index-info"]);
        command.current_dir(&self.dir.0).stdin(opened);
        run_git_within(&mut command, &self.dir.1, READ_TIMEOUT, usize::MAX).map(drop)
    }

    /// Makes git treat every file as it looks, whatever the attributes in the repository say: they cannot hide
    /// text from a reader by calling it binary.
    pub(super) fn ignore_diff_attributes(&self) -> io::Result<()> {
        let info = self.dir.0.join("info");
        own_dir(&info)?;
        fs::write(info.join("attributes"), "* !diff\n")
    }

    /// Removes the private index.
    pub(super) fn drop_index(&self) -> io::Result<()> {
        match fs::remove_file(self.index()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Copies an index, to compare the working tree with.
    pub(super) fn take_index(&self, repository: &Repository, path: &Path) -> io::Result<()> {
        let mut from = plain(&repository.dir, path)?;
        let written = from.metadata()?.modified()?.into_std();
        let mut to = fs::File::create(self.index())?;
        io::copy(&mut from, &mut to)?;
        // Git uses the index's age to tell which files may have changed without a visible change of their
        // times.
        to.set_modified(written)
    }

    /// Copies the private index to the repository.
    pub(super) fn give_index(&self, repository: &Repository, path: &Path) -> io::Result<()> {
        repository.write(path, &fs::read(self.index())?)
    }

    fn index(&self) -> PathBuf {
        self.dir.0.join("index")
    }
}

/// Checks the content of a HEAD file.
fn head_of(text: &str) -> io::Result<String> {
    let line = text.lines().next().unwrap_or_default().trim();
    let id = |id: &str| matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match line.strip_prefix("ref:").map(str::trim) {
        Some(name) if name.starts_with("refs/") && !name.contains("..") => Ok(format!("ref: {name}\n")),
        None if id(line) => Ok(format!("{line}\n")),
        _ => Err(io::Error::other("its HEAD names no branch and no commit")),
    }
}

/// The part of a repository's configuration that is needed to read its data and to write files as it does.
fn copied_config(known: &[(String, String)]) -> Result<String, WorktreeError> {
    let last =
        |key: &str| known.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.to_lowercase());
    let mut text = String::new();
    match last("extensions.objectformat").as_deref() {
        None | Some("sha1") => {}
        Some("sha256") => text += "[extensions]\n\tobjectFormat = sha256\n",
        Some(other) => return Err(WorktreeError(format!("its object format '{other}' is not known"))),
    }
    if let Some(other) = last("extensions.refstorage").filter(|other| other != "files") {
        return Err(WorktreeError(format!("its ref storage '{other}' is not supported")));
    }
    text += "[core]\n";
    for key in ["filemode", "symlinks", "ignorecase", "precomposeunicode", "autocrlf"] {
        let value = match last(&format!("core.{key}")).as_deref() {
            Some("true" | "yes" | "on" | "1") => "true",
            Some("false" | "no" | "off" | "0") => "false",
            Some("input") => "input",
            _ => continue,
        };
        text += &format!("\t{key} = {value}\n");
    }
    Ok(text)
}

fn link(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

/// A path by which a child process finds exactly the directory that is open here, even if it is renamed.
#[cfg(target_os = "linux")]
fn by_handle(dir: &Dir, _: &Path) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn by_handle(_: &Dir, path: &Path) -> PathBuf {
    path.to_owned()
}

fn git_command(git_dir: &Path) -> Command {
    let mut command = Command::new("git");
    REMOVED.iter().for_each(|name| _ = command.env_remove(name));
    command.envs(SET).env("GIT_DIR", git_dir).arg("--no-pager");
    // Its own process group, so that it can be killed with everything it has started.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Kills git and everything it has started.
fn kill_git(mut child: Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        let _ =
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs git to its end: returns its stdout, or fails with its stderr.
fn run_git(command: &mut Command, given_up: &CancelFlag) -> Result<String, WorktreeError> {
    let output = run_git_within(command.stdin(Stdio::null()), given_up, TIMEOUT, usize::MAX)?;
    Ok(String::from_utf8_lossy(&output.bytes).into_owned())
}

/// What git wrote to its stdout.
struct GitOutput {
    bytes: Vec<u8>,
    /// Whether git had written everything before the limit was reached.
    is_whole: bool,
}

/// Like [`run_git`], with limits on the time and on the output. Git ends when the limit on its output is reached.
fn run_git_within(
    command: &mut Command,
    given_up: &CancelFlag,
    timeout: Duration,
    most: usize,
) -> Result<GitOutput, WorktreeError> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => WorktreeError("git is not installed".to_owned()),
        _ => WorktreeError(format!("git cannot be started: {error}")),
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn io::Read + Send>>, most: usize| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // One more byte tells whether that is all. Whoever writes on after that finds the pipe closed.
            pipe.map(|pipe| pipe.take((most as u64).saturating_add(1)).read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = read(stdout.map(|pipe| Box::new(pipe) as _), most);
    let stderr = read(stderr.map(|pipe| Box::new(pipe) as _), usize::MAX);
    let until = Instant::now() + timeout;
    let mut nap = Duration::from_micros(500);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until && !given_up.load(Ordering::Relaxed) => {
                std::thread::sleep(nap)
            }
            _ => {
                kill_git(child);
                return Err(WorktreeError(format!("git did not answer within {timeout:?}")));
            }
        }
        nap = (nap * 2).min(Duration::from_millis(20));
    };
    let (mut bytes, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    let is_whole = bytes.len() <= most;
    bytes.truncate(most);
    match status.success() || !is_whole {
        true => Ok(GitOutput { bytes, is_whole }),
        false => {
            let said = String::from_utf8_lossy(&stderr);
            Err(WorktreeError(said.trim().trim_start_matches("fatal: ").to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_configuration_only_what_describes_the_data_is_taken_over() {
        let said =
            |pairs: &[(&str, &str)]| copied_config(&pairs.iter().copied().map(owned).collect::<Vec<_>>());
        let known = [
            ("core.filemode", "false"),
            ("core.autocrlf", "input"),
            ("core.symlinks", "x\n[filter \"e\"]"),
            ("core.fsmonitor", "evil"),
            ("extensions.objectformat", "sha256"),
            ("filter.e.clean", "evil"),
        ];
        let expected =
            "[extensions]\n\tobjectFormat = sha256\n[core]\n\tfilemode = false\n\tautocrlf = input\n";
        assert_eq!(said(&known).as_deref(), Ok(expected));
        assert!(said(&[("extensions.refstorage", "reftable")]).is_err());
        assert!(said(&[("extensions.objectformat", "other")]).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_private_directory_is_in_shared_memory_the_owners_alone_and_goes() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = TempGitDir::new(&CancelFlag::default()).unwrap();
        let path = scratch.0.clone();
        let base = if Path::new("/dev/shm").exists() { "/dev/shm" } else { "/tmp" };
        assert!(path.starts_with(base), "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
    }
}
