//! Variables in texts. An input is lines `NAME=value`, an empty line, and the text that they are filled into.

#![no_main]

use std::cell::RefCell;
use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use longhaul::teamfile::{MAX_TEAM_FILE_BYTES, VariableError, fill_variables, required_variables};
use longhaul_fuzz::bounded;

fuzz_target!(|data: &[u8]| {
    let Ok(input) = std::str::from_utf8(data) else { return };
    let (variables, text) = input.split_once("\n\n").unwrap_or(("", input));
    let set: BTreeMap<&str, &str> = variables.lines().filter_map(|line| line.split_once('=')).collect();

    let asked = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        set.get(name).map(|value| (*value).to_owned())
    };
    // Each variable takes two bytes to write, and is what it is set to.
    let longest = set.values().map(|value| value.len()).max().unwrap_or(0);
    let most = text.len() + text.len() / 2 * longest;
    let filled = bounded(text.len() + most / 256, || fill_variables(text, &lookup));
    let asked = asked.take();

    for name in &asked {
        assert!(is_name(name), "{name:?} was looked up");
        assert!(
            text.contains(name.as_str()),
            "{name:?} is not written in the text: values are not looked into"
        );
    }
    let without: Vec<&str> = required_variables(text);
    assert!(without.len() <= asked.len());
    // As somebody reads it who takes one character after the other.
    let (whole, unset) = naive(text, &set);
    match filled {
        Ok(filled) => {
            assert!(filled.len() <= most.min(MAX_TEAM_FILE_BYTES), "{} bytes, at most {most}", filled.len());
            assert_eq!((filled, Vec::new()), (whole, unset));
        }
        Err(VariableError::Unset(names)) => {
            assert_eq!(names, unset, "what is not set is named, once, in its order");
            assert!(names.iter().all(|name| without.contains(&name.as_str())));
        }
        Err(VariableError::TooLong) => {
            assert!(whole.len() > MAX_TEAM_FILE_BYTES, "{} bytes are not too long", whole.len())
        }
        Err(other) => panic!("an error that the test does not know: {other}"),
    }

    // What is escaped comes back as it is, whatever is set.
    assert_eq!(fill_variables(&text.replace('$', "$$"), &lookup), Ok(text.to_owned()));
    assert!(required_variables(&text.replace('$', "$$")).is_empty());
    // Values stand in the result as they are, and are not read again.
    let plain = |_: &str| Some("\u{1}".to_owned());
    let wild = |_: &str| Some("$A${B}$$".to_owned());
    if !text.contains('\u{1}') {
        let marked = fill_variables(text, &plain).expect("all are set");
        assert_eq!(fill_variables(text, &wild), Ok(marked.replace('\u{1}', "$A${B}$$")));
    }
});

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && letters.all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// The same in other words: the longest name after a `$`, or what is in braces.
fn naive(text: &str, set: &BTreeMap<&str, &str>) -> (String, Vec<String>) {
    let chars: Vec<char> = text.chars().collect();
    let (mut filled, mut unset, mut at) = (String::new(), Vec::new(), 0);
    let mut put =
        |filled: &mut String, name: &str, otherwise: Option<&str>| match set.get(name).copied().or(otherwise)
        {
            Some(value) => filled.push_str(value),
            None if unset.iter().any(|had| had == name) => {}
            None => unset.push(name.to_owned()),
        };
    let last_brace = chars.iter().rposition(|c| *c == '}').unwrap_or(0);
    while at < chars.len() {
        let next = chars.get(at + 1).copied();
        if chars[at] != '$' {
            filled.push(chars[at]);
            at += 1;
        } else if next == Some('$') {
            filled.push('$');
            at += 2;
        } else if next == Some('{') && last_brace > at {
            let end = (at..).find(|place| chars[*place] == '}').expect("there is one");
            let inside: String = chars[at + 2..end].iter().collect();
            let (name, otherwise) = match inside.find(":-") {
                Some(cut) => (&inside[..cut], Some(&inside[cut + 2..])),
                None => (inside.as_str(), None),
            };
            let name = name.trim();
            let name = name.strip_prefix("env.").unwrap_or(name);
            if is_name(name) {
                put(&mut filled, name, otherwise);
            } else {
                filled.extend(&chars[at..=end]);
            }
            at = end + 1;
        } else {
            let mut end = at + 1;
            while end < chars.len() && is_name(&chars[at + 1..=end].iter().collect::<String>()) {
                end += 1;
            }
            if end > at + 1 {
                put(&mut filled, &chars[at + 1..end].iter().collect::<String>(), None);
            } else {
                filled.push('$');
            }
            at = end;
        }
    }
    (filled, unset)
}
