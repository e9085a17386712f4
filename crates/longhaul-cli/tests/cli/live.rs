//! `run` on a real terminal: the answer as it comes, the block below it, questions answered in place, Ctrl-B, Ctrl-C.

use std::process::Command;

use longhaul::Status;

use crate::form::looks_like;
use crate::kit::Kit;
use crate::term::Terminal;

const RICH: &str = r#"
permissions: {ask: [write_file]}
agents:
  root:
    model: script
    sub_agents: [helper]
    toolsets: [{type: background_agents}, {type: user_prompt}]
  helper: {model: script, toolsets: [{type: filesystem}]}
models:
  script:
    provider: scripted
    script: |
      agents:
        root:
          cases:
            - when: wait
              turns:
                - text: I ask the helper, and wait.
                  calls: [{tool: transfer_task, arguments: {agent: helper, task: think}}]
                - text: "It said: {{ last | replace('\n', ' ') }}"
                - text: "And then: {{ letters | join | replace('\n', ' ') }}"
            - when: write
              turns:
                - calls: [{tool: transfer_task, arguments: {agent: helper, task: write}}]
                - text: "Done: {{ result }}"
            - when: ask
              turns:
                - calls: [{tool: user_prompt, arguments: {message: "Which colour?"}}]
                - text: "You said {{ result }}"
            - when: slow
              turns: [{delay: 60s, text: late}]
            - turns:
                - text: |
                    # What was found

                    Some *words* in **several** styles, `code` among them, with a [link](https://example.org) and more.

                    - one
                    - two, which is so long that it has to go on in the next line of a narrow terminal

                    ```rust
                    fn main() {} // a comment
                    ```

                    | name | count | what it is for |
                    |:-----|------:|:--------------|
                    | alpha | 1 | the first of them all, and the longest story |
                    | `b` | 22 | short |
                  chunk: 20
                  pace: 5ms
                  usage: {input: 100, output: 200}
        helper:
          cases:
            - when: write
              turns:
                - calls: [{tool: write_file, arguments: {path: notes.txt, content: "Some notes.\n"}}]
                - text: Written.
            - turns:
                - {delay: 3s, text: Thought about.}
"#;

fn kit() -> Kit {
    let kit = Kit::new();
    kit.write("team.yaml", RICH);
    kit
}

/// A run that is on a terminal, in and out.
fn on(kit: &Kit, prompt: &str, more: &[&str], columns: u16) -> Terminal {
    let args = [&["run", "team.yaml", prompt], more].concat();
    let mut command = kit.command(&args);
    command.env("TERM", "xterm-256color");
    Terminal::run(&command, columns, 30)
}

fn steady(kit: &Kit, screen: &str) -> String {
    // The path of the data directory is of any length, and breaks lines where it likes.
    let lines: Vec<&str> = screen.lines().skip_while(|line| !line.is_empty()).collect();
    lines.join("\n").replace(&kit.data.path().display().to_string(), "DATA")
}

#[test]
fn the_answer_is_rendered_and_a_table_follows() {
    let kit = kit();
    let wide = on(&kit, "look", &[], 80);
    let (screen, code) = wide.end();
    assert_eq!(code, 0, "{screen}");
    looks_like!("live_80", steady(&kit, &screen));
    let colours = wide.colours();
    assert!(colours.contains("\x1b[1m") && colours.contains("\x1b[36mcode"), "{colours}");
    let (screen, _) = on(&kit, "look", &[], 40).end();
    looks_like!("live_40", steady(&kit, &screen));
}

#[test]
fn without_colours_the_source_is_told() {
    let kit = kit();
    let mut command = kit.command(&["run", "team.yaml", "look"]);
    command.env("TERM", "xterm-256color").env("NO_COLOR", "1");
    let terminal = Terminal::run(&command, 80, 30);
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    looks_like!("live_no_color", steady(&kit, &screen));
    assert!(!terminal.colours().contains("\x1b["), "{}", terminal.colours());
}

#[test]
fn an_approval_is_given_in_place() {
    let kit = kit();
    let terminal = on(&kit, "write", &[], 80);
    let asks = terminal.until("the question", |screen| screen.contains("[y] yes"));
    assert!(
        asks.contains("helper t-") && asks.contains("write_file") && asks.contains("path: notes.txt"),
        "{asks}"
    );
    assert!(!kit.ground.path().join("notes.txt").exists());
    // The keys are named as soon as they are heard.
    terminal.types("y");
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("✓ helper · write_file: yes") && screen.contains("Done: Written."), "{screen}");
    assert!(kit.ground.path().join("notes.txt").exists());
}

/// A command that a terminal would not show is in the question, and everywhere else where it is told.
#[test]
fn a_command_that_hides_from_the_terminal_is_seen_in_its_question() {
    let kit = Kit::new();
    kit.write(
        "team.yaml",
        r#"
permissions: {ask: [shell]}
agents:
  root: {model: script, toolsets: [{type: shell}]}
models:
  script:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - calls: [{tool: shell, arguments: {command: "echo harmless \e]0;; touch HIDDEN # \a\u009d0;\u202e\u200b"}}]
            - text: Over.
"#,
    );
    let mut command = kit.command(&["run", "team.yaml", "go"]);
    command.env("TERM", "xterm-256color");
    let terminal = Terminal::run(&command, 120, 24);
    let asks = terminal.until("the question", |screen| screen.contains("[y] yes"));
    let hidden = "echo harmless ␛]0;; touch HIDDEN # ␇⟨U+009D⟩0;⟨U+202E⟩⟨U+200B⟩";
    assert!(asks.contains(&format!("cmd: {hidden}")), "{asks}");
    terminal.types("a");
    let offers = terminal.until("what can be allowed", |screen| screen.contains("[t] every call of shell"));
    assert!(offers.contains("[e] exactly this call: =shell {") && !offers.contains("[p]"), "{offers}");
    terminal.types("n");
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(!kit.ground.path().join("HIDDEN").exists());
    let id = kit.run(&["tasks", "--json"]).ended(0).json()[0]["id"].as_str().map(str::to_owned);
    for told in [
        kit.run(&["logs", id.as_deref().unwrap_or_default()]),
        kit.run(&["export", id.as_deref().unwrap_or_default()]),
    ] {
        assert!(told.out.contains("; touch HIDDEN #"), "{told:?}");
        assert!(told.out.chars().all(|c| c == '\n' || !c.is_control()), "{told:?}");
    }
}

#[test]
fn what_is_to_be_allowed_is_seen_on_a_small_terminal() {
    let kit = Kit::new();
    kit.write(
        "team.yaml",
        r#"
permissions: {ask: [shell]}
agents:
  root: {model: script, toolsets: [{type: shell}]}
models:
  script:
    provider: scripted
    script: |
      agents:
        root:
          cases:
            - when: short
              turns:
                - calls: [{tool: shell, arguments: {cmd: "cd /tmp && echo some words > made.txt && cat made.txt | wc"}}]
                - text: Over.
            - turns:
                - text: Words before it, which are not to be in the way of what is asked.
                  calls: [{tool: shell, arguments: {cmd: "echo FIRST {{ range(200) | join(' ') }} LAST"}}]
                - text: Over.
"#,
    );
    for (columns, rows) in [(40, 12), (40, 16), (80, 12)] {
        let run = |prompt: &str| {
            let mut command = kit.command(&["run", "team.yaml", prompt]);
            command.env("TERM", "xterm-256color");
            let terminal = Terminal::run(&command, columns, rows);
            let asks = terminal.until("the question", |screen| screen.contains("[y] yes"));
            terminal.types("n");
            assert_eq!(terminal.end().1, 0);
            asks
        };
        let asks = run("short").split_whitespace().collect::<String>();
        assert!(asks.contains("cmd:cd/tmp&&echosomewords>made.txt&&catmade.txt|wc"), "{asks}");
        let asks = run("long");
        assert!(asks.contains("cmd: echo FIRST 0 1") && asks.contains("199 LAST"), "{asks}");
        assert!(asks.contains("may it call this?") && asks.contains(" more lines"), "{asks}");
    }
}

#[test]
fn a_question_is_answered_in_words_and_one_that_is_answered_elsewhere_disappears() {
    let kit = kit();
    let terminal = on(&kit, "ask", &[], 80);
    terminal.until("the question", |screen| screen.contains("Which colour?") && screen.contains("> ▏"));
    terminal.types("blue");
    terminal.until("what is typed", |screen| screen.contains("> blue▏"));
    terminal.keys(&["Enter"]);
    let (screen, code) = terminal.end();
    assert!(code == 0 && screen.contains("You said") && screen.contains("blue"), "{screen}");

    let terminal = on(&kit, "ask", &[], 40);
    terminal.until("the question", |screen| screen.contains("Which colour?"));
    let asks = kit.until("who asks", |journals| {
        journals.iter().map(|(state, _)| state.clone()).find(|state| !state.asked.is_empty())
    });
    kit.run(&["answer", &asks.id.to_string(), "red"]).ended(0);
    let (screen, _) = terminal.end();
    assert!(screen.contains("red") && !screen.contains("> "), "{screen}");
}

#[test]
fn ctrl_b_sends_what_is_waited_for_to_the_background() {
    let kit = kit();
    let terminal = on(&kit, "wait", &[], 80);
    terminal.until("it to wait", |screen| screen.contains("Ctrl-B"));
    terminal.keys(&["C-b"]);
    terminal.until("it to go on", |screen| screen.contains("It said: Task t-"));
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("goes on in the background") && words.contains("Thought about."), "{screen}");
    assert!(kit.journals().iter().all(|(state, _)| state.status == Status::Completed));
}

#[test]
fn ctrl_c_drains_and_the_terminal_is_as_it_was() {
    let kit = kit();
    let own = kit.command(&["run", "team.yaml", "slow"]);
    let mut command = Command::new("sh");
    let then = r#"trap : INT; "$@"; code=$?; stty -a | grep -oE -- '-?(icanon|echo|isig)\b' | tr '\n' ' '; exit $code"#;
    command.args(["-c", then, "sh"]).arg(own.get_program()).args(own.get_args());
    command.current_dir(kit.ground.path()).env("TERM", "xterm-256color");
    let terminal = Terminal::run(&command, 80, 24);
    terminal.until("the block", |screen| screen.contains("thinking") || screen.contains("slow"));
    kit.until("it to run", |journals| {
        journals.iter().any(|(state, _)| state.status == Status::Running).then_some(())
    });
    terminal.keys(&["C-c"]);
    let (screen, code) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(screen.contains("resume it with") && screen.contains("resume"), "{screen}");
    let modes = screen.lines().last().unwrap();
    assert!(modes.contains("icanon") && modes.contains("echo") && !modes.contains('-'), "{screen}");
}

#[test]
fn several_prompts_are_one_session_and_a_later_run_goes_on_with_it() {
    let kit = Kit::new();
    let echo = "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: \"agents: {root: {turns: [{text: 'First: {{ task | trim }}'}], otherwise: {text: 'Then: {{ last | trim }}'}}}\"}}\n";
    kit.write("team.yaml", echo);
    let ran = kit.run(&["run", "team.yaml", "one", "-p", "two", "-p", "three", "--quiet"]).ended(0);
    assert_eq!(ran.out, "First: one\n\nThen: two\n\nThen: three\n");
    assert_eq!(ran.err, "");
    let journals = kit.journals();
    assert_eq!(journals.len(), 1, "one task, and one budget");
    assert_eq!(journals[0].0.status, Status::Completed);
    let id = journals[0].0.id.to_string();
    let ran = kit.run(&["run", "team.yaml", "four", "--session", &id, "--quiet"]).ended(0);
    assert_eq!(ran.out, "First: four\n", "a script begins again; the conversation goes on");
    let continued = kit.journals().into_iter().find(|(state, _)| state.continues.is_some()).unwrap();
    assert_eq!(continued.0.continues.unwrap().to_string(), id);
    kit.run(&["run", "team.yaml", "x", "--session", "t-zzzzz"]).complains(4, &["t-zzzzz"]);
    // A run of one prompt can be gone on with too, several times.
    kit.run(&["run", "team.yaml", "alone", "-q"]).ended(0);
    let alone =
        kit.journals().into_iter().find(|(state, _)| state.headline == "alone").unwrap().0.id.to_string();
    let ran = kit.run(&["run", "team.yaml", "-p", "a", "-p", "b", "--session", &alone, "-q"]).ended(0);
    assert_eq!(ran.out, "First: a\nFirst: b\n");
}

/// Each prompt has its own answer, or is refused and was not sent: none is lost in another's task.
#[test]
fn of_runs_that_go_on_with_one_session_at_once_each_is_answered_or_refused() {
    let kit = Kit::new();
    let echo = "agents: {root: {model: s}}\nmodels: {s: {provider: scripted, script: \"agents: {root: {turns: [{delay: 700ms, text: 'First: {{ task | trim }}'}], otherwise: {text: 'Then: {{ last | trim }}'}}}\"}}\n";
    kit.write("team.yaml", echo);
    kit.run(&["run", "team.yaml", "begin", "-q"]).ended(0);
    let session = kit.journals()[0].0.id.to_string();
    let prompts = ["one", "two", "three"];
    let started: Vec<_> = prompts
        .iter()
        .map(|prompt| kit.start(&["run", "team.yaml", prompt, "--session", &session, "--quiet"]))
        .collect();
    let mut refused = Vec::new();
    for (running, prompt) in started.into_iter().zip(prompts) {
        let ran = running.end();
        match ran.status.code() {
            Some(0) => assert_eq!(ran.out, format!("First: {prompt}\n")),
            _ => {
                ran.complains(2, &["--session", "is already continuing", "your prompt was not sent", "hint"]);
                refused.push(prompt);
            }
        }
    }
    assert!(refused.len() < prompts.len(), "one of them had its turn");
    let orders = || kit.journals().into_iter().map(|(state, _)| state.headline).collect::<Vec<_>>();
    for prompt in prompts {
        let sent = orders().iter().filter(|order| **order == prompt).count();
        assert_eq!(sent, usize::from(!refused.contains(&prompt)), "{prompt}: {:?}", orders());
    }
    // In turn, each goes on where the last one ended.
    for prompt in refused {
        let ran = kit.run(&["run", "team.yaml", prompt, "--session", &session, "--quiet"]).ended(0);
        assert_eq!(ran.out, format!("First: {prompt}\n"));
    }
    let journals = kit.journals();
    assert_eq!(journals.len(), 4, "{:?}", orders());
    assert!(journals.windows(2).all(|two| two[1].0.continues == Some(two[0].0.id)), "one conversation");
}

#[test]
fn what_the_root_leaves_goes_on_in_the_background() {
    let kit = Kit::new();
    let team = r#"
agents:
  root: {model: s, sub_agents: [slow], toolsets: [{type: background_agents}]}
  slow: {model: s}
models:
  s:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - calls: [{tool: run_background_agent, arguments: {agent: slow, task: x}}]
            - text: I leave it to them.
        slow: {turns: [{delay: 2s, text: Late.}]}
"#;
    kit.write("team.yaml", team);
    let ran = kit.run(&["run", "team.yaml", "go", "--on-finish", "detach"]).ended(0);
    assert_eq!(ran.out, "I leave it to them.\n");
    assert!(ran.err.contains("goes on in the background"), "{}", ran.err);
    assert!(ran.err.contains("; watch with:  "), "{}", ran.err);
    kit.until("the end of what was left", |journals| {
        journals.iter().all(|(state, _)| state.status == Status::Completed).then_some(())
    });
    let ran = kit.run(&["run", "team.yaml", "go", "--on-finish", "stop"]).ended(0);
    assert!(ran.err.contains("⊘ cancelled"), "{}", ran.err);
}

#[test]
fn who_has_looked_away_is_told() {
    let kit = kit();
    let own = kit.command(&["run", "team.yaml", "look", "--notify=all", "--notify-after", "0s"]);
    let mut command = Command::new("sh");
    // What is written to the terminal, byte by byte.
    let then = r#"script -qec "$(printf '%s ' "$@")" typed >/dev/null; od -c typed | tail -40 >/dev/null; grep -c 'longhaul: root completed' typed"#;
    command
        .args(["-c", then, "sh"])
        .arg(own.get_program())
        .args(own.get_args())
        .current_dir(kit.ground.path());
    command.env("TERM", "xterm-256color");
    let terminal = Terminal::run(&command, 80, 24);
    let (screen, code) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let typed = std::fs::read(kit.ground.path().join("typed")).unwrap();
    let typed = String::from_utf8_lossy(&typed);
    assert!(
        typed.contains("\x1b]9;longhaul: root completed: look\x1b\\") && typed.contains('\x07'),
        "{typed:?}"
    );
}
