//! Background jobs of a shell: they belong to a task, and end with it.

use std::path::Path;
use std::time::Duration;

use longhaul::testing::reply;
use longhaul::toolset::Shell;
use longhaul::{Order, Status};
use serde_json::json;

use crate::engine::stage::*;

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 20 s: {what}");
}

#[tokio::test]
async fn a_job_ends_with_its_task_however_that_ends() {
    for stopped in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (gate, at) = (Gate::new(), Gate::new());
        let (come, go) = (gate.clone(), at.clone());
        let model = slow(move |asked| {
            let (come, go) = (come.clone(), go.clone());
            async move {
                if asked.turn == 0 {
                    return reply().call("run_background_job", json!({"cmd": "echo $$ > pid; sleep 100"}));
                }
                come.pass().await;
                go.pass().await;
                reply().text("done")
            }
        });
        let longhaul = start(agent("lead", &model).toolset(Shell::new())).await;
        let id = longhaul.submit(Order::new("lead", "go").working_dir(dir.path())).await.unwrap();
        gate.came(1).await;
        let pid = || std::fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
        until("the job runs", || pid().ends_with('\n')).await;
        assert!(alive(&pid()), "it runs beside its task");
        match stopped {
            true => longhaul.stop(id).await.unwrap(),
            false => {
                gate.open(1);
                at.open(1);
            }
        }
        let done = within(longhaul.wait([id])).await.unwrap();
        let status = if stopped { Status::Cancelled } else { Status::Completed };
        assert_eq!(done.tasks[0].state.status, status);
        until("the job is gone", || !alive(&pid())).await;
        longhaul.shutdown().await;
    }
}
