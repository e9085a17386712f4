//! Random files: nothing panics, and every problem has a position inside the file.
//!
//! `LONGHAUL_CASES=10000000` sets the number of files.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::file_schema::{ObjectSchema, TEAM, TOOLSETS, ValueType};
use super::super::*;

fn cases(few: u32) -> u32 {
    std::env::var("LONGHAUL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

fn run<S: Strategy>(few: u32, strategy: S, test: impl Fn(S::Value))
where
    S::Value: std::fmt::Debug,
{
    let config = Config { cases: cases(few), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |value| {
            test(value);
            Ok(())
        })
        .unwrap();
}

/// What must hold for every file.
fn holds(text: &str) {
    let reading = parse(text);
    assert!(reading.file.is_some() || reading.error_count() > 0, "nothing is wrong and nothing is there");
    for problem in &reading.problems {
        let SourceSpan { line, column, length } = problem.at;
        assert!(line >= 1 && column >= 1 && length >= 1, "{problem:?}");
        let lines = text.split('\n').count();
        assert!(line as usize <= lines, "{problem:?}: there are {lines} lines");
        let width = text.split('\n').nth(line as usize - 1).unwrap_or_default().chars().count();
        assert!(column as usize <= width + 1, "{problem:?}: the line has {width} columns");
        let shown = problem.render("a.yaml", text);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
}

/// All keys of all tables, so that the random trees reach deep into the reader.
fn words() -> Vec<&'static str> {
    fn all(object: &'static ObjectSchema, found: &mut Vec<&'static str>) {
        for key in object.keys {
            found.push(key.name);
            below(&key.kind, found);
        }
    }
    fn below(kind: &'static ValueType, found: &mut Vec<&'static str>) {
        match kind {
            ValueType::Object(object) => all(object, found),
            ValueType::List(kind) | ValueType::Map(kind) => below(kind, found),
            ValueType::AnyOf(kinds) => kinds.iter().for_each(|kind| below(kind, found)),
            ValueType::Keyword(words) => found.extend(*words),
            _ => {}
        }
    }
    let mut found =
        vec!["root", "helper", "auto", "openai/gpt-5", "docker:x", "true", "1", "30s", "unknown", "wrong"];
    all(&TEAM, &mut found);
    for (name, object) in TOOLSETS {
        found.push(name);
        all(object, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[derive(Debug, Clone)]
enum Tree {
    Scalar(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    fn write(&self, out: &mut String) {
        match self {
            Tree::Scalar(text) => out.push_str(text),
            Tree::List(items) => {
                out.push('[');
                for item in items {
                    item.write(out);
                    out.push_str(", ");
                }
                out.push(']');
            }
            Tree::Map(fields) => {
                out.push('{');
                for (key, value) in fields {
                    out.push_str(key);
                    out.push_str(": ");
                    value.write(out);
                    out.push_str(", ");
                }
                out.push('}');
            }
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let word = proptest::sample::select(words()).prop_map(str::to_owned);
    let odd = prop_oneof![
        Just("~".to_owned()),
        Just("-5".to_owned()),
        Just("1e400".to_owned()),
        Just(".nan".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("\"a, b ,,c\"".to_owned()),
        Just("'ü\u{1f600}'".to_owned()),
        Just("\"\\u0000\\n\"".to_owned()),
        Just("$A${B}".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ];
    let scalar = prop_oneof![3 => word.clone(), 1 => odd].prop_map(Tree::Scalar);
    scalar.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            3 => proptest::collection::vec((word.clone(), inner), 0..6).prop_map(Tree::Map),
        ]
    })
}

#[test]
fn random_trees_of_known_words_never_panic_and_every_problem_lies_in_the_file() {
    run(150, (tree(), tree(), tree()), |(agent, toolset, top)| {
        let mut text = String::from("agents:\n  root: ");
        agent.write(&mut text);
        text.push_str("\n  helper: {model: auto, toolsets: [");
        toolset.write(&mut text);
        text.push_str("]}\nmodels: ");
        top.write(&mut text);
        text.push('\n');
        holds(&text);
    });
}

#[test]
fn random_texts_never_panic_and_every_problem_lies_in_the_file() {
    run(150, "(\\PC|[\\n:{}\\[\\]&*!|>'\"%@`#,? \\t-]){0,80}", |text| holds(&text));
}

/// Valid files with one piece changed.
#[test]
fn broken_examples_never_panic_and_every_problem_lies_in_the_file() {
    let whole = std::fs::read_to_string(super::dir("tests/teams/everything.yaml")).unwrap();
    let chars: Vec<char> = whole.chars().collect();
    let strategy = (0..chars.len(), 0..40_usize, "\\PC{0,6}");
    run(30, strategy, |(at, gone, new)| {
        let after = chars.len().min(at + gone);
        let text: String =
            chars[..at].iter().copied().chain(new.chars()).chain(chars[after..].iter().copied()).collect();
        holds(&text);
    });
}

#[test]
fn random_texts_with_variables_never_panic_and_those_without_stay_as_they_are() {
    run(500, "(\\PC|[$${}:.-]){0,40}", |text| {
        let filled = fill_variables(&text, &|name| (name.len() < 3).then(|| "v".to_owned()));
        if !text.contains('$') {
            assert_eq!(filled, Ok(text.clone()));
        }
        assert_eq!(filled.is_err(), required_variables(&text).iter().any(|name| name.len() >= 3));
    });
}
