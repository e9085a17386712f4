//! The tools that change files: `write_file`, `edit_file`, `create_directory` and `remove_directory`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};

use cap_fs_ext::{FollowSymlinks, MetadataExt as _, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, Metadata, OpenOptions};
use schemars::JsonSchema;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use super::edit::{Edit, apply_edits};
use super::file_roots::{FileRoots, cannot_read_error};
use super::path_resolver::RootedPath;
use super::{ChangedFile, FileOp, FileOpOutput, paths};
use crate::entry::FileChange;
use crate::tool::{ArgumentAliases, ToolEffects, ToolError};
use crate::toolset::text::pluralize;

/// The largest file that is written or edited.
const MAX_BYTES: usize = 10 * 1024 * 1024;
/// The largest file that is compared with what a call would make of it.
const MAX_COMPARED: u64 = 1024 * 1024;

#[derive(Clone, Copy)]
pub(super) struct WriteFile {
    /// Whether no post-edit commands run on the file.
    pub(super) no_post_edits: bool,
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct WriteFileArgs {
    /// The file, relative to the working directory. Directories that are missing are made.
    path: String,
    /// All of its new content.
    content: String,
}

impl FileOp for WriteFile {
    type Args = WriteFileArgs;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str =
        "Writes a file, whole: makes a new one, or replaces what is there. To change a part, use edit_file.";

    fn effects(&self) -> ToolEffects {
        if self.no_post_edits { ToolEffects::REPEATABLE } else { ToolEffects::default() }
    }

    fn run(&self, args: WriteFileArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let place = roots.resolve_for_write(&args.path)?;
        let _changing = roots.lock_writes();
        let content = args.content.as_bytes();
        let there = roots.metadata(&place).ok();
        let same_size = there.as_ref().is_some_and(|meta| meta.len() == content.len() as u64);
        let unchanged = same_size && read_to_compare(roots, &args.path).is_ok_and(|before| before == content);
        replace_file(roots, &args.path, &place, content, None)?;
        let size = pluralize(content.len() as u64, "byte");
        Ok(changed(
            roots,
            &place,
            &match there {
                None => format!("written ({size})"),
                Some(_) if unchanged => format!("is unchanged: it had this content already ({size})"),
                Some(_) => format!("replaced ({size})"),
            },
        ))
    }

    fn preview(&self, args: WriteFileArgs, roots: &FileRoots) -> Option<FileChange> {
        Some(preview_change(roots, &args.path, |_| Ok(args.content.into_bytes())))
    }
}

/// Compares a file with what a call would make of it. The file is found and opened as the call will do it.
fn preview_change(
    roots: &FileRoots,
    typed: &str,
    change: impl FnOnce(&[u8]) -> Result<Vec<u8>, ToolError>,
) -> FileChange {
    let mut preview =
        FileChange { path: typed.to_owned(), exists: false, diff: String::new(), problem: None };
    let place = match roots.resolve_for_write(typed) {
        Ok(place) => place,
        Err(error) => {
            preview.problem = Some(format!("the call would fail: {error}"));
            return preview;
        }
    };
    preview.path = roots.display_path(&place);
    preview.exists = roots.metadata(&place).is_ok();
    let before = if preview.exists { read_to_compare(roots, typed) } else { Ok(Vec::new()) };
    let compared = before.and_then(|before| {
        let after = change(&before).map_err(|why| not_compared(&format!("the call would fail: {why}")))?;
        let (before, after) = (String::from_utf8(before).ok(), String::from_utf8(after).ok());
        let (before, after) =
            before.zip(after).ok_or_else(|| not_compared("it is not text, and is not compared"))?;
        Ok(super::diff::diff_lines(&before, &after))
    });
    match compared {
        Ok(diff) => preview.diff = diff,
        Err(problem) => preview.problem = Some(problem.to_string()),
    }
    if let (true, Some(problem)) = (preview.exists, &mut preview.problem) {
        *problem = format!("it exists, and would be changed; {problem}");
    }
    preview
}

fn not_compared(why: &str) -> ToolError {
    ToolError::Failed(why.to_owned())
}

fn read_to_compare(roots: &FileRoots, typed: &str) -> Result<Vec<u8>, ToolError> {
    let mut opened = roots.resolve_and_open(typed).map_err(|error| not_compared(&error.to_string()))?;
    if opened.meta.len() > MAX_COMPARED {
        return Err(not_compared("it is too large to be compared"));
    }
    let mut text = Vec::new();
    opened.file.read_to_end(&mut text).map_err(|error| not_compared(&error.to_string()))?;
    Ok(text)
}

#[derive(Clone, Copy)]
pub(super) struct EditFile;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct EditFileArgs {
    /// The file, relative to the working directory.
    path: String,
    /// What to replace, one after the other. If one of them cannot be made, none is.
    #[serde(deserialize_with = "edits")]
    #[schemars(with = "Vec<Edit>")]
    edits: Vec<Edit>,
}

/// Parses a list of edits; also a single edit, or a list encoded as a string.
fn edits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Edit>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose {
        List(Vec<Edit>),
        One(Edit),
        Text(String),
    }
    match Loose::deserialize(deserializer) {
        Ok(Loose::List(list)) => Ok(list),
        Ok(Loose::One(one)) => Ok(vec![one]),
        Ok(Loose::Text(text)) => serde_json::from_str(&text).map_err(de::Error::custom),
        Err(_) => Err(de::Error::custom("`edits` is not a list of {oldText, newText}")),
    }
}

impl FileOp for EditFile {
    type Args = EditFileArgs;
    const NAME: &'static str = "edit_file";
    const ALIASES: ArgumentAliases = &[("old_text", "oldText"), ("new_text", "newText")];
    const DESCRIPTION: &'static str = "Changes a text file: replaces pieces of its text by others. Each `oldText` must be \
        in the file exactly once, so read the file first. Either all edits are made or none.";

    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    fn run(&self, args: EditFileArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        let typed = args.path.as_str();
        if args.edits.is_empty() {
            return Err(ToolError::Retry("`edits` is empty: say what to replace".to_owned()));
        }
        let place = roots.resolve_for_write(typed)?;
        let _changing = roots.lock_writes();
        let mut opened = roots.resolve_and_open(typed)?;
        if opened.place != place {
            return Err(moved(typed));
        }
        if opened.meta.len() > MAX_BYTES as u64 {
            return Err(too_large(typed, opened.meta.len()));
        }
        let mut text = Vec::new();
        opened.file.read_to_end(&mut text).map_err(|error| cannot_read_error(typed, &error))?;
        if text.contains(&0) {
            return Err(ToolError::Failed(format!("'{typed}' is a binary file, not text")));
        }
        let wrong = |why: String| ToolError::Retry(format!("'{typed}' was not changed: {why}"));
        let new = apply_edits(&text, &args.edits).map_err(|why| wrong(why.to_string()))?;
        if new == text {
            return Err(wrong("the edits change nothing".to_owned()));
        }
        replace_file(roots, typed, &place, &new, Some(&opened.meta))?;
        let made = pluralize(args.edits.len() as u64, "edit");
        Ok(changed(roots, &place, &format!("changed ({made})")))
    }

    fn preview(&self, args: EditFileArgs, roots: &FileRoots) -> Option<FileChange> {
        Some(preview_change(roots, &args.path, |text| apply_edits(text, &args.edits)))
    }
}

fn changed(roots: &FileRoots, place: &RootedPath, what: &str) -> FileOpOutput {
    let shown = roots.display_path(place);
    FileOpOutput {
        text: format!("{shown} {what}"),
        changed: Some(ChangedFile { shown, full_path: roots.full_path(place) }),
    }
}

/// Replaces a file atomically: writes a temporary file beside it and renames that. An existing file's
/// permissions and owner are kept. With `as_read`, fails if the file has changed since it was read.
fn replace_file(
    roots: &FileRoots,
    typed: &str,
    place: &RootedPath,
    content: &[u8],
    as_read: Option<&Metadata>,
) -> Result<(), ToolError> {
    let failed = |error: io::Error| ToolError::Failed(format!("'{typed}' cannot be written: {error}"));
    if content.len() > MAX_BYTES {
        return Err(too_large(typed, content.len() as u64));
    }
    let (dir, name) = roots.open_parent(place, true).map_err(failed)?;
    let there = match dir.symlink_metadata(&name) {
        Ok(meta) if meta.is_dir() => {
            return Err(ToolError::Retry(format!("'{typed}' is a directory, not a file")));
        }
        Ok(meta) if !meta.is_file() => {
            return Err(ToolError::Failed(format!("'{typed}' is not a plain file, and is left alone")));
        }
        Ok(meta) if meta.permissions().readonly() => {
            return Err(ToolError::Failed(format!("'{typed}' is write-protected, and is left alone")));
        }
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let beside = TempFile::write(&dir, content, there.as_ref()).map_err(failed)?;
    if let Some(read) = as_read {
        let now = dir.symlink_metadata(&name).map_err(failed)?;
        if mark(&now) != mark(read) {
            return Err(moved(typed));
        }
    }
    roots.check_cancelled()?;
    beside.rename(&name).map_err(failed)
}

/// Identifies the version of a file that was read.
fn mark(meta: &Metadata) -> (u64, u64, u64, Option<std::time::SystemTime>) {
    (meta.dev(), meta.ino(), meta.len(), meta.modified().ok().map(cap_std::time::SystemTime::into_std))
}

fn moved(typed: &str) -> ToolError {
    ToolError::Retry(format!("'{typed}' was changed by somebody else meanwhile: read it again"))
}

fn too_large(typed: &str, size: u64) -> ToolError {
    let (size, most) = (pluralize(size, "byte"), pluralize(MAX_BYTES as u64, "byte"));
    ToolError::Failed(format!("'{typed}' is too large: {size}, and {most} is the most"))
}

/// A temporary file beside the file that it will replace. Removed on drop, unless it was renamed.
struct TempFile<'a> {
    dir: &'a Dir,
    name: OsString,
    renamed: bool,
}

impl<'a> TempFile<'a> {
    fn write(dir: &'a Dir, content: &[u8], like: Option<&Metadata>) -> io::Result<Self> {
        let name = OsString::from(format!(".longhaul-{}.tmp", uuid::Uuid::now_v7().simple()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        let mut file = dir.open_with(&name, &options)?;
        let beside = TempFile { dir, name, renamed: false };
        if let Some(like) = like {
            keep_owner(&file, like);
            file.set_permissions(like.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        Ok(beside)
    }

    fn rename(mut self, to: &OsStr) -> io::Result<()> {
        self.dir.rename(&self.name, self.dir, to)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = self.dir.remove_file(&self.name);
        }
    }
}

/// Only root can change a file's owner; for other users this has no effect.
fn keep_owner(file: &cap_std::fs::File, like: &Metadata) {
    use cap_std::fs::MetadataExt as _;
    let (uid, gid) = (like.uid(), like.gid());
    if let Ok(own) = file.metadata()
        && (own.uid(), own.gid()) != (uid, gid)
    {
        let _ = std::os::unix::fs::fchown(file, Some(uid), Some(gid));
    }
}

#[derive(Clone, Copy)]
pub(super) struct CreateDirectory;

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct DirectoriesArgs {
    /// The directories, relative to the working directory.
    #[serde(deserialize_with = "paths")]
    #[schemars(with = "Vec<String>")]
    paths: Vec<String>,
}

impl FileOp for CreateDirectory {
    type Args = DirectoriesArgs;
    const NAME: &'static str = "create_directory";
    const ALIASES: ArgumentAliases = &[("path", "paths")];
    const DESCRIPTION: &'static str = "Makes directories, with those above them that are missing.";

    fn effects(&self) -> ToolEffects {
        ToolEffects::REPEATABLE
    }

    fn run(&self, args: DirectoriesArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        each(args, roots, |roots, typed, place| {
            if roots.metadata(place).is_ok_and(|meta| meta.is_dir()) {
                return Ok(format!("{} is there already", roots.display_path(place)));
            }
            let failed = |error| ToolError::Failed(format!("'{typed}' cannot be made: {error}"));
            let (dir, name) = roots.open_parent(place, true).map_err(failed)?;
            dir.create_dir(&name).map_err(failed)?;
            Ok(format!("{} made", roots.display_path(place)))
        })
    }
}

#[derive(Clone, Copy)]
pub(super) struct RemoveDirectory;

impl FileOp for RemoveDirectory {
    type Args = DirectoriesArgs;
    const NAME: &'static str = "remove_directory";
    const ALIASES: ArgumentAliases = &[("path", "paths")];
    const DESCRIPTION: &'static str = "Removes directories that are empty.";

    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    fn run(&self, args: DirectoriesArgs, roots: &FileRoots) -> Result<FileOpOutput, ToolError> {
        each(args, roots, |roots, typed, place| {
            let failed = |error: io::Error| match error.kind() {
                io::ErrorKind::NotFound => ToolError::Retry(format!("there is no '{typed}'")),
                io::ErrorKind::DirectoryNotEmpty => ToolError::Failed(format!(
                    "'{typed}' is not empty, and only empty directories are removed"
                )),
                io::ErrorKind::NotADirectory => ToolError::Retry(format!("'{typed}' is not a directory")),
                _ => ToolError::Failed(format!("'{typed}' cannot be removed: {error}")),
            };
            let (dir, name) = roots.open_parent(place, false).map_err(failed)?;
            dir.remove_dir(&name).map_err(failed)?;
            Ok(format!("{} removed", roots.display_path(place)))
        })
    }
}

/// Applies an operation to each directory. Checks all of them before it changes the first.
fn each(
    args: DirectoriesArgs,
    roots: &FileRoots,
    act: impl Fn(&FileRoots, &str, &RootedPath) -> Result<String, ToolError>,
) -> Result<FileOpOutput, ToolError> {
    if args.paths.is_empty() {
        return Err(ToolError::Retry("`paths` is empty: name a directory".to_owned()));
    }
    let found = |typed: &String| Ok((typed.clone(), roots.resolve_for_write(typed)?));
    let places = args.paths.iter().map(found).collect::<Result<Vec<_>, ToolError>>()?;
    let _changing = roots.lock_writes();
    let mut lines = Vec::with_capacity(places.len());
    for (typed, place) in &places {
        roots.check_cancelled()?;
        match act(roots, typed, place) {
            Ok(line) => lines.push(line),
            Err(error) if lines.is_empty() => return Err(error),
            // Report what was done before the failure.
            Err(error) => return Err(ToolError::Failed(format!("{}\n{error}", lines.join("\n")))),
        }
    }
    Ok(lines.join("\n").into())
}
