//! Runs hooks, each in its own process group.

use std::path::Path;

use super::{Hook, HookInput, HookResult, Hooks};

/// How much of a hook's output is read, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024;

/// How long a hook may take to exit when it is terminated, and its pipes to close.
const TERMINATE_GRACE: std::time::Duration = std::time::Duration::from_millis(500);

/// Runs hooks. Clones share one guardian process, so that no hook outlives this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct HookRunner {
    guardian: crate::process::ProcessGuardian,
}

impl HookRunner {
    /// Creates a runner whose hooks are guarded by this guardian.
    pub(crate) fn new(guardian: crate::process::ProcessGuardian) -> HookRunner {
        HookRunner { guardian }
    }

    /// Runs hooks concurrently in a directory and collects their results. If this is dropped, they and
    /// everything they started are killed.
    pub(crate) async fn run(
        &self,
        hooks: &[&Hook],
        all: &Hooks,
        dir: Option<&Path>,
        hook_input: &HookInput,
    ) -> Vec<HookResult> {
        let input = serde_json::to_vec(hook_input).unwrap_or_default();
        let run = |hook: &&Hook| {
            let (hook, input) = ((*hook).clone(), input.clone());
            async move { self.run_one(&hook, all, dir, input).await }
        };
        futures::future::join_all(hooks.iter().map(run)).await
    }

    async fn run_one(&self, hook: &Hook, all: &Hooks, dir: Option<&Path>, input: Vec<u8>) -> HookResult {
        use std::process::Stdio;
        use tokio::io::AsyncWriteExt as _;

        let started = crate::process::ProcessGroup::start("/bin/sh", &self.guardian, |command| {
            command.arg("-c").arg(&hook.command).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
            command.envs(all.env.iter());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            if let Some(dir) = dir {
                command.current_dir(dir);
            }
        });
        let mut group = match started {
            Ok(group) => group,
            Err(error) => return HookResult::Failed(format!("it could not be started: {error}")),
        };
        let (stdin, stdout, stderr) =
            (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
        let write_input = async move {
            if let Some(mut stdin) = stdin {
                // A hook that does not read its input is fine.
                let _ = stdin.write_all(&input).await;
            }
        };
        let mut heard = std::pin::pin!(async {
            let (_, out, err) = tokio::join!(write_input, capture_output(stdout), capture_output(stderr));
            (out, err)
        });
        let mut all_heard = None;
        let exits = async {
            loop {
                tokio::select! {
                    status = group.wait_for_exit() => break status,
                    words = &mut heard, if all_heard.is_none() => all_heard = Some(words),
                }
            }
        };
        let Ok(status) = tokio::time::timeout(hook.timeout, exits).await else {
            group.terminate(TERMINATE_GRACE).await;
            return HookResult::Failed(format!("it took longer than {:?}", hook.timeout));
        };
        // Processes that it left running keep its pipes open until they are killed.
        group.kill().await;
        let words = match all_heard {
            Some(words) => Ok(words),
            None => tokio::time::timeout(TERMINATE_GRACE, heard).await,
        };
        let Ok((out, err)) = words else {
            return HookResult::Failed(
                "a process that it started is still running and keeps its output open".to_owned(),
            );
        };
        match status.map(|status| status.code()) {
            Ok(Some(0)) => match out.defect {
                None => HookResult::Succeeded(out.text),
                Some(why) => HookResult::Garbled(out.text, why),
            },
            Ok(Some(2)) => HookResult::Blocked(if err.text.trim().is_empty() { out.text } else { err.text }),
            Ok(Some(code)) => HookResult::Failed(match err.text.trim() {
                "" => format!("it exited with {code}"),
                said => format!("it exited with {code}: {said}"),
            }),
            Ok(None) => HookResult::Failed("it was killed".to_owned()),
            Err(error) => HookResult::Failed(format!("its exit status is unknown: {error}")),
        }
    }
}

/// The output of a pipe.
#[derive(Default)]
struct CapturedOutput {
    /// The start of the output.
    text: String,
    /// Why the text differs from what was written.
    defect: Option<String>,
}

/// Reads the start of a pipe's output; the rest is read and dropped.
async fn capture_output(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> CapturedOutput {
    use tokio::io::AsyncReadExt as _;

    let Some(mut pipe) = pipe else { return CapturedOutput::default() };
    let mut bytes = Vec::new();
    let read = (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    let rest = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    let defect = match (read.and(rest), std::str::from_utf8(&bytes)) {
        (Err(error), _) => Some(format!("its output could not be read: {error}")),
        (Ok(1..), _) => Some(format!("it wrote more than {} KB", MAX_OUTPUT / 1024)),
        (Ok(0), Err(_)) => Some("it wrote something that is not UTF-8".to_owned()),
        (Ok(0), Ok(_)) => None,
    };
    CapturedOutput { text: String::from_utf8_lossy(&bytes).into_owned(), defect }
}
