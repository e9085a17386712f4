//! Tests of the content and the cost of frames.

use super::*;

/// A thousand tasks in trees of ten.
fn thousand() -> Vec<TaskState> {
    let mut states = Vec::new();
    for tree in 0..100 {
        let root = TestJournal::new(
            tree * 10,
            "lead",
            &format!("Tree {tree} with some words to be shown in a line"),
        )
        .claimed();
        states.push(root.state());
        for child in 1..10 {
            let child =
                root.child(tree * 10 + child, "scout", "Look into something that has a rather long name");
            states.push(child.claimed().replied("Words.", &[]).state());
        }
    }
    states
}

#[test]
fn of_a_thousand_tasks_only_those_in_sight_are_built() {
    let mut model = screen((120, 40), &[]);
    update(&mut model, TuiMessage::Loaded(thousand(), Vec::new()));
    model.prepare_frame();
    assert!(model.tree.rows.len() > 2_000);
    let area = model.areas().unwrap().list;
    for top in [0, 500, 1_900] {
        model.list_top = top;
        assert_eq!(crate::tui::draw::list_lines(&model, area), usize::from(area.height));
    }
}

/// Run it with `cargo test --release -p longhaul-cli -- --ignored --nocapture frame_of_a_thousand`.
#[test]
#[ignore = "a measurement, for a release build"]
fn a_frame_of_a_thousand_tasks_takes_less_than_5_ms() {
    let mut model = screen((200, 60), &[]);
    let states = thousand();
    update(&mut model, TuiMessage::Loaded(states.clone(), Vec::new()));
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(200, 60)).unwrap();
    let mut took = Vec::new();
    for round in 0..200 {
        let start = std::time::Instant::now();
        // Something has changed, and everything is drawn again.
        update(&mut model, TuiMessage::TasksChanged(states[round % 100..round % 100 + 10].to_vec()));
        model.now = at(100 + round as i64);
        model.prepare_frame();
        terminal.draw(|frame| draw(&model, frame)).unwrap();
        took.push(start.elapsed());
    }
    // The median, because other load on the machine is not ours.
    took.sort();
    let (middle, worst) = (took[100], took[199]);
    #[expect(clippy::print_stdout, reason = "a measurement")]
    {
        println!("a frame of 1,000 tasks: median {middle:?}, worst {worst:?}");
    }
    assert!(middle < std::time::Duration::from_millis(5), "{middle:?}");
}

#[test]
fn a_reply_that_comes_in_pieces_looks_like_the_whole() {
    let text = "# A title\n\nSome *words* in **styles**, `code` among them, and\na second line.\n\n- one\n- two\n\n\
                ```rust\nfn main() { let a_rather_long_line_of_code = \"that does not fit into the pane\"; }\n```\n\n\
                | name | count |\n|------|------:|\n| alpha | 1 |\n| b | 22 |\n\nThe end of it.";
    let begun = TestJournal::new(1, "a", "Do.").claimed();
    let whole = [begun.clone().replied(text, &[])];
    let mut model = screen((100, 40), &whole);
    press(&mut model, "Enter", &whole);
    let right = |model: &mut TuiModel| -> Vec<String> {
        let rows = picture(model);
        rows.lines().skip(3).take(33).map(|row| row.split_once('│').unwrap().1.to_owned()).collect()
    };
    let expected = right(&mut model);
    assert!(expected.iter().any(|row| row.contains("alpha │     1")), "{expected:#?}");

    let mut journals = [begun];
    let mut model = screen((100, 40), &journals);
    press(&mut model, "Enter", &journals);
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(7));
        journals[0] = journals[0].clone().said(piece);
        rest = more;
        let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()]));
        serve(&mut model, effects, &journals);
    }
    assert_eq!(right(&mut model), expected);
}

/// Everything a terminal could obey: a title, a clipboard (OSC 52), a link (OSC 8), colours, a reset, and the
/// same with C1 bytes.
const EVIL: &str = "\x1b]0;pwned\x07\x1b]52;c;cHduZWQ=\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x1b[31m\x1bc\x1b[2J\
                    \u{9b}2J\u{9d}0;pwned\u{9c}\u{90}q\u{9c}\u{85}\u{202e}\x08\x7f&#27;[2J&#x9b;2J";

#[test]
fn nothing_that_a_terminal_obeys_is_in_any_picture() {
    use longhaul::entry::{Entry, LiveTextKind, QuestionAnswer};
    let evil = |text: &str| format!("{text} {EVIL} {text}");
    let arguments = serde_json::json!({ "cmd": evil("argument"), (evil("key")): 1 }).to_string();
    let ran = TestJournal::new(1, &evil("agent"), &evil("task"))
        .claimed()
        .replied(
            &format!("{}\n\n```rust\n{}\n```\n", evil("# text"), evil("code")),
            &[(&evil("tool"), &arguments)],
        )
        .called(0, &evil("tool"))
        .and(Entry::Said { voice: LiveTextKind::Progress, text: evil("progress") });
    let waits = ran.clone().asked(ExpectedAnswer::Words { schema: None }, &evil("question"));
    let tool = ExpectedAnswer::approval(evil("tool"), arguments.clone());
    let asks = ran.child(2, &evil("child"), &evil("below")).claimed().asked(tool, &evil("leave"));
    let answered = QuestionAnswer::Given(evil("answer"));
    let over = TestJournal::new(3, "b", "Do.")
        .claimed()
        .letter(Sender::Person, &evil("letter"))
        .letter(Sender::Task(id(1)), &evil("from a task"))
        .asked(leave(), "May it?")
        .and(Entry::Answered { question: question(), answer: answered })
        .replied("", &[("shell", &arguments)])
        .called(0, "shell")
        .returned(0, &evil("output"))
        .replied(&evil("last"), &[])
        .completed(&evil("end"));
    let failed = TestJournal::new(4, "c", "Do.").claimed().failed(&evil("error"));
    let thinks = Entry::Said { voice: LiveTextKind::Reasoning, text: evil("thought") };
    let talks = TestJournal::new(5, "d", "Do.").claimed().and(thinks).said(&evil("live"));
    let journals = [waits, asks, over, failed, talks];
    let mut seen = String::new();
    for size in [(120, 40), (40, 12)] {
        for chosen in 1..=5 {
            for keys in ["", "1", "2", "3", "4", "5", "6", "s", "m"] {
                let mut model = screen(size, &journals);
                let effects = model.reveal_task(id(chosen));
                serve(&mut model, effects, &journals);
                // Unfold everything.
                model.detail.as_mut().unwrap().unfolded.extend((1..40).map(Seq));
                press(&mut model, keys, &journals);
                update(&mut model, TuiMessage::Paste(evil("pasted")));
                update(&mut model, TuiMessage::ActionFailed(evil("trouble")));
                for top in [0, 12, 1000] {
                    if let Some(detail) = &mut model.detail {
                        (detail.top, detail.follow) = (top, false);
                    }
                    let shown = picture(&mut model);
                    let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
                    assert!(!shown.contains(bad), "{chosen} {keys} {size:?}: {shown:?}");
                    seen.push_str(&shown);
                }
            }
        }
    }
    // All of it was visible, including the control sequences.
    assert!(seen.contains("␛]0;pwned␇") && seen.contains("⟨U+009D⟩0;pwned"), "{seen}");
    for word in [
        "agent",
        "task",
        "thought",
        "text",
        "code",
        "argument",
        "progress",
        "question",
        "child",
        "leave",
        "letter",
        "from a task",
        "answer",
        "output",
        "last",
        "end",
        "error",
        "live",
        "pasted",
        "trouble",
    ] {
        assert!(seen.contains(word), "{word} was not shown");
    }
}
