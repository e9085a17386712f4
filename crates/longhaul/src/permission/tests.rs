use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::command_line::SHELL_METACHARACTERS;
use super::glob::Glob;
use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

/// Whether a pattern that allows matches this command.
fn allows(text: &str, command: &str) -> bool {
    pattern(text).definitely_matches("shell", &json!({ "cmd": command }))
}

fn denies(text: &str, command: &str) -> bool {
    pattern(text).may_match("shell", &json!({ "cmd": command }))
}

fn permissions(allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
    Permissions::parse(allow, ask, deny).unwrap()
}

#[test]
fn deny_goes_before_allow_and_allow_before_ask_and_harmless_tools_run() {
    let rules = permissions(&["a*", "c"], &["ab", "r"], &["abc"]);
    let decide = |tool: &str, harmless| rules.decide(tool, &json!({}), harmless);
    assert!(matches!(decide("abc", true), PermissionVerdict::Refuse(why) if why.contains("'abc'")));
    assert_eq!(decide("ab", false), PermissionVerdict::Run, "allow goes before ask");
    assert_eq!(
        decide("r", true),
        PermissionVerdict::Ask,
        "what is asked about is asked about, though it is harmless"
    );
    assert_eq!(decide("other", true), PermissionVerdict::Run);
    assert_eq!(decide("other", false), PermissionVerdict::Ask);
}

#[test]
fn names_match_whole_and_in_any_case() {
    let args = json!({});
    for (text, tool, meant) in [
        ("shell", "shell", true),
        ("shell", "SHELL", true),
        ("Shell", "shell", true),
        ("shell", "shell2", false),
        ("shell*", "shell2", true),
        ("read_?ile", "read_file", true),
        ("*", "anything", true),
        ("mcp:github:*", "mcp:github:create_issue", true),
        ("mcp:github:get_*", "mcp:github:create_issue", false),
        ("[rw]*_file", "write_file", true),
        ("[^rw]*_file", "write_file", false),
    ] {
        assert_eq!(pattern(text).definitely_matches(tool, &args), meant, "{text} {tool}");
        assert_eq!(pattern(text).may_match(tool, &args), meant, "{text} {tool}");
    }
}

/// Each nested list is parsed as written, but not a hundred levels deep.
#[test]
fn lists_in_lists_are_looked_into_so_far() {
    let nested = |depth: usize| (0..depth).fold(json!("rm x"), |inner, _| json!([inner]));
    let write = |depth| json!({ "text": nested(depth) });
    assert!(pattern("write:text=rm x").may_match("write", &write(8)));
    assert!(pattern("write:text=rm x").definitely_matches("write", &write(8)));
    assert!(!pattern("write:text=other").may_match("write", &write(8)));
    assert!(pattern("write:text=other").may_match("write", &write(9)), "it may be anything");
    assert!(!pattern("write:text=rm x").definitely_matches("write", &write(9)));
}

/// A sigma has a different lower-case letter at the end of a word; a pattern matches both.
#[test]
fn the_case_of_a_letter_does_not_hang_on_its_neighbours() {
    for (text, tool) in
        [("ΟΔΟΣ*", "ΟΔΟΣΑ"), ("ΟΔΟΣ*", "οδος"), ("οδο?", "ΟΔΟΣ"), ("*Σ*", "ΑΣΑ"), ("οδοσ", "ΟΔΟΣ")]
    {
        assert!(pattern(text).may_match(tool, &json!({})), "{text} {tool}");
    }
    assert!(pattern("write:path=/ΟΔΟΣ*").may_match("write", &json!({ "path": "/ΟΔΟΣΑ" })));
}

#[test]
fn arguments_are_compared_as_they_are_written_in_json() {
    let args = json!({
        "path": "/home/Me/a/b.txt", "count": 30, "half": 0.5, "on": true, "none": null,
        "nested": { "deep": { "x": "y" } }, "dotted.name": "z", "list": ["one", "two"], "empty": []
    });
    for (text, meant) in [
        ("t:path=/home/me/*", true),
        ("t:path=/home/*.txt", true),
        ("t:path=/home/?e/*", true),
        ("t:PATH=/HOME/*", true),
        ("t:path=/home", false),
        ("t:path=*:path=*b.txt", true),
        ("t:path=*:path=*c.txt", false),
        ("t:count=30", true),
        ("t:count=3*", true),
        ("t:half=0.5", true),
        ("t:on=true", true),
        ("t:none=null", true),
        ("t:nested.deep.x=y", true),
        ("t:nested.deep=*\"y\"*", true),
        ("t:nested.deep.x.z=*", false),
        ("t:dotted.name=z", true),
        ("t:list.1=two", true),
        ("t:list=t*", false),
        ("t:missing=*", false),
        ("t:path=*:missing=*", false),
        ("t:path.=*", false),
    ] {
        assert_eq!(pattern(text).definitely_matches("t", &args), meant, "{text}");
    }
    assert!(pattern("t:list=t*").may_match("t", &args), "one of them is enough to be denied");
    assert!(pattern("t:list=[ot]*").definitely_matches("t", &args), "all of them have to be allowed");
    assert!(pattern("t:empty=\\[\\]").definitely_matches("t", &args));
}

#[test]
fn a_colon_begins_a_condition_only_where_a_name_and_an_equals_sign_follow() {
    let url = json!({ "url": "https://host:8080/a?b=c", "b": "1" });
    assert!(pattern("fetch:url=https://host:8080/*").definitely_matches("fetch", &url));
    assert!(pattern("fetch:url=https://host:8080/a\\?b=c").definitely_matches("fetch", &url));
    assert!(pattern("fetch:url=*:b=1").definitely_matches("fetch", &url));
    assert!(!pattern("fetch:url=*\\:b=1").definitely_matches("fetch", &url), "an escaped colon is itself");
    assert!(pattern("t:a=x\\:b=1").definitely_matches("t", &json!({ "a": "x:b=1" })));
    assert!(pattern("t:a=1\\*2").definitely_matches("t", &json!({ "a": "1*2" })));
    assert!(!pattern("t:a=1\\*2").definitely_matches("t", &json!({ "a": "1x2" })));
}

#[test]
fn what_is_no_pattern_is_an_error_that_names_it() {
    for (text, why) in [
        ("", "names no tool"),
        (":cmd=x", "names no tool"),
        ("shell:", "last ':'"),
        ("shell:cmd=[a", "without its ']'"),
        ("shell:cmd=a\\", "ends in a single"),
    ] {
        let error = Pattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(&format!("'{text}'")), "{error}");
    }
    assert!(Pattern::parse(&"a".repeat(5000)).unwrap_err().to_string().contains("longer than"));
    assert!(serde_json::from_str::<Pattern>("\"shell:\"").is_err());
}

#[test]
fn a_wildcard_that_allows_lets_no_second_command_through() {
    let git = "shell:cmd=git *";
    assert!(allows(git, "git status"));
    assert!(allows(git, "git log --format='%h' -- src/a-b_c.rs"));
    for trick in [
        "git status; rm -rf /",
        "git status && rm -rf /",
        "git status & rm -rf /",
        "git status || rm -rf /",
        "git status | sh",
        "git status\nrm -rf /",
        "git status\rrm -rf /",
        "git $(rm -rf /)",
        "git `rm -rf /`",
        "git log > /etc/passwd",
        "git log >> ~/.bashrc",
        "git apply < /tmp/x",
        "git diff <(curl x)",
        "git ${IFS}x",
        "git $HOME",
        "git (x)",
    ] {
        assert!(!allows(git, trick), "{trick:?}");
        assert!(!allows("shell:cmd=*", trick), "{trick:?}");
        assert!(!allows("shell:cmd=git?*", trick), "{trick:?}");
        assert!(!allows("shell:cmd=git [^x]*", trick), "{trick:?}");
        assert!(allows("shell", trick), "who allows the whole tool allows all of it");
    }
    assert!(allows("shell:cmd=cd * && git *", "cd src && git status"), "what is written out is meant");
    assert!(!allows("shell:cmd=cd * && git *", "cd src && git status && rm x"));
    assert!(!allows("shell:cmd=git *", "  git status"), "only what is written is meant");
    assert!(
        pattern("t:query=*").definitely_matches("t", &json!({ "query": "a; b" })),
        "that is no command line"
    );
    assert!(!pattern("t:run.command=*").definitely_matches("t", &json!({ "run": { "command": "a; b" } })));
}

#[test]
fn a_wildcard_that_allows_does_not_go_up_in_a_path() {
    let inside = pattern("write_file:path=/home/me/*");
    let allows = |path: &str| inside.definitely_matches("write_file", &json!({ "path": path }));
    assert!(allows("/home/me/a/b") && allows("/home/me/a..b/c"));
    assert!(!allows("/home/me/../../etc/passwd") && !allows("/home/me/x/.."));
    let open = pattern("write_file:path=../*");
    assert!(open.definitely_matches("write_file", &json!({ "path": "../other" })));
}

#[test]
fn what_is_denied_is_found_where_it_hides() {
    for command in [
        "rm -rf /",
        "RM -rf /",
        "  rm   -rf /",
        "ls; rm -rf /",
        "ls;rm -rf /",
        "ls && rm -rf /",
        "ls | rm -rf /",
        "ls\nrm -rf /",
        "echo $(rm -rf /)",
        "echo `rm -rf /`",
        "/bin/rm -rf /",
        "\\rm -rf /",
        "'rm' -rf /",
        "A=1 B=2 rm -rf /",
        "sudo rm -rf /",
        "sudo -n -E rm -rf /",
        "sudo env A=1 nohup rm -rf /",
        "if true; then rm -rf /; fi",
        "{ rm -rf /; }",
        "(rm -rf /)",
        "! rm -rf /",
        &format!("{} rm -rf /", "sudo ".repeat(5000)),
    ] {
        assert!(denies("shell:cmd=rm *", command), "{command:.80}");
    }
    for command in ["ls", "git rm x", "echo harmless", "farm x"] {
        assert!(!denies("shell:cmd=rm *", command), "{command}");
    }
    let list = json!({ "command": ["rm", "-rf", "/"] });
    assert!(pattern("exec:command=rm *").may_match("exec", &list));
    for path in ["/etc/passwd", "/home/../etc/passwd", "//etc///passwd", "/./etc/passwd", "/../etc/passwd"] {
        assert!(
            pattern("write_file:path=/etc/*").may_match("write_file", &json!({ "path": path })),
            "{path}"
        );
    }
}

#[test]
fn arguments_that_cannot_be_read_are_allowed_nothing_and_denied_what_they_might_be() {
    for text in ["{\"cmd\": \"rm", "[1]", "\"{\\\"cmd\\\":\\\"rm x\\\"}\"", "7"] {
        let args = arguments(text);
        assert!(!pattern("shell:cmd=*").definitely_matches("shell", &args), "{text}");
        assert!(pattern("shell:cmd=rm *").may_match("shell", &args), "{text}");
        assert!(pattern("shell").definitely_matches("shell", &args), "{text}");
    }
    assert_eq!(arguments(" "), json!({}));
    assert_eq!(arguments("null"), json!({}));
}

#[test]
fn a_child_has_no_more_than_all_above_it_and_denied_is_denied() {
    let parent = Arc::new(permissions(&["write"], &[], &["rm"]));
    let child = Arc::new(permissions(&["*"], &[], &[]));
    let rights = Rights { levels: vec![parent, child], approved: false };
    let decide = |rights: &Rights, tool: &str| rights.decide(tool, &json!({}), false);
    assert_eq!(decide(&rights, "write"), PermissionVerdict::Run);
    assert_eq!(decide(&rights, "shell"), PermissionVerdict::Ask, "its parent would have to ask");
    assert!(matches!(decide(&rights, "rm"), PermissionVerdict::Refuse(_)));
    let approved = Rights { approved: true, ..rights };
    assert_eq!(decide(&approved, "shell"), PermissionVerdict::Run);
    assert!(matches!(decide(&approved, "rm"), PermissionVerdict::Refuse(_)));
    assert_eq!(
        decide(&Rights::default(), "shell"),
        PermissionVerdict::Run,
        "where there are no rules, there are none"
    );
}

/// An approval from now on covers exactly what it says.
#[test]
fn always_allows_no_more_than_it_says() {
    let shell = |cmd: &str| json!({ "cmd": cmd });
    let line = "rm -rf Build[1] && make *";
    let exact = Pattern::for_call("shell", &shell(line)).unwrap();
    assert_eq!(exact.to_string(), format!("=shell {{\"cmd\":\"{line}\"}}"));
    assert_eq!(Pattern::parse(&exact.to_string()).unwrap(), exact);
    assert!(exact.grants("shell", &shell(line), false) && exact.grants("shell", &shell(line), true));
    for other in [
        "rm -rf build[1] && make *",
        "rm -rf Build1 && make *",
        "rm -rf Build[1] && make x",
        "rm -rf Build[1]",
    ] {
        assert!(!exact.definitely_matches("shell", &shell(other)), "{other}");
    }
    assert!(
        !exact.definitely_matches("shell", &json!({ "cmd": line, "cwd": "/" })),
        "with no other arguments"
    );
    assert!(!exact.definitely_matches("run_background_job", &shell(line)));

    let program = Pattern::for_program("shell", &shell("git status -s")).unwrap();
    assert_eq!(program.to_string(), "shell:cmd=git *");
    assert!(program.definitely_matches("shell", &shell("git log")));
    assert!(!program.definitely_matches("shell", &shell("git status; rm -rf /")));
    assert!(!program.grants("shell", &shell("git log"), true), "what cannot be read is asked about again");
    for line in [
        "git status && make",
        "env git x",
        "sh -c ls",
        "$X y",
        "git",
        "a=1 git x",
        "git x > y",
        "sudo ls",
        "'git' x",
        "python -c x",
    ] {
        assert!(Pattern::for_program("shell", &shell(line)).is_err(), "{line}");
    }
    assert!(Pattern::for_program("write", &json!({ "path": "x" })).is_err());
    for wrong in ["=", "=shell", "=shell {", "= {}", "=shell 7"] {
        assert!(Pattern::parse(wrong).is_err(), "{wrong}");
    }
    let rules = permissions(&[&exact.to_string()], &[], &["shell:cmd=rm *"]);
    assert!(
        matches!(rules.decide("shell", &shell(line), false), PermissionVerdict::Refuse(_)),
        "denied is denied"
    );
}

#[test]
fn a_path_is_found_however_it_is_written() {
    let rules = permissions(&["*"], &[], &["read_file:path=/work/secret/*", "write_file:path=keys/*"]);
    let refused = |tool: &str, path: &str| {
        let request =
            PermissionRequest::new(tool, json!({ "path": path })).in_directory(Some("/work".as_ref()));
        matches!(rules.decide_request(&request, true), PermissionVerdict::Refuse(_))
    };
    for path in
        ["/work/secret/a", "secret/a", "./secret/a", "x/../secret/a", "/work//secret/./a", "../work/secret/a"]
    {
        assert!(refused("read_file", path), "{path}");
    }
    for path in ["keys/a", "./keys/a", "/work/keys/a", "/work/x/../keys/a", "x/../keys/a"] {
        assert!(refused("write_file", path), "{path}");
    }
    assert!(!refused("read_file", "secrets/a") && !refused("write_file", "src/keys"));
}

#[test]
fn no_pattern_takes_long() {
    let begun = Instant::now();
    let many = format!("shell:cmd={}b", "*a".repeat(100));
    let text = "a".repeat(4_000);
    assert!(!allows(&many, &text) && !denies(&many, &text));
    let classes = format!("shell:cmd={}", "*[a-z]?".repeat(40));
    assert!(allows(&classes, &text));
    let wrapped = format!("{}x", "sudo -n ".repeat(5_000));
    assert!(denies("shell:cmd=rm *", &wrapped), "so many wrappers may hide anything");
    for hostile in [
        "(",
        "$(",
        "$((",
        "`",
        "{ ",
        "${a:-",
        "[",
        "{a,",
        "<<E ",
        "'",
        "\"$(",
        "case a in a) ",
        "\\\n",
        "[[ (",
    ] {
        let line = hostile.repeat(60_000 / hostile.len());
        let _ = denies("shell:cmd=rm *", &line);
        let _ = denies("shell:cmd=rm *", &format!("{line} rm x"));
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A reference implementation of glob matching.
fn plainly(glob: &[char], text: &[char], never: &[char]) -> bool {
    match (glob, text) {
        ([], []) => true,
        (['*', rest @ ..], _) => {
            plainly(rest, text, never)
                || matches!(text, [c, more @ ..] if !never.contains(c) && plainly(glob, more, never))
        }
        (['?', rest @ ..], [c, more @ ..]) => !never.contains(c) && plainly(rest, more, never),
        ([own, rest @ ..], [c, more @ ..]) => own == c && plainly(rest, more, never),
        _ => false,
    }
}

fn some_patterns() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab*?]{1,3}(:(cmd|path)=[ab*? ;./]{0,5}){0,2}", 0..4)
}

fn some_permissions() -> impl Strategy<Value = Permissions> {
    (some_patterns(), some_patterns(), some_patterns()).prop_map(|(allow, ask, deny)| {
        let good = |texts: Vec<String>| texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
        Permissions { allow: good(allow), ask: good(ask), deny: good(deny) }
    })
}

fn some_call() -> impl Strategy<Value = (String, Value)> {
    ("[ab]{1,3}", prop::option::of("[ab ;./]{0,6}"), prop::option::of("[ab ./]{0,6}")).prop_map(
        |(tool, cmd, path)| {
            let mut args = serde_json::Map::new();
            cmd.map(|cmd| args.insert("cmd".to_owned(), cmd.into()));
            path.map(|path| args.insert("path".to_owned(), path.into()));
            (tool, Value::Object(args))
        },
    )
}

fn strictness(verdict: &PermissionVerdict) -> u8 {
    match verdict {
        PermissionVerdict::Run => 0,
        PermissionVerdict::Ask => 1,
        PermissionVerdict::Unsure(_) => 2,
        PermissionVerdict::Refuse(_) => 3,
    }
}

// Set `PROPTEST_CASES=10000000` for a longer run.
proptest! {
    #[test]
    fn a_glob_matches_what_it_plainly_should(glob in "[ab*?;]{0,8}", text in "[ab;]{0,8}", guarded: bool) {
        let never: &[char] = if guarded { &[';'] } else { &[] };
        let (g, t): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
        prop_assert_eq!(Glob::parse(&glob).unwrap().matches(&text, never), plainly(&g, &t, never));
    }

    #[test]
    fn nothing_that_is_written_panics(text in "\\PC{0,40}|[a:=*?\\[\\]\\\\^!-]{0,20}", value in "\\PC{0,40}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(&Pattern::parse(&pattern.to_string()).unwrap(), &pattern);
            let args = json!({ "cmd": &value, "a": [&value], "": &value });
            // What it certainly matches, it may also match.
            prop_assert!(!pattern.definitely_matches(&value, &args) || pattern.may_match(&value, &args));
        }
        let _ = Pattern::parse(&format!("a:cmd={text}")).map(|pattern| pattern.may_match("a", &json!({ "cmd": value })));
        let _ = (shell::parse_command_line(&value), arguments(&value));
    }

    #[test]
    fn the_pattern_of_a_tool_means_that_tool(tool in "\\PC{1,20}", other in "\\PC{1,20}") {
        if let Ok(pattern) = Pattern::for_tool(&tool) && tool.trim() == tool {
            let none = json!({});
            prop_assert!(pattern.definitely_matches(&tool, &none));
            prop_assert_eq!(pattern.definitely_matches(&other, &none), tool.to_lowercase() == other.to_lowercase());
        }
    }

    #[test]
    fn a_wildcard_never_allows_what_ends_a_command(
        glob in "[a *?]{1,8}", before in "[a ]{0,4}", at in 0..SHELL_METACHARACTERS.len(), after in "[a ]{0,4}",
    ) {
        let command = format!("{before}{}{after}", SHELL_METACHARACTERS[at]);
        let pattern = format!("shell:cmd={glob}");
        prop_assert!(!allows(&pattern, &command));
    }

    #[test]
    fn what_one_denies_nobody_allows(
        levels in prop::collection::vec(some_permissions(), 0..4), call in some_call(), harmless: bool, approved: bool,
    ) {
        let (tool, args) = call;
        let verdicts: Vec<_> = levels.iter().map(|level| level.decide(&tool, &args, harmless)).collect();
        let strictest = verdicts.iter().map(strictness).max().unwrap_or(0);
        let rights = Rights { levels: levels.into_iter().map(Arc::new).collect(), approved };
        let wanted = match strictest {
            1 if approved => 0,
            2 if approved => 3,
            other => other,
        };
        prop_assert_eq!(strictness(&rights.decide(&tool, &args, harmless)), wanted);
    }

    #[test]
    fn more_allowed_or_denied_never_undoes_a_denial(
        rules in some_permissions(), more in some_permissions(), call in some_call(), harmless: bool,
    ) {
        let (tool, args) = call;
        let refused = |rules: &Permissions| matches!(rules.decide(&tool, &args, harmless), PermissionVerdict::Refuse(_));
        prop_assert_eq!(refused(&rules.merge(&more)), refused(&rules) || refused(&more));
    }
}
