//! Tests of the reader and its error messages. The files are in `tests/teams` and `examples/teams`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;

mod costs;
mod declarations;
mod random;

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The team files of a directory, sorted.
fn files(name: &str) -> Vec<(String, String, PathBuf)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    let read = |path: PathBuf| {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        (stem, fs::read_to_string(&path).unwrap(), path)
    };
    files.into_iter().map(read).collect()
}

/// A machine with the files of a directory, and without variables.
struct Bare<'a>(&'a Path);

impl HostProbe for Bare<'_> {
    fn has_variable(&self, _: &str) -> bool {
        false
    }

    fn has_file(&self, path: &Path) -> bool {
        self.0.join(path).is_file()
    }
}

fn checked(text: &str, path: &Path) -> ParsedTeamFile {
    let mut reading = parse(text);
    if let Some(file) = &reading.file {
        reading.problems.extend(check_host(file, &Bare(path.parent().unwrap())));
    }
    reading
}

fn told(name: &str, text: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.render(name, text)).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_with_what_to_do() {
    let files = files("tests/teams/wrong");
    assert!(files.len() >= 15);
    for (stem, text, path) in files {
        let reading = checked(&text, &path);
        assert!(reading.error_count() > 0, "{stem} is not wrong");
        insta::with_settings!({snapshot_path => dir("tests/teams/wrong/told"), prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(stem.as_str(), told(&format!("{stem}.yaml"), &text, &reading.problems));
        });
    }
}

#[test]
fn what_is_odd_is_read_and_what_is_passed_over_is_told() {
    for (stem, text, path) in files("tests/teams/odd") {
        let reading = checked(&text, &path);
        let file = reading.file.as_ref();
        assert!(file.is_some(), "{}", told(&stem, &text, &reading.problems));
        insta::with_settings!({snapshot_path => dir("tests/teams/odd/told"), prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(stem.as_str(), told(&format!("{stem}.yaml"), &text, &reading.problems));
        });
    }
}

#[test]
fn the_examples_are_right() {
    let files = files("../../examples/teams");
    assert!(files.len() >= 20, "{}", files.len());
    for (stem, text, path) in files {
        let reading = checked(&text, &path);
        let worst: Vec<Problem> = reading
            .problems
            .into_iter()
            .filter(|p| p.is_error() || !p.message.starts_with("the variable"))
            .collect();
        assert!(worst.is_empty(), "{}", told(&stem, &text, &worst));
        assert!(reading.file.is_some());
    }
}

/// Every key of every table is in a valid file, and reaches the data.
#[test]
fn every_key_is_read() {
    let text = fs::read_to_string(dir("tests/teams/everything.yaml")).unwrap();
    let reading = parse(&text);
    let file = reading.file.unwrap_or_else(|| panic!("{}", told("everything", &text, &reading.problems)));
    for path in keys() {
        let there = file.spans.keys().any(|place| fits(&path, place));
        assert!(there, "{path} is not in everything.yaml");
    }
    insta::with_settings!({snapshot_path => dir("tests/teams/told"), prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("everything", format!("{:#?}", TeamFile { spans: Default::default(), ..file }));
    });
}

/// Whether a path matches a pattern with `*` for names and indexes.
fn fits(pattern: &str, place: &str) -> bool {
    let plain = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    let (mut pattern, mut place) = (pattern.split('.'), place.split('.'));
    loop {
        match (pattern.next(), place.next()) {
            (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(a), Some(b)) if a == plain(b) => {}
            _ => return false,
        }
    }
}

/// The paths of all keys, without recursion.
fn keys() -> Vec<String> {
    use super::file_schema::{KeyStatus, ObjectSchema, TEAM, TOOLSETS, ValueType};
    fn object(path: &str, object: &'static ObjectSchema, found: &mut Vec<String>) {
        for key in object.keys() {
            let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
            if matches!(key.status, KeyStatus::Used) {
                found.push(path.clone());
                kind(&path, &key.kind, found);
            }
        }
    }
    fn kind(path: &str, shape: &'static ValueType, found: &mut Vec<String>) {
        match shape {
            ValueType::Object(shape) => object(path, shape, found),
            ValueType::Map(ValueType::Object(shape) | ValueType::AnyOf([ValueType::Object(shape), ..])) => {
                object(&format!("{path}.*"), shape, found);
            }
            ValueType::List(inner) => kind(path, inner, found),
            ValueType::Toolset => {
                for (_, shape) in TOOLSETS {
                    object(path, shape, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    object("", &TEAM, &mut found);
    found.sort();
    found.dedup();
    assert!(found.len() > 100, "{}", found.len());
    found
}

#[test]
fn the_schema_takes_what_the_reader_takes() {
    let schema = json_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let json = |text: &str| -> Option<serde_json::Value> { serde_saphyr::from_str(text).ok() };
    for name in ["../../examples/teams", "tests/teams/odd"] {
        for (stem, text, _) in files(name) {
            // The reader accepts empty values; an editor sees a null.
            if stem == "empty-values" {
                continue;
            }
            let errors: Vec<String> = validator
                .iter_errors(&json(&text).unwrap())
                .map(|error| format!("{error} at {}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{stem}: {errors:#?}");
        }
    }
    // The schema refuses files whose structure is wrong.
    for stem in [
        "unknown-key",
        "unknown-key-top",
        "wrong-types",
        "mcp-both",
        "missing-keys",
        "bad-words",
        "agents-as-list",
    ] {
        let text = fs::read_to_string(dir("tests/teams/wrong").join(format!("{stem}.yaml"))).unwrap();
        assert!(!validator.is_valid(&json(&text).unwrap()), "{stem}");
    }
    insta::with_settings!({snapshot_path => dir("tests/teams/told"), prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("schema", serde_json::to_string_pretty(&schema).unwrap());
    });
}

#[test]
fn agents_keep_their_order_and_old_flags_become_toolsets() {
    let read = |stem: &str| {
        let text = fs::read_to_string(dir("tests/teams/odd").join(format!("{stem}.yaml"))).unwrap();
        parse(&text).file.unwrap()
    };
    let old = read("flags-of-version-0");
    let kinds: Vec<&str> = old.agents["root"].toolsets.iter().map(|toolset| toolset.kind.name()).collect();
    assert_eq!(kinds, ["mcp", "think", "todo", "memory"]);
    assert_eq!(old.agents["root"].toolsets[2].kind, ToolsetKind::Todo(TodoConfig { shared: true }));
    assert_eq!(old.models["main"].provider.as_deref(), Some("openai"));

    let odd = read("spellings");
    assert_eq!(odd.root_agent(), Some("first"));
    assert_eq!(odd.agents.keys().collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(odd.agents["first"].model, ["openai/gpt-5", "anthropic/claude-sonnet-4-5"]);
    assert_eq!(odd.agents["first"].limits.timeout, Some(Duration::from_secs(90)));
    assert_eq!(odd.agents["first"].limits.inactivity, Some(Duration::from_secs(5400)));
    assert_eq!(
        odd.agents["first"].toolsets[0].tools.as_deref(),
        Some(&["search".to_owned(), "fetch_content".to_owned()][..])
    );
    assert_eq!(odd.agents["second"].instruction, "42");
    assert_eq!(odd.models["short"].model.as_deref(), Some("gemini-2.5-flash"));
    assert_eq!(odd.models["thinks_not"].thinking_budget, Some(ThinkingConfig::Effort("off".into())));

    let merged = read("anchors");
    assert_eq!(merged.agents["helper"].instruction, "You help otherwise.");
    assert_eq!(merged.agents["helper"].model, ["auto"]);
    assert_eq!(merged.agents["helper"].toolsets.len(), 1);

    let variables = read("variables");
    let ToolsetKind::Shell(shell) = &variables.agents["root"].toolsets[0].kind else { panic!() };
    let env: Vec<(&str, &str)> =
        shell.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        env,
        [("HOME_OF", "$HOME_X"), ("PORT", "8080"), ("ON", "yes"), ("RATIO", "1.10"), ("PLAIN", "$$5")]
    );
}

/// An alias bomb, deep nesting and a huge file are refused at once.
#[test]
fn what_would_eat_the_machine_is_refused_within_a_second() {
    let mut bomb = String::from("a0: &a0 [x]\n");
    for n in 1..100 {
        let before = n - 1;
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{before}"); 10].join(", ")));
    }
    let well: String = (0..1_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let flow = format!("agents: {}", "[".repeat(10_000));
    let maps = format!("agents: {}", "{a: ".repeat(10_000));
    let dashes = format!("agents:\n  {}", "- ".repeat(10_000));
    let mountain = format!("agents:\n  root:\n    instruction: {}\n", "x".repeat(5 << 20));
    let crowd: String =
        std::iter::once("agents:\n".to_owned()).chain((0..60_000).map(|n| format!("  a{n}: 1\n"))).collect();
    for text in [bomb, well, flow, maps, dashes, mountain, crowd] {
        let began = Instant::now();
        let reading = parse(&text);
        // Allow more time for a debug build with other tests running beside it.
        let most = if cfg!(debug_assertions) { 15 } else { 1 };
        assert!(began.elapsed() < Duration::from_secs(most), "{:?}", began.elapsed());
        assert!(reading.error_count() > 0 && reading.problems.len() < 3, "{:?}", reading.problems.len());
    }
}

#[test]
fn a_long_line_is_shown_around_the_place() {
    let text = format!("agents:\n  root: {{description: {}, modle: auto}}\n", "é".repeat(300));
    let problem = parse(&text).problems.remove(0);
    let shown = problem.render("long.yaml", &text);
    let lines: Vec<&str> = shown.lines().collect();
    let mark = lines[4].find('^').map(|at| lines[4][..at].chars().count()).unwrap();
    assert_eq!(lines[3].chars().skip(mark).take(5).collect::<String>(), "modle", "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() < 130), "{shown}");
}

#[test]
fn what_is_quoted_commands_no_terminal() {
    let wrong = "agents:\n  root: {model: auto, \"mo\\edel\": x}\n";
    let nowhere = "agents:\n  root: {model: auto, sub_agents: [\"no-\\e[31m\\t-file.yaml\"]}\n";
    let surveyed = check_host(&parse(nowhere).file.unwrap(), &Bare(Path::new("/nowhere")));
    for (text, problems) in [(wrong, parse(wrong).problems), (nowhere, surveyed)] {
        assert!(!problems.is_empty());
        for problem in problems {
            let shown = problem.render("team.yaml", text);
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
            assert!(!problem.message.contains(char::is_control), "{:?}", problem.message);
        }
    }
}
