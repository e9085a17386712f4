//! The form of what is printed.

use longhaul::TaskId;
use longhaul::entry::{Order, TeamRef};

use crate::kit::Kit;

fn submitted(kit: &Kit, team: &str, order: Order) -> TaskId {
    let team = TeamRef::Named(team.into());
    kit.client(async |longhaul| longhaul.submit_to(team, order).await.unwrap())
}

/// Snapshots in which ids and times are always the same.
macro_rules! looks_like {
    ($name:literal, $text:expr) => {
        insta::with_settings!({filters => vec![
            (r"t-[0-9a-z]{5}\b", "t-xxxxx"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DAY TIME"),
            (r"\d\d:\d\d:\d\d", "TIME"),
            (r"\d\.\ds", "0.0s"),
            // Tokens are counted by the byte of what an agent is told, which may change.
            (r"\b\d{3}\b", "NNN"),
            (r"just now|\d+ s ago", "just now"),
        ]}, { insta::assert_snapshot!($name, $text) });
    };
}
pub(crate) use looks_like;

#[test]
fn what_tasks_show_and_logs_look_like() {
    let kit = Kit::new();
    let done = submitted(&kit, "demo", Order::new("lead", "Say hello\nand nothing else")).to_string();
    kit.run(&["resume", "--pace", "0"]).ended(0);
    let open = submitted(&kit, "nobody", Order::new("waiter", "Wait for ever")).to_string();
    kit.run(&["send", &open, "are you there?"]).ended(0);

    looks_like!("tasks", kit.run(&["tasks"]).ended(0).out);
    looks_like!("show_done", kit.run(&["show", &done]).ended(0).out);
    looks_like!("show_open", kit.run(&["show", &open]).ended(0).out);
    looks_like!("logs", kit.run(&["logs", &done]).ended(0).out);
}

#[test]
fn where_there_is_nothing_it_says_what_to_do() {
    let kit = Kit::new();
    looks_like!("no_tasks", kit.run(&["tasks"]).ended(0).out);
    looks_like!("no_resume", kit.run(&["resume"]).ended(0).out);
}

#[test]
fn what_others_wrote_cannot_command_the_terminal() {
    let kit = Kit::new();
    let evil = "\x1b[31mred\x1b]0;title\x07 \u{9b}2J\u{202e}txet\x1b[2J";
    let id = submitted(&kit, "nobody", Order::new(evil, evil).title(evil)).to_string();
    kit.run(&["send", &id, evil]).ended(0);
    for command in [&["tasks"][..], &["show", &id], &["logs", &id], &["wait", &id, "--timeout", "0"]] {
        let out = kit.run(command).out;
        assert!(out.contains("red"), "{out}");
        assert!(out.chars().all(|c| c == '\n' || !c.is_control()), "{out:?}");
        assert!(!out.contains('\u{202e}'), "{out:?}");
        assert!(out.contains("␛]0;title␇ ⟨U+009B⟩2J⟨U+202E⟩txet"), "it is shown, and not dropped: {out:?}");
    }
}

#[test]
fn json_is_json() {
    let kit = Kit::new();
    let id = submitted(&kit, "nobody", Order::new("a", "\x1b[31mred \u{2028} \"quoted\"")).to_string();
    for command in [
        &["tasks", "--json"][..],
        &["tasks", "--all", "--json"],
        &["show", &id, "--json"],
        &["logs", &id, "--json"],
        &["wait", &id, "--timeout", "0", "--json"],
        &["send", &id, "hello", "--json"],
        &["stop", &id, "--json"],
    ] {
        assert_eq!(kit.run(command).json().len(), 1, "{command:?}");
    }
    let shown = kit.run(&["show", &id, "--json"]).ended(0).json();
    assert_eq!(shown[0]["head"]["id"], id.as_str());
    assert_eq!(shown[0]["order"]["task"], "\x1b[31mred \u{2028} \"quoted\"");
    let raw = kit.run(&["show", &id, "--json"]).ended(0).out;
    assert!(raw.contains("\\u2028") && !raw.contains('\u{2028}'), "{raw}");
}

#[test]
fn colours_come_when_they_are_forced_and_go_when_they_are_not_wanted() {
    let kit = Kit::new();
    submitted(&kit, "nobody", Order::new("a", "b"));
    let colored = kit.command(&["tasks"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(colored.stdout.contains(&0x1b));
    let plain = kit.command(&["tasks"]).env("NO_COLOR", "1").env("CLICOLOR_FORCE", "0").output().unwrap();
    assert!(!plain.stdout.contains(&0x1b));
}

#[test]
fn help_tells_the_exit_codes() {
    let help = Kit::new().run(&["--help"]).ended(0).out;
    for words in
        ["Exit codes:", "124  the time is up", "130  interrupted", "demo", "resume", "--data <DIR|FILE>"]
    {
        assert!(help.contains(words), "'{words}' is not in: {help}");
    }
}

#[test]
fn logs_of_the_program_go_to_standard_error() {
    let kit = Kit::new();
    let ran = kit.command(&["demo", "--pace", "0", "--json"]).env("RUST_LOG", "debug").output().unwrap();
    assert!(String::from_utf8(ran.stderr).unwrap().contains("DEBUG"));
    assert!(String::from_utf8(ran.stdout).unwrap().lines().all(|line| line.starts_with('{')));
    assert_eq!(kit.run(&["tasks"]).ended(0).err, "");
}
