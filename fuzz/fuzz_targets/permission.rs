//! Permission patterns and what is decided by them. An input is lines: `+pattern` allows, `?pattern` asks, `-pattern`
//! denies, `>` begins the permissions of a child, and every other line is a call: the tool, a space, the arguments.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use longhaul::permission::{Pattern, PermissionVerdict, Permissions, Rights, arguments};
use longhaul_fuzz::bounded;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Ok(input) = std::str::from_utf8(data) else { return };
    bounded(input.len(), || {
        let mut levels = vec![Permissions::default()];
        let mut calls: Vec<(&str, Value)> = Vec::new();
        for line in input.split('\n') {
            let (first, rest) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
            let Some(level) = levels.last_mut() else { return };
            match first {
                "+" => level.allow.extend(pattern(rest)),
                "?" => level.ask.extend(pattern(rest)),
                "-" => level.deny.extend(pattern(rest)),
                ">" if levels.len() < 8 => levels.push(Permissions::default()),
                _ if calls.len() < 8 => {
                    let (tool, text) = line.split_once(' ').unwrap_or((line, ""));
                    calls.push((tool, arguments(text)));
                }
                _ => {}
            }
        }
        for (tool, arguments) in &calls {
            for harmless in [true, false] {
                one(&levels, tool, arguments, harmless);
            }
            every_pattern(&levels, tool, arguments);
        }
    });
});

/// A pattern, which is the same when it was written down and read again.
fn pattern(text: &str) -> Option<Pattern> {
    let pattern = match Pattern::parse(text) {
        Ok(pattern) => pattern,
        Err(why) => {
            assert!(!why.to_string().is_empty());
            return None;
        }
    };
    assert_eq!(pattern.to_string(), text);
    assert_eq!(Pattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern));
    let json = serde_json::to_string(&pattern).expect("a pattern is a text");
    assert_eq!(serde_json::from_str::<Pattern>(&json).expect("the same text"), pattern);
    Some(pattern)
}

/// How strict a verdict is.
fn strictness(verdict: &PermissionVerdict) -> u8 {
    match verdict {
        PermissionVerdict::Run => 0,
        PermissionVerdict::Ask => 1,
        PermissionVerdict::Unsure(why) => {
            assert!(!why.is_empty(), "a doubt says why");
            2
        }
        PermissionVerdict::Refuse(why) => {
            assert!(!why.is_empty(), "a refusal says why");
            3
        }
    }
}

/// What holds for a call, by all the permissions that count for it.
fn one(levels: &[Permissions], tool: &str, arguments: &Value, harmless: bool) {
    let levels: Vec<Arc<Permissions>> = levels.iter().cloned().map(Arc::new).collect();
    let rights = |count: usize, approved| Rights { levels: levels[..count].to_vec(), approved };
    assert_eq!(
        rights(0, false).decide(tool, arguments, harmless),
        PermissionVerdict::Run,
        "nobody forbids anything"
    );
    let mut parent = 0;
    for count in 1..=levels.len() {
        let level = &levels[count - 1];
        let own = level.decide(tool, arguments, harmless);
        let denied = level.deny.iter().any(|pattern| pattern.may_match(tool, arguments));
        assert_eq!(strictness(&own) >= 2, denied, "deny beats allow");
        if own == PermissionVerdict::Run {
            let allowed = level.allow.iter().any(|pattern| pattern.definitely_matches(tool, arguments));
            let asked = level.ask.iter().any(|pattern| pattern.may_match(tool, arguments));
            assert!(allowed || (harmless && !asked), "something lets it run");
        }
        let child = strictness(&rights(count, false).decide(tool, arguments, harmless));
        assert!(child >= parent, "a child has no more than its parent");
        assert!(child >= strictness(&own), "nor more than its own permissions");
        let approved = strictness(&rights(count, true).decide(tool, arguments, harmless));
        assert_eq!(
            approved,
            if child >= 2 { 3 } else { 0 },
            "what is denied, or may be, is denied to those who may all else"
        );
        if harmless {
            let harmful = level.decide(tool, arguments, false);
            assert!(strictness(&harmful) >= strictness(&own), "harm is not let off");
        }
        parent = child;
    }
}

/// What holds for every pattern and a call.
fn every_pattern(levels: &[Permissions], tool: &str, arguments: &Value) {
    let loud = tool.to_ascii_uppercase();
    for level in levels {
        for pattern in level.allow.iter().chain(&level.ask).chain(&level.deny) {
            let (surely, maybe) =
                (pattern.definitely_matches(tool, arguments), pattern.may_match(tool, arguments));
            assert!(maybe || !surely, "'{pattern}' surely means a call that it cannot mean");
            assert_eq!(pattern.definitely_matches(&loud, arguments), surely, "case is the same");
            assert_eq!(pattern.may_match(&loud, arguments), maybe, "case is the same");
            let both = Permissions { allow: vec![pattern.clone()], ask: vec![], deny: vec![pattern.clone()] };
            assert_eq!(strictness(&both.decide(tool, arguments, true)) >= 2, maybe);
        }
        // More that is denied never lets more through.
        let joined = level.merge(&levels[0]);
        let denied =
            |permissions: &Permissions| permissions.deny.iter().any(|p| p.may_match(tool, arguments));
        assert_eq!(denied(&joined), denied(level) || denied(&levels[0]));
    }
    if !tool.trim().is_empty() && tool.trim() == tool && tool.len() < 512 {
        let pattern = Pattern::for_tool(tool).expect("a tool has a pattern");
        assert!(
            pattern.definitely_matches(tool, arguments),
            "the pattern of all calls of '{tool}' is not of this one"
        );
        assert!(pattern.may_match(tool, arguments));
    }
}
