//! The screen, in a real terminal: keys are sent, what is shown is read, and real processes run what is shown.

use longhaul::Status;
use longhaul::entry::Entry;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kit::Kit;
use crate::term::Terminal;

/// Three tasks: one that works until it may end, one that asks, one that works for ever.
const TEAM: &str = r##"
permissions:
  allow: [shell]
  ask: [write_file]

agents:
  root:
    model: play
    sub_agents: [scout, writer, idler]
    toolsets: [{ type: background_agents }]
  scout:
    model: play
    toolsets: [{ type: shell }]
  writer:
    model: play
    toolsets: [{ type: filesystem }]
  idler:
    model: play
    toolsets: [{ type: shell }]

models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - text: "# Plan\nThree of us look at it."
              calls: [{ tool: run_background_agent, arguments: { agent: scout, task: "Look around" } }]
            - calls: [{ tool: run_background_agent, arguments: { agent: writer, task: "Take notes" } }]
            - calls: [{ tool: run_background_agent, arguments: { agent: idler, task: "Be idle" } }]
            - until: find_all('task_ended id="[^"]+"') | length >= 3
              text: I wait for all three.
            - text: "That is all."
        scout:
          turns:
            - calls: [{ tool: shell, arguments: { cmd: "until [ -e go ]; do sleep 0.1; done; echo found", timeout: 300 } }]
            - text: "SCOUT is back."
        writer:
          turns:
            - calls: [{ tool: write_file, arguments: { path: notes.txt, content: "Some notes.\n" } }]
            - text: "WRITER is done."
        idler:
          turns:
            - calls: [{ tool: shell, arguments: { cmd: "until [ -e never ]; do sleep 0.1; done", timeout: 300 } }]
            - text: "IDLER is done."
"##;

/// What differs from run to run is made the same, and what is measured left out.
fn filtered(screen: &str) -> String {
    const FILTERS: [(&str, &str); 8] = [
        (r"t-[0-9a-z]{5,}", "t-....."),
        // How much room there is for a command depends on what is measured.
        (r"  shell\([^│\n]*│", "  shell(…) │"),
        (r"(?m)^(.{0,12})shell\([^│\n]*$", "${1}shell(…)"),
        (r"( tok · shell)\([^\n]*", "$1(…)"),
        (r" · silent for [0-9.hms]+", ""),
        (r" +([0-9.]+s|[0-9]+m[0-9]+s)\b", " [time]"),
        (r" +[0-9.]+k?( tok)", " [n]$1"),
        (r"(\[time\]) +[0-9.]+k? ", "$1 [n] "),
    ];
    FILTERS.iter().fold(screen.to_owned(), |screen, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&screen, *with).into_owned()
    })
}

/// Waits for a screen that fits, and then for the one that was seen before under this name. A screen is read while it is
/// drawn, and what is on it comes from several journals, in any order: what counts is what it comes to.
#[track_caller]
fn comes_to(terminal: &Terminal, name: &str, fits: impl Fn(&str) -> bool) -> String {
    let file = format!("{}/tests/cli/snapshots/cli__tui__{name}.snap", env!("CARGO_MANIFEST_DIR"));
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let before = before.splitn(3, "---\n").nth(2).map(str::trim_end);
    let deadline = std::time::Instant::now() + crate::kit::TIMEOUT;
    let mut screen = terminal.until(name, &fits);
    while before.is_some_and(|before| filtered(&screen) != before) && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(20));
        screen = terminal.screen();
    }
    insta::assert_snapshot!(name, filtered(&screen));
    screen
}

/// Whether the list has a task with this sign and these words.
fn lists(screen: &str, sign: &str, words: &str) -> bool {
    let is_it = |rest: &str| rest.split_once(' ').is_some_and(|(_, told)| told.starts_with(words));
    screen.lines().filter_map(|line| line.split_once(&format!("{sign} t-"))).any(|(_, rest)| is_it(rest))
}

fn until_status(kit: &Kit, agent: &str, fits: impl Fn(Status) -> bool) {
    kit.until(&format!("{agent} to get there"), |journals| {
        journals.iter().find(|(state, _)| state.agent.as_str() == agent && fits(state.status)).map(|_| ())
    });
}

#[test]
fn three_tasks_are_watched_opened_written_to_answered_stopped_and_left() {
    let kit = Kit::new();
    kit.write("team.yaml", TEAM);
    kit.run(&["run", "--detach", "team.yaml", "Take stock of the ground"]).ended(0);
    let terminal = Terminal::run(&kit.command(&[]), 120, 30);
    comes_to(&terminal, "tui_watch", |screen| {
        screen.contains("Needs you  1")
            && lists(screen, "●", "scout Look around")
            && lists(screen, "?", "writer Take notes")
            && lists(screen, "●", "idler Be idle")
            && screen.contains("I wait for all three.")
            && screen.contains("│   waits for 3 tasks")
            && screen.matches("  shell(until [ -e ").count() == 2
    });

    // Open one.
    terminal.keys(&["Down", "Enter"]);
    let open =
        terminal.until("the scout's transcript", |screen| screen.contains("▸ shell(cmd: until [ -e go ]"));
    assert!(open.lines().next().unwrap().contains("scout t-"), "{open}");
    terminal.keys(&["Up", "Up", "Up", "Down", "Enter"]);
    comes_to(&terminal, "tui_open", |screen| screen.contains("▾ shell(cmd: until"));
    terminal.keys(&["Escape"]);

    // Write to it.
    terminal.keys(&["m"]);
    terminal.types("Only the north, 世界 too.");
    comes_to(&terminal, "tui_write", |screen| screen.contains("› Only the north, 世界 too."));
    terminal.keys(&["Enter"]);
    terminal.until("that it was sent", |screen| screen.contains("sent to t-") && screen.contains("1 unread"));
    kit.until("the letter", |journals| {
        let (_, journal) = journals.iter().find(|(state, _)| state.agent.as_str() == "scout")?;
        journal.iter().find_map(|record| match &record.entry {
            Entry::Letter(letter) => (&*letter.text == "Only the north, 世界 too.").then_some(()),
            _ => None,
        })
    });

    // Answer the one that asks.
    terminal.keys(&["Down"]);
    comes_to(&terminal, "tui_asks", |screen| screen.contains("may it call write_file?"));
    terminal.keys(&["y"]);
    terminal.until("the answer", |screen| screen.contains(": yes"));
    until_status(&kit, "writer", |status| status == Status::Completed);
    assert_eq!(std::fs::read_to_string(kit.ground.path().join("notes.txt")).unwrap(), "Some notes.\n");

    // Search for one, and stop it.
    terminal.keys(&["/"]);
    terminal.types("idle");
    comes_to(&terminal, "tui_search", |screen| {
        let heard = screen.matches("I wait for all three.").count() == 2
            && screen.contains(" and t-")
            && screen.contains("1 finished");
        screen.contains("/idle") && !lists(screen, "●", "scout") && heard
    });
    terminal.keys(&["Enter", "Down", "s"]);
    comes_to(&terminal, "tui_stop", |screen| {
        screen.contains("Stop idler t-") && screen.contains("▸ shell(cmd: until [ -e never ]")
    });
    terminal.keys(&["n"]);
    terminal.until("nothing to be stopped", |screen| !screen.contains("Stop idler"));
    terminal.keys(&["s", "y"]);
    terminal.until("that it was told", |screen| screen.contains("is stopping"));
    until_status(&kit, "idler", |status| status == Status::Cancelled);
    terminal.keys(&["Escape"]);

    // Smaller, and smaller.
    terminal.resize(80, 24);
    // The root has heard of both.
    let fits = |screen: &str| {
        let waits = screen.contains("│   waits for t-") && !screen.contains(" and t-");
        lists(screen, "⊘", "idler") && lists(screen, "✓", "writer") && waits
    };
    // Until it is drawn anew, what was drawn before is only cut off: its last line is not the last, nor its edges where they
    // belong.
    comes_to(&terminal, "tui_80x24", |screen| {
        let edge = screen.lines().next().and_then(|line| line.chars().nth(36));
        fits(screen) && edge == Some('┬') && screen.ends_with("? help")
    });
    terminal.resize(40, 12);
    comes_to(&terminal, "tui_40x12", |screen| {
        fits(screen) && !screen.contains('┬') && screen.ends_with("? help")
    });
    terminal.resize(39, 12);
    terminal.until("that it is too small", |screen| screen.contains("too small: 39×12"));
    terminal.resize(120, 30);

    // Leaving asks; and where all is over, it does not.
    terminal.keys(&["q"]);
    comes_to(&terminal, "tui_leave", |screen| {
        screen.contains("2 tasks go on without this screen") && screen.ends_with("q leave")
    });
    terminal.keys(&["Escape"]);
    kit.write("go", "");
    until_status(&kit, "root", |status| status == Status::Completed);
    terminal.until("the end", |screen| screen.contains("Finished  1") && screen.contains("4 finished"));
    terminal.keys(&["q"]);
    let (left, code) = terminal.end();
    assert_eq!(code, 0, "{left}");
    assert!(!left.contains("Tasks"), "the screen is as it was: {left}");
}

#[test]
fn hostile_output_does_not_reach_the_terminal() {
    let kit = Kit::new();
    kit.write(
        "team.yaml",
        r#"
permissions: { allow: [shell] }
agents:
  root:
    model: play
    toolsets: [{ type: shell }]
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - text: "before \e[2J\e[H\e]0;pwned\a\e[?1049l\e]52;c;cHduZWQ=\a\e]8;;http://pwned\e\\\u009d52;c;cHduZWQ=\u009c\u009b2J after"
              calls: [{ tool: shell, arguments: { cmd: "printf '\\033]0;pwned\\007\\033[2Jout\\033[31m'" } }]
            - text: "\e[?25l\u202eend of it"
"#,
    );
    kit.run(&["run", "team.yaml", "Say \x1b]0;pwned\x07 it"]).ended(0);
    let terminal = Terminal::run(&kit.command(&["tui"]), 100, 20);
    terminal.until("the transcript", |screen| {
        screen.contains("␛[2J␛[H␛]0;pwned␇") && screen.contains("end of it")
    });
    terminal.keys(&["Enter", "Up", "Up", "Up", "Up", "Up"]);
    // All calls, unfolded; and the other pages.
    for key in ["Enter", "Up", "Enter", "2", "3", "4", "5", "6", "1"] {
        terminal.keys(&[key]);
        terminal.until("the frame", |screen| screen.starts_with("── Tasks ──"));
    }
    assert_eq!(terminal.state("#{alternate_on} #{pane_title}").split(' ').next(), Some("1"));
    assert!(!terminal.state("#{pane_title}").contains("pwned"));
    // Nothing was copied: what would have been is there to be read.
    assert_eq!(terminal.state("#{buffer_name}"), "");
    terminal.keys(&["q"]);
    assert_eq!(terminal.end().1, 0);
}

#[test]
fn the_terminal_is_given_back_when_the_process_is_told_to_end() {
    let kit = Kit::new();
    let mut command = std::process::Command::new("sh");
    let inner = kit.command(&["tui"]);
    command.args(["-c", r#"echo $$ > pid; exec "$@""#, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(kit.ground.path());
    let terminal = Terminal::run(&command, 80, 24);
    comes_to(&terminal, "tui_nothing", |screen| screen.contains("longhaul demo"));
    assert_eq!(terminal.state("#{alternate_on} #{mouse_any_flag}"), "1 1");
    let pid = std::fs::read_to_string(kit.ground.path().join("pid")).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let (left, code) = terminal.end();
    assert_eq!(code, 0, "{left}");
    assert_eq!(terminal.state("#{alternate_on} #{mouse_any_flag} #{cursor_flag}"), "0 0 1");
}

#[test]
fn what_a_killed_process_left_is_resumed_and_what_has_ended_is_continued() {
    let kit = Kit::new();
    kit.write("team.yaml", TEAM);
    kit.write("never", "");
    let running = kit.start(&["run", "--unattended", "wait", "team.yaml", "Take stock"]);
    until_status(&kit, "writer", |status| status == Status::Running);
    until_status(&kit, "idler", |status| status == Status::Completed);
    running.murder();
    let terminal = Terminal::run(&kit.command(&["tui"]), 100, 30);
    terminal.until("what is interrupted", |screen| screen.contains("not running: r resumes it"));
    terminal.keys(&["r"]);
    terminal.until("somebody who carries it on", |screen| screen.contains("a background process runs"));
    terminal.until("the question", |screen| lists(screen, "?", "writer Take notes"));
    terminal.until("the keys", |screen| screen.contains("a always … · A pattern"));
    terminal.keys(&["a"]);
    terminal.until("the choices", |screen| screen.contains("[e] exactly this call"));
    terminal.keys(&["e"]);
    kit.write("go", "");
    until_status(&kit, "root", |status| status == Status::Completed);
    terminal.until("the end", |screen| screen.contains("Finished  1"));
    // Continued: another task, carried by another process.
    terminal.keys(&["End", "r"]);
    terminal.until("the prompt", |screen| screen.contains("continue idler t-"));
    terminal.types("And now?");
    terminal.keys(&["Enter"]);
    terminal.until("what continues it", |screen| screen.contains("it is continued by t-"));
    kit.until("its end", |journals| {
        let next = journals.iter().map(|(state, _)| state).find(|state| state.continues.is_some())?;
        next.status.is_final().then_some(())
    });
    terminal.until("all five", |screen| screen.contains("5 finished"));
    terminal.keys(&["q"]);
    assert_eq!(terminal.end().1, 0);
}

#[test]
fn what_has_failed_is_retried_by_a_key() {
    let kit = Kit::new();
    kit.write(
        "team.yaml",
        r#"
agents:
  root: { model: play }
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - errors: [{ status: 400, message: the spoon is gone }]
              text: never
"#,
    );
    kit.run(&["run", "team.yaml", "Make a soup"]).ended(1);
    let terminal = Terminal::run(&kit.command(&["tui"]), 100, 30);
    terminal.until("what can be done", |screen| screen.contains("R  retries root t-"));
    terminal.keys(&["R"]);
    terminal.until("that it is tried again", |screen| screen.contains("is retried as t-"));
    // In a process of its own, which fails as well.
    kit.until("the end of it", |journals| {
        let again = journals.iter().map(|(state, _)| state).find(|state| state.retries.is_some())?;
        (again.status == Status::Failed).then_some(())
    });
    terminal.until("both", |screen| screen.contains("Finished  2"));
    terminal.keys(&["q"]);
    assert_eq!(terminal.end().1, 0);
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_told_so() {
    let kit = Kit::new();
    for arguments in [&["tui"][..], &[]] {
        // The terminal of the tests says itself what it is.
        let inner = kit.command(arguments);
        let mut command = std::process::Command::new("env");
        command.arg("TERM=dumb").arg(inner.get_program()).args(inner.get_args());
        command.current_dir(kit.ground.path());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let terminal = Terminal::run(&command, 80, 24);
        let (screen, code) = terminal.end();
        assert_eq!(code, 2, "{screen}");
        assert!(screen.contains("TERM") && screen.contains("longhaul tasks"), "{screen}");
        assert_eq!(terminal.state("#{alternate_on}"), "0");
    }
}

#[test]
fn a_run_of_a_team_is_started_from_the_screen_and_drained_on_leaving() {
    let kit = Kit::new();
    kit.write("team.yaml", TEAM);
    let terminal = Terminal::run(&kit.command(&["tui", "team.yaml", "--trust"]), 100, 30);
    terminal.until("how to begin", |screen| screen.contains("Type what the team is to do"));
    terminal.keys(&["Enter"]);
    terminal.types("Take stock of it");
    terminal.keys(&["Enter"]);
    terminal
        .until("the run", |screen| screen.contains("root Take stock of it") && lists(screen, "●", "idler"));
    terminal.keys(&["q"]);
    terminal.until("that it asks", |screen| screen.contains("d drain"));
    terminal.keys(&["d"]);
    let (left, code) = terminal.end();
    assert_eq!(code, 0, "{left}");
    assert!(left.contains("1 process asked to drain"), "{left}");
    // Given back, as the journals have it.
    let deadline = std::time::Instant::now() + crate::kit::TIMEOUT;
    loop {
        let states: Vec<_> = kit.journals().into_iter().map(|(state, _)| state).collect();
        if states.iter().all(|state| state.status != Status::Running) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "they are still run: {states:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A task whose journal has this many entries, as one that has talked for a long time.
fn long(kit: &Kit, entries: usize) {
    use longhaul::entry::{LiveTextKind, Order, Submission, TeamRef};
    use longhaul::id::{Attempt, TaskKey, WorkerId};
    use longhaul::message::Reply;
    use longhaul::store::{Batch, ClaimRequest, Fence, Store as _};
    crate::kit::block_on(async {
        let store = longhaul::store::SqliteStore::open(kit.database()).unwrap();
        let key = TaskKey::named("long");
        let id = key.candidate_ids().next().unwrap();
        let order = Order::new("talker", "Talk for a long time");
        let team = TeamRef::Named("none".into());
        let submitted = Submission::root(id, key, order, team.clone());
        store.append(Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))])).await.unwrap();
        let worker = WorkerId::random();
        store.renew_lease(worker.clone(), std::time::Duration::from_secs(600)).await.unwrap();
        let claim = ClaimRequest {
            worker,
            teams: vec![team],
            roots: None,
            fresh_only: false,
            except: vec![],
            max: 1,
        };
        assert_eq!(store.claim(claim).await.unwrap().len(), 1);
        let mut written = 2;
        while written < entries {
            let many = (entries - written).min(2_000);
            let entry = |n: usize| match n % 5 {
                4 => Entry::Replied(std::sync::Arc::new(Reply::text_only(
                    format!("number {n} of what it has to say. ").repeat(4),
                ))),
                _ => Entry::Said {
                    voice: LiveTextKind::Text,
                    text: format!("number {n} of what it has to say. "),
                },
            };
            let batch = (written..written + many).map(entry).collect();
            store.append(Batch::one(id, Fence::Attempt(Attempt(1)), batch)).await.unwrap();
            written += many;
        }
        let end = vec![Entry::Replied(std::sync::Arc::new(Reply::text_only("The very last word.")))];
        store.append(Batch::one(id, Fence::Attempt(Attempt(1)), end)).await.unwrap();
    });
}

/// Run it with `cargo test --release -p longhaul-cli --test cli -- --ignored --nocapture tui::a_long_journal`.
#[test]
#[ignore = "a measurement, for a release build"]
fn a_long_journal_is_opened_in_less_than_300_ms() {
    let kit = Kit::new();
    long(&kit, 50_000);
    let begin = std::time::Instant::now();
    let terminal = Terminal::run(&kit.command(&["tui"]), 120, 40);
    let shell = begin.elapsed();
    terminal.until("the end of the journal", |screen| screen.contains("The very last word."));
    let all = begin.elapsed();
    // To its beginning, 50,000 entries away, and back.
    terminal.keys(&["Enter"]);
    let begin = std::time::Instant::now();
    terminal.keys(&["Home"]);
    terminal.until("its beginning", |screen| screen.contains("› Talk for a long time"));
    let home = begin.elapsed();
    let begin = std::time::Instant::now();
    terminal.keys(&["End"]);
    terminal.until("its end", |screen| screen.contains("The very last word."));
    let back = begin.elapsed();
    terminal.keys(&["q", "q"]);
    terminal.end();
    #[expect(clippy::print_stdout, reason = "a measurement")]
    {
        println!(
            "50,000 entries: shown {all:?} after tmux was called (tmux alone {shell:?}), beginning {home:?}, end {back:?}"
        );
    }
    assert!(all < std::time::Duration::from_millis(300) + shell, "{all:?}");
}
