//! The JSON file of project tasks: locked while it is read and written, and replaced atomically.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::task_list::ProjectTaskList;
use crate::tool::ToolError;

/// The largest file that is read.
const LARGEST: u64 = 8 << 20;
/// How long to wait for another process that has locked the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The file: its name in an open directory, and its path for messages.
pub(super) struct ProjectTaskFile {
    dir: Dir,
    name: OsString,
    shown: String,
}

impl ProjectTaskFile {
    /// Opens the file at this path; a relative path is relative to the working directory. Creates missing
    /// directories, and refuses a symbolic link that leads out of the working directory.
    pub(super) fn open(path: &Path, working_dir: Option<&Path>) -> Result<ProjectTaskFile, ToolError> {
        let shown = path.display().to_string();
        let failed =
            |error: io::Error| ToolError::Failed(format!("the task file '{shown}' cannot be used: {error}"));
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?.to_owned();
        let above = path.parent().unwrap_or(Path::new(""));
        let dir = match (path.is_absolute(), working_dir) {
            (true, _) => {
                std::fs::create_dir_all(above).map_err(failed)?;
                Dir::open_ambient_dir(above, ambient_authority()).map_err(failed)?
            }
            (false, None) => return Err(ToolError::Failed("this task has no working directory".to_owned())),
            (false, Some(working_dir)) => {
                let roots = Dir::open_ambient_dir(working_dir, ambient_authority()).map_err(failed)?;
                match above.as_os_str().is_empty() {
                    true => roots,
                    false => {
                        roots.create_dir_all(above).map_err(failed)?;
                        roots.open_dir(above).map_err(failed)?
                    }
                }
            }
        };
        Ok(ProjectTaskFile { dir, name, shown })
    }

    pub(super) fn read(&self) -> Result<ProjectTaskList, ToolError> {
        let wrong = |why: &dyn std::fmt::Display| {
            ToolError::Failed(format!("the task file '{}' {why}. Nothing was changed in it.", self.shown))
        };
        let text = match read_text(&self.dir, Path::new(&self.name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ProjectTaskList::default()),
            Err(error) => return Err(wrong(&format_args!("cannot be read: {error}"))),
        };
        match text.trim() {
            "" => Ok(ProjectTaskList::default()),
            text => serde_json::from_str(text)
                .map_err(|error| wrong(&format_args!("is not a list of tasks: {error}"))),
        }
    }

    /// Changes the task list while holding the lock.
    pub(super) fn change<T>(
        &self,
        act: impl FnOnce(&mut ProjectTaskList) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let _turn = self.lock()?;
        let mut list = self.read()?;
        let before = list.clone();
        let answer = act(&mut list)?;
        if list != before {
            self.write(&list).map_err(|error| {
                ToolError::Failed(format!("the task file '{}' cannot be written: {error}", self.shown))
            })?;
        }
        Ok(answer)
    }

    /// Waits for the lock. It is on the directory, because every change replaces the file.
    fn lock(&self) -> Result<File, ToolError> {
        let failed = |error: io::Error| {
            ToolError::Failed(format!("the task file '{}' cannot be locked: {error}", self.shown))
        };
        let file = self.lock_file().map_err(failed)?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    return Err(ToolError::Failed(format!(
                        "somebody else has had the task file '{}' for {LOCK_TIMEOUT:?}: try again later",
                        self.shown
                    )));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        Ok(self.dir.open(".")?.into_std())
    }

    fn write(&self, list: &ProjectTaskList) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(list)?;
        let mut beside = self.name.clone();
        beside.push(format!(".{}.tmp", uuid::Uuid::now_v7().simple()));
        let written = (|| {
            let mut file = self.dir.open_with(&beside, OpenOptions::new().write(true).create_new(true))?;
            file.write_all(&text)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            self.dir.rename(&beside, &self.dir, &self.name)
        })();
        if written.is_err() {
            let _ = self.dir.remove_file(&beside);
        }
        written
    }
}

/// Reads a text file below the working directory that the model has named.
pub(super) fn read_description(typed: &str, working_dir: Option<&Path>) -> Result<String, ToolError> {
    let Some(working_dir) = working_dir else {
        return Err(ToolError::Failed("this task has no working directory".to_owned()));
    };
    let failed = |error: io::Error| {
        ToolError::Retry(format!(
            "'{typed}' cannot be read as a description: {error}. It must be a text file below the working directory."
        ))
    };
    let dir = Dir::open_ambient_dir(working_dir, ambient_authority()).map_err(failed)?;
    let path = Path::new(typed);
    let below = path.strip_prefix(working_dir).unwrap_or(path);
    let plain: PathBuf = below.components().filter(|part| *part != Component::CurDir).collect();
    read_text(&dir, &plain).map_err(failed)
}

fn read_text(dir: &Dir, path: &Path) -> io::Result<String> {
    // Opening a named pipe would block until someone writes to it.
    if !dir.metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut text = String::new();
    let read = dir.open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if read as u64 > LARGEST { Err(io::Error::other("it is too large")) } else { Ok(text) }
}
