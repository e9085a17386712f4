//! `longhaul mcp` as MCP clients meet it: of every protocol version, and killed in the middle.

use std::time::{Duration, Instant};

use longhaul::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use serde_json::{Value, json};

use crate::kit::{Kit, gone};
use crate::mcp_wire::{McpWire, NEWEST, forms, tasks, text};

const PLAY: &str = r#"
agents:
  root:
    cases:
      - when: slow
        turns: [{delay: 2s, text: "Slow is done."}]
      - when: very long
        turns: [{delay: 6s, text: "Long is done."}]
      - when: for ever
        turns: [{delay: 10m, text: "Never."}]
      - when: colour
        turns:
          - calls: [{tool: user_prompt, arguments: {message: "Which colour?"}}]
          - text: "They said {{ result }}"
      - when: fail
        turns: [{errors: [{status: 400, message: "no such thing"}], text: "Never."}]
      - when: huge
        turns: [{text: "{% for i in range(12000) %}0123456789{% endfor %}"}]
      - turns: [{text: "Done: {{ task }}"}]
"#;

fn kit() -> Kit {
    let kit = Kit::new();
    kit.plays(
        "team.yaml",
        "agents: { root: { model: play, description: Does it all., toolsets: [{ type: user_prompt }] } }\n",
        PLAY.trim_start(),
    );
    kit
}

/// The process that runs the tasks.
pub(crate) fn carrier(kit: &Kit) -> Option<Pid> {
    let files = std::fs::read_dir(kit.data.path().join("carriers")).ok()?.flatten();
    let file = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|end| end == "pid"))?;
    std::fs::read_to_string(file).ok()?.trim().parse().ok().map(Pid::from_raw)
}

fn id_in(result: &Value) -> String {
    let id = result["_meta"]["longhaul/taskId"].as_str().unwrap().to_owned();
    assert!(text(result).starts_with(&id), "{result}");
    id
}

#[test]
fn clients_of_every_version_start_wait_and_collect() {
    let kit = kit();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", NEWEST] {
        let mut client = McpWire::connect(&kit, version, json!({}));
        let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
        let names: Vec<&str> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "run_background_agent",
                "list_background_agents",
                "view_background_agent",
                "stop_background_agent",
                "wait_background_agents",
                "send_background_agent",
                "answer",
                "ask_root"
            ]
        );
        let ids: Vec<String> = (0..3)
            .map(|n| {
                let order = json!({"agent": "root", "task": format!("{version} {n}")});
                id_in(&client.call("run_background_agent", order))
            })
            .collect();
        let waited = client.call("wait_background_agents", json!({"task_ids": ids}));
        let waited: Value = serde_json::from_str(&text(&waited)).unwrap();
        assert_eq!((&waited["all_done"], &waited["timed_out"]), (&json!(true), &json!(false)), "{waited}");
        for (n, task) in waited["tasks"].as_array().unwrap().iter().enumerate() {
            assert_eq!(task["output"], json!(format!("Done: {version} {n}")));
        }
        let asked = client.call("ask_root", json!({"task": format!("hello {version}")}));
        assert_eq!(text(&asked), format!("Done: hello {version}"));
        assert_eq!(asked["isError"], json!(false));
        // The newest says what kind of result it is, and older ones do not know that field.
        assert_eq!(asked.get("resultType").is_some(), version == NEWEST, "{asked}");
        let listed = text(&client.call("list_background_agents", json!({})));
        assert!(ids.iter().all(|id| listed.contains(id)), "{listed}");
        let prompts = client.request("prompts/list", json!({}))["result"]["prompts"].clone();
        assert_eq!(prompts[0]["name"], "tasks", "{prompts}");
        let prompt = client.request("prompts/get", json!({"name": "tasks"}))["result"]["messages"][0].clone();
        assert!(prompt["content"]["text"].as_str().unwrap().contains("list_background_agents"), "{prompt}");
        let refused = client.request("tasks/get", json!({"taskId": ids[0]}));
        assert_eq!(refused["error"]["code"], json!(-32021), "{refused}");
        let lost = client.request("resources/read", json!({"uri": "longhaul://task/t-aaaaa/result"}));
        let code = if version == NEWEST { -32602 } else { -32002 };
        assert_eq!(lost["error"]["code"], json!(code), "{lost}");
        let found =
            client.request("resources/read", json!({"uri": format!("longhaul://task/{}/result", ids[1])}));
        assert_eq!(found["result"]["contents"][0]["text"], json!(format!("Done: {version} 1")));
        client.close();
    }
}

#[test]
fn a_client_and_its_server_that_are_killed_lose_nothing() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let start = |client: &mut McpWire, task: &str| {
        let handle = client.call("run_background_agent", json!({"agent": "root", "task": task}));
        assert_eq!(
            (&handle["resultType"], &handle["status"]),
            (&json!("task"), &json!("working")),
            "{handle}"
        );
        handle["taskId"].as_str().unwrap().to_owned()
    };
    let (slow, asks) = (start(&mut client, "slow"), start(&mut client, "colour"));
    client.task_until(&asks, |task| task["status"] == "input_required");
    let process = carrier(&kit).unwrap();
    assert_eq!(getsid(Some(process)), Ok(process), "no signal to the client's group reaches it");
    let server = Pid::from_raw(i32::try_from(client.pid()).unwrap());
    client.kill();
    gone(server);
    assert_eq!(kill(process, None), Ok(()), "the process that runs the tasks lives on");
    kit.until("the slow task", |journals| {
        journals
            .iter()
            .find(|(state, _)| state.id.to_string() == slow && state.status == Status::Completed)
            .map(drop)
    });

    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let done = client.task_until(&slow, |task| task["status"] == "completed");
    assert_eq!(text(&done["result"]), "Slow is done.");
    let asking = client.task_until(&asks, |task| task["status"] == "input_required");
    let (key, request) = asking["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    assert!(request["params"]["message"].as_str().unwrap().contains("Which colour?"));
    let replies = json!({key.as_str(): {"action": "accept", "content": {"answer": "red"}}, "unknown": {}});
    let taken = client.request("tasks/update", json!({"taskId": asks, "inputResponses": replies}));
    assert_eq!(taken["result"], json!({"resultType": "complete"}), "{taken}");
    let done = client.task_until(&asks, |task| task["status"] == "completed");
    assert!(text(&done["result"]).contains("red"), "{done}");
    client.close();
    gone(process);
    assert_eq!(
        std::fs::read_dir(kit.data.path().join("carriers")).unwrap().count(),
        0,
        "a process without tasks ends by itself and leaves nothing lying"
    );
}

#[test]
fn when_all_processes_are_killed_the_next_client_has_the_tasks_go_on() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-06-18", json!({}));
    let id = id_in(&client.call("run_background_agent", json!({"agent": "root", "task": "slow"})));
    kit.until("a start", |journals| journals.iter().find(|(state, _)| state.started.is_some()).map(drop));
    let process = carrier(&kit).unwrap();
    kill(process, Signal::SIGKILL).unwrap();
    client.kill();
    gone(process);
    // Nobody asks for the task: to be there is enough.
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    kit.until("the end", |journals| {
        journals.iter().find(|(state, _)| state.status == Status::Completed).map(drop)
    });
    assert_ne!(carrier(&kit), Some(process));
    let waited = text(&client.call("wait_background_agents", json!({"task_ids": [id]})));
    assert!(waited.contains("Slow is done."), "{waited}");
    client.close();
}

#[test]
fn a_task_whose_process_dies_is_picked_up_while_its_client_polls() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let handle = client.call("ask_root", json!({"task": "slow"}));
    let id = handle["taskId"].as_str().unwrap().to_owned();
    let process = carrier(&kit).unwrap();
    kill(process, Signal::SIGKILL).unwrap();
    // The server that started it lives, and leaves no zombie.
    gone(process);
    let done = client.task_until(&id, |task| task["status"] == "completed");
    assert_eq!(text(&done["result"]), "Slow is done.");
    client.close();
}

#[test]
fn a_long_call_comes_back_with_an_id_and_is_collected_later() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    let result = client.call("ask_root", json!({"task": "slow", "wait": 1}));
    assert_eq!(result["isError"], json!(false));
    let id = id_in(&result);
    assert!(text(&result).contains("wait_background_agents"), "{result}");
    let early = text(&client.call("wait_background_agents", json!({"task_ids": [id], "timeout": 0.1})));
    let early: Value = serde_json::from_str(&early).unwrap();
    assert_eq!((&early["all_done"], &early["timed_out"]), (&json!(false), &json!(true)), "{early}");
    let late = text(&client.call("wait_background_agents", json!({"task_ids": [id, "t-aaaaa"]})));
    let late: Value = serde_json::from_str(&late).unwrap();
    assert_eq!(late["tasks"][0]["output"], "Slow is done.");
    assert_eq!(late["tasks"][1]["status"], "not_found");
    client.close();
}

#[test]
fn a_waiting_client_that_wants_progress_gets_it_every_five_seconds() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    let result = client.call_with("ask_root", json!({"task": "very long"}), json!({"progressToken": "p1"}));
    assert_eq!(text(&result), "Long is done.");
    let [progress] = &client.others[..] else { panic!("{:?}", client.others) };
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(
        (&progress["params"]["progressToken"], &progress["params"]["progress"]),
        (&json!("p1"), &json!(5.0))
    );
    client.close();
}

#[test]
fn a_question_is_shown_by_the_client_that_waits() {
    let kit = kit();
    // An older client is asked in the middle of the call.
    let mut client = McpWire::connect(&kit, "2025-06-18", forms());
    client.reply = json!({"action": "accept", "content": {"answer": "blue"}});
    let result = client.call("ask_root", json!({"task": "colour"}));
    assert!(text(&result).contains("blue"), "{result}");
    client.close();
    // The newest repeats its call with the answer.
    let mut client = McpWire::connect(&kit, NEWEST, forms());
    let order = json!({"task": "colour"});
    let asked = client.call("ask_root", order.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let again = json!({
        "name": "ask_root", "arguments": order, "requestState": asked["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"answer": "green"}}},
    });
    let result = client.request("tools/call", again)["result"].clone();
    assert!(text(&result).contains("green"), "{result}");
    client.close();
    // One that can show nothing is told what to do.
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    let result = client.call("ask_root", order);
    let id = id_in(&result);
    assert!(text(&result).contains("Which colour?") && text(&result).contains("call answer"), "{result}");
    let waited: Value =
        serde_json::from_str(&text(&client.call("wait_background_agents", json!({"task_ids": [id]}))))
            .unwrap();
    let question = &waited["needs_you"][0];
    assert_eq!((&question["task_id"], &question["text"]), (&json!(id), &json!("Which colour?")), "{waited}");
    let answer = json!({"task_id": id, "question": question["question"], "answer": "pink"});
    assert_eq!(client.call("answer", answer.clone())["isError"], json!(false));
    let waited = text(&client.call("wait_background_agents", json!({"task_ids": [id]})));
    assert!(waited.contains("pink"), "{waited}");
    let late = client.call("answer", answer);
    assert_eq!(late["isError"], json!(true), "{late}");
    client.close();
    let tasks = kit.journals().len();
    assert_eq!(tasks, 3, "no repeated call started a second task");
}

#[test]
fn a_call_that_a_client_repeats_after_a_crash_is_the_same_task() {
    let kit = kit();
    let meta = json!({"claudecode/toolUseId": "toolu_01"});
    let order = json!({"agent": "root", "task": "slow"});
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let first = client.call_with("run_background_agent", order.clone(), meta.clone());
    client.kill();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let again = client.call_with("run_background_agent", order.clone(), meta);
    assert_eq!(first["taskId"], again["taskId"]);
    let codex = json!({"callId": "c1", "x-codex-turn-metadata": {"session_id": "s"}});
    let other = client.call_with("run_background_agent", order, codex);
    assert_ne!(other["taskId"], first["taskId"]);
    client.close();
    assert_eq!(kit.journals().len(), 2);
}

#[test]
fn a_failure_is_a_result_with_its_kind_and_a_cancelled_task_is_cancelled() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    let id = client.call("ask_root", json!({"task": "fail"}))["taskId"].as_str().unwrap().to_owned();
    let failed = client.task_until(&id, |task| task["status"] != "working");
    assert_eq!(
        (&failed["status"], &failed["result"]["isError"]),
        (&json!("completed"), &json!(true)),
        "{failed}"
    );
    assert_eq!(failed["result"]["structuredContent"]["failure_kind"], "model", "{failed}");
    assert!(text(&failed["result"]).contains("no such thing"), "{failed}");

    let id = client.call("ask_root", json!({"task": "for ever"}))["taskId"].as_str().unwrap().to_owned();
    let before = Instant::now();
    let taken = client.request("tasks/cancel", json!({"taskId": id}));
    assert_eq!(taken["result"], json!({"resultType": "complete"}));
    assert!(before.elapsed() < Duration::from_secs(5), "it is acknowledged at once");
    client.task_until(&id, |task| task["status"] == "cancelled");
    let again = client.request("tasks/cancel", json!({"taskId": id}));
    assert_eq!(
        again["result"],
        json!({"resultType": "complete"}),
        "an ended task cannot be cancelled: {again}"
    );
    for (method, params) in [
        ("tasks/get", json!({"taskId": "t-aaaaa"})),
        ("tasks/cancel", json!({"taskId": "../../x"})),
        ("tasks/update", json!({"taskId": "", "inputResponses": {}})),
    ] {
        assert_eq!(client.request(method, params)["error"]["code"], json!(-32602), "{method}");
    }
    client.close();
}

#[test]
fn a_huge_result_is_a_link_with_its_beginning() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    let result = client.call("ask_root", json!({"task": "huge"}));
    let link = &result["content"][1];
    assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(120_000)), "{link}");
    let shown = text(&result);
    assert!(shown.starts_with("0123456789") && shown.len() < 20_000, "{}", shown.len());
    let whole = client.request("resources/read", json!({"uri": link["uri"]}))["result"].clone();
    assert_eq!(whole["contents"][0]["text"].as_str().unwrap().len(), 120_000);
    client.close();
}

#[test]
fn a_task_of_another_team_is_not_found_and_one_of_an_older_version_is() {
    let kit = kit();
    kit.run(&["run", "team.yaml", "Mine."]).ended(0);
    let foreign = kit.journals()[0].0.id.to_string();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    assert_eq!(client.request("tasks/get", json!({"taskId": foreign}))["error"]["code"], json!(-32602));
    let listed = text(&client.call("list_background_agents", json!({})));
    assert_eq!(listed, "No task has been started yet.");
    let id = client.call("ask_root", json!({"task": "colour"}))["taskId"].as_str().unwrap().to_owned();
    client.task_until(&id, |task| task["status"] == "input_required");
    client.kill();
    let file = kit.ground.path().join("team.yaml");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "# changed\n").unwrap();
    let mut client = McpWire::connect(&kit, NEWEST, tasks());
    client.task_until(&id, |task| task["status"] == "input_required");
    let answer = json!({"task_id": id, "answer": "white"});
    assert_eq!(client.call("answer", answer)["isError"], json!(false));
    client.task_until(&id, |task| task["status"] == "completed");
    client.close();
}

#[test]
fn a_team_file_that_is_not_trusted_is_refused_with_the_command_that_accepts_it() {
    let kit = Kit::new();
    let hook = "agents: {root: {model: play, hooks: {session_start: [{type: command, command: \"touch hooked\"}]}}}\n";
    kit.plays("team.yaml", hook, "agents: {root: {turns: [{text: Done.}]}}");
    let refused = kit.run(&["mcp", "--team", "team.yaml"]).complains(6, &["not trusted", "--trust", "mcp"]);
    assert_eq!(refused.out, "", "nothing but the protocol is on standard output");
    let mut client = McpWire::with_args(&kit, NEWEST, json!({}), &["mcp", "--team", "team.yaml", "--trust"]);
    assert_eq!(text(&client.call("ask_root", json!({"task": "Go."}))), "Done.");
    client.close();
    McpWire::connect(&kit, NEWEST, json!({})).close();
}

#[test]
fn tasks_that_come_while_the_process_is_about_to_end_are_run() {
    let kit = kit();
    let mut command = kit.command(&["mcp", "--team", "team.yaml"]);
    command.env("LONGHAUL_LINGER", "30ms");
    let mut client = McpWire::spawn(command, "2025-06-18", json!({}));
    for n in 0..12_u64 {
        let result = client.call("ask_root", json!({"task": format!("round {n}"), "wait": 30}));
        assert_eq!(text(&result), format!("Done: round {n}"));
        // Around the time at which the process gives up its lock.
        std::thread::sleep(Duration::from_millis(20 + 5 * (n % 5)));
    }
    client.close();
}

#[test]
fn what_is_no_request_does_not_end_the_server() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    client.send_line("this is not JSON");
    client.send_line("{\"jsonrpc\": \"2.0\"}");
    let unknown = client.request("tools/call", json!({"name": "nonsense", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], json!(-32602), "{unknown}");
    let wrong = client.call("ask_root", json!({"nonsense": 1}));
    assert_eq!(wrong["isError"], json!(true));
    assert!(text(&wrong).contains("task"), "{wrong}");
    let lost = client.call("view_background_agent", json!({"task_id": "t-aaaaa"}));
    assert!(text(&lost).contains("t-aaaaa") && text(&lost).contains("list_background_agents"), "{lost}");
    client.close();
}

#[test]
fn a_message_continues_a_task_and_a_stop_ends_one() {
    let kit = kit();
    let mut client = McpWire::connect(&kit, "2025-11-25", json!({}));
    let first = client.call("run_background_agent", json!({"agent": "root", "task": "one"}));
    let first = id_in(&first);
    client.call("wait_background_agents", json!({"task_ids": [first]}));
    let sent = client.call("send_background_agent", json!({"task_id": first, "message": "two"}));
    let next = sent["_meta"]["longhaul/taskId"].as_str().unwrap().to_owned();
    assert!(next != first && text(&sent).contains(&next), "{sent}");
    let waited = text(&client.call("wait_background_agents", json!({"task_ids": [next]})));
    assert!(waited.contains("\"all_done\":true"), "{waited}");
    let endless = id_in(&client.call("run_background_agent", json!({"agent": "root", "task": "for ever"})));
    client.call("stop_background_agent", json!({"task_id": endless}));
    let waited = text(&client.call("wait_background_agents", json!({"task_ids": [endless]})));
    assert!(waited.contains("cancelled"), "{waited}");
    let viewed = text(&client.call("view_background_agent", json!({"task_id": endless})));
    assert!(viewed.contains("cancelled"), "{viewed}");
    client.close();
}
