//! Runs commands that can write only below the working directory, and have no network unless it is allowed.
//!
//! Uses bubblewrap where it is installed and works, else Landlock where the kernel supports it; otherwise
//! commands are refused. The backend is detected once. What to start instead of the command is computed as
//! plain data ([`bubblewrap`], [`landlocked`]).
//!
//! Only bubblewrap gives a command its own `/tmp` (under Landlock it cannot write there at all), blocks
//! network traffic other than TCP, hides sockets in the file system, kills the whole process tree, and
//! write-protects `.git/hooks` and `.git/config`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::command::{CommandSpec, DEFAULT_PATH};
use crate::tool::ToolError;
use git_dirs::GitDirs;
pub(crate) use git_dirs::linked_git_dirs;

mod git_dirs;
#[cfg(target_os = "linux")]
mod landlock;

#[cfg(target_os = "linux")]
pub use landlock::sandbox_exec;

/// The argument that tells the helper to confine itself and become the command.
pub const SANDBOX_EXEC: &str = "sandbox-exec";
/// How long the check whether bubblewrap works may take.
const PROBE: Duration = Duration::from_secs(5);

/// A sandbox for commands: they read everything, write only below the working directory and other allowed
/// directories, and have no network unless it is allowed.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    rules: SandboxRules,
    helper: Option<PathBuf>,
    without_bubblewrap: bool,
    backend: Arc<OnceCell<SandboxBackend>>,
}

/// A program in a sandbox, and what to remove when it has ended.
pub(crate) struct ConfinedProgram {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) dir: PathBuf,
    pub(crate) remove_afterwards: Vec<PathBuf>,
}

/// What a command may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SandboxRules {
    network: bool,
    writable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
}

/// What confines a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SandboxBackend {
    Bubblewrap(PathBuf),
    Landlock(PathBuf),
}

impl Sandbox {
    /// Creates a sandbox that allows writing only below the working directory, and no network.
    pub fn new() -> Self {
        Sandbox::default()
    }

    /// Sets whether commands may use the network.
    pub fn network(mut self, allowed: bool) -> Self {
        self.rules.network = allowed;
        self
    }

    /// Allows writing to one more directory. A relative path is relative to the working directory.
    pub fn allow_write(mut self, path: impl Into<PathBuf>) -> Self {
        self.rules.writable.push(path.into());
        self
    }

    /// Hides the directories of the server that this process is: commands find them empty, or cannot read them.
    pub fn own_server(mut self, server: &super::OwnServer) -> Self {
        self.rules.hidden.extend_from_slice(server.hidden());
        self
    }

    /// Sets the program that confines itself with Landlock and then becomes the command, for systems without
    /// bubblewrap. Its `main` must call [`sandbox_exec`] when its first argument is [`SANDBOX_EXEC`], as
    /// `longhaul` does. Without a helper Landlock cannot be used, because it is never applied to this
    /// process.
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// Never uses bubblewrap, even if it is installed.
    pub fn without_bubblewrap(mut self) -> Self {
        self.without_bubblewrap = true;
        self
    }

    /// Describes the backend that confines commands on this system. Fails with the reason if there is none.
    pub async fn describe_backend(&self) -> Result<String, ToolError> {
        match self.backend.get_or_try_init(|| self.detect_backend()).await? {
            SandboxBackend::Bubblewrap(program) => Ok(format!("bubblewrap ({})", program.display())),
            SandboxBackend::Landlock(_) => Ok("Landlock".to_owned()),
        }
    }

    /// Describes what commands may do.
    pub(super) fn describe(&self) -> String {
        let network = if self.rules.network { "with network" } else { "without network" };
        let mut words = format!("in a sandbox {network}");
        for path in &self.rules.writable {
            words += &format!(", writing also below {}", path.display());
        }
        words
    }

    /// Returns what to start instead of a command, so that it is confined.
    pub(super) async fn confine(&self, spec: CommandSpec, work: &Path) -> Result<CommandSpec, ToolError> {
        let backend = self.backend.get_or_try_init(|| self.detect_backend()).await?;
        let (rules, work) = (self.rules.clone(), work.to_owned());
        let paths = tokio::task::spawn_blocking(move || SandboxPaths::new(&rules, &work)).await;
        let paths = match paths {
            Ok(Ok(paths)) => paths,
            Ok(Err(why)) => return Err(why),
            Err(_) => return Err(ToolError::Failed("the program is ending".to_owned())),
        };
        Ok(match backend {
            SandboxBackend::Bubblewrap(program) => bubblewrap(program, &paths, self.rules.network, spec),
            SandboxBackend::Landlock(helper) => {
                check_landlock_can_hide(&paths)?;
                landlocked(helper, &paths, self.rules.network, spec)
            }
        })
    }

    /// Returns what to start instead of a program, so that it is confined: the program, its arguments and its directory.
    pub(crate) async fn confine_program(
        &self,
        command: &[String],
        dir: &Path,
    ) -> Result<ConfinedProgram, ToolError> {
        let (program, args) =
            command.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let spec = CommandSpec {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            dir: dir.to_owned(),
            env: Default::default(),
            contained: false,
            remove_afterwards: Vec::new(),
        };
        let CommandSpec { program, args, dir, remove_afterwards, .. } = self.confine(spec, dir).await?;
        Ok(ConfinedProgram { program, args, dir, remove_afterwards })
    }

    /// Detects the backend of this system.
    async fn detect_backend(&self) -> Result<SandboxBackend, ToolError> {
        let no_bubblewrap = match self.without_bubblewrap {
            true => "bubblewrap is disabled".to_owned(),
            false => match bubblewrap_works(self.rules.network).await {
                Ok(program) => return Ok(SandboxBackend::Bubblewrap(program)),
                Err(why) => why.to_string(),
            },
        };
        let no_landlock = match (&self.helper, landlock_is_there(self.rules.network)) {
            (Some(helper), Ok(())) => return Ok(SandboxBackend::Landlock(helper.clone())),
            (None, Ok(())) => "no Landlock helper program is set".to_owned(),
            (_, Err(why)) => why.to_string(),
        };
        Err(ToolError::Failed(format!(
            "the command was not run: it is to run in a sandbox, and there is none here ({no_bubblewrap}; \
             {no_landlock}). Install bubblewrap, or set `sandbox: off` to run commands without one"
        )))
    }
}

#[cfg(target_os = "linux")]
fn landlock_is_there(network: bool) -> Result<(), ToolError> {
    landlock::is_available(network).map_err(|why| ToolError::Failed(why.to_string()))
}

#[cfg(not(target_os = "linux"))]
fn landlock_is_there(_: bool) -> Result<(), ToolError> {
    Err(ToolError::Failed("Landlock works only on Linux".to_owned()))
}

/// Finds bubblewrap and checks that it works: a kernel may forbid the namespaces that it needs.
async fn bubblewrap_works(network: bool) -> Result<PathBuf, ToolError> {
    let places = DEFAULT_PATH.split(':').chain(["/run/current-system/sw/bin"]);
    let Some(program) = places.map(|dir| Path::new(dir).join("bwrap")).find(|path| path.is_file()) else {
        return Err(ToolError::Failed("bubblewrap is not installed".to_owned()));
    };
    let paths = SandboxPaths { work: PathBuf::from("/"), tmpfs: tmpfs_dirs(), ..SandboxPaths::default() };
    let probe = CommandSpec::shell(":", "/".into(), Default::default());
    let spec = bubblewrap(&program, &paths, network, probe);
    let mut command = tokio::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir("/").env_clear().kill_on_drop(true);
    command.stdin(Stdio::null());
    // Kill it with everything it has started, without delaying a stop.
    match tokio::time::timeout(PROBE, crate::process::run_to_output(command)).await {
        Ok(Ok(output)) if output.status.success() => Ok(program),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(ToolError::Failed(format!("bubblewrap does not work here: {}", said.trim())))
        }
        Ok(Err(error)) => Err(ToolError::Failed(format!("bubblewrap cannot be started: {error}"))),
        Err(_) => Err(ToolError::Failed("bubblewrap did not answer".to_owned())),
    }
}

/// The directories that a command may write to and read, as real paths.
#[derive(Debug, PartialEq, Eq, Default)]
struct SandboxPaths {
    work: PathBuf,
    writable: Vec<PathBuf>,
    git: Vec<GitDirs>,
    /// Directories that are empty and private to the command.
    tmpfs: Vec<PathBuf>,
    /// Directories below those that stay readable, because they contain a writable directory.
    readable: Vec<PathBuf>,
    /// Directories that the command may not read.
    hidden: Vec<PathBuf>,
}

/// Directories for temporary files and for daemon sockets. A command that can talk to a daemon could make it
/// write anywhere.
fn tmpfs_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<_> =
        ["/tmp", "/var/tmp", "/run"].iter().filter_map(|dir| Path::new(dir).canonicalize().ok()).collect();
    dirs.dedup();
    dirs
}

/// Returns the directories directly below `/tmp` that contain a writable directory: they stay readable. The
/// rest of `/tmp` stays hidden.
fn readable_dirs(writable: &[PathBuf]) -> Vec<PathBuf> {
    let places = ["/tmp", "/var/tmp"].iter().filter_map(|dir| Path::new(dir).canonicalize().ok());
    let part = |place: &PathBuf, dir: &PathBuf| {
        let mut names = dir.strip_prefix(place).ok()?.iter();
        let first = place.join(names.next()?);
        names.next().is_some().then_some(first)
    };
    let mut shown: Vec<_> =
        places.flat_map(|place| writable.iter().filter_map(move |dir| part(&place, dir))).collect();
    shown.sort();
    shown.dedup();
    shown
}

impl SandboxPaths {
    fn new(rules: &SandboxRules, work: &Path) -> Result<Self, ToolError> {
        let real = |path: &Path| {
            let real = path.canonicalize();
            real.map_err(|error| {
                ToolError::Failed(format!(
                    "{}, which commands may write to, cannot be used: {error}",
                    path.display()
                ))
            })
        };
        let work = real(work)?;
        let mut writable = vec![work.clone()];
        for path in &rules.writable {
            writable.push(real(&work.join(path))?);
        }
        let mut git = Vec::new();
        for dir in &writable {
            git.extend(
                GitDirs::for_worktree(dir)
                    .map_err(|why| ToolError::Failed(format!("the command was not run: {why}")))?,
            );
        }
        let shown = readable_dirs(&writable);
        // One that does not exist has nothing to hide.
        let hidden = rules.hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Ok(SandboxPaths { work, writable, git, tmpfs: tmpfs_dirs(), readable: shown, hidden })
    }
}

/// Wraps a command in bubblewrap. A shell starts bubblewrap and waits for it, because `--die-with-parent`
/// follows the parent's thread, and the thread that starts a command here may end long before this process
/// does.
fn bubblewrap(program: &Path, paths: &SandboxPaths, network: bool, spec: CommandSpec) -> CommandSpec {
    let mut args = SandboxArgs::default();
    args.words(["-c", "\"$@\"; exit $?", "sh"]).path(program);
    args.words(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]);
    // Otherwise root could mount over what is write-protected.
    args.words(["--cap-drop", "ALL"]);
    if !network {
        args.words(["--unshare-net"]);
    }
    args.words(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    // Otherwise root could make the kernel execute a program, even without capabilities.
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"] {
        args.words(["--ro-bind-try", path, path]);
    }
    for dir in &paths.tmpfs {
        args.words(["--tmpfs"]).path(dir);
    }
    let needed = ["/run/current-system", "/run/systemd/resolve"];
    for dir in needed.iter().take(if network { 2 } else { 1 }) {
        args.words(["--ro-bind-try", dir, dir]);
    }
    for dir in &paths.readable {
        args.bind("--ro-bind", dir);
    }
    for dir in &paths.writable {
        args.bind("--bind", dir);
    }
    for git in &paths.git {
        // A mount point can be neither moved nor replaced.
        git.writable.iter().for_each(|path| args.bind("--bind", path));
        git.read_only.iter().for_each(|path| args.bind("--ro-bind", path));
        git.masked.iter().for_each(|path| {
            args.words(["--tmpfs"]).path(path);
        });
    }
    for hidden in &paths.hidden {
        args.words(["--tmpfs"]).path(hidden);
        // What is in it and may be written stays.
        let inside = paths.writable.iter().filter(|dir| dir.starts_with(hidden));
        inside.for_each(|dir| args.bind("--bind", dir));
    }
    args.words(["--chdir"]).path(&spec.dir).words(["--"]).command(spec.program, spec.args);
    let remove_afterwards = paths.git.iter().flat_map(|git| git.remove_afterwards.clone()).collect();
    CommandSpec {
        program: "/bin/sh".into(),
        args: args.0,
        dir: paths.work.clone(),
        env: spec.env,
        contained: true,
        remove_afterwards,
    }
}

/// Landlock only allows, so it cannot take a part of a writable directory away.
fn check_landlock_can_hide(paths: &SandboxPaths) -> Result<(), ToolError> {
    let inside = |hidden: &&PathBuf| paths.writable.iter().any(|dir| hidden.starts_with(dir));
    match paths.hidden.iter().find(inside) {
        Some(hidden) => Err(ToolError::Failed(format!(
            "the command was not run: it may write to a directory that contains {}, where this Longhaul server keeps its \
             tokens, and Landlock cannot hide that. Install bubblewrap, or keep Longhaul's data elsewhere (`--data DIR`)",
            hidden.display()
        ))),
        None => Ok(()),
    }
}

fn landlocked(helper: &Path, paths: &SandboxPaths, network: bool, spec: CommandSpec) -> CommandSpec {
    let mut args = SandboxArgs::default();
    args.words([SANDBOX_EXEC]);
    for dir in paths.writable.iter().chain(paths.git.iter().flat_map(|git| &git.writable)) {
        args.words(["--rw"]).path(dir);
    }
    for dir in &paths.hidden {
        args.words(["--hide"]).path(dir);
    }
    if network {
        args.words(["--net"]);
    }
    args.words(["--"]).command(spec.program.clone(), spec.args.clone());
    let remove_afterwards = paths.git.iter().flat_map(|git| git.remove_afterwards.clone()).collect();
    CommandSpec { program: helper.into(), args: args.0, remove_afterwards, ..spec }
}

#[derive(Default)]
struct SandboxArgs(Vec<OsString>);

impl SandboxArgs {
    fn words<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> &mut Self {
        self.0.extend(words.into_iter().map(OsString::from));
        self
    }

    fn path(&mut self, path: &Path) -> &mut Self {
        self.0.push(path.into());
        self
    }

    fn bind(&mut self, how: &str, path: &Path) {
        self.words([how]).path(path).path(path);
    }

    fn command(&mut self, program: OsString, args: Vec<OsString>) {
        self.0.push(program);
        self.0.extend(args);
    }
}

#[cfg(test)]
mod tests;
