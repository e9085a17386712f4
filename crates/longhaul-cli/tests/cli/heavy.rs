//! Files that are made to hurt: refused at once and in little memory, by a real process.

use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::kit::Kit;

/// In milliseconds of the processor: the machine may be busy. And this is not the optimised build, which `bench/startup`
/// measures: it takes a tenth of that.
const TIME: i64 = 2_500;
/// In megabytes.
const MEMORY: i64 = 200;
/// What the process that measures is to run, an argument a line.
const MEASURED: &str = "LONGHAUL_TEST_MEASURED";

/// What a command said, its code, how many milliseconds of the processor it took and how many megabytes it had at most.
fn measured(kit: &Kit, args: &[&str]) -> (String, i64, i64, i64) {
    let inner = kit.command(args);
    let mut line = vec![inner.get_program().to_str().unwrap()];
    line.extend(inner.get_args().map(|arg| arg.to_str().unwrap()));
    // A process of its own, so that it has no other children.
    let mut outer = Command::new(std::env::current_exe().unwrap());
    outer.args(["--exact", "heavy::the_one_that_measures", "--ignored", "--nocapture", "--test-threads=1"]);
    outer.env(MEASURED, line.join("\n")).current_dir(kit.ground.path());
    let ran = outer.output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    let told = out.split_once("MEASURED ").unwrap_or_else(|| panic!("{out}")).1.lines().next().unwrap();
    serde_json::from_str(told).unwrap()
}

/// Not a test, but what a test runs.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn the_one_that_measures() {
    let Ok(line) = std::env::var(MEASURED) else { return };
    let mut words = line.lines();
    let ran = Command::new(words.next().unwrap()).args(words).stdin(Stdio::null()).output().unwrap();
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let took = (used.user_time() + used.system_time()).num_milliseconds();
    let most = used.max_rss() / 1024;
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let told = (text, ran.status.code().unwrap_or(-1), took, most);
    println!("MEASURED {}", serde_json::to_string(&told).unwrap());
}

#[track_caller]
fn refused(text: &[u8], words: &str) {
    let kit = Kit::new();
    std::fs::write(kit.ground.path().join("heavy.yaml"), text).unwrap();
    for args in [&["check", "heavy.yaml"][..], &["run", "heavy.yaml", "x"]] {
        let (said, code, took, most) = measured(&kit, args);
        assert_eq!(code, 6, "{said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{said}");
        assert!(said.len() < 100_000, "{} bytes of error", said.len());
        assert!(took < TIME, "{took} ms");
        assert!(most < MEMORY, "{most} MB");
    }
}

#[test]
fn aliases_of_aliases_of_aliases() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..30 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
    }
    bomb.push_str("agents: {root: {model: auto, instruction: *a29}}\n");
    refused(bomb.as_bytes(), "aliases");
    // As a merge, and as a thing that holds itself.
    refused(b"agents: &a {root: &r {model: auto, commands: {<<: *r}}, other: *a}\n", "error");
}

#[test]
fn ten_thousand_levels() {
    let flow = format!("agents: {}{}\n", "[".repeat(10_000), "]".repeat(10_000));
    refused(flow.as_bytes(), "deep");
    let mut block = String::new();
    for n in 0..10_000 {
        block.push_str(&" ".repeat(n));
        block.push_str("a:\n");
        // The indentation alone is 50 MB: what is too deep is found before what is too long.
        if block.len() > 1_000_000 {
            break;
        }
    }
    refused(block.as_bytes(), "deep");
    refused(format!("agents: {}\n", "{a: ".repeat(10_000)).as_bytes(), "error");
    refused("- ".repeat(10_000).as_bytes(), "error");
}

#[test]
fn fifty_megabytes() {
    refused(format!("agents:\n  root:\n    instruction: {}\n", "x".repeat(50 << 20)).as_bytes(), "at most");
    refused("a: [\n".repeat(10 << 20).as_bytes(), "at most");
    refused(&vec![0; 50 << 20], "error");
}

#[test]
fn what_has_no_end() {
    let kit = Kit::new();
    for path in ["/dev/zero", "/dev/urandom"] {
        for args in [&["check", path][..], &["run", path, "x"]] {
            let (said, code, took, most) = measured(&kit, args);
            assert_eq!(code, 6, "{said}");
            assert!(took < TIME && most < MEMORY, "{took} ms, {most} MB");
        }
    }
}
