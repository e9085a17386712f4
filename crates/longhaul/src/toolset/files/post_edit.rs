//! Commands that run after a file was changed: formatters, linters.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::ChangedFile;
use crate::tool::{CallContext, ToolError, ToolOutput};

/// A command that runs after a file was written or edited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostEdit {
    /// Which files: a pattern as in a `.gitignore`, like `*.go`.
    pub path: String,
    /// The command line for `sh -c`, run in the task's working directory. The environment variable `$path`
    /// contains the absolute path of the file.
    pub cmd: String,
}

/// The post-edit commands of a toolset.
#[derive(Debug, Default)]
pub(super) struct PostEditCommands {
    list: Vec<PostEdit>,
    guardian: crate::process::ProcessGuardian,
}

impl PostEditCommands {
    pub(super) fn new(list: Vec<PostEdit>) -> Self {
        PostEditCommands { list, ..PostEditCommands::default() }
    }

    pub(super) fn with_guardian(self, guardian: crate::process::ProcessGuardian) -> Self {
        PostEditCommands { guardian, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Describes the commands.
    pub(super) fn describe(&self) -> String {
        self.list.iter().map(|post| format!("`{}` on {}", post.cmd, post.path)).collect::<Vec<_>>().join(", ")
    }

    /// Runs the commands that match a changed file, and appends a note on each to `text`. Fails at the first
    /// command that fails.
    pub(super) async fn run(
        &self,
        file: &ChangedFile,
        mut text: String,
        context: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        for post in self.list.iter().filter(|post| matches_pattern(&post.path, &file.shown)) {
            match self.run_one(&post.cmd, &file.full_path, context).await {
                Ok(()) => text += &format!("\n[ran: {}]", post.cmd),
                Err(why) => {
                    return Err(ToolError::Failed(format!(
                        "{text}\nThe file was changed, but the command that runs after that failed ({}):\n{why}",
                        post.cmd
                    )));
                }
            }
        }
        Ok(text.into())
    }
}

/// Checks whether a file matches a pattern, which is relative to the working directory.
fn matches_pattern(pattern: &str, shown: &str) -> bool {
    let list = || -> Result<Gitignore, ignore::Error> {
        let mut builder = GitignoreBuilder::new("/");
        builder.add_line(None, pattern)?;
        builder.build()
    };
    list().is_ok_and(|list| list.matched(Path::new("/").join(shown), false).is_ignore())
}

impl PostEditCommands {
    async fn run_one(&self, cmd: &str, file: &Path, context: &CallContext) -> Result<(), ToolError> {
        use std::time::Duration;

        use crate::toolset::command::{CommandSpec, command_dir, default_env, run_command};

        const TIMEOUT: Duration = Duration::from_secs(60);
        let dir = command_dir(context, None).await?;
        let mut env = default_env();
        env.insert("path".into(), file.into());
        let spec = CommandSpec::shell(cmd, dir, env);
        let result = run_command(&spec, TIMEOUT, context, &self.guardian).await?;
        result.into_tool_output("").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_it_means_in_a_gitignore() {
        for (pattern, file, meant) in [
            ("*.go", "a/b.go", true),
            ("*.go", "a/b.gone", false),
            ("main.rs", "src/main.rs", true),
            ("src/*.rs", "src/main.rs", true),
            ("src/*.rs", "other/src/main.rs", false),
            ("**/src/*.rs", "other/src/main.rs", true),
            ("*.rs", "/elsewhere/main.rs", true),
            ("*", "x", true),
            ("[", "x", false),
        ] {
            assert_eq!(matches_pattern(pattern, file), meant, "{pattern} {file}");
        }
    }
}
