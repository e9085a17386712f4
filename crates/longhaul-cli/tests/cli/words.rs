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
    assert_eq!(chosen(&["--older-than", "0"]).len(), 3);

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
    terminal.until("all the others", |screen| screen.contains("and 20 more tasks"));
    looks_like!("tasks_watch", terminal.screen());
    terminal.keys(&["C-c"]);
    assert_eq!(terminal.end().1, 0);
}
