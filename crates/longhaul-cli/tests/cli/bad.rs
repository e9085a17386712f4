//! Bad input: one clear paragraph, a hint, the documented code, never a panic, and nothing stored is lost.

use std::fs;

use longhaul::entry::{Order, TeamRef};

use crate::kit::{Kit, fed};

const READERS: [&[&str]; 4] = [&["tasks"], &["show", "t-00000"], &["demo", "--pace", "0"], &["resume"]];

#[test]
fn a_database_that_is_text() {
    let kit = Kit::new();
    let text = "I am a shopping list, not a database. ".repeat(100);
    fs::write(kit.database(), &text).unwrap();
    for command in READERS {
        kit.run(command).complains(5, &["longhaul.db", "not a database", "hint: `--data DIR`"]);
    }
    assert_eq!(fs::read_to_string(kit.database()).unwrap(), text, "nothing was changed in it");
}

#[test]
fn a_truncated_database() {
    let kit = Kit::new();
    kit.run(&["demo", "--pace", "0"]).ended(0);
    let whole = fs::read(kit.database()).unwrap();
    for keep in [whole.len() / 2, 4096, 1000, 10] {
        for beside in ["longhaul.db-wal", "longhaul.db-shm"] {
            let _ = fs::remove_file(kit.data.path().join(beside));
        }
        fs::write(kit.database(), &whole[..keep]).unwrap();
        kit.run(&["tasks", "--all"]).complains(5, &["longhaul.db"]);
    }
}

#[test]
fn a_place_that_cannot_be_written() {
    let kit = Kit::new();
    let file = kit.data.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    for place in [file.join("below"), "/proc/longhaul".into(), file] {
        let ran: crate::kit::Ran = kit.command_at(&place, &["tasks"]).output().unwrap().into();
        ran.complains(5, &["--data DIR"]);
    }
}

#[test]
fn an_id_that_is_not_there_or_not_enough() {
    let kit = Kit::new();
    for command in
        [&["show", "t-zzzzz"][..], &["logs", "t-zzzzz"], &["send", "t-zzzzz", "x"], &["wait", "t-zzzzz"]]
    {
        kit.run(command).complains(4, &["t-zzzzz", "longhaul tasks --all"]);
    }
    for command in
        [&["stop", "t-zzzzz"][..], &["resume", "t-zzzzz"], &["show", "../../etc"], &["show", "é\x1b[1m"]]
    {
        kit.run(command).complains(4, &["longhaul tasks --all"]);
    }
    // There are 32 letters: of 33 ids, two begin alike.
    let ids = kit.client(async |longhaul| {
        let mut ids = Vec::new();
        for _ in 0..33 {
            let order = Order::new("anyone", "wait");
            ids.push(longhaul.submit_to(TeamRef::Named("nobody".into()), order).await.unwrap().to_string());
        }
        ids
    });
    let first = |id: &str| id[..3].to_owned();
    let twice =
        ids.iter().find(|id| ids.iter().filter(|other| first(id) == first(other)).count() > 1).unwrap();
    kit.run(&["show", &first(twice)]).complains(4, &["several tasks begin with", twice, "type more"]);
    kit.run(&["show", &twice.to_uppercase()]).ended(0);
}

#[test]
fn a_message_of_ten_megabytes() {
    let kit = Kit::new();
    let id = kit.client(async |longhaul| {
        longhaul.submit_to(TeamRef::Named("nobody".into()), Order::new("a", "b")).await.unwrap().to_string()
    });
    let long = vec![b'x'; 10 << 20];
    fed(kit.command(&["send", &id, "-"]), &long)
        .complains(2, &["10,485,760 bytes", "the limit is 1,048,576", "file"]);
    fed(kit.command(&["send", &id, "-"]), b"").complains(2, &["empty"]);
    fed(kit.command(&["send", &id, "-"]), b"\xff\xfe").complains(2, &["not text"]);
    assert_eq!(kit.journals()[0].1.len(), 1, "nothing came of it");
    fed(kit.command(&["send", &id, "-"]), b"short\nand good\n").ended(0);
    let letters = kit.run(&["logs", &id]).ended(0).out;
    assert!(
        letters.contains("letter  from a person: short\n") && letters.contains(" and good\n"),
        "{letters}"
    );
}

#[test]
fn a_mailbox_that_is_full() {
    let kit = Kit::new();
    let id = kit.client(async |longhaul| {
        let team = TeamRef::Named("nobody".into());
        let id = longhaul.submit_to(team, Order::new("a", "b")).await.unwrap();
        for _ in 0..longhaul::task::MAILBOX {
            longhaul.send(id, "x").await.unwrap();
        }
        id.to_string()
    });
    kit.run(&["send", &id, "one more"]).complains(1, &["mailbox is full"]);
}

#[test]
fn a_command_line_that_is_wrong() {
    let kit = Kit::new();
    let ran = kit.run(&["taks"]).ended(2);
    assert!(ran.err.contains("'tasks'"), "{}", ran.err);
    kit.run(&["stop"]).ended(2);
    kit.run(&["wait", "t-00000", "--timeout", "soon"]).ended(2);
    kit.run(&["demo", "--pace", "fast"]).ended(2);
    kit.run(&["demo", "--pace", "-1"]).ended(2);
}

#[test]
fn tasks_of_teams_that_nobody_knows_are_named() {
    let kit = Kit::new();
    let id = kit.client(async |longhaul| {
        longhaul
            .submit_to(TeamRef::Named("strangers".into()), Order::new("a", "b"))
            .await
            .unwrap()
            .to_string()
    });
    let ran = kit.run(&["resume"]).ended(1);
    assert!(ran.err.contains(&id) && ran.err.contains("team 'strangers'"), "{ran:?}");
    assert!(ran.out.contains("nothing that this process can resume"), "{ran:?}");
}

#[test]
fn a_script_that_is_wrong_in_line_twelve() {
    let kit = Kit::new();
    let script = kit.data.path().join("mine.yaml");
    let turns = "      - text: fine\n".repeat(8);
    fs::write(&script, format!("agents:\n  lead:\n    turns:\n{turns}      - txt: wrong\n")).unwrap();
    let named = script.display().to_string();
    kit.run(&["demo", "--script", &named]).complains(2, &["mine.yaml:12:", "txt", "docs/scripted.md"]);
    kit.run(&["demo", "--script", "/no/such.yaml"]).complains(2, &["/no/such.yaml"]);
    assert_eq!(kit.run(&["tasks", "--all", "--json"]).ended(0).json().len(), 0, "nothing was submitted");
}

#[test]
fn a_disk_that_is_full() {
    let kit = Kit::new();
    let place = kit.data.path().to_owned();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&place);
    if !mount.output().is_ok_and(|mounted| mounted.status.success()) {
        return crate::kit::skipped("a small disk cannot be mounted here");
    }
    let mut demo = kit.start(&["demo", "--pace", "0.3"]);
    let root = demo.root();
    demo.until(|line| line.contains("calls"));
    let filler = place.join("filler");
    let full = fs::write(&filler, vec![0; 8 << 20]);
    let filled = demo.end();
    fs::remove_file(&filler).unwrap();
    let resumed = kit.run(&["resume", "--pace", "0"]);
    let unmounted = std::process::Command::new("umount").arg("--lazy").arg(&place).status().unwrap();
    assert!(full.is_err() && unmounted.success());
    filled.complains(5, &["is full", "all that was acknowledged", &format!("resume {root}")]);
    // Nothing that was stored is lost: with some room it goes on to the same end.
    let whole = Kit::new().run(&["demo", "--pace", "0"]).ended(0);
    assert_eq!(crate::kit::synthesis(&resumed.ended(0).out), crate::kit::synthesis(&whole.out));
}
