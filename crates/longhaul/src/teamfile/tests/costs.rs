//! Files that are built to cost more than their size: what is kept of them is bounded.

use super::super::problem::{MAX_PROBLEMS, ProblemList};
use super::super::*;

fn many(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(", ")
}

/// Checks that the list was cut off, and returns the number of problems.
fn cut(text: &str) -> usize {
    let reading = parse(text);
    assert!(reading.file.is_none());
    let last = reading.problems.last().unwrap();
    assert!(last.message.contains("only the first 100 errors"), "{last:?}");
    reading.problems.len()
}

#[test]
fn of_very_many_errors_the_first_are_told() {
    let unknown = format!("agents: {{root: {{{}}}}}", many(1_000, |n| format!("zork{n}: 1")));
    assert_eq!(cut(&unknown), MAX_PROBLEMS + 1);
    let twice = format!("agents: {{root: {{}}}}\nmetadata: {{{}}}", many(1_000, |_| "author: me".to_owned()));
    assert_eq!(cut(&twice), MAX_PROBLEMS + 1);
    let nobody = format!("agents: {{root: {{sub_agents: [{}]}}}}", many(1_000, |n| format!("zork{n}")));
    assert_eq!(cut(&nobody), MAX_PROBLEMS + 1);
    // Each of these names was compared with each of those.
    let names = format!(
        "agents: {{root: {{budgets: [{}]}}}}\nbudgets: {{{}}}",
        many(1_000, |n| format!("zork{n}")),
        many(600, |n| format!("b{n}: {{}}"))
    );
    assert_eq!(cut(&names), MAX_PROBLEMS + 1);
}

#[test]
fn warnings_never_hide_an_error() {
    let mut text = format!("agents: {{root: {{toolsets: [{}]}}}}", many(500, |_| "{type: zork}".to_owned()));
    let reading = parse(&text);
    assert!(reading.file.is_some());
    assert_eq!(reading.problems.len(), MAX_PROBLEMS + 1);
    assert!(reading.problems.last().unwrap().message.contains("only the first 100 warnings"));
    text.push_str("\nzork: 1\n");
    let reading = parse(&text);
    assert!(reading.file.is_none());
    assert_eq!(reading.error_count(), 1);
}

#[test]
fn what_is_only_counted_is_still_wrong() {
    let mut first = ProblemList::default();
    let mut second = ProblemList::default();
    for line in 1..=MAX_PROBLEMS as u32 + 5 {
        second.push(Problem::error(SourceSpan { line, column: 1, length: 1 }, "", "no"));
    }
    assert!(second.is_full());
    first.append(second);
    let problems = first.into_sorted();
    assert_eq!(problems.len(), MAX_PROBLEMS + 1);
    assert!(problems.iter().all(Problem::is_error));
}

/// A key is part of the path of everything below it: half a megabyte, twenty thousand times, would be ten
/// gigabytes.
#[test]
fn keys_are_short() {
    let key = "k".repeat(257);
    let reading = parse(&format!("agents: {{root: {{model: auto}}, {key}: {{model: auto}}}}"));
    assert_eq!(reading.problems.len(), 1, "{:?}", reading.problems);
    assert!(reading.problems[0].message.ends_with("is longer than 256 bytes"), "{:?}", reading.problems);
    assert!(reading.problems[0].message.len() < 150);
    let key = "k".repeat(128);
    assert!(parse(&format!("agents: {{root: {{model: auto}}, {key}: {{model: auto}}}}")).file.is_some());
}

/// A comma-separated text is a list that YAML limits do not count.
#[test]
fn names_with_commas_are_not_without_number() {
    let reading = parse(&format!("agents: {{root: {{model: '{}'}}}}", many(200_000, |_| "x".to_owned())));
    assert_eq!(reading.problems.len(), 1, "{:?}", reading.problems);
    assert!(reading.problems[0].message.contains("more than 1000 names"));
}

#[test]
fn patterns_are_neither_large_nor_many() {
    let hooks = |count: usize, pattern: &str| {
        let one = format!("{{matcher: '{pattern}', hooks: [{{type: command, command: x}}]}}");
        format!(
            "agents: {{root: {{model: auto, hooks: {{pre_tool_use: [{}]}}}}}}",
            many(count, |_| one.clone())
        )
    };
    assert!(parse(&hooks(100, "shell|edit_.*")).file.is_some());
    let reading = parse(&hooks(300, "shell"));
    assert_eq!(reading.problems.len(), 1);
    assert!(reading.problems[0].message.contains("more than 100 matchers"));
    assert_eq!(parse(&hooks(1, "\\w{5000}")).error_count(), 1);

    let schema = |pattern: &str| {
        let schema = format!("{{type: object, properties: {{a: {{type: string, pattern: '{pattern}'}}}}}}");
        format!("agents: {{root: {{model: auto, structured_output: {{name: x, schema: {schema}}}}}}}")
    };
    assert!(parse(&schema("^[a-z]+-(?=x)")).file.is_some());
    assert_eq!(parse(&schema("\\w{5000}")).error_count(), 1);
}
