//! Rough edges: what is said in words, what a command takes, and what it gives back.

use std::path::Path;

use longhaul::Status;
use longhaul::entry::Entry;

use crate::kit::{Kit, Ran};

/// A team that answers at once.
fn simple(kit: &Kit) {
    kit.plays("team.yaml", "agents: {root: {model: play}}\n", "agents: {root: {turns: [{text: Here.}]}}");
}

/// A server that does not start is told of in words, once, and by no line of a log.
#[test]
fn a_server_that_fails_is_told_of_in_words_and_once() {
    let kit = Kit::new();
    let team = "agents:\n  root:\n    model: play\n    sub_agents: [helper]\n    toolsets: [{type: background_agents}, {type: mcp, command: no-such-server}]\n  \
                helper: {model: play, toolsets: [{type: mcp, command: no-such-server}]}\n";
    let play = "agents:\n  root:\n    turns:\n      - calls: [{tool: transfer_task, arguments: {agent: helper, task: Help}}]\n      \
                - text: Done.\n  helper: {turns: [{text: Helped.}]}\n";
    kit.plays("team.yaml", team, play);
    for quiet in [&[][..], &["-q"]] {
        let ran = kit.run(&[&["run", "team.yaml", "x", "--trust"][..], quiet].concat()).ended(0);
        assert!(!ran.err.contains("ERROR") && !ran.err.contains("longhaul::"), "a raw line: {}", ran.err);
        assert!(ran.err.contains("root runs without some of its tools: "), "{}", ran.err);
        assert!(ran.err.contains("no-such-server"), "{}", ran.err);
        assert_eq!(ran.err.matches("root runs without").count(), 1, "{}", ran.err);
    }
    let (state, journal) = kit.journals().remove(0);
    let warned = journal.iter().filter(|record| matches!(record.entry, Entry::Warned { .. })).count();
    assert_eq!(warned, 1);
    let id = state.id.to_string();
    for view in [&["logs", &id][..], &["logs", &id, "--json"], &["export", &id]] {
        let shown = kit.run(view).ended(0).out;
        assert!(shown.contains("runs without some of its tools"), "{view:?}: {shown}");
    }
}

#[test]
fn a_team_is_shown_by_the_name_of_its_file() {
    let kit = Kit::new();
    simple(&kit);
    kit.run(&["run", "team.yaml", "x"]).ended(0);
    let id = kit.journals()[0].0.id.to_string();
    let shown = kit.run(&["show", &id]).ended(0).out;
    assert!(shown.contains("root of team file team.yaml"), "{shown}");
}

#[test]
fn the_beginning_of_every_id_is_no_id() {
    let kit = Kit::new();
    simple(&kit);
    for typed in ["t-", "T-"] {
        kit.run(&["show", typed]).complains(4, &["'t-' alone does not identify a task", "longhaul tasks"]);
    }
}

/// What nobody runs does not get older, and every view says the same of it.
#[test]
fn the_time_of_an_interrupted_task_stands_still() {
    let kit = Kit::new();
    kit.plays(
        "slow.yaml",
        "agents: {root: {model: play}}\n",
        "agents: {root: {turns: [{delay: 60s, text: x}]}}",
    );
    let running = kit.start(&["run", "slow.yaml", "x"]);
    let id = kit.until("a root that runs", |journals| {
        journals
            .iter()
            .find(|(state, _)| state.status == Status::Running)
            .map(|(state, _)| state.id.to_string())
    });
    running.murder();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let row = kit.run(&["tasks"]).ended(0).out;
    let shown = kit.run(&["show", &id]).ended(0).out;
    assert!(row.contains("interrupted"), "{row}");
    let elapsed = shown.lines().find_map(|line| line.strip_prefix("elapsed")).unwrap().trim();
    let seconds: f64 = elapsed.trim_end_matches('s').parse().unwrap_or_else(|_| panic!("{elapsed}"));
    assert!(seconds < 2.0 && row.contains(elapsed), "{elapsed}: {row}");
}

#[test]
fn a_vacuum_gives_the_space_of_what_is_deleted_back() {
    let kit = Kit::new();
    let words = "word ".repeat(100_000);
    kit.plays(
        "team.yaml",
        "agents: {root: {model: play}}\n",
        &format!("agents: {{root: {{turns: [{{text: '{words}'}}]}}}}"),
    );
    for _ in 0..4 {
        kit.run(&["run", "team.yaml", "x", "-q"]).ended(0);
    }
    let size = || kit.database().metadata().unwrap().len();
    let ran = kit.run(&["prune", "--older-than", "0s"]).ended(0);
    let full = size();
    assert!(full > 1_000_000, "deleting alone does not make it smaller: {full} {}", ran.out);
    let dry = kit.run(&["prune", "--vacuum", "--dry-run"]).ended(0).out;
    assert!(dry.contains("would give ") && size() == full, "{dry}");
    let ran = kit.run(&["prune", "--vacuum"]).ended(0);
    assert!(ran.out.contains("given back to the disk; the database has "), "{}", ran.out);
    assert!(size() < full / 2, "{full} is {}", size());
    let told = kit.run(&["prune", "--older-than", "0s", "--vacuum", "--json"]).ended(0).json();
    assert_eq!(told.last().unwrap()["vacuum"]["would_free"], false);
    kit.run(&["run", "team.yaml", "x", "-q"]).ended(0);
    kit.run(&["prune"]).ended(2);
    let help = kit.run(&["prune", "--help"]).ended(0).out;
    assert!(help.contains("--vacuum"), "{help}");
}

#[test]
fn help_lists_the_commands_by_what_they_are_for() {
    let kit = Kit::new();
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let help = kit.run(args).ended(0).out;
        let at = |word: &str| help.find(&format!("\n{word}:\n")).unwrap_or_else(|| panic!("{word}: {help}"));
        assert!(at("Run") < at("Look") && at("Look") < at("Steer") && at("Steer") < at("Keep"), "{help}");
        assert!(
            at("Keep") < at("Options") && help.contains("Exit codes:") && help.contains("--data"),
            "{help}"
        );
        assert!(help.contains("\n  prune ") && !help.contains("\n  carry "), "{help}");
    }
}

/// What a shell is told that may come next.
fn completed(kit: &Kit, data: &Path, typed: &[&str]) -> String {
    let mut asked = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul"));
    asked.arg("--").arg("longhaul").arg("--data").arg(data).args(typed).current_dir(kit.ground.path());
    asked.env("LONGHAUL_COMPLETE", "fish");
    Ran::from(asked.output().unwrap()).ended(0).out
}

#[test]
fn a_shell_completes_the_ids_of_tasks() {
    let kit = Kit::new();
    let nowhere = kit.data.path().join("nowhere");
    assert!(!completed(&kit, &nowhere, &["show", "t-"]).contains("t-"));
    assert!(!nowhere.exists(), "no database is begun by a look");
    simple(&kit);
    kit.run(&["run", "team.yaml", "Something to do"]).ended(0);
    let id = kit.journals()[0].0.id.to_string();
    for typed in [&["show", "t-"][..], &["logs", &id[..4]], &["resume", ""], &["run", "--session", &id[..3]]]
    {
        let told = completed(&kit, kit.data.path(), typed);
        assert!(told.contains(&id) && told.contains("completed: Something to do"), "{typed:?}: {told}");
    }
    assert!(!completed(&kit, kit.data.path(), &["show", "t-zzzz"]).contains(&id));
    assert!(completed(&kit, kit.data.path(), &["pru"]).contains("prune"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = kit.run(&["completions", shell]).ended(0).out;
        assert!(script.contains("LONGHAUL_COMPLETE") && script.contains("longhaul"), "{shell}: {script}");
    }
}

/// What an application with the library has called its database, the command opens as it is.
#[test]
fn a_database_is_opened_whatever_it_is_called() {
    let kit = Kit::new();
    simple(&kit);
    let file = kit.data.path().join("my-app.tasks.sqlite");
    let run = |args: &[&str]| Ran::from(kit.command_at(&file, args).output().unwrap());
    let ran = run(&["run", "team.yaml", "x", "--detach"]).ended(0);
    let id = ran.out.trim().to_owned();
    assert!(ran.err.contains("my-app.tasks.sqlite attach"), "what to type names the file: {}", ran.err);
    run(&["wait", &id]).ended(0);
    assert!(file.is_file() && !kit.database().exists());
    // Any name, once it is there.
    let odd = kit.data.path().join("tasks");
    std::fs::rename(&file, &odd).unwrap();
    let shown = Ran::from(kit.command_at(&odd, &["show", &id]).output().unwrap()).ended(0).out;
    assert!(shown.contains(&id) && shown.contains("Here."), "{shown}");
    // What is no database is left as it is.
    kit.write("notes.txt", "some notes, longer than the header of a database would be: ".repeat(9).as_str());
    let notes = kit.ground.path().join("notes.txt");
    let ran = Ran::from(kit.command_at(&notes, &["tasks"]).output().unwrap());
    ran.complains(5, &["notes.txt", "is not a database of Longhaul"]);
}

/// A model whose name is nearly a known one: the same warning wherever the team is looked at.
#[test]
fn a_misspelt_model_is_a_warning_of_check_doctor_and_run() {
    let kit = Kit::new();
    let team = |model: &str| format!("agents: {{root: {{model: {model}}}}}\n");
    kit.write("team.yaml", &team("anthropic/claude-sonet-4-5"));
    let run = |args: &[&str], key: bool| {
        let mut command = kit.command(args);
        if key {
            // Nobody is asked: it is not at home.
            command.env("ANTHROPIC_API_KEY", "none").env("OPENAI_API_KEY", "none");
        }
        Ran::from(command.output().unwrap())
    };
    let words = ["no model 'claude-sonet-4-5'", "did you mean claude-sonnet-4-5?"];
    let says = |text: &str| words.iter().all(|word| text.contains(word));
    for key in [true, false] {
        let checked = run(&["check", "team.yaml"], key).ended(0);
        assert!(says(&checked.out) && checked.out.contains("team.yaml:1:24"), "{key}: {}", checked.out);
        let strict = run(&["check", "--strict", "team.yaml"], key).ended(6);
        assert!(says(&strict.out), "{}", strict.out);
    }
    let doctor = run(&["doctor", "team.yaml"], true);
    assert!(says(&doctor.out), "{}", doctor.out);
    let ran = run(&["run", "team.yaml", "x"], false).ended(6);
    assert!(says(&ran.err), "also where it cannot be run: {}", ran.err);
    // What is known, may be new, or is somebody's own, is not doubted.
    for fine in [
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-opus-9",
        "openrouter/anthropic/claude-sonet-4-5",
        "ollama/claud",
    ] {
        kit.write("team.yaml", &team(fine));
        let checked = run(&["check", "team.yaml"], true).ended(0);
        assert!(!checked.out.contains("did you mean"), "{fine}: {}", checked.out);
    }
    let own = "agents: {root: {model: m}}\nmodels: {m: {provider: anthropic, model: claude-sonet-4-5, base_url: 'http://127.0.0.1:9', token_key: ANTHROPIC_API_KEY}}\n";
    kit.write("team.yaml", own);
    assert!(!run(&["check", "team.yaml"], true).out.contains("did you mean"));
    kit.write(
        "team.yaml",
        &own.replace(", base_url: 'http://127.0.0.1:9', token_key: ANTHROPIC_API_KEY", ""),
    );
    let named = run(&["check", "team.yaml"], true).ended(0);
    assert!(says(&named.out) && named.out.contains("team.yaml:2:"), "{}", named.out);
}

/// A team that uses 401 tokens a turn, and waits before its second.
fn spends(kit: &Kit) {
    kit.plays(
        "team.yaml",
        "agents: {root: {model: play, toolsets: [{type: think}]}}\n",
        "agents:\n  root:\n    turns:\n      - {calls: [{tool: think, arguments: {thought: a}}], usage: {input: 400, output: 1}}\n      \
         - {delay: 700ms, calls: [{tool: think, arguments: {thought: b}}], usage: {input: 400, output: 1}}\n      \
         - {text: 'I am done.', usage: {input: 400, output: 1}}\n      - {text: 'And more.', usage: {input: 400, output: 1}}",
    );
}

/// A run that was killed after its first turn.
fn left_over(kit: &Kit) -> String {
    spends(kit);
    let had = kit.journals().len();
    let running = kit.start(&["run", "team.yaml", "x", "--max-tokens", "500"]);
    let id = kit.until("its first turn", |journals| {
        journals.iter().skip(had).find(|(state, _)| state.turns == 1).map(|(state, _)| state.id.to_string())
    });
    running.murder();
    id
}

#[test]
fn a_run_that_has_not_ended_may_be_given_more() {
    let kit = Kit::new();
    // As it is, its budget ends it.
    let id = left_over(&kit);
    let ran = kit.run(&["resume", &id]).ended(7);
    assert!(ran.out.contains("802 tokens of 500"), "{ran:?}");
    // One that has ended is not given more by that, and it is said what to do.
    let ran = kit.run(&["resume", &id, "--max-tokens", "5000"]).ended(7);
    assert!(ran.out.contains("run --session") && ran.out.contains("--max-tokens"), "{ran:?}");

    let id = left_over(&kit);
    let ran = kit.run(&["resume", &id, "--max-tokens", "1000"]).ended(0);
    assert!(ran.out.contains("I am done."), "{ran:?}");
    let told = kit.run(&["logs", &id]).ended(0).out;
    assert!(told.contains("allowed 1,401 tokens in all"), "what was used before, and 1,000 more: {told}");
    let events = kit.run(&["logs", &id, "--json"]).ended(0).json();
    assert!(events.iter().any(|event| event["event"] == "budget_set" && event["budget"]["tokens"] == 1401));

    // Too little is too little.
    let id = left_over(&kit);
    let ran = kit.run(&["resume", &id, "--max-tokens", "300"]).ended(7);
    assert!(ran.out.contains("802 tokens of 701"), "{ran:?}");
    kit.run(&["resume", &id, "--max-tokens", "0"]).complains(2, &["--max-tokens must be greater than 0"]);

    // The same when somebody goes on with it.
    let id = left_over(&kit);
    let ran = kit.run(&["run", "--session", &id, "go on", "--max-tokens", "5000"]).ended(0);
    assert!(ran.out.contains("And more.") || ran.out.contains("I am done."), "{ran:?}");
}

/// A limit that could not be kept to is refused before anything is done: it must not fail the run.
#[test]
fn a_limit_of_cost_that_cannot_be_kept_to_does_no_harm() {
    let kit = Kit::new();
    let provider = crate::kit::Provider::start(|_| crate::server::Act::Silence);
    let team = format!(
        "agents: {{root: {{model: m}}}}\nmodels: {{m: {{provider: mine, model: x}}}}\nproviders: {{mine: {{base_url: '{}', api_type: openai_chatcompletions}}}}\n",
        provider.url()
    );
    kit.write("team.yaml", &team);
    let running = kit.start(&["run", "team.yaml", "x", "--trust"]);
    let id = kit.until("a root that runs", |journals| {
        journals
            .iter()
            .find(|(state, _)| state.status == Status::Running)
            .map(|(state, _)| state.id.to_string())
    });
    running.murder();
    for args in
        [&["resume", &id, "--max-cost", "1"][..], &["run", "--session", &id, "go on", "--max-cost", "1"]]
    {
        let ran = kit.run(args).ended(2);
        assert!(
            ran.err.contains("the price of mine/x is not known") && ran.err.contains("--prices"),
            "{}",
            ran.err
        );
    }
    assert!(!kit.journals()[0].0.status.is_final());
}
