use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::toolset::command::OUTPUT_CAP;
use crate::toolset::tool_fixture::{call_context_in, until};

/// A task that runs commands in its own directory.
struct ShellFixture {
    dir: TempDir,
    tool: Arc<dyn DynTool>,
    context: CallContext,
}

type ShellCallResult = Result<crate::tool::ToolOutput, ToolError>;

impl ShellFixture {
    fn new() -> Self {
        ShellFixture::with(Shell::new())
    }

    fn with(shell: Shell) -> Self {
        let dir = TempDir::new().unwrap();
        let (context, _) = call_context_in(dir.path());
        ShellFixture { dir, tool: shell.run_command(), context }
    }

    async fn call(&self, arguments: serde_json::Value) -> ShellCallResult {
        self.tool.call(&arguments.to_string(), &self.context).await
    }

    async fn run(&self, cmd: &str) -> ShellCallResult {
        self.call(json!({ "cmd": cmd })).await
    }

    /// Runs a command in the background, and returns when it has written the ids of its processes to `pids`.
    async fn begin(&self, cmd: &str) -> (JoinHandle<ShellCallResult>, Vec<u32>) {
        let (tool, context) = (self.tool.clone(), self.context.clone());
        let arguments = json!({ "cmd": cmd }).to_string();
        let call = tokio::spawn(async move { tool.call(&arguments, &context).await });
        until("the command runs", || self.pids().is_some()).await;
        (call, self.pids().unwrap())
    }

    /// Returns what the command wrote to `pids`, once the line is complete.
    fn pids(&self) -> Option<Vec<u32>> {
        let text = std::fs::read_to_string(self.dir.path().join("pids")).ok()?;
        let line = text.strip_suffix('\n')?;
        Some(line.split(' ').map(|pid| pid.parse().unwrap()).collect())
    }
}

/// A zombie counts as dead: it only waits to be reaped by its parent.
fn is_alive(pid: u32) -> bool {
    if !Path::new("/proc/self/stat").exists() {
        return nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), None).is_ok();
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[track_caller]
fn assert_all_dead(pids: &[u32]) {
    let alive: Vec<_> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(alive.is_empty(), "alive: {alive:?}");
}

fn failed(called: ShellCallResult) -> String {
    match called {
        Err(ToolError::Failed(text)) => text,
        other => panic!("not a failure: {other:?}"),
    }
}

#[tokio::test]
async fn output_comes_in_the_order_of_writing_with_the_exit_code() {
    let fixture = ShellFixture::new();
    let output = fixture.run("echo a; echo b >&2; printf c").await.unwrap();
    assert_eq!(output.text, "a\nb\nc\n[exit code 0]");
    assert_eq!(fixture.run("true").await.unwrap().text, "(no output)\n[exit code 0]");
}

#[tokio::test]
async fn a_command_that_fails_is_a_failure_that_the_model_sees() {
    let fixture = ShellFixture::new();
    assert_eq!(failed(fixture.run("echo no; exit 3").await), "no\n[exit code 3]");
    assert_eq!(failed(fixture.run("kill -9 $$").await), "(no output)\n[killed by SIGKILL]");
}

#[tokio::test]
async fn there_is_no_input_to_wait_for() {
    assert_eq!(ShellFixture::new().run("cat").await.unwrap().text, "(no output)\n[exit code 0]");
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_even_who_ignores_sigterm() {
    let fixture = ShellFixture::new();
    // The innermost process is a grandchild of the shell; children inherit an ignored signal.
    let cmd = "trap '' TERM; echo began; sh -c 'sleep 100 & echo $PPID $$ $! > pids; wait' & wait";
    // On a busy machine it may take a while until all of them run.
    for timeout in [0.5, 2.0, 8.0] {
        let begun = Instant::now();
        let text = failed(fixture.call(json!({ "cmd": cmd, "timeout": timeout })).await);
        let took = begun.elapsed();
        assert!(text.contains(&format!("[the command took longer than {timeout} s")), "{text}");
        assert!(took < Duration::from_secs_f64(timeout + 3.0), "{took:?}");
        if text.starts_with("began\n") && fixture.pids().is_some() {
            break;
        }
    }
    let pids = fixture.pids().unwrap();
    assert_eq!(pids.len(), 3);
    assert_all_dead(&pids);
}

#[tokio::test]
async fn a_stop_ends_the_whole_group() {
    let fixture = ShellFixture::new();
    let (call, pids) = fixture.begin("sleep 100 & echo $$ $! > pids; wait").await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let stopped = Instant::now();
    fixture.context.cancel.cancel();
    let text = failed(call.await.unwrap());
    assert!(stopped.elapsed() < Duration::from_secs(3));
    assert!(text.contains("being stopped"), "{text}");
    assert_all_dead(&pids);
}

#[tokio::test]
async fn who_hears_sigterm_may_clean_up_and_say_so() {
    let fixture = ShellFixture::new();
    let cmd = "trap 'echo cleaned; exit 0' TERM; echo $$ > pids; while :; do sleep 0.02; done";
    let (call, pids) = fixture.begin(cmd).await;
    fixture.context.cancel.cancel();
    let text = failed(call.await.unwrap());
    assert!(text.contains("cleaned\n["), "{text}");
    assert_all_dead(&pids);
}

#[tokio::test]
async fn nothing_is_started_for_a_task_that_is_being_stopped() {
    let fixture = ShellFixture::new();
    fixture.context.cancel.cancel();
    failed(fixture.run("touch here").await);
    assert!(!fixture.dir.path().join("here").exists());
}

#[tokio::test]
async fn a_dropped_call_kills_the_whole_group() {
    let fixture = ShellFixture::new();
    let (call, pids) = fixture.begin("trap '' TERM; sleep 100 & echo $$ $! > pids; wait").await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    until("all are dead", || !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn what_is_left_in_the_background_neither_holds_the_call_up_nor_survives_it() {
    for redirect in ["", ">/dev/null 2>&1"] {
        let fixture = ShellFixture::new();
        let begun = Instant::now();
        let text =
            fixture.run(&format!("sleep 100 {redirect} & echo $! > pids; echo hi")).await.unwrap().text;
        assert!(begun.elapsed() < Duration::from_secs(3), "{redirect}");
        assert_eq!(text, "hi\n[what the command left running in the background was ended]\n[exit code 0]");
        assert_all_dead(&fixture.pids().unwrap());
    }
}

#[tokio::test]
async fn a_process_that_left_the_group_does_not_hold_the_call_up() {
    let fixture = ShellFixture::new();
    let begun = Instant::now();
    // It has left the group, so it is not killed: it ends by itself.
    fixture.run("command -v setsid >/dev/null && setsid sleep 8 & echo hi").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_flood_is_read_to_its_end_and_cut_in_the_middle() {
    let fixture = ShellFixture::new();
    let text =
        fixture.run("echo BEGIN; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo END").await.unwrap().text;
    assert!(text.starts_with("BEGIN\nxxx") && text.ends_with("xxx\nEND\n[exit code 0]"));
    assert!(text.contains("\n[… 2,934,475 bytes left out …]\n"));
    assert!(text.len() < OUTPUT_CAP + 100, "{}", text.len());
}

#[tokio::test]
async fn commands_inherit_no_environment() {
    let fixture = ShellFixture::with(Shell::builder().env("GREETING", "hello").build());
    assert!(std::env::vars_os().count() > 1, "there is something to inherit");
    let text = fixture.run("env").await.unwrap().text;
    let names: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // Shells set some variables themselves.
    let own = ["PATH", "GREETING", "PWD", "OLDPWD", "SHLVL", "_", "LONGHAUL_GUARD"];
    assert!(names.iter().all(|name| own.contains(name)), "{names:?}");
    assert!(text.contains("GREETING=hello") && text.contains("PATH=/usr/local/bin:/usr/bin:/bin"), "{text}");
}

#[tokio::test]
async fn commands_run_in_the_working_directory_or_below() {
    let fixture = ShellFixture::new();
    let root = fixture.dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    let pwd = |cwd: Option<&str>| fixture.call(json!({ "cmd": "pwd -P", "cwd": cwd }));
    assert_eq!(pwd(None).await.unwrap().text, format!("{}\n[exit code 0]", root.display()));
    assert_eq!(pwd(Some("sub")).await.unwrap().text, format!("{}/sub\n[exit code 0]", root.display()));
    match pwd(Some("nowhere")).await {
        Err(ToolError::Retry(text)) => assert!(text.contains("'nowhere'"), "{text}"),
        other => panic!("{other:?}"),
    }
    let homeless =
        ShellFixture { context: CallContext { working_dir: None, ..fixture.context.clone() }, ..fixture };
    assert!(failed(homeless.run("pwd").await).contains("no working directory"));
}

#[tokio::test]
async fn calls_that_make_no_sense_are_sent_back() {
    let fixture = ShellFixture::new();
    for wrong in [json!({ "cmd": " " }), json!({ "cmd": "true", "timeout": 0 }), json!({})] {
        assert!(matches!(fixture.call(wrong.clone()).await, Err(ToolError::Retry(_))), "{wrong}");
    }
    assert_eq!(bounded(Some(1e12), None), Ok(Duration::from_secs(600)));
    assert_eq!(bounded(None, None), Ok(Duration::from_secs(30)));
    let long = Some(Duration::from_secs(900));
    assert_eq!(bounded(None, long), Ok(Duration::from_secs(900)));
    assert_eq!(bounded(Some(800.0), long), Ok(Duration::from_secs(800)));
}

#[tokio::test]
async fn the_model_is_told_what_it_takes() {
    let tools = Shell::default().open(&ToolsetContext::new("tester")).await.unwrap();
    let spec = tools[0].spec();
    assert_eq!(spec.name, "shell");
    assert_eq!(spec.parameters["required"], json!(["cmd"]));
    assert!(!tools[0].effects().repeatable && !tools[0].effects().read_only);
}
