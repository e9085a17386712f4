//! Errors in a script name the position, the line, and what is expected.

use proptest::prelude::*;

use super::*;

fn wrong(yaml: &str) -> ScriptProblem {
    match ModelScript::parse("demo.yaml", yaml) {
        Err(ModelScriptError::Invalid(mistake)) => *mistake,
        other => panic!("{other:?} for\n{yaml}"),
    }
}

/// A script whose line 12 is `line`.
fn line_12(line: &str) -> String {
    let before = "\
agents:
  lead:
    turns:
      - text: one
        # a comment

      - text: two
        calls:
          - tool: shell
            arguments:
              command: ls
";
    format!("{before}{line}\n      - text: three\n")
}

#[test]
fn each_mistake_is_named_with_its_place() {
    let table: &[(&str, (u64, u64), &[&str])] = &[
        (
            &line_12("        txt: oops"),
            (12, 9),
            &["txt", "text", "usage", "demo.yaml:12:9", "12 |         txt: oops"],
        ),
        (&line_12("        chunk: many"), (12, 16), &["whole number", "chunk: many"]),
        (&line_12("        chunk: 0"), (12, 16), &["at least 1"]),
        (&line_12("        pace: fast"), (12, 15), &["'fast' is not a duration", "20ms"]),
        (&line_12("        errors: [{ status: 429, retry_after: 2 }]"), (12, 46), &["'2' is not a duration"]),
        (&line_12("        errors: [cut, hung]"), (12, 23), &["'hung'", "cut, hang, empty"]),
        (&line_12("        errors: [{ status: 200 }]"), (12, 18), &["200", "400 to 599"]),
        (&line_12("        errors: [{ state: 500 }]"), (12, 20), &["state", "status"]),
        (&line_12("        usage: { in: 3 }"), (12, 18), &["in", "input"]),
        (&line_12("        stop: soon"), (12, 15), &["soon", "length"]),
        (&line_12("        reasoning: \"{{ task\""), (12, 20), &["template is wrong"]),
        (&line_12("        reasoning: \"{{ taks }}\""), (12, 20), &["'taks' is not a variable", "task"]),
        (&line_12("        until: letters |"), (12, 16), &["expression is wrong"]),
        (&line_12("              more: \"{% if %}\""), (12, 21), &["template is wrong"]),
        (&line_12("      - pace: 3s"), (12, 9), &["says nothing", "text"]),
        (&line_12("        text: twice"), (12, 9), &["duplicate", "text"]),
        (
            "agents:\n  a:\n    turns:\n      - text: |\n          one\n          {{ two(\n",
            (6, 11),
            &["template"],
        ),
        (
            "agents:\n  a:\n    turns:\n      - text: |\n          one\n          {{ two }}\n",
            (6, 11),
            &["'two'"],
        ),
        ("agents:\n  a:\n    turns:\n      - text: |- # so\n\n          {{ two }}\n", (6, 11), &["'two'"]),
        ("agents:\n  a: {}\n", (2, 6), &["'a' says nothing", "`turns` or `cases`"]),
        ("agents:\n  a: { turns: [], cases: [] }\n", (2, 6), &["both"]),
        (
            "agents:\n  a: { cases: [{ when: /(/, turns: [] }] }\n",
            (2, 24),
            &["/(/ is not a pattern", "unclosed"],
        ),
        ("agents:\n  a: { turns: [{ text: [1] }] }\n", (2, 24), &["string"]),
        ("agent: {}\n", (1, 1), &["agent", "agents"]),
        ("agents:\n\ta: {}\n", (2, 2), &["tab"]),
        ("agents: {}\n---\nagents: {}\n", (2, 1), &["document"]),
    ];
    let mut failures = Vec::new();
    for (yaml, place, words) in table {
        let mistake = wrong(yaml);
        let shown = mistake.to_string();
        if (mistake.line, mistake.column) != *place || words.iter().any(|word| !shown.contains(word)) {
            failures.push(format!("expected {place:?} and {words:?}, got {shown}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_mistake_is_shown_in_two_lines() {
    insta::assert_snapshot!(wrong(&line_12("        pace: fast")), @"
    demo.yaml:12:15: 'fast' is not a duration; expected one like 20ms, 1.5s or 2m
      12 |         pace: fast
    ");
}

#[test]
fn a_bomb_a_giant_and_a_missing_file_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x]\n");
    for n in 1..40 {
        bomb.push_str(&format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1));
    }
    wrong(&bomb);
    assert!(wrong(&" ".repeat(5 << 20)).to_string().contains("at most"));
    let error = ModelScript::load("/nowhere/demo.yaml").unwrap_err().to_string();
    assert!(error.contains("/nowhere/demo.yaml"), "{error}");
}

#[test]
fn a_script_is_loaded_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.yaml");
    std::fs::write(&path, "agents: { lead: { turns: [{ text: hi }] } }").unwrap();
    let script = ModelScript::load(&path).unwrap();
    assert!(script.has_agent("lead") && !script.has_agent("other") && script.name().ends_with("demo.yaml"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn reading_never_panics(text in any::<String>()) {
        let _ = ModelScript::parse("any", &text);
    }

    #[test]
    fn reading_something_like_a_script_never_panics(
        lines in proptest::collection::vec(
            ("[ ]{0,8}", r#"(agents|lead|turns|- text|- until|errors|arguments|calls|- tool|when|pace|usage|defaults)"#,
             r#":( (\||>|[|]|\{|\}|\*a|&a|"\{\{ task \}\}"|\{\{|\{% set x = %\}|'é'|/[(]/|-1|2s|~|[a-z]{1,3}))?"#),
            0..12,
        )
    ) {
        let mut yaml = String::from("agents:\n  lead:\n    turns:\n");
        for (indent, key, value) in lines {
            yaml.push_str(&format!("{indent}{key}{value}\n"));
        }
        let _ = ModelScript::parse("any", &yaml);
    }
}
