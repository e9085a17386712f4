//! The dashboard: its assets are what `web/src` gives, and it works in a real Chromium against the real
//! `longhaul serve`. The tests themselves are in `web/tests`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web");

/// Whatever is in `web/`, with the packages of `package-lock.json`, in a directory that git does not see.
fn web() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = PathBuf::from(WEB);
        // Two test processes may be at it at once.
        let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("web.lock")).unwrap();
        lock.lock().unwrap();
        let pinned = std::fs::read_to_string(dir.join("package-lock.json")).unwrap();
        let done = dir.join("node_modules/.longhaul-installed");
        if std::fs::read_to_string(&done).is_ok_and(|had| had == pinned) {
            return dir;
        }
        let npm = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&dir)
            .output()
            .unwrap_or_else(|error| {
                panic!(
                    "npm: {error}. The tests of the dashboard need Node.js and npm: `./test` installs them"
                )
            });
        let said = String::from_utf8_lossy(&npm.stderr);
        assert!(npm.status.success(), "`npm ci` in web/ failed: {said}");
        std::fs::write(done, pinned).unwrap();
        dir
    })
}

fn node(args: &[&str]) -> String {
    let mut command = Command::new("node");
    command.args(args).current_dir(web()).env("LONGHAUL", env!("CARGO_BIN_EXE_longhaul"));
    // Other tests run at the same time: what is measured here is measured for real by hand.
    command.env("SLACK", std::env::var("SLACK").unwrap_or_else(|_| "4".to_owned()));
    let ran = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "node {args:?}: {text}");
    for why in text.lines().filter_map(|line| line.trim_start_matches("# ").strip_prefix("skipped: ")) {
        crate::kit::skipped(why);
    }
    text
}

#[test]
fn the_assets_are_what_the_sources_give() {
    node(&["node_modules/typescript/bin/tsc", "--noEmit"]);
    node(&["build.mjs", "--check"]);
    node(&["--test", "tests/units.test.mjs"]);
}

#[test]
fn the_dashboard_works_in_a_browser() {
    node(&["--test", "tests/dashboard.test.mjs"]);
}

#[test]
fn foreign_text_is_never_taken_for_markup() {
    node(&["--test", "tests/xss.test.mjs"]);
}

#[test]
fn the_dashboard_keeps_its_budgets() {
    node(&["--test", "tests/load.test.mjs"]);
}

/// Ten minutes with a thousand tasks and two hundred events a second.
#[test]
#[ignore = "takes eleven minutes"]
fn long_the_memory_of_the_dashboard_stays_flat() {
    let mut command = Command::new("node");
    command.args(["--test", "--test-name-pattern", "thousand", "tests/load.test.mjs"]).current_dir(web());
    let ran = command.env("LONGHAUL", env!("CARGO_BIN_EXE_longhaul")).env("LONG", "1").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
