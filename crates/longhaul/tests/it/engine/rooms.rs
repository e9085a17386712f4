//! The sources, read: no room uses one that is above it, and nothing is done where nobody owns it.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of `longhaul`, bottom up, as design and `lib.rs` list them.
const ROOMS: [&str; 22] = [
    "id",
    "message",
    "permission",
    "entry",
    "task",
    "model",
    "store",
    "process",
    "snapshot",
    "journal",
    "transcript",
    "approval",
    "dispatch",
    "tool",
    "toolset",
    "hook",
    "agent",
    "conversation",
    "runner",
    "worker",
    "supervisor",
    "teamfile",
];

/// A source file: its path below `src`, as parts without the `.rs`, and its code.
struct Source {
    path: Vec<String>,
    code: String,
}

impl Source {
    fn new(path: &str, code: &str) -> Source {
        let path = path.trim_end_matches(".rs").split('/').filter(|part| *part != "mod");
        Source { path: path.map(str::to_owned).collect(), code: bare(code) }
    }

    fn room(&self) -> &str {
        &self.path[0]
    }

    /// The names at the root of the crate that the code speaks of.
    fn uses(&self) -> Vec<String> {
        let up = "super::".repeat(self.path.len());
        let mut names = Vec::new();
        for root in ["crate::", up.as_str()] {
            for (at, _) in self.code.match_indices(root) {
                let before = self.code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                    continue;
                }
                names.extend(named(&self.code[at + root.len()..]));
            }
        }
        names
    }

    /// What this file uses and must not.
    fn wrongs(&self) -> Vec<String> {
        let place = |name: &str| ROOMS.iter().position(|room| *room == name);
        let Some(mine) = place(self.room()) else {
            return vec![format!("{}: no such room", self.path.join("/"))];
        };
        let wrong = |name: &String| match place(name) {
            Some(other) => other > mine,
            None => true,
        };
        self.uses()
            .into_iter()
            .filter(wrong)
            .map(|name| format!("{} uses {name}", self.path.join("/")))
            .collect()
    }
}

/// The names that follow `crate::`: one, or those of a group.
fn named(rest: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut names, mut fresh) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if c.is_whitespace() => {}
            _ if fresh => {
                names.push(name(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// The code without comments and without the tests at its end.
fn bare(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let next_is_block = lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && next_is_block {
            break;
        }
        kept.push_str(line.find("//").map_or(line, |at| &line[..at]));
        kept.push('\n');
    }
    kept
}

fn crate_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
}

fn sources(dir: &Path, root: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let below = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let for_tests =
            ["testing", "tests", "conversation_tests", "fake_dispatcher", "tool_fixture", "loopback", "exam"];
        let is_test = below.split('/').any(|part| {
            let part = part.trim_end_matches(".rs");
            for_tests.contains(&part) || part.ends_with("_tests")
        });
        if is_test || below == "lib.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, root, found);
        } else if below.ends_with(".rs") {
            found.push(Source::new(&below, &fs::read_to_string(&path).unwrap()));
        }
    }
}

fn all() -> Vec<Source> {
    let root = crate_dir("longhaul").join("src");
    let mut found = Vec::new();
    sources(&root, &root, &mut found);
    assert!(found.len() > 40, "{} files are not all", found.len());
    found
}

#[test]
fn no_room_uses_a_room_above_it() {
    let wrongs: Vec<_> = all().iter().flat_map(Source::wrongs).collect();
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

#[test]
fn the_rooms_are_those_of_the_crate_in_this_order() {
    let lib = fs::read_to_string(crate_dir("longhaul").join("src/lib.rs")).unwrap();
    let name = |line: &str| {
        let rest = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "))?;
        rest.strip_suffix(';').map(str::to_owned)
    };
    let rooms: Vec<_> = lib.lines().filter_map(name).filter(|name| name != "testing").collect();
    assert_eq!(rooms, ROOMS);
}

/// A test that finds nothing wrong must be able to.
#[test]
fn a_use_of_a_room_above_is_found_however_it_is_written() {
    for code in [
        "use crate::worker::Worker;",
        "use crate::{id::TaskId, worker::{Worker, Teams}};",
        "use crate::{\n    id::{TaskId, Seq},\n    worker,\n};",
        "fn f() { crate::worker::claim(); }",
        "let x: Vec<crate::worker::Worker>;",
        "use super::worker::Worker;",
        "use crate::Longhaul;",
    ] {
        assert_eq!(Source::new("conversation.rs", code).wrongs().len(), 1, "{code}");
    }
    assert_eq!(Source::new("store/memory.rs", "use super::super::runner::Run;").wrongs().len(), 1);
    assert_eq!(Source::new("store/mod.rs", "use super::runner::Run;").wrongs().len(), 1);
    assert_eq!(Source::new("cellar.rs", "").wrongs().len(), 1, "a room that is not on the list");
    for code in [
        "use crate::id::TaskId;",
        "use crate::{id::TaskId, entry::{Entry, Order}, conversation};",
        "// crate::worker is not ours",
        "#[cfg(test)]\nmod tests {\n    use crate::worker::Worker;\n}",
        "use self::worker::X; let subcrate::worker = 1;",
    ] {
        assert_eq!(Source::new("conversation.rs", code).wrongs(), [""; 0], "{code}");
    }
    assert_eq!(Source::new("store/memory.rs", "use super::runner;").wrongs(), [""; 0], "that is its own");
}

#[test]
fn crates_depend_in_one_direction() {
    let depends = |name: &str, on: &str| {
        let manifest = fs::read_to_string(crate_dir(name).join("Cargo.toml")).unwrap();
        let named = |line: &str| {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default().trim();
            key == on
        };
        let dependencies = manifest.split("\n[").filter(|part| part.contains("dependencies]"));
        dependencies.flat_map(str::lines).any(named)
    };
    assert!(depends("longhaul", "tokio"), "the check finds what is there");
    for (lower, upper) in
        [("longhaul", "longhaul-server"), ("longhaul", "longhaul-cli"), ("longhaul-server", "longhaul-cli")]
    {
        assert!(!depends(lower, upper), "{lower} depends on {upper}");
    }
}

/// Every spawned future has an owner that joins it.
#[test]
fn nothing_is_spawned_without_an_owner() {
    for source in all().iter().filter(|source| !["worker", "supervisor"].contains(&source.room())) {
        for bare in ["tokio::spawn(", "task::spawn(", "Handle::current()"] {
            assert!(!source.code.contains(bare), "{} has {bare}", source.path.join("/"));
        }
    }
}

#[test]
fn the_library_touches_no_terminal_no_home_and_no_environment() {
    // `process::supervisor_process` is the main function of a process of its own.
    for source in all().iter().filter(|source| source.path.join("/") != "process/supervisor_process") {
        for touch in
            ["env::var", "home_dir(", "println!(", "print!(", "stdout()", "stdin()", "process::exit("]
        {
            assert!(!source.code.contains(touch), "{} has {touch}", source.path.join("/"));
        }
    }
}

/// A page that names tests is only as good as the tests are there.
#[test]
fn every_test_that_the_demands_name_is_there() {
    let root = crate_dir("longhaul");
    let page = fs::read_to_string(root.join("../../docs/demands.md")).unwrap();
    let mut named = 0;
    for name in page.split('`').skip(1).step_by(2) {
        let parts: Vec<&str> = name.split("::").collect();
        let (file, test) = match parts.as_slice() {
            ["engine", file, test] if *file != "file" => (format!("tests/it/engine/{file}.rs"), test),
            ["lib", "conversation", "random", test] => ("src/conversation_tests/random.rs".to_owned(), test),
            ["lib", "conversation", test] => ("src/conversation_tests.rs".to_owned(), test),
            ["lib", "toolset", "shell", test] => ("src/toolset/shell/tests.rs".to_owned(), test),
            ["lib", "toolset", "dialect_tests", file, test] => {
                (format!("src/toolset/dialect_tests/{file}.rs"), test)
            }
            ["lib", room, file, test] => (format!("src/{room}/{file}.rs"), test),
            ["http", file, test] if *file != "file" => (format!("tests/it/http/{file}.rs"), test),
            ["mcp", file, test] if *file != "file" => (format!("tests/it/mcp/{file}.rs"), test),
            ["crash", test] if *test != "…" => ("tests/it/crash/mod.rs".to_owned(), test),
            ["cli", file, test] if *file != "file" => (format!("../longhaul-cli/tests/cli/{file}.rs"), test),
            ["engine" | "lib" | "http" | "crash" | "cli", .., last] if !["test", "…"].contains(last) => {
                panic!("nobody knows where {name} is")
            }
            _ => continue,
        };
        let code = fs::read_to_string(root.join(&file)).unwrap();
        assert!(code.contains(&format!("fn {test}(")), "{file} has no test {test}");
        named += 1;
    }
    assert!(named > 60, "{named}");
}
