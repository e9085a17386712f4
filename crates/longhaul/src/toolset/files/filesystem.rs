//! The toolset `filesystem`, as team files know it.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::file_roots::{FileAccess, SkipRule};
use super::post_edit::{PostEdit, PostEditCommands};
use super::{FileToolParts, list, read, search, tree, write};
use crate::tool::DynTool;
use crate::toolset::{Toolset, ToolsetContext, ToolsetError};

/// The toolset `filesystem`: reads, searches, writes and edits what is below the task's working directory and the
/// directories that are allowed besides.
///
/// Nothing else can be reached: not by `..`, not by a symbolic link, not by one that is moved at the right moment. What is
/// in `.git` can be read and not changed, because git executes what is there.
#[derive(Debug, Clone)]
pub struct Filesystem {
    parts: FileToolParts,
}

/// What a [`Filesystem`] can reach, and what it does besides.
#[derive(Debug, Clone)]
pub struct FilesystemBuilder {
    allow: Vec<PathBuf>,
    ignore_vcs: bool,
    post_edit: Vec<PostEdit>,
    #[cfg(unix)]
    guardian: crate::process::ProcessGuardian,
}

impl Filesystem {
    /// The toolset, for what is below the working directory.
    pub fn new() -> Self {
        Filesystem::builder().build()
    }

    /// One that does more.
    pub fn builder() -> FilesystemBuilder {
        FilesystemBuilder {
            allow: Vec::new(),
            ignore_vcs: true,
            post_edit: Vec::new(),
            #[cfg(unix)]
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
    /// One more directory that can be read and written, with all below it. A relative one is relative to the task's
    /// working directory. It need not be there yet.
    pub fn allow_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.allow.push(path.into());
        self
    }

    /// Whether lists, trees and searches leave out what `.gitignore` names. They do, if they are not told.
    pub fn ignore_vcs(mut self, ignore: bool) -> Self {
        self.ignore_vcs = ignore;
        self
    }

    /// One more command that runs when a file was written or edited.
    pub fn post_edit(mut self, post_edit: PostEdit) -> Self {
        self.post_edit.push(post_edit);
        self
    }

    /// Who sees to it that commands after edits end when this process is killed. It has its own, if it is not given one.
    #[cfg(unix)]
    pub fn guardian(mut self, watchman: crate::process::ProcessGuardian) -> Self {
        self.guardian = watchman;
        self
    }

    /// The toolset.
    pub fn build(self) -> Filesystem {
        let skip = if self.ignore_vcs { SkipRule::Gitignored } else { SkipRule::Nothing };
        let reach = Arc::new(FileAccess::new(self.allow, skip));
        let post = PostEditCommands::new(self.post_edit);
        #[cfg(unix)]
        let post = post.with_guardian(self.guardian);
        Filesystem { parts: FileToolParts { access: reach, post_edits: Arc::new(post) } }
    }
}

impl Toolset for Filesystem {
    fn name(&self) -> &str {
        "filesystem"
    }

    fn open<'a>(
        &'a self,
        _patron: &'a ToolsetContext,
    ) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async {
            let kit = &self.parts;
            Ok(vec![
                kit.tool(read::ReadFile),
                kit.tool(read::ReadMultipleFiles),
                kit.tool(list::ListDirectory),
                kit.tool(tree::DirectoryTree),
                kit.tool(search::SearchFilesContent),
                kit.tool(write::WriteFile { no_post_edits: kit.post_edits.is_empty() }),
                kit.tool(write::EditFile),
                kit.tool(write::CreateDirectory),
                kit.tool(write::RemoveDirectory),
            ])
        })
    }

    fn instruction(&self, _patron: &ToolsetContext) -> Option<String> {
        let mut text =
            "Paths are relative to your working directory, and only what is below it can be reached"
                .to_owned();
        for path in &self.parts.access.allow {
            text += &format!(" (and below {})", path.display());
        }
        text +=
            ". Read a file before you edit it. To change a part of a file, prefer edit_file to write_file.";
        if self.parts.access.skip == SkipRule::Gitignored {
            text += " Lists and searches leave out what .gitignore names.";
        }
        Some(text)
    }
}
