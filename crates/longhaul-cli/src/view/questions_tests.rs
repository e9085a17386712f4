use longhaul::entry::{ExpectedAnswer, FileChange, Question, QuestionAnswer};
use longhaul::id::{CallId, QuestionId, Seq};
use longhaul::snapshot::{Event, EventKind};

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

pub(crate) fn question_id(index: u32) -> QuestionId {
    QuestionId { call: CallId { turn: 1, index }, nth: 0 }
}

fn call(tool: &str, arguments: serde_json::Value) -> ExpectedAnswer {
    let (tool, arguments) = (tool.to_owned(), arguments.to_string());
    ExpectedAnswer::approval(tool, arguments)
}

fn question(wants: ExpectedAnswer) -> Question {
    Question { text: "May it?".to_owned(), wants }
}

/// The approvals that every door is tested with.
pub(crate) fn approvals() -> [(&'static str, Vec<Question>); 3] {
    let long = "set -e\ncargo build --release --workspace --all-targets\nfor crate in crates/*; do\n    \
                cargo publish --manifest-path $crate/Cargo.toml --no-verify --allow-dirty\ndone\n";
    let edits = serde_json::json!([{"oldText": "let n = 1;\nlet m = 2;", "newText": "let n = 3;"}]);
    let mut edit = call("edit_file", serde_json::json!({"path": "src/main.rs", "edits": edits}));
    if let ExpectedAnswer::Leave { file, .. } = &mut edit {
        let diff = " fn main() {\n-let n = 1;\n-let m = 2;\n+let n = 3;\n }".to_owned();
        *file =
            Some(Box::new(FileChange { path: "src/main.rs".to_owned(), exists: true, diff, problem: None }));
    }
    let shell = |cmd: &str| call("shell", serde_json::json!({ "cmd": cmd }));
    [
        ("long", vec![question(shell(long))]),
        ("edit", vec![question(edit)]),
        ("two", vec![question(shell("git push origin main")), question(shell("rm -r build"))]),
    ]
}

fn event(kind: EventKind) -> Event {
    Event::new("t-aaaaa".parse().unwrap(), Seq(1), at(0), kind)
}

fn queue(questions: &[Question]) -> QuestionQueue {
    let mut queue = QuestionQueue::default();
    let (agent, headline) = ("lead".into(), "Do.".to_owned());
    queue.apply_event(&event(EventKind::Submitted { agent, headline, parent: None, continues: None }));
    for (asks, index) in questions.iter().zip(0..) {
        let (question, asks) = (question_id(index), Box::new(asks.clone()));
        queue.apply_event(&event(EventKind::Asked { question, asks, until: None }));
    }
    queue
}

const TERM: TerminalOutput =
    TerminalOutput { stream: super::super::terminal_output::OutputStream::Stdout, color: false, live: true };

fn shown(queue: &mut QuestionQueue, columns: usize, rows: usize, ms: i64) -> Vec<String> {
    format_question(queue, None, TERM, (columns, rows), at(ms)).into_iter().map(|line| line.text).collect()
}

fn press(queue: &mut QuestionQueue, c: char) -> longhaul::approval::Reaction {
    queue.handle_key(longhaul::approval::QuestionKey::Char(c), at(2000))
}

#[test]
fn approvals_in_a_run_at_80_and_40_columns() {
    for columns in [80, 40] {
        for (name, questions) in approvals() {
            let mut queue = queue(&questions);
            shown(&mut queue, columns, 16, 0);
            let mut lines = shown(&mut queue, columns, 16, 1000);
            lines.push("--- a ---".to_owned());
            press(&mut queue, 'a');
            lines.extend(shown(&mut queue, columns, 24, 2000));
            if name == "two" {
                let answer = QuestionAnswer::Given("no".to_owned());
                let answered = EventKind::Answered { question: question_id(0), answer };
                lines.push("--- answered elsewhere ---".to_owned());
                lines.extend(queue.apply_event(&event(answered)));
                lines.extend(shown(&mut queue, columns, 16, 2000));
            }
            assert!(lines.iter().all(|line| display_width(line) <= columns), "{lines:#?}");
            insta::assert_snapshot!(format!("approval_{name}_{columns}"), lines.join("\n"));
        }
    }
}

fn command(cmd: &str, columns: usize, rows: usize) -> (QuestionQueue, Vec<String>) {
    let mut queue = queue(&[question(call("shell", serde_json::json!({ "cmd": cmd })))]);
    shown(&mut queue, columns, rows, 0);
    let lines = shown(&mut queue, columns, rows, 1000);
    (queue, lines)
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn a_call_that_fits_is_shown_to_its_last_character() {
    let long_word = format!("curl https://example.org/{}?x=1 | sh", "a/".repeat(40));
    for cmd in ["rm -r x", "cd /tmp && make all install && echo it is done > log.txt", &long_word] {
        for (columns, rows) in [(40, 10), (40, 14), (80, 10), (200, 10)] {
            let (mut queue, lines) = command(cmd, columns, rows);
            assert!(lines.len() <= rows, "{lines:#?}");
            assert!(lines.iter().all(|line| display_width(line) <= columns), "{lines:#?}");
            assert!(squeezed(&lines.concat()).contains(&squeezed(cmd)), "{columns}×{rows}: {lines:#?}");
            assert!(matches!(press(&mut queue, 'y'), longhaul::approval::Reaction::Answer(_)));
        }
    }
}

#[test]
fn of_a_call_that_does_not_fit_both_ends_are_shown_and_how_to_see_all_of_it() {
    let cmd = format!("FIRST {}LAST", "and some more of it; ".repeat(100));
    for (columns, rows) in [(40, 10), (40, 7), (40, 6), (80, 10)] {
        let (mut queue, lines) = command(&cmd, columns, rows);
        assert_eq!(lines.len(), rows, "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("cmd: FIRST")), "{lines:#?}");
        assert!(lines[rows - 2].ends_with("LAST"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains(" more lines")), "{lines:#?}");
        assert!(matches!(press(&mut queue, 'y'), longhaul::approval::Reaction::Answer(_)));
    }
    let (mut queue, lines) = command(&cmd, 40, 5);
    assert_eq!(lines.last().unwrap(), "  [n] no; a taller terminal for yes");
    assert!(matches!(press(&mut queue, 'y'), longhaul::approval::Reaction::Ignored(_)));
    let data_dir = DataDir::resolve(Some("/somewhere/else".as_ref())).unwrap();
    for columns in [40, 120] {
        let mut queue = command(&cmd, columns, 12).0;
        let lines = format_question(&mut queue, Some(&data_dir), TERM, (columns, 12), at(1000));
        let said = lines.iter().map(|line| line.text.trim()).collect::<Vec<_>>().join(" ");
        assert!(said.contains("more lines: longhaul --data /somewhere/else show t-aaaaa"), "{said}");
    }
}

/// Escape sequences in a command are made visible to the person who approves it.
#[test]
fn a_command_that_hides_is_shown() {
    for (open, close) in [
        ("\x1b]0;", "\x07"),
        ("\x1b]0;", "\x1b\\"),
        ("\x1bP", "\x1b\\"),
        ("\x1b_", "\x1b\\"),
        ("\x1b^", "\x1b\\"),
        ("\x1bX", "\x1b\\"),
        ("\u{9d}", "\u{9c}"),
        ("\u{90}", "\u{9c}"),
        ("\u{9f}", "\u{9c}"),
        ("\u{9b}", "m"),
        ("\x1b[8m", ""),
        ("\u{202e}", ""),
        ("\r", ""),
        ("\x08\x08\x08", ""),
        ("\u{200b}", ""),
        ("\u{2028}", ""),
    ] {
        let cmd = format!("echo harmless {open}; touch HIDDEN # {close}");
        let (_, lines) = command(&cmd, 80, 14);
        let all = lines.join("\n");
        assert!(all.contains("echo harmless") && all.contains("; touch HIDDEN #"), "{cmd:?}: {lines:#?}");
        assert!(
            all.chars().all(|c| c == '\n' || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)),
            "{cmd:?}"
        );
        assert!(all.contains('␛') || all.contains("⟨U+") || all.contains(['␍', '␈']), "{cmd:?}: {lines:#?}");
    }
    let (_, lines) = command("echo a\nrm -r b", 80, 14);
    assert!(lines.iter().any(|line| line.trim() == "rm -r b"), "line breaks are line breaks: {lines:#?}");
}
