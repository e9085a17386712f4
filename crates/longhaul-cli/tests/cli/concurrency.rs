//! How many model requests run at once: `--max-concurrent`, and the open files that each of them needs.

use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul::Status;
use serde_json::json;

use crate::kit::{Kit, Provider};
use crate::server::{Act, Asked, event, says};

const HELPERS: usize = 4;

/// The root starts helpers in the background with one reply. Every other reply takes a moment.
fn answers(asked: &Asked) -> Act {
    let is_root = asked.body["messages"][0].to_string().contains("You lead.");
    let has_called = asked.body["messages"].to_string().contains("tool_calls");
    if !is_root || has_called {
        return Act::Later(Duration::from_millis(150), says("Done."));
    }
    let calls: Vec<_> = (0..HELPERS)
        .map(|n| {
            let arguments = json!({"agent": "helper", "task": format!("part {n}")}).to_string();
            json!({"index": n, "id": format!("call_{n}"), "type": "function",
                "function": {"name": "run_background_agent", "arguments": arguments}})
        })
        .collect();
    Act::Stream(vec![
        event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]})),
        event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})),
        "data: [DONE]\n\n".to_owned(),
    ])
}

fn most_at_once(flags: &[&str], key: &str) -> usize {
    let provider = Provider::start(answers);
    let kit = Kit::new();
    let team = format!(
        "models: {{m: {{provider: local, model: x, base_url: '{}'{key}}}}}\n\
         agents:\n  \
         root: {{model: m, instruction: You lead., sub_agents: [helper], toolsets: [{{type: background_agents}}]}}\n  \
         helper: {{model: m, instruction: You help.}}\n",
        provider.url()
    );
    kit.write("team.yaml", &team);
    let ran =
        kit.run(&[&["run", "--trust", "team.yaml", "Go.", "--timeout", "60s"], flags].concat()).ended(0);
    assert!(ran.out.contains("Done."), "{}", ran.out);
    assert!(provider.asked().len() >= HELPERS + 2, "{}", provider.asked().len());
    provider.most_at_once()
}

#[test]
fn the_flag_limits_concurrent_requests_and_overrides_the_team_file() {
    assert!(most_at_once(&[], "") >= 3, "without a limit they run together");
    assert_eq!(most_at_once(&["--max-concurrent", "1"], ""), 1);
    assert_eq!(most_at_once(&[], ", max_concurrent: 2"), 2);
    assert_eq!(most_at_once(&["--max-concurrent", "1"], ", max_concurrent: 2"), 1);
}

#[test]
fn a_limit_of_nothing_is_refused() {
    let kit = Kit::new();
    kit.write("team.yaml", "agents: {root: {model: m}}\nmodels: {m: {provider: local, model: x, base_url: 'http://127.0.0.1:9/v1', max_concurrent: 0}}\n");
    let told = kit.run(&["check", "team.yaml"]).ended(6).out;
    assert!(told.contains("max_concurrent") && told.contains("from 1 to"), "{told}");
    let told = kit.run(&["run", "team.yaml", "Go.", "--max-concurrent", "0"]).ended(2).err;
    assert!(told.contains("--max-concurrent") && told.contains("above 0"), "{told}");
}

/// Systems let programs open few files unless they ask for more.
#[cfg(target_os = "linux")]
#[test]
fn a_command_that_runs_tasks_raises_its_limit_of_open_files() {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: {root: {model: play}}\n",
        "agents: {root: {turns: [{text: Done., delay: 60s}]}}",
    );
    let plain = kit.command(&["run", "team.yaml", "Go."]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -Sn 200 && exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(kit.ground.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = kit.started(limited);
    kit.until("a task that runs", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Running).map(|_| ())
    });
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = files.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert_eq!(soft, hard.min(16_384), "{files}");
    running.murder();
}
