//! The ground a task may look at: its working directory and what is below it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

use crate::tool::{CallContext, ToolError};
use crate::toolset::text::{counted, grouped};

/// How many files one walk looks at, and how many entries of directories in all.
const MAX_FILES: u64 = 20_000;
const MAX_ENTRIES: u64 = 10 * MAX_FILES;
/// Each so many files, whoever watches is told.
const PROGRESS_EVERY: u64 = 400;
/// Directories that are made by machines: no walk enters them.
const SKIPPED: [&str; 3] = [".git", "target", "node_modules"];

/// A working directory, with all symlinks resolved.
pub(super) struct Ground {
    root: PathBuf,
    /// As it was given.
    named: PathBuf,
    context: CallContext,
}

impl Ground {
    pub(super) fn of(context: CallContext) -> Result<Self, ToolError> {
        let Some(named) = context.working_dir.clone() else {
            return Err(ToolError::Failed("this task has no working directory".to_owned()));
        };
        let root = named.canonicalize().map_err(|error| {
            ToolError::Failed(format!("the working directory {} cannot be used: {error}", named.display()))
        })?;
        Ok(Ground { root, named, context })
    }

    /// What is really at `typed`, if that is on the ground. Symlinks are resolved before that is decided.
    pub(super) fn find(&self, typed: &str) -> Result<PathBuf, ToolError> {
        let refused = |why: &str| {
            ToolError::Retry(format!(
                "'{typed}' is not below the working directory{why}: only what is below it can be read"
            ))
        };
        let path = self.root.join(typed);
        let real = match path.canonicalize() {
            Ok(real) => real,
            // Whether there is something outside is nobody's business.
            Err(_) if !self.seems_inside(&path) => return Err(refused("")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ToolError::Retry(format!("there is no '{typed}' in the working directory")));
            }
            Err(error) => return Err(cannot_read(typed, &error)),
        };
        match real.starts_with(&self.root) {
            true => Ok(real),
            false if self.seems_inside(&path) => Err(refused(" (a symbolic link leads out of it)")),
            false => Err(refused("")),
        }
    }

    /// Whether a path is on the ground as far as its words go.
    fn seems_inside(&self, path: &Path) -> bool {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => _ = plain.pop(),
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        plain.starts_with(&self.root) || plain.starts_with(&self.named)
    }

    /// A path as the model writes it: relative to the working directory.
    pub(super) fn shown(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        match relative.as_os_str().is_empty() {
            true => ".".to_owned(),
            false => relative.display().to_string(),
        }
    }

    /// An error, if the task is being stopped.
    pub(super) fn go_on(&self) -> Result<(), ToolError> {
        match self.context.cancel.is_cancelled() {
            true => Err(ToolError::Failed("the task is being stopped".to_owned())),
            false => Ok(()),
        }
    }

    /// Visits the files below `start`, or `start` itself if it is one, in order of their paths. Symlinks are not
    /// followed, and what is no plain file is not visited.
    pub(super) fn walk(
        &self,
        start: PathBuf,
        hidden: Hidden,
        mut visit: impl FnMut(&Path) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<Walked, ToolError> {
        let mut walked = Walked::default();
        let (mut files, mut entries) = (0, 0);
        let mut ahead = vec![start];
        while let Some(path) = ahead.pop() {
            self.go_on()?;
            let Ok(kind) = fs::symlink_metadata(&path).map(|meta| meta.file_type()) else {
                walked.unreadable += 1;
                continue;
            };
            if kind.is_file() {
                if files == MAX_FILES {
                    walked.cut = true;
                    break;
                }
                files += 1;
                if files.is_multiple_of(PROGRESS_EVERY) {
                    self.context.progress(format!("… {}", counted(files, "file")));
                }
                if visit(&path)?.is_break() {
                    break;
                }
            } else if kind.is_dir() {
                let Ok(listing) = fs::read_dir(&path) else {
                    walked.unreadable += 1;
                    continue;
                };
                let mut below = Vec::new();
                for entry in listing {
                    if entries == MAX_ENTRIES {
                        walked.cut = true;
                        break;
                    }
                    entries += 1;
                    match entry {
                        Ok(entry) if hidden.enters(&entry.file_name()) => below.push(entry.path()),
                        Ok(_) => {}
                        Err(_) => walked.unreadable += 1,
                    }
                }
                below.sort_unstable_by(|a, b| b.cmp(a));
                ahead.append(&mut below);
            }
        }
        Ok(walked)
    }
}

/// Whether a walk sees what is hidden. Neither sees [`SKIPPED`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    Seen,
    Skipped,
}

impl Hidden {
    fn enters(self, name: &OsStr) -> bool {
        let bytes = name.as_encoded_bytes();
        !SKIPPED.iter().any(|skipped| name == *skipped) && (self == Hidden::Seen || !bytes.starts_with(b"."))
    }
}

/// What a walk did not see.
#[derive(Default)]
pub(super) struct Walked {
    cut: bool,
    unreadable: u64,
}

impl Walked {
    /// The markers for it, and for `unread` files that could not be read on the way.
    pub(super) fn markers(&self, unread: u64) -> String {
        let mut text = String::new();
        if self.cut {
            text += &format!("\n[… more than {} files: the rest was not looked at …]", grouped(MAX_FILES));
        }
        match self.unreadable + unread {
            0 => {}
            n => text += &format!("\n[{} could not be read]", counted(n, "path")),
        }
        text
    }
}

/// The error for something on the ground that cannot be read.
pub(super) fn cannot_read(typed: &str, error: &io::Error) -> ToolError {
    ToolError::Failed(format!("'{typed}' cannot be read: {error}"))
}
