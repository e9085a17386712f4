//! What is printed for people: on terminals of two widths, in a pipe, without colours.

use longhaul::TaskId;
use longhaul::entry::{Order, TeamRef};
use nix::sys::signal::Signal;

use crate::form::looks_like;
use crate::kit::Kit;
use crate::term::Terminal;

fn submitted(kit: &Kit, team: &str, order: Order) -> TaskId {
    let team = TeamRef::Named(team.into());
    kit.client(async |longhaul| longhaul.submit_to(team, order).await.unwrap())
}

/// What a command leaves on a terminal.
#[track_caller]
fn shown(kit: &Kit, columns: u16, args: &[&str]) -> String {
    let (screen, code) = Terminal::run(&kit.command(args), columns, 60).end();
    assert_eq!(code, 0, "{screen}");
    screen
}

#[test]
fn tasks_fit_the_terminal() {
    let kit = Kit::new();
    submitted(&kit, "demo", Order::new("lead", "Say hello"));
    kit.run(&["resume", "--pace", "0"]).ended(0);
    submitted(&kit, "nobody", Order::new("waiter", "Wait for ever, and for longer than fits into a line"));
    looks_like!("tasks_80", shown(&kit, 80, &["tasks"]));
    looks_like!("tasks_40", shown(&kit, 40, &["tasks"]));

    let coloured = Terminal::run(&kit.command(&["tasks"]), 80, 20);
    coloured.end();
    assert!(coloured.colours().contains("\x1b[32m✓ completed"), "{:?}", coloured.colours());
    let plain = Terminal::run(kit.command(&["tasks"]).env("NO_COLOR", "1"), 80, 20);
    plain.end();
    assert!(!plain.colours().contains('\x1b'), "{:?}", plain.colours());
}

#[test]
fn tasks_are_chosen_by_state_agent_tree_and_age() {
    let kit = Kit::new();
    let done = submitted(&kit, "demo", Order::new("lead", "Say hello")).to_string();
    kit.run(&["resume", "--pace", "0"]).ended(0);
    let open = submitted(&kit, "nobody", Order::new("waiter", "Wait")).to_string();
    let stopped = submitted(&kit, "nobody", Order::new("waiter", "Go")).to_string();
    kit.run(&["stop", &stopped]).ended(0);
    let chosen = |args: &[&str]| -> Vec<String> {
        let ran = kit.run(&[&["tasks", "--json"], args].concat()).ended(0);
        ran.json().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(chosen(&[]), [&*done, &open, &stopped]);
    assert_eq!(chosen(&["--state", "open"]), [&*open]);
    assert_eq!(chosen(&["--state", "completed,cancelled"]), [&*done, &stopped]);
    assert_eq!(chosen(&["--state", "ended", "--agent", "waiter"]), [&*stopped]);
    assert_eq!(chosen(&["--root", &open[..6]]), [&*open]);
    assert_eq!(chosen(&["--since", "1d"]).len(), 3);
    assert_eq!(chosen(&["--older-than", "1d"]).len(), 0);
    assert_eq!(chosen(&["--older-than", "0s"]).len(), 3);

    looks_like!("tasks_table", kit.run(&["tasks", "--table", "--state", "ended"]).ended(0).out);
    looks_like!("tasks_no_agent", kit.run(&["tasks", "--agent", "nobody"]).ended(0).out);
    looks_like!("tasks_none_fits", kit.run(&["tasks", "--state", "failed"]).ended(0).out);
    looks_like!("tasks_wrong_state", kit.run(&["tasks", "--state", "faild"]).ended(2).err);
    looks_like!("tasks_wrong_flag", kit.run(&["tasks", "--stat", "failed"]).ended(2).err);
    looks_like!("tasks_wrong_age", kit.run(&["tasks", "--since", "yesterday"]).ended(2).err);
    looks_like!("tasks_wrong_word", kit.run(&["taks"]).ended(2).err);
}

#[test]
fn who_watches_tasks_in_a_pipe_is_told_what_changes() {
    let kit = Kit::new();
    let first = submitted(&kit, "nobody", Order::new("waiter", "One")).to_string();
    let mut watch = kit.start(&["tasks", "--watch"]);
    watch.until(|line| line.contains(&first) && line.contains("pending"));
    let second = submitted(&kit, "nobody", Order::new("waiter", "Two")).to_string();
    watch.until(|line| line.contains(&second) && line.contains("pending"));
    kit.run(&["stop", &first]).ended(0);
    watch.until(|line| line.contains(&first) && line.contains("cancelled"));
    watch.signal(Signal::SIGINT);
    let told = watch.end().ended(0).out;
    assert_eq!(told.lines().count(), 3, "what has not changed is not told again:\n{told}");
}

#[test]
fn who_watches_tasks_on_a_terminal_sees_them_in_place() {
    let kit = Kit::new();
    let first = submitted(&kit, "nobody", Order::new("waiter", "One")).to_string();
    let terminal = Terminal::run(&kit.command(&["tasks", "--watch"]), 80, 12);
    terminal.until("the first task", |screen| screen.contains(&first));
    for n in 2..30 {
        submitted(&kit, "nobody", Order::new("waiter", format!("Number {n}")));
    }
    kit.run(&["stop", &first]).ended(0);
    let all = |screen: &str| screen.contains("and 20 more tasks") && !screen.contains(&first);
    looks_like!("tasks_watch", terminal.until("all the others", all));
    terminal.keys(&["C-c"]);
    assert_eq!(terminal.end().1, 0);
}

/// Tries a task again: the id of the new one.
fn tries(kit: &Kit, id: &str) -> String {
    let ran = kit.run(&["retry", id, "--json"]).ended(0).json();
    ran[0]["retried_as"].as_str().unwrap().to_owned()
}

#[test]
fn what_was_cancelled_is_tried_again_and_both_know_of_each_other() {
    let kit = Kit::new();
    let open = submitted(&kit, "nobody", Order::new("waiter", "Wait")).to_string();
    kit.run(&["retry", &open]).complains(1, &["only a failed or cancelled task can be retried", "resume"]);
    kit.run(&["stop", &open]).ended(0);
    let out = kit.run(&["retry", &open[..6]]).ended(0).out;
    assert!(out.contains(&format!("{open} is retried as t-")) && out.contains("resume t-"), "{out}");
    // One at a time; when that has ended, once more.
    let first = kit.journals().last().unwrap().0.id.to_string();
    kit.run(&["retry", &open]).complains(1, &["is already being retried", &first]);
    kit.run(&["stop", &first]).ended(0);
    let again = tries(&kit, &open);
    let shown = kit.run(&["show", &again, "--json"]).ended(0).json();
    assert_eq!(shown[0]["head"]["retries"], open.as_str());
    assert_eq!(shown[0]["order"]["task"], "Wait");
    let old = kit.run(&["show", &open, "--json"]).ended(0).json();
    assert_eq!(old[0]["retried_as"].as_array().unwrap().len(), 2);
    assert!(kit.run(&["show", &open]).out.contains(&format!("retried as  {again}")));
    assert!(kit.run(&["show", &again]).out.contains(&format!("retries     {open}")));

    let done = submitted(&kit, "demo", Order::new("lead", "Say hello")).to_string();
    kit.run(&["resume", &done, "--pace", "0"]).ended(0);
    kit.run(&["retry", &done]).complains(1, &["is completed", &format!("send {done} …")]);
}

#[test]
fn a_child_is_tried_again_below_its_parent() {
    let kit = Kit::new();
    let mut demo = kit.start(&["demo", "--pace", "5"]);
    let root = demo.root();
    let child = kit.until("a child", |journals| {
        journals.iter().find(|(state, _)| state.parent == Some(root)).map(|(state, _)| state.id.to_string())
    });
    kit.run(&["stop", &child]).ended(0);
    kit.run(&["wait", &child]).ended(3);
    let again = tries(&kit, &child);
    kit.run(&["wait", &again, "--any", "--timeout", "30s"]);
    let state = kit.run(&["show", &again, "--json"]).ended(0).json()[0]["head"].clone();
    assert_eq!((&state["parent"], &state["root"]), (&root.to_string().into(), &root.to_string().into()));
    assert_ne!(state["attempt"], 0, "the process that runs its tree runs it, too");
    kit.run(&["stop", &root.to_string()]).ended(0);
    demo.end();
}

#[test]
fn only_what_is_old_has_ended_and_was_seen_is_deleted() {
    let kit = Kit::new();
    let left = |kit: &Kit| kit.journals().iter().map(|(state, _)| state.id.to_string()).collect::<Vec<_>>();
    let open = submitted(&kit, "nobody", Order::new("waiter", "Wait")).to_string();
    let unread = submitted(&kit, "nobody", Order::new("waiter", "Never seen")).to_string();
    let seen = submitted(&kit, "nobody", Order::new("waiter", "Seen")).to_string();
    let first = submitted(&kit, "demo", Order::new("lead", "Go on")).to_string();
    kit.run(&["stop", &unread, &seen]).ended(0);
    kit.run(&["resume", &first, "--pace", "0"]).ended(0);
    kit.run(&["send", &first, "and on", "--wait"]).ended(0);
    kit.run(&["show", &seen]).ended(0);

    assert!(kit.run(&["prune", "--older-than", "1h"]).ended(0).out.contains("Nothing is that old"));
    kit.run(&["prune"]).ended(2);
    looks_like!("prune_dry", kit.run(&["prune", "--older-than", "0s", "--dry-run"]).ended(0).out);
    assert_eq!(left(&kit).len(), 5);
    looks_like!("prune", kit.run(&["prune", "--older-than", "0s"]).ended(0).out);
    assert_eq!(left(&kit), [open.clone(), unread.clone()], "what goes on from another goes with it");
    let json = kit.run(&["prune", "--older-than", "0s", "--json"]).ended(0).json();
    assert_eq!((&json[0]["kept"], &json[1]["kept"]), (&"open".into(), &"unread".into()));
    kit.run(&["prune", "--older-than", "0s", "--force"]).ended(0);
    assert!(left(&kit).is_empty());
    kit.run(&["show", &seen]).complains(4, &["no task whose id begins with"]);
    submitted(&kit, "nobody", Order::new("waiter", "On it goes"));
    assert_eq!(left(&kit).len(), 1);
}

#[test]
fn the_logs_of_carriers_go_with_their_trees_or_by_their_age() {
    let kit = Kit::new();
    let seen = submitted(&kit, "nobody", Order::new("waiter", "Seen")).to_string();
    let open = submitted(&kit, "nobody", Order::new("waiter", "Open")).to_string();
    kit.run(&["stop", &seen]).ended(0);
    kit.run(&["show", &seen]).ended(0);
    let carriers = kit.data.path().join("carriers");
    std::fs::create_dir_all(&carriers).unwrap();
    let log = |id: &str| carriers.join(format!("{id}.log"));
    let write = |id: &str, hours: u64| {
        let file = std::fs::File::create(log(id)).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(hours * 3600))
            .unwrap();
    };
    write(&seen, 0);
    write(&open, 0);
    write("t-aaaaa", 48);
    write("t-bbbbb", 2);
    write("t-ccccc", 48);
    std::fs::write(carriers.join("notes.txt"), "not ours").unwrap();
    // One that is carried: whoever does holds a lock.
    let carried = std::fs::File::create(carriers.join("t-ccccc.pid")).unwrap();
    std::fs::write(carriers.join("t-ccccc.pid"), "4711").unwrap();
    carried.lock().unwrap();

    let dry = kit.run(&["prune", "--older-than", "24h", "--dry-run"]).ended(0).out;
    assert_eq!(dry, "1 log of background processes would be deleted.\n");
    let json = kit.run(&["prune", "--older-than", "24h", "--json"]).ended(0).json();
    assert_eq!((json.len(), &json[0]["deleted"]), (1, &true.into()), "{json:?}");
    assert!(
        !log("t-aaaaa").exists() && log("t-bbbbb").exists() && log("t-ccccc").exists() && log(&seen).exists()
    );
    let out = kit.run(&["prune", "--older-than", "0s"]).ended(0).out;
    assert!(out.contains("1 task of 1 tree deleted; 3 logs of background processes, too; 1 kept"), "{out}");
    let mut left: Vec<_> = std::fs::read_dir(&carriers)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["notes.txt", "t-ccccc.log", "t-ccccc.pid"]);
}

#[test]
fn a_tree_is_written_down_whole_and_harms_nobody() {
    let kit = Kit::new();
    let evil = "Look\n<script>alert(1)</script> \x1b[31m``` # x";
    kit.run(&["demo", "--pace", "0"]).ended(0);
    let (root, _) = kit.journals().into_iter().find(|(state, _)| state.parent.is_none()).unwrap();
    let id = root.id.to_string();
    let json: serde_json::Value =
        serde_json::from_str(&kit.run(&["export", &id, "--format", "json"]).ended(0).out).unwrap();
    assert_eq!(json["tasks"].as_array().unwrap().len(), 5);
    let calls = |task: &serde_json::Value| {
        task["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "call").count()
    };
    assert!(json["tasks"].as_array().unwrap().iter().all(|task| calls(task) > 0), "{json}");

    let note = kit.run(&["export", &id[..6], "-o", "run.html"]).ended(0);
    assert!(note.err.contains("5 tasks written to run.html") && note.out.is_empty(), "{note:?}");
    let html = std::fs::read_to_string(kit.ground.path().join("run.html")).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert_eq!(html.matches("<section").count(), 5);
    assert!(
        html.contains("<details>")
            && !html.contains("<script")
            && !html.contains("src=")
            && !html.contains("@import")
    );
    for (state, _) in kit.journals() {
        assert!(html.contains(&format!("href=\"#{}\"", state.id)), "the contents lead to {}", state.id);
    }
    let markdown = kit.run(&["export", &id]).ended(0).out;
    assert!(markdown.starts_with(&format!("# {id} ")) && markdown.contains("**calls** `"), "{markdown}");

    let other = submitted(&kit, "nobody", Order::new("<i>", evil)).to_string();
    for form in ["html", "markdown", "json"] {
        let out = kit.run(&["export", &other, "--format", form]).ended(0).out;
        assert!(out.chars().all(|c| c == '\n' || !c.is_control()), "{form}: {out:?}");
        assert!(form != "html" || (!out.contains("<script") && !out.contains("<i>")), "{out}");
    }
    kit.run(&["export", &other, "-o", "/no/such/place.md"]).complains(1, &["/no/such/place.md"]);
    let wrong = kit.run(&["export", &other, "--format", "pdf"]).ended(2).err;
    assert!(wrong.contains("json, markdown, html"), "{wrong}");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let kit = Kit::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = kit.run(&["completions", shell]).ended(0).out;
        assert!(script.contains("LONGHAUL_COMPLETE"), "it asks this program what there is: {shell}");
    }
    let wrong = kit.run(&["completions", "fsh"]).ended(2).err;
    assert!(wrong.contains("'fish'"), "{wrong}");
    assert!(kit.run(&["man"]).ended(0).out.contains(".TH longhaul 1"));
    let files = kit.run(&["man", "--dir", "man"]).ended(0).out;
    assert!(files.contains("man/longhaul.1") && files.contains("man/longhaul-export.1"), "{files}");
    let page = std::fs::read_to_string(kit.ground.path().join("man/longhaul-prune.1")).unwrap();
    assert!(page.contains("older\\-than") && page.contains("unread"), "{page}");
}

/// What is said of this machine is not the same on another.
macro_rules! doctor_says {
    ($name:literal, $text:expr) => {
        insta::with_settings!({filters => vec![
            (r"(?m)^. sandbox .*\n(?: {12}→ .*\n)?", "  sandbox   (as it is here)\n"),
            (r"(?m)^. git .*\n(?: {12}→ .*\n)?", "  git       (as it is here)\n"),
            (r"(?m)^. disk .*\n(?: {12,}.*\n)*", "  disk      (as it is here)\n"),
            // Those of the sandbox, git and the disk among them.
            (r"\d+ warnings?\n", "N warnings\n"),
            (r"version \d+\.\d+\.\d+", "version X.Y.Z"),
            (r"/\S*/longhaul\.db", "DATA/longhaul.db"),
            (r"\d+(\.\d)? [KMG]?B", "N KB"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        ]}, { insta::assert_snapshot!($name, $text) });
    };
}

#[test]
fn the_doctor_looks_at_everything() {
    let kit = Kit::new();
    // Nobody answers there.
    let doctor = |args: &[&str]| {
        let mut command = kit.command(&[&["doctor"], args].concat());
        command.env("OLLAMA_HOST", "127.0.0.1:9").env("LLAMA_ARG_PORT", "9");
        command
    };
    let ran = |args: &[&str]| crate::kit::Ran::from(doctor(args).output().unwrap());
    doctor_says!("doctor_new", ran(&[]).ended(0).out);
    assert!(!kit.database().exists(), "a look begins no database");

    submitted(&kit, "nobody", Order::new("waiter", "Wait"));
    kit.write("right.yaml", "agents: {root: {model: openai/gpt-5-mini, toolsets: [{type: think}, {type: mcp, command: /no/such/server}]}}\n");
    let mut command = doctor(&["right.yaml", "--trust"]);
    command.env("OPENAI_API_KEY", "sk-very-secret");
    let team = crate::kit::Ran::from(command.output().unwrap());
    assert!(!team.out.contains("very-secret") && team.out.contains("OPENAI_API_KEY set"), "{}", team.out);
    doctor_says!("doctor_team", team.ended(1).out);
    kit.write("wrong.yaml", "agents: {root: {modl: auto}}\n");
    doctor_says!("doctor_wrong_team", ran(&["wrong.yaml"]).ended(1).out);

    let json = ran(&["--json"]).ended(0).json();
    assert!(json.iter().any(|check| check["name"] == "database" && check["mark"] == "fine"), "{json:?}");
    std::fs::write(
        kit.database(),
        "not a database, but a text that is long enough to look like one".repeat(40),
    )
    .unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", kit.database().display()));
    }
    let broken = ran(&[]).ended(1).out;
    assert!(broken.contains("✗ database") && broken.contains("→ `--data DIR`"), "{broken}");
}

#[test]
fn show_and_the_doctor_fit_the_terminal() {
    let kit = Kit::new();
    let done = submitted(&kit, "demo", Order::new("lead", "Say hello\nand nothing else")).to_string();
    kit.run(&["resume", "--pace", "0"]).ended(0);
    looks_like!("show_80", shown(&kit, 80, &["show", &done]));
    looks_like!("show_40", shown(&kit, 40, &["show", &done]));

    kit.run(&["demo", "--pace", "0"]).ended(0);
    let parent = kit.journals().iter().find_map(|(state, _)| state.parent).unwrap().to_string();
    for columns in [80_u16, 40] {
        let screen = shown(&kit, columns, &["show", &parent]);
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        assert!(screen.contains("in all      5 tasks, ") && screen.contains("\nChildren\nTASK "), "{screen}");
    }
    let mut doctor = kit.command(&["doctor"]);
    doctor.env("OLLAMA_HOST", "127.0.0.1:9").env("LLAMA_ARG_PORT", "9");
    let checked = |columns: u16| {
        let terminal = Terminal::run(&doctor, columns, 80);
        let (screen, code) = terminal.end();
        assert_eq!(code, 0, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        assert!(terminal.colours().contains("\x1b[32m✓"), "{:?}", terminal.colours());
        everywhere(&screen)
    };
    looks_like!("doctor_80", checked(80));
    looks_like!("doctor_40", checked(40));
    let json = crate::kit::Ran::from(doctor.arg("--json").output().unwrap()).ended(0).json();
    let json: Vec<_> =
        json.iter().filter(|check| EVERYWHERE.iter().any(|name| check["name"] == *name)).collect();
    looks_like!("doctor_json", serde_json::to_string_pretty(&json).unwrap());
}

/// What the doctor says that is the same on every machine.
const EVERYWHERE: [&str; 3] = ["keys", "servers", "terminal"];

/// Of the doctor's checks, those that are the same on every machine.
fn everywhere(screen: &str) -> String {
    let mut kept = false;
    let of_those = |line: &&str| {
        if !line.starts_with("  ") {
            kept = EVERYWHERE.iter().any(|name| line.split_whitespace().nth(1) == Some(name));
        }
        kept
    };
    screen.lines().filter(of_those).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_colours_they_say_the_same() {
    let kit = Kit::new();
    let done = submitted(&kit, "demo", Order::new("lead", "Say hello")).to_string();
    kit.run(&["resume", "--pace", "0"]).ended(0);
    for args in [&["tasks"][..], &["show", &done], &["doctor"]] {
        let mut command = kit.command(args);
        command.env("OLLAMA_HOST", "127.0.0.1:9").env("LLAMA_ARG_PORT", "9");
        let coloured = Terminal::run(&command, 80, 60);
        let (with, _) = coloured.end();
        assert!(coloured.colours().contains("\x1b["), "{with}");
        let plain = Terminal::run(command.env("NO_COLOR", "1"), 80, 60);
        let (without, _) = plain.end();
        assert!(!plain.colours().contains('\x1b'), "{:?}", plain.colours());
        // How long ago it was may have changed meanwhile, and the doctor says that there are no colours.
        assert_eq!(with.lines().count(), without.lines().count(), "{with}\n{without}");
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(&with), first(&without));
    }
}

#[test]
fn what_cannot_be_shown_is_told() {
    let kit = Kit::new();
    looks_like!("show_unknown", kit.run(&["show", "t-zzzzz"]).ended(4).err);
    looks_like!("show_no_id", kit.run(&["show", "what?"]).ended(4).err);
    looks_like!("show_nothing", kit.run(&["show"]).ended(2).err);
    looks_like!(
        "doctor_no_team",
        kit.run(&["doctor", "nowhere.yaml"])
            .ended(1)
            .out
            .lines()
            .find(|line| line.contains("nowhere"))
            .unwrap()
    );
    let (screen, code) = Terminal::run(&kit.command(&["show", "t-zzzzz"]), 40, 20).end();
    assert_eq!(code, 4, "{screen}");
    looks_like!("show_unknown_40", screen);
}

#[test]
fn json_has_these_keys() {
    let kit = Kit::new();
    let done = submitted(&kit, "demo", Order::new("lead", "Say hello")).to_string();
    kit.run(&["resume", "--pace", "0"]).ended(0);
    let pretty = |args: &[&str]| {
        let mut value = kit.run(args).ended(0).json().remove(0);
        // In how many pieces words come is a matter of time.
        if let Some(events) = value.get_mut("events") {
            let mut kinds: Vec<String> =
                events.as_array().unwrap().iter().map(|e| e["event"].to_string()).collect();
            kinds.dedup();
            *events = kinds.into();
        }
        serde_json::to_string_pretty(&value).unwrap()
    };
    insta::with_settings!({filters => vec![
        (r"t-[0-9a-z]{5}\b", "t-xxxxx"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r#""worked_ms": \d+"#, "\"worked_ms\": NN"),
        (r": \d{2,}\b", ": NN"),
        (r#""seq": \d+"#, "\"seq\": N"),
    ]}, {
        insta::assert_snapshot!("tasks_json", pretty(&["tasks", "--json"]));
        insta::assert_snapshot!("show_json", pretty(&["show", &done, "--json"]));
    });
}
