//! The directories that a task may read and change: its working directory, and others that its toolset
//! allows.
//!
//! Each root is an open directory. [`path_resolver`](super::path_resolver) finds out where a path leads. This
//! module opens it with `cap-std`, relative to the root's handle and without following a link at its end: on
//! Linux with `openat2` and `RESOLVE_BENEATH`, elsewhere component by component. So there is no gap between
//! check and use: a link that is put in the way in between makes the call fail. A hard link to a file outside
//! cannot be told from a normal file, but these tools cannot create one. Writing never changes a file that a
//! hard link shares, because a written file is a new file.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions};

use super::path_resolver::{PathResolveError, RootNames, RootedPath, resolve_path};
use crate::tool::{CallContext, ToolError};
use crate::toolset::own_server::is_hidden;
use crate::toolset::vcs_dirs::find_vcs_dir;

/// What a toolset may access, and what its walks skip.
#[derive(Debug, Default)]
pub(super) struct FileAccess {
    /// Allowed directories besides the working directory.
    pub(super) allow: Vec<PathBuf>,
    /// What walks skip.
    pub(super) skip: SkipRule,
    /// Directories that cannot be used, although they may be below others that can.
    pub(super) hidden: Vec<PathBuf>,
    /// Held during a change, so that two edits of one file do not overwrite each other.
    write_lock: Mutex<()>,
}

impl FileAccess {
    pub(super) fn new(allow: Vec<PathBuf>, skip: SkipRule) -> Self {
        FileAccess { allow, skip, hidden: Vec::new(), write_lock: Mutex::new(()) }
    }

    pub(super) fn hide(mut self, hidden: Vec<PathBuf>) -> Self {
        self.hidden = hidden;
        self
    }
}

/// What walks skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SkipRule {
    /// Generated directories: `.git`, `target` and `node_modules`.
    #[default]
    GeneratedDirs,
    /// Generated directories, and what version control ignores.
    Gitignored,
    /// Nothing.
    Nothing,
}

/// The open roots of one call.
pub(super) struct FileRoots {
    dirs: Vec<Dir>,
    names: Vec<RootNames>,
    pub(super) access: Arc<FileAccess>,
    pub(super) context: CallContext,
}

/// A regular file, opened for reading.
pub(super) struct OpenedFile {
    pub(super) file: File,
    pub(super) meta: Metadata,
    pub(super) place: RootedPath,
}

impl FileRoots {
    pub(super) fn open_roots(context: CallContext, access: Arc<FileAccess>) -> Result<Self, ToolError> {
        let Some(given) = context.working_dir.clone() else {
            return Err(ToolError::Failed("this task has no working directory".to_owned()));
        };
        let mut roots = FileRoots { dirs: Vec::new(), names: Vec::new(), access, context };
        roots.add(given.clone()).map_err(|error| {
            ToolError::Failed(format!("the working directory {} cannot be used: {error}", given.display()))
        })?;
        for allowed in roots.access.clone().allow.iter().map(|path| given.join(path)) {
            match roots.add(allowed.clone()) {
                Ok(()) => {}
                // The directory may be created later.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let allowed = allowed.display();
                    return Err(ToolError::Failed(format!(
                        "{allowed}, one of the toolset's allow_paths, cannot be used: {error}"
                    )));
                }
            }
        }
        Ok(roots)
    }

    fn add(&mut self, given: PathBuf) -> io::Result<()> {
        let real = given.canonicalize()?;
        self.dirs.push(Dir::open_ambient_dir(&real, ambient_authority())?);
        self.names.push(RootNames { real, given });
        Ok(())
    }

    /// The name of a path outside, if the working directory has a file or directory of that name: models invent
    /// absolute paths.
    fn same_name_inside(&self, typed: &str) -> Option<String> {
        let name = Path::new(typed).file_name()?.to_str()?;
        let place = RootedPath { root: 0, rel: name.into() };
        let is_there = self.dirs.first()?.symlink_metadata(&place.rel).is_ok() && !self.is_hidden(&place);
        is_there.then(|| name.to_owned())
    }

    /// Resolves `typed`; fails if it leads out of the roots.
    pub(super) fn resolve(&self, typed: &str) -> Result<RootedPath, ToolError> {
        let link = |place: &RootedPath| {
            let dir = &self.dirs[place.root];
            match dir.symlink_metadata(&place.rel)?.is_symlink() {
                true => dir.read_link_contents(&place.rel).map(Some),
                false => Ok(None),
            }
        };
        let place = resolve_path(typed, &self.names, link).map_err(|error| match error {
            PathResolveError::OutsideRoots { by_link } => {
                let how = if by_link { " (a symbolic link leads out of it)" } else { "" };
                let meant = self.same_name_inside(typed).map(|name| format!(". There is a '{name}' there"));
                ToolError::Retry(format!(
                    "'{typed}' is not below {}{how}: only what is below can be used, by its path from there{}",
                    self.describe(),
                    meant.unwrap_or_default()
                ))
            }
            PathResolveError::Invalid(why) => {
                ToolError::Retry(format!("'{}' cannot be used: {why}", shortened(typed)))
            }
            PathResolveError::Io(error) => cannot_read_error(typed, &error),
        })?;
        match self.is_hidden(&place) {
            true => Err(ToolError::Failed(format!(
                "'{}' belongs to the Longhaul server that runs this task: its agents may not use it",
                shortened(typed)
            ))),
            false => Ok(place),
        }
    }

    /// Whether a path may not be used at all.
    pub(super) fn is_hidden(&self, place: &RootedPath) -> bool {
        !self.access.hidden.is_empty() && is_hidden(&self.access.hidden, &self.full_path(place))
    }

    /// Resolves `typed` for a change; also fails below directories of version control.
    pub(super) fn resolve_for_write(&self, typed: &str) -> Result<RootedPath, ToolError> {
        let place = self.resolve(typed)?;
        match find_vcs_dir(&place.rel) {
            Some(name) => Err(ToolError::Failed(format!(
                "'{typed}' is in {}, where git and its like keep what they execute (hooks, configuration): it is not \
                 changed by these tools",
                name.display()
            ))),
            None => Ok(place),
        }
    }

    fn describe(&self) -> String {
        match self.names.get(1..).unwrap_or_default() {
            [] => "the working directory".to_owned(),
            more => {
                let more: Vec<_> = more.iter().map(|names| names.given.display().to_string()).collect();
                format!("the working directory or {}", more.join(", "))
            }
        }
    }

    /// Opens the directory at a path.
    pub(super) fn open_dir(&self, place: &RootedPath) -> io::Result<Dir> {
        let root = &self.dirs[place.root];
        if place.rel.as_os_str().is_empty() { root.open_dir(".") } else { root.open_dir_nofollow(&place.rel) }
    }

    /// Returns the metadata of a path, without following a link.
    pub(super) fn metadata(&self, place: &RootedPath) -> io::Result<Metadata> {
        let root = &self.dirs[place.root];
        if place.rel.as_os_str().is_empty() { root.dir_metadata() } else { root.symlink_metadata(&place.rel) }
    }

    /// Returns the target of a link.
    pub(super) fn read_link(&self, place: &RootedPath) -> PathBuf {
        self.dirs[place.root].read_link_contents(&place.rel).unwrap_or_default()
    }

    /// Opens a regular file; `None` if it is something else. Does not block on a named pipe.
    pub(super) fn open_file(&self, place: &RootedPath) -> io::Result<Option<OpenedFile>> {
        let mut options = OpenOptions::new();
        options.read(true).nonblock(true).follow(FollowSymlinks::No);
        let file = self.dirs[place.root].open_with(&place.rel, &options)?;
        let meta = file.metadata()?;
        Ok(meta.is_file().then(|| OpenedFile { file: file.into_std(), meta, place: place.clone() }))
    }

    /// Resolves `typed` and opens it; fails if it is not a regular file.
    pub(super) fn resolve_and_open(&self, typed: &str) -> Result<OpenedFile, ToolError> {
        let place = self.resolve(typed)?;
        let failed = |error: io::Error| self.read_error(typed, &error);
        if self.metadata(&place).map_err(failed)?.is_dir() {
            return Err(ToolError::Retry(format!("'{typed}' is a directory: use list_directory")));
        }
        match self.open_file(&place).map_err(failed)? {
            Some(opened) => Ok(opened),
            None => Err(ToolError::Failed(format!("'{typed}' is not a plain file"))),
        }
    }

    /// The error for a path that cannot be read.
    pub(super) fn read_error(&self, typed: &str, error: &io::Error) -> ToolError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                let similar = || self.similar_name(typed).map(|name| format!(". There is '{name}'"));
                let meant = self.several_paths(typed).or_else(similar);
                let meant = meant.unwrap_or_else(|| ": list_directory shows what is there".to_owned());
                ToolError::Retry(format!("there is no '{typed}' in {}{meant}", self.describe()))
            }
            io::ErrorKind::NotADirectory => {
                ToolError::Retry(format!("there is no '{typed}': a part of the path is not a directory"))
            }
            _ => cannot_read_error(typed, error),
        }
    }

    /// What to do about a text that is several paths, all of which exist.
    fn several_paths(&self, typed: &str) -> Option<String> {
        const MOST: usize = 20;
        let parts = || typed.split([',', ';', ' ', '\n']).map(str::trim).filter(|part| !part.is_empty());
        let exists = |part: &str| {
            let place = self.resolve(part).ok();
            place.is_some_and(|place| !self.is_hidden(&place) && self.metadata(&place).is_ok())
        };
        if !(2..=MOST).contains(&parts().count()) || !parts().all(exists) {
            return None;
        }
        let names: Vec<String> = parts().map(|part| format!("'{part}'")).collect();
        Some(format!(": these are {} paths. Make one call for each: {}", names.len(), names.join(", ")))
    }

    /// The path in the same directory whose name is most like that of a path that does not exist, if one is much like it.
    fn similar_name(&self, typed: &str) -> Option<String> {
        const LOOKED_AT: usize = 1_000;
        const ALIKE: f64 = 0.85;
        let place = self.resolve(typed).ok()?;
        let wanted = place.rel.file_name()?.to_str()?.to_lowercase();
        let (dir, _) = self.open_parent(&place, false).ok()?;
        let names = dir
            .entries()
            .ok()?
            .take(LOOKED_AT)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let alike = names.map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name));
        let (_, name) =
            alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|one, two| one.0.total_cmp(&two.0))?;
        let found = RootedPath { rel: place.rel.with_file_name(&name), ..place };
        (!self.is_hidden(&found)).then(|| found.rel.display().to_string())
    }

    /// Opens the directory that contains a path, name by name without following links; returns it and the
    /// path's last name. With `make`, creates missing directories.
    pub(super) fn open_parent(&self, place: &RootedPath, make: bool) -> io::Result<(Dir, OsString)> {
        let name = place.rel.file_name().ok_or_else(|| io::Error::other("that is the directory itself"))?;
        let mut dir = self.dirs[place.root].try_clone()?;
        for step in place.rel.parent().unwrap_or(Path::new("")) {
            dir = match dir.open_dir_nofollow(step) {
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => match dir.create_dir(step) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => dir.open_dir_nofollow(step)?,
                },
                other => other?,
            };
        }
        Ok((dir, name.to_owned()))
    }

    /// Locks out other changes.
    pub(super) fn lock_writes(&self) -> MutexGuard<'_, ()> {
        self.access.write_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Formats a path as the model writes it: relative to the working directory, or absolute outside of it.
    pub(super) fn display_path(&self, place: &RootedPath) -> String {
        match (place.root, place.rel.as_os_str().is_empty()) {
            (0, true) => ".".to_owned(),
            (0, false) => place.rel.display().to_string(),
            _ => self.full_path(place).display().to_string(),
        }
    }

    /// Returns the absolute path.
    pub(super) fn full_path(&self, place: &RootedPath) -> PathBuf {
        let real = &self.names[place.root].real;
        if place.rel.as_os_str().is_empty() { real.clone() } else { real.join(&place.rel) }
    }

    /// Fails if the task is being stopped.
    pub(super) fn check_cancelled(&self) -> Result<(), ToolError> {
        match self.context.cancel.is_cancelled() {
            true => Err(ToolError::Failed("the task is being stopped".to_owned())),
            false => Ok(()),
        }
    }
}

/// The error for a path in the roots that cannot be read.
pub(super) fn cannot_read_error(typed: &str, error: &io::Error) -> ToolError {
    ToolError::Failed(format!("'{typed}' cannot be read: {error}"))
}

/// Shortens an overlong path for an error message.
fn shortened(typed: &str) -> String {
    crate::toolset::text::truncate(&typed.replace('\0', "\\0"), 80)
}
