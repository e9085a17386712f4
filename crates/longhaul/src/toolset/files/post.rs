//! Commands that run when a file was changed: formatters, linters.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Changed;
use crate::tool::{CallContext, ToolError, ToolOutput};

/// A command that runs when a file was written or edited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostEdit {
    /// Which files: a pattern as in a `.gitignore`, like `*.go`.
    pub path: String,
    /// What to run, as for `sh -c`, in the task's working directory. `$path` is the whole path of the file; it is handed
    /// over as an environment variable.
    pub cmd: String,
}

/// The commands of a toolset.
#[derive(Debug, Default)]
pub(super) struct PostEdits {
    list: Vec<PostEdit>,
    #[cfg(unix)]
    watchman: crate::process::Watchman,
}

impl PostEdits {
    pub(super) fn new(list: Vec<PostEdit>) -> Self {
        PostEdits { list, ..PostEdits::default() }
    }

    #[cfg(unix)]
    pub(super) fn guarded_by(self, watchman: crate::process::Watchman) -> Self {
        PostEdits { watchman, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What they run, in words.
    pub(super) fn words(&self) -> String {
        self.list.iter().map(|post| format!("`{}` on {}", post.cmd, post.path)).collect::<Vec<_>>().join(", ")
    }

    /// Runs what there is to run for a file that was changed, and adds to `told` what went wrong.
    pub(super) async fn run(
        &self,
        file: &Changed,
        mut told: String,
        context: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        for post in self.list.iter().filter(|post| fits(&post.path, &file.shown)) {
            match self.run_one(&post.cmd, &file.whole, context).await {
                Ok(()) => told += &format!("\n[ran: {}]", post.cmd),
                Err(why) => {
                    return Err(ToolError::Failed(format!(
                        "{told}\nThe file was changed, but the command that runs after that failed ({}):\n{why}",
                        post.cmd
                    )));
                }
            }
        }
        Ok(told.into())
    }
}

/// Whether a file is meant by a pattern, which is relative to the working directory.
fn fits(pattern: &str, shown: &str) -> bool {
    let list = || -> Result<Gitignore, ignore::Error> {
        let mut builder = GitignoreBuilder::new("/");
        builder.add_line(None, pattern)?;
        builder.build()
    };
    list().is_ok_and(|list| list.matched(Path::new("/").join(shown), false).is_ignore())
}

impl PostEdits {
    #[cfg(unix)]
    async fn run_one(&self, cmd: &str, file: &Path, context: &CallContext) -> Result<(), String> {
        use std::time::Duration;

        use crate::toolset::command::{Launch, directory, plain_env, run};

        const TIMEOUT: Duration = Duration::from_secs(60);
        let dir = directory(context, None).await.map_err(|error| error.to_string())?;
        let mut env = plain_env();
        env.insert("path".into(), file.into());
        let launch = Launch::shell(cmd, dir, env);
        let ran = run(&launch, TIMEOUT, context, &self.watchman).await;
        let ran = ran.map_err(|error| error.to_string())?;
        ran.report("").map(drop).map_err(|error| error.to_string())
    }

    #[cfg(not(unix))]
    async fn run_one(&self, _: &str, _: &Path, _: &CallContext) -> Result<(), String> {
        Err("commands after edits need Unix".to_owned())
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
            assert_eq!(fits(pattern, file), meant, "{pattern} {file}");
        }
    }
}
