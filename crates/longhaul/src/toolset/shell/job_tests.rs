use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::toolset::tool_fixture::{call_context_in, call_tool, until};

/// A task with jobs, in its own directory.
struct JobFixture {
    dir: TempDir,
    shell: Shell,
    context: CallContext,
}

impl JobFixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let (context, _) = call_context_in(dir.path());
        JobFixture { dir, shell: Shell::new(), context }
    }

    /// Uses the same shell for another task.
    fn another(&self) -> CallContext {
        let mut context = self.context.clone();
        context.caller.task = "t-7f3k3".parse().unwrap();
        context
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, ToolError> {
        self.call_as(&self.context, tool, arguments).await
    }

    async fn call_as(
        &self,
        context: &CallContext,
        tool: &str,
        arguments: Value,
    ) -> Result<String, ToolError> {
        call_tool(&self.shell, tool, arguments, context).await.map(|output| output.text)
    }

    async fn start(&self, cmd: &str) -> String {
        let reply = self.call("run_background_job", json!({ "cmd": cmd })).await.unwrap();
        reply.split(' ').next().unwrap().to_owned()
    }

    async fn view(&self, job: &str) -> String {
        self.call("view_background_job", json!({ "job_id": job })).await.unwrap()
    }

    /// Waits until the output of a job contains a text, and returns the view. The output is read in the
    /// background.
    async fn view_with(&self, job: &str, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let view = self.view(job).await;
            let (_, output) = view.split_once("--- output ---").unwrap();
            if output.contains(text) {
                return view;
            }
            assert!(Instant::now() < deadline, "not within 20 s: {text} in {view}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a job has written the ids of its processes to a file.
    async fn pids(&self, file: &str) -> Vec<i32> {
        let path = self.dir.path().join(file);
        let read = || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
        until("the job runs", || read().is_some()).await;
        read().unwrap().trim().split(' ').map(|pid| pid.parse().unwrap()).collect()
    }
}

fn alive(pids: &[i32]) -> bool {
    let lives = |pid: &i32| {
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
    };
    pids.iter().any(lives)
}

#[tokio::test]
async fn a_job_runs_beside_the_task_and_can_be_looked_at() {
    let fixture = JobFixture::new();
    let gate = fixture.dir.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    // A process blocks on the named pipe until the other side opens it.
    let job = fixture.start("echo hello; echo $$ > pids; read line < gate; echo $line; exit 3").await;
    assert_eq!(job, "job-1");
    fixture.pids("pids").await;
    let view = fixture.view_with(&job, "hello").await;
    assert!(view.starts_with("job-1  running  ") && view.ends_with("--- output ---\nhello\n"), "{view}");
    std::fs::write(&gate, "bye\n").unwrap();
    let view = fixture.call("view_background_job", json!({ "job_id": "job-1", "wait": 20 })).await.unwrap();
    assert!(view.ends_with("--- output ---\nhello\nbye\n"), "{view}");
    let list = fixture.call("list_background_jobs", json!({})).await.unwrap();
    assert!(list.starts_with("job-1  exit code 3  ") && list.contains("echo hello"), "{list}");
}

#[tokio::test]
async fn output_is_paged_by_places_that_stay() {
    let fixture = JobFixture::new();
    let job = fixture.start("printf 0123456789").await;
    fixture.call("view_background_job", json!({ "job_id": job, "wait": 20 })).await.unwrap();
    let page = fixture
        .call("view_background_job", json!({ "job_id": job, "offset": "2", "limit": 3 }))
        .await
        .unwrap();
    assert!(page.ends_with("--- output ---\n234\n[… 5 more bytes: go on with offset 5 …]"), "{page}");
}

#[tokio::test]
async fn a_stopped_job_is_gone_with_everything_it_started() {
    let fixture = JobFixture::new();
    let job = fixture.start("sleep 100 & echo $$ $! > pids; wait").await;
    let pids = fixture.pids("pids").await;
    assert!(alive(&pids));
    assert!(fixture.view(&job).await.contains("running"));
    let stop = || fixture.call("stop_background_job", json!({ "job_id": "job-1" }));
    let reply = stop().await.unwrap();
    // Without a supervisor, only the process group is known to be gone.
    assert!(
        reply.starts_with("job-1 was ended with its process group; ") && reply.contains("not known"),
        "{reply}"
    );
    assert!(!alive(&pids));
    assert_eq!(stop().await.unwrap(), "job-1 had ended already");
    assert!(fixture.view(&job).await.contains("stopped"));
}

#[tokio::test]
async fn jobs_end_with_their_task_and_are_nobody_elses() {
    let fixture = JobFixture::new();
    let other = fixture.another();
    fixture.start("trap '' TERM; sleep 100 & echo $$ $! > mine; wait").await;
    let theirs = json!({ "cmd": "echo $$ > theirs; sleep 100" });
    fixture.call_as(&other, "run_background_job", theirs).await.unwrap();
    let (mine, theirs) = (fixture.pids("mine").await, fixture.pids("theirs").await);
    assert_eq!(fixture.call("list_background_jobs", json!({})).await.unwrap().lines().count(), 1);

    fixture.shell.task_ended(fixture.context.caller.task).await;
    assert!(!alive(&mine) && alive(&theirs));
    let why = fixture.call("view_background_job", json!({ "job_id": "job-1" })).await.unwrap_err();
    assert!(why.to_string().contains("there is no job 'job-1'"), "{why}");

    fixture.shell.close().await;
    assert!(!alive(&theirs));
}

#[tokio::test]
async fn a_shell_that_is_dropped_takes_its_jobs_along() {
    let fixture = JobFixture::new();
    fixture.start("echo $$ > pids; sleep 100").await;
    let pids = fixture.pids("pids").await;
    let JobFixture { shell, dir: _dir, context: _context } = fixture;
    drop(shell);
    until("the job is gone", || !alive(&pids)).await;
}

#[tokio::test]
async fn there_are_not_too_many_jobs() {
    let fixture = JobFixture::new();
    for _ in 0..20 {
        fixture.start("sleep 100").await;
    }
    let why = fixture.call("run_background_job", json!({ "cmd": "sleep 100" })).await.unwrap_err();
    assert!(why.to_string().contains("20 jobs are running already"), "{why}");
    fixture.shell.close().await;
}
