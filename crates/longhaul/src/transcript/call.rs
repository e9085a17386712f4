//! Tool calls as text. Nothing in the arguments is dropped: what a reader could not see is made visible.

use serde_json::{Map, Value};

use super::sanitize::{escape_invisible, escape_invisible_line};

/// The arguments that say most about a call, best first.
const MAIN: [&str; 12] = [
    "cmd",
    "command",
    "path",
    "file_path",
    "paths",
    "pattern",
    "query",
    "url",
    "task",
    "message",
    "agent",
    "name",
];

fn parsed(arguments: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(arguments).ok()
}

fn value_line(value: &Value) -> String {
    match value {
        Value::String(text) => escape_invisible_line(text),
        other => escape_invisible_line(&other.to_string()),
    }
}

/// Formats a call as one line, with at most `most` characters of its arguments: `search_files_content(TODO)`.
pub fn format_call(tool: &str, arguments: &str, most: usize) -> String {
    let shown = match parsed(arguments) {
        Some(map) if map.len() == 1 => map.values().map(value_line).collect(),
        Some(map) => map
            .iter()
            .map(|(key, value)| format!("{}: {}", escape_invisible_line(key), value_line(value)))
            .collect::<Vec<_>>()
            .join(", "),
        None => escape_invisible_line(arguments),
    };
    format!("{}({})", escape_invisible_line(tool), shorten(&shown, most))
}

/// Returns the argument that says most about a call: `make all`, `src/main.rs`.
pub fn main_argument(arguments: &str) -> String {
    let Some(map) = parsed(arguments) else { return escape_invisible_line(arguments) };
    let main = MAIN.iter().find_map(|key| map.get(*key));
    let main = main.or_else(|| map.values().find(|value| value.is_string())).or(map.values().next());
    main.map(value_line).unwrap_or_default()
}

/// Formats a call with its main argument only: `shell(make all)`.
pub fn brief_call(tool: &str, arguments: &str, most: usize) -> String {
    match main_argument(arguments) {
        main if main.is_empty() => escape_invisible_line(tool),
        main => format!("{}({})", escape_invisible_line(tool), shorten(&main, most)),
    }
}

/// Lays out arguments for reading: one name and value each. A value with line breaks keeps them, also inside
/// lists and objects, which are indented. Text that is not a JSON object becomes one value without a name.
pub fn lay_out_arguments(arguments: &str) -> Vec<(String, String)> {
    match parsed(arguments) {
        Some(map) => {
            map.iter().map(|(name, value)| (escape_invisible_line(name), lay_out_value(value))).collect()
        }
        None if arguments.trim().is_empty() => Vec::new(),
        None => vec![(String::new(), escape_invisible(arguments).trim_end().to_owned())],
    }
}

/// Lays out arguments as text: `name: value`, and a value of several lines as a block below its name.
pub fn arguments_text(arguments: &str) -> String {
    let line = |(name, value): (String, String)| match (name.is_empty(), value.contains('\n')) {
        (true, _) => value,
        (false, false) => format!("{name}: {value}"),
        (false, true) => format!("{name}:\n{}", indent(&value)),
    };
    lay_out_arguments(arguments).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn lay_out_value(value: &Value) -> String {
    let several = |value: &Value| match value {
        Value::String(text) => text.trim_end().contains('\n'),
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_array()),
        other => other.is_object(),
    };
    let entry = |lead: String, value: &Value| match several(value) {
        true => format!("{lead}\n{}", indent(&lay_out_value(value))),
        false => format!("{lead} {}", lay_out_value(value)),
    };
    match value {
        Value::String(text) => escape_invisible(text).trim_end().to_owned(),
        Value::Object(map) if !map.is_empty() => {
            let entries =
                map.iter().map(|(name, value)| entry(format!("{}:", escape_invisible_line(name)), value));
            entries.collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) if items.iter().any(several) => {
            items.iter().map(|item| entry("-".to_owned(), item)).collect::<Vec<_>>().join("\n")
        }
        other => escape_invisible_line(&other.to_string()),
    }
}

fn indent(text: &str) -> String {
    text.split('\n').map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Shortens a text to this many characters, with a mark if it goes on.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) if most == 0 => String::new(),
        Some(_) => {
            let kept: String = text.chars().take(most - 1).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_call_the_main_argument_is_enough() {
        assert_eq!(brief_call("shell", r#"{"timeout":3,"cmd":"make\nall"}"#, 40), "shell(make ⏎ all)");
        assert_eq!(brief_call("odd", r#"{"n":3,"words":"some"}"#, 40), "odd(some)");
        assert_eq!(brief_call("odd", r#"{"n":3}"#, 40), "odd(3)");
        assert_eq!(brief_call("list", "{}", 40), "list");
        assert_eq!(brief_call("odd", "not \x1b[1mjson", 40), "odd(not ␛[1mjson)");
        assert_eq!(brief_call("shell", r#"{"cmd":"a long command"}"#, 6), "shell(a lon…)");
    }

    #[test]
    fn a_call_fits_a_line() {
        assert_eq!(format_call("read_file", r#"{"path":"a\nb"}"#, 40), "read_file(a ⏎ b)");
        assert_eq!(format_call("run", r#"{"agent":"x","n":3}"#, 40), "run(agent: x, n: 3)");
        assert_eq!(format_call("list", "{}", 40), "list()");
        assert_eq!(format_call("odd", "not \x1b[1mjson", 40), "odd(not ␛[1mjson)");
    }

    #[test]
    fn text_with_line_breaks_is_laid_out_as_a_block_wherever_it_is() {
        assert_eq!(arguments_text(r#"{"cmd":"make\n  all\n","n":3}"#), "cmd:\n  make\n    all\nn: 3");
        let edits = r#"{"path":"a.rs","edits":[{"oldText":"a\nb","newText":"c"}]}"#;
        let laid_out = "edits:\n  -\n    newText: c\n    oldText:\n      a\n      b\npath: a.rs";
        assert_eq!(arguments_text(edits), laid_out);
        assert_eq!(arguments_text(r#"{"a":[1,"x"],"e":{}}"#), "a: [1,\"x\"]\ne: {}");
        assert_eq!(arguments_text("not \x1b[1mjson"), "not ␛[1mjson");
        assert_eq!(arguments_text(r#"{"a":["x\ny"]}"#), "a:\n  -\n    x\n    y");
        assert!(!arguments_text(r#"{"a":{"b":["x\ny\u0007"]}}"#).contains('\x07'));
    }
}
