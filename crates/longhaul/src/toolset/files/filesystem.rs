//! The toolset `filesystem` of team files.

use std::path::PathBuf;
use std::sync::Arc;

use super::file_roots::{FileAccess, SkipRule};
use super::post_edit::{PostEdit, PostEditCommands};
use super::{FileToolParts, list, read, search, tree, write};
use crate::toolset::{OpenFuture, Toolset, ToolsetContext};

/// The toolset `filesystem`: reads, searches, writes and edits files below the task's working directory and
/// other allowed directories.
///
/// It cannot reach anything else: not by `..`, not by a symbolic link, not even by one that is swapped in
/// during a call. It can read `.git` but not change it, because git executes what is there.
#[derive(Debug, Clone)]
pub struct Filesystem {
    parts: FileToolParts,
}

/// Builds a [`Filesystem`].
#[derive(Debug, Clone)]
pub struct FilesystemBuilder {
    allow: Vec<PathBuf>,
    ignore_vcs: bool,
    hidden: Vec<PathBuf>,
    post_edit: Vec<PostEdit>,
    guardian: crate::process::ProcessGuardian,
}

impl Filesystem {
    /// Creates a toolset for the working directory.
    pub fn new() -> Self {
        Filesystem::builder().build()
    }

    /// Starts building a toolset with other settings.
    pub fn builder() -> FilesystemBuilder {
        FilesystemBuilder {
            allow: Vec::new(),
            ignore_vcs: true,
            hidden: Vec::new(),
            post_edit: Vec::new(),
            guardian: crate::process::ProcessGuardian::new(),
        }
    }
}

impl Default for Filesystem {
    fn default() -> Self {
        Filesystem::new()
    }
}

impl FilesystemBuilder {
    /// Allows reading and writing below one more directory. A relative path is relative to the task's working
    /// directory. The directory need not exist yet.
    pub fn allow_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.allow.push(path.into());
        self
    }

    /// Sets whether lists, trees and searches skip what `.gitignore` names. They do by default.
    pub fn ignore_vcs(mut self, ignore: bool) -> Self {
        self.ignore_vcs = ignore;
        self
    }

    /// Hides the directories of the server that this process is, wherever they are.
    pub fn own_server(mut self, server: &crate::toolset::OwnServer) -> Self {
        self.hidden.extend_from_slice(server.hidden());
        self
    }

    /// Adds a command that runs after a file was written or edited.
    pub fn post_edit(mut self, post_edit: PostEdit) -> Self {
        self.post_edit.push(post_edit);
        self
    }

    /// Sets the guardian that kills post-edit commands when this process is killed. By default the toolset
    /// has its own.
    pub fn guardian(mut self, guardian: crate::process::ProcessGuardian) -> Self {
        self.guardian = guardian;
        self
    }

    /// Builds the toolset.
    pub fn build(self) -> Filesystem {
        let skip = if self.ignore_vcs { SkipRule::Gitignored } else { SkipRule::Nothing };
        let access = Arc::new(FileAccess::new(self.allow, skip).hide(self.hidden));
        let post = PostEditCommands::new(self.post_edit);
        let post = post.with_guardian(self.guardian);
        Filesystem { parts: FileToolParts { access, post_edits: Arc::new(post) } }
    }
}

impl Toolset for Filesystem {
    fn name(&self) -> &str {
        "filesystem"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let parts = &self.parts;
            Ok(vec![
                parts.tool(read::ReadFile),
                parts.tool(read::ReadMultipleFiles),
                parts.tool(list::ListDirectory),
                parts.tool(tree::DirectoryTree),
                parts.tool(search::SearchFilesContent),
                parts.tool(write::WriteFile { no_post_edits: parts.post_edits.is_empty() }),
                parts.tool(write::EditFile),
                parts.tool(write::CreateDirectory),
                parts.tool(write::RemoveDirectory),
            ])
        })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let mut text =
            "Paths are relative to your working directory, and only what is below it can be reached"
                .to_owned();
        for path in &self.parts.access.allow {
            text += &format!(" (and below {})", path.display());
        }
        text += ".";
        if self.parts.access.skip == SkipRule::Gitignored {
            text += " Lists and searches leave out what .gitignore names.";
        }
        Some(text)
    }
}
