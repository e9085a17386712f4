//! Teams that are assembled and run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::agent::{CompletionNotice, Team};
use crate::entry::{OnFinish, TeamRef};
use crate::model::http::HttpOptions;
use crate::store::{MemoryStore, Store};
use crate::testing::{FnModel, reply};
use crate::{Longhaul, Order, Status};

fn environment(set: &'static [(&'static str, &'static str)]) -> Environment {
    let http = HttpClient::new(HttpOptions::default()).unwrap();
    let look =
        move |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    Environment::new(http, look, "data")
}

/// An environment in which every variable is set.
fn rich() -> Environment {
    let http = HttpClient::new(HttpOptions::default()).unwrap();
    Environment::new(http, |name: &str| Some(format!("value-of-{name}")), "data")
}

fn made(text: &str) -> AssembledTeam {
    assemble(&TeamBundle::from_text("team.yaml", text), &rich()).unwrap_or_else(|error| panic!("{error}"))
}

fn assemble_error(text: &str, environment: &Environment) -> String {
    match assemble(&TeamBundle::from_text("team.yaml", text), environment) {
        Ok(_) => panic!("nothing is wrong with: {text}"),
        Err(error) => error.to_string(),
    }
}

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/teams")
}

#[test]
fn every_example_makes_a_team() {
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let bundle = TeamBundle::load(&path).unwrap();
        let assembly =
            assemble(&bundle, &rich()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(assembly.team.agents().count() > 0);
        for notice in assembly.warnings {
            *missing.entry(notice.problem.message).or_default() += 1;
        }
    }
    assert_eq!(missing, BTreeMap::new(), "every key and toolset of the examples is there");
}

#[test]
fn keys_of_an_agent_become_its_policy() {
    let assembly = made(
        "budget: {max_cost: 2}\nbudgets: {small: {max_cost: 0.25, max_tokens: 500}}\nagents:\n  first:\n    model: openai/gpt-5\n    \
         sub_agents: [second]\n    max_iterations: 7\n    num_history_items: 30\n    max_consecutive_tool_calls: 4\n    \
         max_tool_result_tokens: 1000\n    readonly: true\n    add_date: true\n    budgets: [small]\n    \
         budget: {max_tokens: 9000, max_time: 1m}\n    limits: {running: 3, processes: 5, depth: 1, tree: 9, timeout: 5m, inactivity: 20s}\n    \
         background: {on_finish: detach, notices: quiet}\n    toolsets: [{type: background_agents, limits: {turns: 3, timeout: 9}, budget: {max_tokens: 70}}]\n  second: {model: openai/gpt-5}\n",
    );
    assert_eq!(assembly.team.root().as_str(), "first");
    let agent = assembly.team.agent(&"first".into()).unwrap();
    assert_eq!(agent.sub_agents, ["second".into()]);
    assert!(agent.preamble.date);
    let policy = &agent.policy;
    assert_eq!((policy.max_turns, policy.history_items, policy.output_cap), (7, Some(30), 4000));
    assert_eq!((policy.warn_after_repeats, policy.fail_after_repeats, policy.read_only), (2, 4, true));
    assert_eq!(
        (policy.timeout, policy.inactivity_timeout),
        (Some(Duration::from_secs(300)), Duration::from_secs(20))
    );
    assert_eq!((policy.on_finish, policy.completion_notice), (OnFinish::Detach, CompletionNotice::Quiet));
    let budget = Budget { tokens: Some(500), cost: Some(250_000), time: Some(Duration::from_secs(60)) };
    assert_eq!(policy.budget, budget);
    assert_eq!(assembly.budget, Budget { cost: Some(2_000_000), ..Budget::default() });
    assert_eq!((assembly.limits.running, assembly.limits.depth, assembly.limits.tree), (3, 1, Some(9)));
    assert_eq!(assembly.limits.processes, 5);
    let order = Order {
        max_turns: Some(0),
        ..Order::new("second", "x").budget(Budget { tokens: Some(99), ..Budget::default() })
    };
    let bound = policy.launch_limits.apply_to(order);
    assert_eq!(
        (bound.max_turns, bound.timeout, bound.budget.tokens),
        (Some(3), Some(Duration::from_secs(9)), Some(70))
    );
    assert_eq!(policy.launch_limits.apply_to(Order::new("second", "x").max_turns(2)).max_turns, Some(2));
    // One model, shared by all agents that name it.
    let second = assembly.team.agent(&"second".into()).unwrap();
    assert!(Arc::ptr_eq(&agent.model, &second.model));
}

#[test]
fn models_are_found_whichever_way_they_are_named() {
    let assembly = made(
        "providers: {mine: {base_url: 'https://llm.example.com/v1', token_key: MINE}}\n\
         models: {a: {provider: openai, model: gpt-5, thinking_budget: high}, b: mine/large, s: {provider: scripted, script: 'agents: {}'}}\n\
         agents:\n  root: {model: [a, anthropic/claude-sonnet-4-5], fallback: {models: [b]}, toolsets: [{type: model_picker, models: [a, b]}]}\n  \
         auto: {}\n  play: {model: s}\n",
    );
    let name = |agent: &str| assembly.team.agent(&agent.into()).unwrap().model.name().to_owned();
    assert_eq!(name("root"), "openai/gpt-5, anthropic/claude-sonnet-4-5");
    assert_eq!(name("auto"), "anthropic/claude-sonnet-4-5", "the first whose key is set");
    assert_eq!(name("play"), "scripted");
    for model in ["a", "b", "auto", "s"] {
        assert!(assembly.team.model(model).is_some(), "{model}");
    }
    assert_eq!(assembly.warnings, []);
    // Without a key, a local server is looked up at the first request.
    let bare = assemble(&TeamBundle::from_text("t", "agents: {root: {}}"), &environment(&[])).unwrap();
    assert_eq!(bare.team.agent(&"root".into()).unwrap().model.name(), "auto");
}

#[test]
fn another_model_than_the_file_says() {
    let text = "agents: {root: {model: openai/gpt-5}, helper: {model: openai/gpt-5}}";
    let mut environment = rich();
    let other = |agent: Option<&str>, model: &str| ModelOverride {
        agent: agent.map(str::to_owned),
        model: model.to_owned(),
    };
    environment.model_overrides =
        vec![other(None, "google/gemini-2.5-flash"), other(Some("helper"), "xai/grok-4")];
    let assembly = assemble(&TeamBundle::from_text("t", text), &environment).unwrap();
    let name = |agent: &str| assembly.team.agent(&agent.into()).unwrap().model.name().to_owned();
    assert_eq!(
        (name("root"), name("helper")),
        ("google/gemini-2.5-flash".to_owned(), "xai/grok-4".to_owned())
    );
}

#[test]
fn what_is_not_set_is_told_with_its_place_and_never_with_its_value() {
    let text = "agents:\n  root:\n    model: openai/gpt-5\n    toolsets:\n      - {type: openapi, url: 'https://x.example.com', headers: {A: 'Bearer ${env.TOKEN}'}}\n";
    let shown = assemble_error(text, &environment(&[]));
    assert!(shown.contains("openai/gpt-5 needs a key: set OPENAI_API_KEY"), "{shown}");
    assert!(shown.contains("team.yaml:3:12"), "{shown}");
    let shown = assemble_error(text, &environment(&[("OPENAI_API_KEY", "sk-very-secret-key")]));
    assert!(shown.contains("the variable TOKEN is not set") && shown.contains("team.yaml:5:"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    // One of several models is enough, and a fallback may be missing.
    let some = "agents: {root: {model: 'openai/gpt-5, xai/grok-4', fallback: {models: [groq/x]}}}";
    let assembly =
        assemble(&TeamBundle::from_text("t", some), &environment(&[("XAI_API_KEY", "k")])).unwrap();
    let notices: Vec<String> = assembly.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].contains("OPENAI_API_KEY") && notices[1].contains("GROQ_API_KEY"), "{notices:?}");
}

#[test]
fn agents_of_another_file_come_along_with_those_they_know() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "team.yaml",
        "agents: {root: {model: openai/gpt-5, sub_agents: ['review:other.yaml', mine]}, mine: {model: openai/gpt-5}}",
    );
    write(
        "other.yaml",
        "agents: {lead: {instruction: Lead., model: m, sub_agents: [helper]}, helper: {model: m}}\nmodels: {m: {provider: openai, model: gpt-5-mini}}",
    );
    let bundle = TeamBundle::load(&dir.path().join("team.yaml")).unwrap();
    let assembly = assemble(&bundle, &rich()).unwrap();
    let names: Vec<&str> = assembly.team.agents().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["root", "review", "review/helper", "mine"]);
    let review = assembly.team.agent(&"review".into()).unwrap();
    assert_eq!(&*review.instruction, "Lead.");
    assert_eq!(review.sub_agents, ["review/helper".into()]);

    write("other.yaml", "agents: {lead: {model: openai/gpt-5, sub_agents: ['back:team.yaml']}}");
    let round = TeamBundle::load(&dir.path().join("team.yaml")).unwrap();
    let error = assemble(&round, &rich()).err().unwrap().to_string();
    assert!(error.contains("refers to itself"), "{error}");
    write("other.yaml", "agents: {lead: {modle: x}}");
    let wrong = TeamBundle::load(&dir.path().join("team.yaml")).unwrap();
    let error = assemble(&wrong, &rich()).err().unwrap().to_string();
    assert!(error.contains("other.yaml:1:") && error.contains("did you mean 'model'?"), "{error}");
}

async fn answer(longhaul: &Longhaul, id: crate::TaskId) -> (Status, String) {
    let done = longhaul.wait([id]).timeout(Duration::from_secs(60)).await.unwrap();
    (done.tasks[0].state.status, done.tasks[0].output.clone())
}

#[tokio::test]
async fn a_scripted_team_runs_to_its_end() {
    let bundle = TeamBundle::load(&examples().join("scripted.yaml")).unwrap();
    let assembly = assemble(&bundle, &environment(&[])).unwrap();
    let longhaul = Longhaul::builder(assembly.team).limits(assembly.limits).start().await.unwrap();
    let id = longhaul.submit(Order::new("root", "Compare Go and Rust.")).await.unwrap();
    assert_eq!(answer(&longhaul, id).await, (Status::Completed, "Both are back.".to_owned()));
    longhaul.shutdown().await;
}

/// The stored bundle is enough: after the file and its neighbours are gone, another process continues the
/// task.
#[tokio::test]
async fn a_kept_team_is_enough_to_run_its_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("team.yaml", "agents: {root: {model: scripted/play.yaml, instruction_file: root.md}}");
    write("root.md", "You are kept.");
    write("play.yaml", "agents: {root: {turns: [{text: 'Carried on: {{ task }}'}]}}");
    let bundle = TeamBundle::load(&dir.path().join("team.yaml")).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let team = TeamRef::File(store.put_blob(bundle.encode()).await.unwrap());
    let client = Longhaul::client(store.clone()).await.unwrap();
    let id = client.submit_to(team, Order::new("root", "the task")).await.unwrap();
    drop(dir);

    let nobody = crate::Agent::builder("nobody")
        .model(Arc::new(FnModel::new(|_| reply().text("no"))))
        .build()
        .unwrap();
    let other = Longhaul::builder(Team::new(nobody).unwrap())
        .shared_store(store)
        .loader(BundleLoader::new(environment(&[])));
    let longhaul = other.start().await.unwrap();
    assert_eq!(answer(&longhaul, id).await, (Status::Completed, "Carried on: the task".to_owned()));
    longhaul.shutdown().await;
}

/// A team whose root has a remote sub-agent and passes its answer on.
fn with_remote(address: &str) -> String {
    format!(
        "permissions: {{allow: [transfer_task, desk]}}\n\
         agents: {{root: {{model: play, sub_agents: ['desk:{address}']}}}}\n\
         models: {{play: {{provider: scripted, script: \"agents: {{root: {{turns: [{{calls: [{{tool: transfer_task, arguments: {{agent: desk, \
         task: 'To Rome?', expected_output: A time.}}}}]}}, {{text: '{{{{ result }}}}'}}]}}}}\"}}}}"
    )
}

#[tokio::test]
async fn a_sub_agent_at_an_address_is_given_the_task_and_its_answer_or_failure_comes_back() {
    use crate::toolset::loopback::{LoopbackServer, http_response as http};
    let card = serde_json::json!({"name": "Travel", "description": "Connections.", "url": "/rpc", "protocolVersion": "0.3.0",
        "capabilities": {}, "skills": [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}]});
    for (state, expected) in [("completed", "At nine."), ("failed", "The agent has failed")] {
        let card = card.to_string();
        let server = LoopbackServer::start(move |asked| match asked.line.as_str() {
            "GET /agent/.well-known/agent-card.json" => http(200, &[], &card),
            line if line.starts_with("GET") => http(404, &[], "nothing here"),
            _ => {
                let message = serde_json::json!({"role": "agent", "parts": [{"kind": "text", "text": "At nine."}]});
                let result = serde_json::json!({"kind": "task", "id": "r-1", "contextId": "c-1", "status": {"state": state, "message": message}});
                http(200, &[], serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
            }
        })
        .await;
        let text = with_remote(&server.url("/agent"));
        let assembly = assemble(&TeamBundle::from_text("team.yaml", text), &environment(&[])).unwrap();
        assert_eq!(assembly.warnings, []);
        let remote = assembly.team.agent(&"desk".into()).unwrap();
        assert!(
            remote.description.starts_with("A remote agent at http://127.0.0.1:"),
            "{}",
            remote.description
        );
        let longhaul = Longhaul::builder(assembly.team).start().await.unwrap();
        let id = longhaul.submit(Order::new("root", "go")).await.unwrap();
        let (status, output) = answer(&longhaul, id).await;
        assert_eq!(status, Status::Completed, "{output}");
        assert!(output.contains(expected), "{state}: {output}");
        let child = longhaul.list(crate::store::TaskFilter::children(id)).await.unwrap().remove(0);
        let ended = if state == "failed" { Status::Failed } else { Status::Completed };
        assert_eq!(child.status, ended, "{:?}", child.error);
        longhaul.shutdown().await;
        let asked = server.requests().last().unwrap().json();
        let said = asked["params"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(said, "<task>\nTo Rome?\n</task>\n\n<expected_output>\nA time.\n</expected_output>");
    }
}

#[tokio::test]
async fn a_sub_agent_that_cannot_be_reached_fails_its_task_and_says_why() {
    let text = with_remote("http://127.0.0.1:9/agent?key=s3cret");
    let assembly = assemble(&TeamBundle::from_text("team.yaml", text), &environment(&[])).unwrap();
    let longhaul = Longhaul::builder(assembly.team).start().await.unwrap();
    let id = longhaul.submit(Order::new("root", "go")).await.unwrap();
    let (_, output) = answer(&longhaul, id).await;
    assert!(output.contains("a2a") && output.contains("127.0.0.1:9/agent"), "{output}");
    assert!(!output.contains("s3cret"), "{output}");
    longhaul.shutdown().await;
}

#[tokio::test]
async fn calls_say_what_they_are_for_and_results_have_no_secrets() {
    let text = "permissions: {allow: ['*']}\nagents: {root: {model: play, redact_secrets: true, add_description_parameter: true, toolsets: [{type: shell}]}}\n\
                models: {play: {provider: scripted, script: \"agents: {root: {turns: [{calls: [{tool: shell, arguments: {description: Look., \
                cmd: 'echo API_KEY=abcdefgh'}}]}, {text: '{{ result }}'}]}}\"}}";
    let assembly = assemble(&TeamBundle::from_text("team.yaml", text), &environment(&[])).unwrap();
    assert_eq!(assembly.warnings, []);
    let longhaul = Longhaul::builder(assembly.team).start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let id = longhaul.submit(Order::new("root", "go").working_dir(dir.path())).await.unwrap();
    let (status, output) = answer(&longhaul, id).await;
    assert_eq!((status, output.as_str()), (Status::Completed, "API_KEY=[redacted]\n[exit code 0]"));
    longhaul.shutdown().await;
}

/// A server under `mcps` and the same server written inline, for two agents: one process, which ends with the
/// pool.
#[cfg(all(target_os = "linux", feature = "mcp"))]
#[tokio::test]
async fn agents_that_name_one_server_in_two_ways_share_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/fake.sh"), include_str!("../../toolset/mcp/fake.sh")).unwrap();
    let text = "mcps:\n  fake: {command: /bin/sh, args: [fake.sh, plain], env: {LOG: nowhere, B: '${env.TWO}'}, working_dir: sub, tools: [say.it]}\n\
        agents:\n  root:\n    model: openai/gpt-5\n    sub_agents: [other]\n    toolsets:\n      \
        - {type: mcp, ref: fake, name: f, env: {LOG: '${env.WHERE}'}, instruction: 'Mind: {ORIGINAL_INSTRUCTIONS}'}\n  \
        other:\n    model: openai/gpt-5\n    toolsets:\n      \
        - {type: mcp, command: /bin/sh, args: [fake.sh, plain], env: {LOG: '${env.WHERE}', B: two}, working_dir: sub}\n";
    let mut bundle = TeamBundle::from_text("team.yaml", text);
    bundle.working_dir = Some(dir.path().to_owned());
    let bundle = TeamBundle::decode(&bundle.encode()).unwrap();
    let place = log.display().to_string();
    let look = move |name: &str| match name {
        "OPENAI_API_KEY" => Some("key".to_owned()),
        "TWO" => Some("two".to_owned()),
        "WHERE" => Some(place.clone()),
        _ => None,
    };
    let environment = Environment::new(HttpClient::new(HttpOptions::default()).unwrap(), look, dir.path());
    let team = assemble(&bundle, &environment).unwrap_or_else(|error| panic!("{error}")).team;
    let mut offered = Vec::new();
    for name in ["root", "other"] {
        let agent = team.agent(&name.into()).unwrap();
        let (toolset, context) = (agent.toolsets.last().unwrap(), team.toolset_context(agent));
        let tools = toolset.open(&context).await.unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
        offered.push((names.join(" "), toolset.instruction(&context).unwrap_or_default()));
    }
    let about = |label: &str| format!("About the tools of the MCP server '{label}':\nBe kind.");
    assert_eq!(offered[0], ("f_say_it".to_owned(), format!("Mind: {}", about("f"))));
    assert_eq!(offered[1], ("say_it hang write die".to_owned(), about("fake.sh")));
    let noted = std::fs::read_to_string(&log).unwrap();
    let started: Vec<&str> = noted.lines().filter_map(|line| line.strip_prefix("started ")).collect();
    assert_eq!(started.len(), 1, "{noted}");
    let process = Path::new("/proc").join(started[0]);
    assert!(process.exists());
    environment.mcp.close().await;
    assert!(!process.exists(), "it ends with the pool");
}

#[cfg(feature = "mcp")]
#[test]
fn what_a_server_needs_and_is_not_set_is_told_with_its_place() {
    let text = "mcps: {far: {remote: {url: 'https://x.example.com/mcp', headers: {Authorization: 'Bearer ${env.FAR}'}}}}\n\
                agents:\n  root:\n    model: openai/gpt-5\n    toolsets:\n      - {type: mcp, ref: far}\n      \
                - {type: mcp, command: x, env: {KEY: '${env.NEAR}'}}\n";
    let shown = assemble_error(text, &environment(&[("OPENAI_API_KEY", "k")]));
    assert!(shown.contains("the variable FAR is not set") && shown.contains("team.yaml:1:"), "{shown}");
    assert!(shown.contains("the variable NEAR is not set") && shown.contains("team.yaml:7:"), "{shown}");
}

#[test]
fn permissions_of_an_agent_are_added_to_those_of_the_file_list_by_list() {
    use crate::permission::Permissions;
    let team = made(
        "permissions: {allow: ['read_*'], deny: ['shell:cmd=rm *']}\n\
         agents:\n  root: {model: play, permissions: {allow: [write_file], ask: [read_file], deny: [fetch]}}\n  other: {model: play}\n\
         models: {play: {provider: scripted, script: \"agents: {}\"}}",
    )
    .team;
    let list = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
    let rules = |allow: &[&str], ask: &[&str], deny: &[&str]| {
        Permissions::parse(&list(allow), &list(ask), &list(deny)).unwrap()
    };
    let root = team.permissions_for(&"root".into()).unwrap();
    assert_eq!(*root, rules(&["read_*", "write_file"], &["read_file"], &["shell:cmd=rm *", "fetch"]));
    assert_eq!(*team.permissions_for(&"other".into()).unwrap(), rules(&["read_*"], &[], &["shell:cmd=rm *"]));
    let wrong = "agents: {root: {model: play, permissions: {ask: ['shell:cmd=[a']}}}\nmodels: {play: {provider: scripted, script: \"agents: {}\"}}";
    let why = assemble_error(wrong, &environment(&[]));
    assert!(why.contains("team.yaml:1:50") && why.contains("the permission pattern"), "{why}");
}

/// A child cannot do what its parent is denied, whatever its own permissions allow.
#[tokio::test]
async fn permissions_of_an_agent_only_narrow_those_of_its_children() {
    for (of_root, made_it) in
        [("{allow: [shell]}", true), ("{}", false), ("{allow: [shell], deny: [shell]}", false)]
    {
        let text = format!(
            "permissions: {{allow: [transfer_task]}}\n\
             agents:\n  root: {{model: play, sub_agents: [child], permissions: {of_root}}}\n  \
             child: {{model: play, toolsets: [{{type: shell}}], permissions: {{allow: [shell]}}}}\n\
             models: {{play: {{provider: scripted, script: \"agents: {{root: {{turns: [{{calls: [{{tool: transfer_task, arguments: {{agent: child, \
             task: go, expected_output: x}}}}]}}, {{text: '{{{{ result }}}}'}}]}}, child: {{turns: [{{calls: [{{tool: shell, arguments: {{cmd: \
             'echo made-$((40+2))'}}}}]}}, {{text: '{{{{ result }}}}'}}]}}}}\"}}}}"
        );
        let assembly = assemble(&TeamBundle::from_text("team.yaml", text), &environment(&[])).unwrap();
        let longhaul = Longhaul::builder(assembly.team)
            .attended(false)
            .unattended(crate::agent::Unattended::Deny)
            .start()
            .await
            .unwrap();
        let here = tempfile::tempdir().unwrap();
        let order = Order::new("root", "go").working_dir(here.path());
        let id = longhaul.submit(order).await.unwrap();
        let (_, output) = answer(&longhaul, id).await;
        // No one is there to approve: only what both allow runs.
        assert_eq!(output.contains("made-42"), made_it, "{of_root}: {output}");
        longhaul.shutdown().await;
    }
}

#[test]
fn an_agent_that_another_program_runs_has_its_command_home_and_variables() {
    let assembly = made(
        "agents:\n  root: {model: openai/gpt-5, sub_agents: [a, b, c]}\n  a: {acp: claude-code}\n  b: {harness: {type: codex, logins: \
         [.codex/auth.json]}}\n  c: {acp: {command: [./mine, --acp], mode: plan, env: {KEY: $SECRET}}, toolsets: [{type: mcp, command: server, args: [-x], env: {A: b}}, {type: mcp, remote: {url: 'https://mcp.example.com'}}]}\n",
    );
    let program = |name: &str| assembly.team.agent(&name.into()).unwrap().acp.clone().unwrap();
    let (a, b, c) = (program("a"), program("b"), program("c"));
    assert_eq!(a.command(), ["npx", "-y", "@agentclientprotocol/claude-agent-acp"]);
    assert!(a.reports_cost() && !b.reports_cost());
    assert_eq!(a.home(), Path::new("data/acp/claude-code"));
    assert_eq!(b.logins()[0].0, Path::new("value-of-HOME/.codex/auth.json"));
    assert_eq!((c.program_name(), c.wanted_mode()), ("mine", Some("plan")));
    assert_eq!(c.environment().get("KEY").map(String::as_str), Some("value-of-SECRET"));
    assert!(!c.environment().contains_key("HOME") && !c.environment().contains_key("ANTHROPIC_API_KEY"));
    assert!(c.home().starts_with("data/acp") && c.home() != a.home());
    let server = serde_json::json!({ "name": "server-0", "command": "server", "args": ["-x"], "env": [{ "name": "A", "value": "b" }] });
    assert_eq!((c.mcp_servers(false), c.mcp_servers(true).len()), (vec![server], 2));
    assert!(!format!("{c:?}").contains("value-of-SECRET"), "values are not shown");
    assert!(assembly.warnings.is_empty(), "{:?}", assembly.warnings);
}

#[test]
fn a_harness_of_another_runtime_is_a_warning_and_a_misspelt_one_an_error() {
    let told = made("agents:\n  root:\n    model: openai/gpt-5\n    harness: {type: elsewhere}\n");
    let [notice] = &told.warnings[..] else { panic!("{:?}", told.warnings) };
    assert!(notice.problem.message.contains("no harness of type 'elsewhere'"), "{notice:?}");
    assert_eq!((notice.problem.path.as_str(), notice.problem.at.line), ("agents.root.harness.type", 4));
    assert!(told.team.agent(&"root".into()).unwrap().acp.is_none(), "it runs with its model");
    let wrong = |text: &str| assemble_error(text, &rich());
    let near = wrong("agents:\n  root:\n    model: openai/gpt-5\n    harness: {type: claudecode2}\n");
    assert!(near.contains("did you mean 'claude-code'") && near.contains(":4:"), "{near}");
    assert!(wrong("agents: {root: {acp: elsewhere}}").contains("no program is known as 'elsewhere'"));
}

#[test]
fn what_another_program_cannot_do_is_told() {
    let wrong = |text: &str| assemble_error(text, &rich());
    assert!(wrong("agents: {root: {acp: claud}}").contains("Use one of claude-code, codex"));
    assert!(wrong("agents: {root: {acp: {mode: plan}}}").contains("name the program"));
    assert!(wrong("agents: {root: {acp: codex, budget: {max_cost: 1}}}").contains("max_cost cannot be kept"));
    assert!(
        wrong("budget: {max_cost: 1}\nagents: {root: {acp: gemini}}").contains("max_cost cannot be kept")
    );
    assert!(
        wrong("agents: {root: {acp: {type: codex, logins: [../x]}}}").contains("below your home directory")
    );
    let told = made(
        "agents:\n  root:\n    acp: {type: claude-code, mode: bypassPermissions}\n    budget: {max_cost: 1}\n    model: openai/gpt-5\n    \
         toolsets: [{type: shell}]\n    readonly: true\n    sub_agents: [other]\n  other:\n    acp: {type: gemini, network: false}\n    \
         background: {letters: asap}\n",
    );
    let told: Vec<String> = told.warnings.into_iter().map(|notice| notice.problem.message).collect();
    for words in [
        "'model' has no effect",
        "'toolsets' has no effect",
        "'readonly' has no effect",
        "wait until its turn ends",
        "'network' has no effect without a sandbox",
        "asks for nothing",
    ] {
        assert!(told.iter().any(|message| message.contains(words)), "{words}: {told:#?}");
    }
}
