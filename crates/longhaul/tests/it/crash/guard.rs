//! Nobody is left behind: the children of a process that is killed end, registered or not, and so does the guardian.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul::process::ProcessGuardian;

use crate::crash::Options;
use crate::crash::process::{Player, is_alive, lines, until};

/// How soon nobody may be left.
const SOON: Duration = Duration::from_secs(2);

/// The kinds of children: what each runs, whether it is registered, and how many processes it says that it is.
const CHILDREN: [(&str, &str, bool, usize); 5] = [
    ("plain", "echo $$ >>pids; exec sleep 1000", true, 1),
    ("with children of its own", "echo $$ >>pids; sh -c 'echo $$ >>pids; exec sleep 1000' & wait", true, 2),
    ("deaf", "trap '' TERM HUP INT; echo $$ >>pids; while :; do sleep 0.1; done", true, 1),
    ("killed before it was registered", "echo $$ >>pids; exec sleep 1000", false, 1),
    (
        "with a grandchild in a session of its own",
        "setsid sh -c 'echo $$ >>pids; exec sleep 1000' & echo $$ >>pids; wait",
        true,
        2,
    ),
];

/// `KIND`: starts the child and says what marks it; then waits to be killed, or ends in good order.
#[expect(clippy::zombie_processes, reason = "the child is to outlive this process, if it can")]
pub(crate) fn role(dir: &Path, args: &[&str]) {
    let (_, script, registered, _) = CHILDREN[args[0].parse::<usize>().unwrap()];
    let guardian = ProcessGuardian::new();
    let (name, value) = guardian.marker_env().unwrap();
    println!("{value}");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(dir).env(name, value).process_group(0);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let _watched = registered.then(|| guardian.guard(child.id().try_into().unwrap()).unwrap());
    println!("started");
    // The end of the input ends it in good order.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn one(kind: usize, end: fn(Player)) {
    let (what, _, _, processes) = CHILDREN[kind];
    let dir = tempfile::tempdir().unwrap();
    let mut player = Player::start("guard", dir.path(), &[&kind.to_string()]);
    let mark = player.next_line().unwrap();
    player.hear("started");
    let pids = dir.path().join("pids");
    until(what, || lines(&pids).len() == processes);
    let pids: Vec<i32> = lines(&pids).iter().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{what}: they are there");
    until("a guardian", || marked(&mark).len() > processes);

    let begun = Instant::now();
    end(player);
    while pids.iter().any(|pid| is_alive(*pid)) || !marked(&mark).is_empty() {
        let left = marked(&mark);
        assert!(begun.elapsed() < SOON, "{what}: left of {pids:?}, and of those with the mark: {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn killed(_: &Options) {
    (0..CHILDREN.len()).for_each(|kind| one(kind, Player::kill));
}

pub(crate) fn in_good_order(_: &Options) {
    (0..CHILDREN.len()).for_each(|kind| {
        one(kind, |mut player| {
            player.say("enough");
            player.done();
        });
    });
}

/// The processes that carry the mark, the guardian among them.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let says = |pid: i32, file: &str| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(mark)
    };
    let pids = pids.filter_map(|name| name.parse().ok());
    pids.filter(|pid| says(*pid, "environ") || says(*pid, "cmdline")).collect()
}
