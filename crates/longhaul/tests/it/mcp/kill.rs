//! A process is killed while its servers are at work; nothing of them is left.

use std::io::BufRead as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mcp::servers::server;
use crate::mcp::stage::{Stage, call, find, guardian, marked, open, options};

/// The one that is killed. Nothing by itself: the test below starts it with a variable that says so.
#[tokio::test]
#[ignore = "run by the test below, as a process of its own"]
async fn victim() {
    if std::env::var_os("LONGHAUL_TEST_VICTIM").is_none() {
        return;
    }
    let (guardian, mark) = guardian();
    let stage = Stage::with(options().guardian(guardian));
    let everything = stage.pool.toolset(server("everything", []));
    let memory = stage.pool.toolset(server("memory", []));
    let tools = open(&everything).await;
    open(&memory).await;
    call(&stage, &tools, "everything_echo", serde_json::json!({"message": "hi"})).await.unwrap();
    let (context, mut heard) = stage.call();
    let long = find(&tools, "everything_trigger-long-running-operation");
    let busy = async {
        heard.recv().await.unwrap();
        println!("\nbusy {mark}");
        std::future::pending::<()>().await;
    };
    let _ = tokio::join!(long.call(r#"{"duration": 600, "steps": 3000}"#, &context), busy);
}

#[test]
fn after_a_kill_no_server_is_left() {
    // Installed before the clock runs.
    crate::mcp::servers::script("everything");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mcp::kill::victim", "--ignored", "--nocapture"])
        .env("LONGHAUL_TEST_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
    let mark = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("busy ").map(str::to_owned));
    let mark = mark.expect("the victim got to work");
    assert_eq!(marked(&mark, "environ").len(), 2, "two servers");
    assert_eq!(marked(&mark, "cmdline").len(), 1, "and the guardian");
    victim.kill().unwrap();
    assert_eq!(victim.wait().unwrap().signal(), Some(9));
    let begun = Instant::now();
    loop {
        let left = [marked(&mark, "environ"), marked(&mark, "cmdline")].concat();
        if left.is_empty() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "left behind: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
