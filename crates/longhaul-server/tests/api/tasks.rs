//! Tasks: start, list, read, message, answer, stop, retry; and what is refused.

use serde_json::{Value, json};

use crate::setup::{Server, within};

fn ids(page: &Value) -> Vec<String> {
    page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_task_is_started_and_its_result_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let teams = server.ok("/teams").await;
    assert_eq!(teams["teams"][0]["root"], "lead");
    assert_eq!(teams["teams"][0]["agents"][0]["description"], "Leads.");
    let id = server.submit(json!({ "task": "say it: é", "agent": "worker", "labels": { "a": "b" } })).await;
    let task = server.wait(&id).await;
    assert_eq!(
        (&task["status"], &task["team"], &task["agent"]),
        (&json!("completed"), &json!("crew"), &json!("worker"))
    );
    let detail = server.ok(&format!("/tasks/{id}")).await;
    assert_eq!(detail["order"]["labels"]["a"], "b");
    assert_eq!(detail["tree"]["tasks"], 1);
    let whole = server.ok(&format!("/tasks/{id}/result")).await;
    let output = whole["output"].as_str().unwrap();
    assert!(
        output.starts_with("done: ") && output.contains("say it: é") && whole["is_final"] == true,
        "{whole}"
    );
    let (mut parts, mut offset) = (String::new(), Some(0));
    while let Some(at) = offset {
        let part = server.ok(&format!("/tasks/{id}/result?offset={at}&limit=3")).await;
        parts.push_str(part["output"].as_str().unwrap());
        offset = part["next_offset"].as_u64();
    }
    let beyond = server.ok(&format!("/tasks/{id}/result?offset=99999")).await;
    assert_eq!((&beyond["output"], &beyond["next_offset"]), (&json!(""), &Value::Null), "{beyond}");
    assert_eq!(parts, output);
    let mut after = 0;
    let mut kinds = Vec::new();
    loop {
        let page = server.ok(&format!("/tasks/{id}/journal?after={after}&limit=2")).await;
        for record in page["records"].as_array().unwrap() {
            after += 1;
            assert_eq!(record["seq"], after);
            kinds.extend(record["entry"].as_object().unwrap().keys().cloned());
        }
        if page["next_after"].is_null() {
            break;
        }
    }
    assert_eq!(kinds.first().map(String::as_str), Some("submitted"));
    assert_eq!(kinds.last().map(String::as_str), Some("finished"));
}

#[tokio::test]
async fn a_request_that_is_repeated_with_its_key_is_one_task() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let send = |key: &'static str, task: &'static str| {
        server.client.post(server.at("/tasks")).header("Idempotency-Key", key).json(&json!({ "task": task }))
    };
    let first = send("k", "one").send().await.unwrap();
    assert_eq!(first.status(), 201);
    let location = first.headers()["location"].to_str().unwrap().to_owned();
    let first: Value = first.json().await.unwrap();
    assert_eq!(location, format!("/api/v1/tasks/{}", first["id"].as_str().unwrap()));
    let again = send("k", "one").send().await.unwrap();
    assert_eq!(again.status(), 200);
    assert_eq!(again.json::<Value>().await.unwrap()["id"], first["id"]);
    let problem = server.problem(send("k", "another"), 409, "idempotency key").await;
    assert_eq!(problem["code"], "key_used");
    assert!(problem["detail"].as_str().unwrap().contains(first["id"].as_str().unwrap()));
    server.problem(send(" ", "one"), 400, "Idempotency-Key").await;
    assert_eq!(ids(&server.ok("/tasks").await).len(), 1);
}

#[tokio::test]
async fn a_list_has_every_task_once_whatever_the_filter_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let lead = server.submit(json!({ "task": "team up" })).await;
    server.wait(&lead).await;
    let mut others = Vec::new();
    for nth in 0..5 {
        others.push(server.submit(json!({ "task": format!("Number {nth}"), "agent": "worker" })).await);
        server.wait(&others[nth]).await;
    }
    let failed = server.submit(json!({ "task": "fail", "agent": "worker" })).await;
    server.wait(&failed).await;
    let all = ids(&server.ok("/tasks?limit=200").await);
    assert_eq!((all.len(), &all[0], &all[8]), (9, &failed, &lead), "newest first");
    for (query, count) in [
        ("", 9),
        ("roots=true", 7),
        ("status=failed", 1),
        ("status=completed,failed", 9),
        ("status=open", 0),
        ("status=ended&roots=true", 7),
        ("agent=worker", 8),
        ("agent=worker&roots=true", 6),
        ("agent=lead,worker", 9),
        ("team=crew", 9),
        ("q=Number", 5),
        ("q=number", 5),
        ("q=NUMBER", 0),
        ("needs_you=true", 0),
        ("since=2020-01-01T00:00:00Z", 9),
        ("before=2020-01-01T00:00:00Z", 0),
    ] {
        for limit in [1, 2, 200] {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = server.ok(&format!("/tasks?{query}&limit={limit}{cursor}")).await;
                found.extend(ids(&page));
                match page["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(found.len(), count, "{query}");
            let order: Vec<&String> = all.iter().filter(|id| found.contains(id)).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), order, "{query}, {limit} a page");
        }
    }
    let children = server.ok(&format!("/tasks?parent={lead}")).await;
    assert_eq!(children["tasks"][0]["parent"], json!(lead));
    assert_eq!(ids(&server.ok(&format!("/tasks?root={lead}")).await).len(), 3);
    let with_sums = server.ok("/tasks?roots=true&include=tree&limit=50").await;
    assert_eq!(with_sums["tasks"][6]["tree"]["tasks"], 3);
    let tree = server.ok(&format!("/tasks/{lead}/tree")).await;
    assert_eq!(
        (ids(&tree).len(), &tree["tree"]["ended"], &tree["tasks"][0]["tree"]["tasks"]),
        (3, &json!(3), &json!(3))
    );
    let by_agent = server.ok("/usage?by=agent").await;
    assert_eq!((&by_agent["rows"][0]["key"], &by_agent["total"]["tasks"]), (&json!("lead"), &json!(9)));
    let by_model = server.ok(&format!("/usage?by=model&root={lead}")).await;
    assert_eq!(by_model["rows"][0]["tasks"], 3, "{by_model}");
    assert_eq!(server.ok("/usage?by=day").await["rows"].as_array().unwrap().len(), 1);
    assert_eq!(server.ok("/usage?by=team&team=crew").await["rows"][0]["key"], "crew");
}

#[tokio::test]
async fn questions_of_all_tasks_are_found_and_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let programs = server.submit(json!({ "task": "run a program", "agent": "asker" })).await;
    let asks = server.submit(json!({ "task": "ask me", "agent": "asker" })).await;
    let questions = open_questions(&server, 2).await;
    let of = |id: &str| questions.iter().find(|question| question["task"] == id).unwrap().clone();
    let approval = of(&programs);
    assert_eq!((&approval["kind"], &approval["tool"]), (&json!("approval"), &json!("shell")));
    assert!(approval["arguments"].as_str().unwrap().contains("echo hello"));
    assert!(approval["lines"].to_string().contains("echo hello") && approval["since"].is_string());
    let scopes: Vec<&str> =
        approval["grants"].as_array().unwrap().iter().map(|grant| grant["scope"].as_str().unwrap()).collect();
    assert_eq!(scopes, ["exact", "program", "tool"]);
    assert_eq!(of(&asks)["kind"], "text");
    let listed = server.ok("/tasks?needs_you=true").await;
    assert_eq!(ids(&listed), [asks.clone(), programs.clone()]);
    assert_eq!(listed["tasks"][0]["standing"], "asks");
    assert_eq!(
        server.ok(&format!("/tasks/{programs}")).await["questions"][0]["question"],
        approval["question"]
    );
    let at = |path: &str| server.client.post(server.at(path));
    let answers = format!("/tasks/{programs}/answers");
    server.problem(at(&answers).json(&json!({ "question": "9.9.9", "text": "yes" })), 409, "9.9.9").await;
    server.problem(at(&answers).json(&json!({ "question": "x", "text": "yes" })), 400, "question").await;
    server.problem(at(&answers).json(&json!({ "text": "perhaps" })), 400, "perhaps").await;
    let (status, answered) = server
        .post(&answers, json!({ "question": approval["question"], "decision": "always", "scope": "program" }))
        .await;
    assert_eq!((status.as_u16(), answered["granted"].is_string()), (200, true), "{answered}");
    server.problem(at(&answers).json(&json!({ "decision": "approve" })), 409, &programs).await;
    let (status, _) = server.post(&format!("/tasks/{asks}/answers"), json!({ "decision": "decline" })).await;
    assert_eq!(status, 200);
    assert!(server.wait(&programs).await["error"].is_null());
    let result = server.ok(&format!("/tasks/{programs}/result")).await;
    assert!(result["output"].as_str().unwrap().contains("hello"), "{result}");
    server.wait(&asks).await;
    assert!(open_questions(&server, 0).await.is_empty());
}

/// The open questions, once there are so many.
async fn open_questions(server: &Server, many: usize) -> Vec<Value> {
    let look = async {
        loop {
            let open = server.ok("/questions").await["questions"].as_array().unwrap().clone();
            if open.len() == many {
                return open;
            }
            tokio::task::yield_now().await;
        }
    };
    within(look).await
}

#[tokio::test]
async fn tasks_are_messaged_stopped_and_retried() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "hold on", "agent": "worker" })).await;
    let (status, letter) = server.post(&format!("/tasks/{id}/letters"), json!({ "text": "faster" })).await;
    assert_eq!((status.as_u16(), &letter["task"], &letter["continued"]), (201, &json!(id), &json!(false)));
    let timed_out = server.ok(&format!("/wait?tasks={id}&timeout=0&mode=any")).await;
    assert_eq!(
        (&timed_out["timed_out"], &timed_out["tasks"][0]["status"]),
        (&json!(true), &json!("running"))
    );
    let (status, _) = server.post(&format!("/tasks/{id}/resume"), json!({})).await;
    assert_eq!(status, 200, "it runs already");
    let (status, _) = server.post(&format!("/tasks/{id}/stop"), json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(server.wait(&id).await["status"], "cancelled");
    let (status, again) = server.post(&format!("/tasks/{id}/tree/stop"), json!({})).await;
    assert_eq!((status.as_u16(), &again["status"]), (200, &json!("cancelled")), "stopping twice is no error");
    let resume = server.client.post(server.at(&format!("/tasks/{id}/resume")));
    server.problem(resume, 409, "cancelled").await;
    let (status, retried) = server.post(&format!("/tasks/{id}/retry"), json!({})).await;
    assert_eq!((status.as_u16(), &retried["retries"]), (201, &json!(id)));
    server.problem(server.client.post(server.at(&format!("/tasks/{id}/retry"))), 409, "already").await;
    server.gate.add_permits(9);
    let done = retried["id"].as_str().unwrap();
    assert_eq!(server.wait(done).await["status"], "completed");
    server.problem(server.client.post(server.at(&format!("/tasks/{done}/retry"))), 409, "completed").await;
    assert_eq!(server.ok(&format!("/tasks/{id}")).await["retried_as"], json!([done]));
    let (status, letter) = server
        .post(&format!("/tasks/{done}/letters"), json!({ "text": "and now?", "when_idle": true }))
        .await;
    assert_eq!((status.as_u16(), &letter["continued"]), (201, &json!(true)));
    assert_eq!(server.wait(letter["task"].as_str().unwrap()).await["continues"], json!(done));
}

#[tokio::test]
async fn whatever_is_wrong_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "one" })).await;
    let get = |path: &str| server.client.get(server.at(path));
    let submit = |body: Value| server.client.post(server.at("/tasks")).json(&body);
    for (request, status, says) in [
        (submit(json!({ "task": "x", "team": "nobodys" })), 404, "nobodys"),
        (submit(json!({ "task": "x", "agent": "stranger" })), 404, "stranger"),
        (submit(json!({ "task": "x", "model": "gpt-0" })), 404, "gpt-0"),
        (submit(json!({ "task": "x", "colour": "red" })), 400, "colour"),
        (submit(json!({ "task": 3 })), 400, "task"),
        (submit(json!({ "agent": "lead" })), 400, "task"),
        (submit(json!({ "task": "x", "max_turns": 0 })), 400, "max_turns"),
        (submit(json!({ "task": "x", "budget": { "coins": 3 } })), 400, "coins"),
        (submit(json!({ "task": "  " })), 400, "task"),
        (submit(json!(["x"])), 400, "object"),
        (submit(json!({ "task": "x", "budget": [1] })), 400, "budget"),
        (submit(json!({ "task": "x", "budget": { "time": 1.5 } })), 400, "budget.time"),
        (submit(json!({ "task": "x".repeat(2 << 20) })), 413, "bytes"),
        (submit(json!({ "task": "x".repeat(5 << 20) })), 413, "length limit"),
        (submit(json!({ "task": "x", "agent": "mystic", "budget": { "cost": 1 } })), 400, "mystery-1"),
        (server.client.post(server.at("/tasks")).body("{}"), 415, "Content-Type"),
        (
            server.client.post(server.at("/tasks")).header("content-type", "application/json").body("{"),
            400,
            "EOF",
        ),
        (get("/tasks/t-00000"), 404, "t-00000"),
        (get("/tasks/..%2fx"), 400, "../x"),
        (get("/tasks/%ff"), 400, "id"),
        (get("/tasks?colour=red"), 400, "colour"),
        (get("/tasks?status=asleep"), 400, "asleep"),
        (get("/tasks?team=nobodys"), 404, "nobodys"),
        (get("/tasks?root=x"), 400, "'x'"),
        (get("/tasks?limit=0"), 400, "limit"),
        (get("/tasks?limit=many"), 400, "limit"),
        (get("/tasks?cursor=abc"), 400, "abc"),
        (get("/tasks?cursor=c00000"), 404, "c00000"),
        (get("/tasks?since=yesterday"), 400, "yesterday"),
        (get("/tasks?include=all"), 400, "include"),
        (get("/wait?tasks="), 400, "tasks"),
        (get(&format!("/wait?tasks={id}&timeout=241")), 400, "241"),
        (get("/wait?tasks=t-00000&timeout=0"), 404, "t-00000"),
        (get("/events?after=x"), 400, "after"),
        (get("/events").header("last-event-id", "x"), 400, "Last-Event-ID"),
        (get("/tasks/t-00000/events"), 404, "t-00000"),
        (get("/usage?by=colour"), 400, "by"),
        (get("/usage?by=model"), 400, "root"),
        (get("/nothing"), 404, "/nothing"),
        (get("/api/v1"), 404, "/api/v1"),
        (server.client.delete(server.at("/tasks")), 405, "DELETE"),
        (server.client.post(server.at("/healthz")), 405, "POST"),
    ] {
        server.problem(request, status, says).await;
    }
    let (status, body) = server
        .post("/tasks", json!({ "task": "x", "budget": { "cost": 1_000_000, "tokens": 5, "time": 9.0 } }))
        .await;
    assert_eq!(status, 201, "{body}");
}

#[tokio::test]
async fn a_transcript_is_read_from_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "many steps", "agent": "worker" })).await;
    server.wait(&id).await;
    let whole = server.ok(&format!("/tasks/{id}/transcript?limit=500")).await;
    let key = |item: &Value| (item["kind"].clone(), item["gist"].clone(), item["output"].clone());
    let all: Vec<_> = whole["items"].as_array().unwrap().iter().map(key).collect();
    assert!(all.len() > 40 && whole["before"].is_null(), "{}", all.len());
    assert_eq!((&all[0].0, &all.last().unwrap().0), (&json!("order"), &json!("end")));
    let (mut parts, mut before) = (Vec::new(), String::new());
    loop {
        let page = server.ok(&format!("/tasks/{id}/transcript?limit=7{before}")).await;
        let items: Vec<_> = page["items"].as_array().unwrap().iter().map(key).collect();
        assert!((1..16).contains(&items.len()), "{}", items.len());
        parts.splice(0..0, items);
        match page["before"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(parts, all, "nothing is missing or twice between the parts");
}

#[tokio::test]
async fn probes_tell_how_the_server_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "one" })).await;
    server.wait(&id).await;
    let alive = || server.client.get(server.at("/healthz")).send();
    assert_eq!(alive().await.unwrap().status(), 204);
    assert_eq!(server.ok("/readyz").await["status"], "ok");
    let metrics = server.client.get(format!("{}/metrics", server.url)).send().await.unwrap();
    assert!(metrics.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let metrics = metrics.text().await.unwrap();
    for line in
        ["longhaul_tasks{status=\"completed\"} 1", "longhaul_event_watchers 0", "# TYPE longhaul_tasks gauge"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    let api = server.ok("/openapi.json").await;
    assert_eq!(api["openapi"], "3.1.0");
    for path in ["/api/v1/tasks", "/api/v1/tasks/{id}/events", "/metrics", "/healthz"] {
        assert!(api["paths"][path].is_object(), "{path}");
    }
    server.drain.cancel();
    server.problem(server.client.get(server.at("/readyz")), 503, "shutting down").await;
    assert_eq!(alive().await.unwrap().status(), 204);
}
