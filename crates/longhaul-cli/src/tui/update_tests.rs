use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use longhaul::entry::{ExpectedAnswer, Sender};

use super::*;
use crate::tui::draw::draw;
use crate::tui::testing::{TestJournal, at, id, leave, picture, press, question, screen, serve};

#[path = "update_tests/approvals.rs"]
mod approvals;
#[path = "update_tests/looks.rs"]
mod looks;
#[path = "update_tests/pictures.rs"]
mod pictures;
#[path = "update_tests/writing.rs"]
mod writing;

/// A run that asks, one that works, one that has ended and one that is interrupted.
fn journals() -> Vec<TestJournal> {
    let lead = TestJournal::new(1, "lead", "Compare Go and Rust").claimed().later(2).replied(
        "I ask two of my own.\n\n# Plan\n- one looks into Go\n- the other into Rust",
        &[
            ("run_background_agent", r#"{"agent":"scout","task":"Look into Go"}"#),
            ("run_background_agent", r#"{"agent":"writer","task":"Write it down"}"#),
        ],
    );
    let lead = lead.called(0, "run_background_agent").called(1, "run_background_agent");
    let lead = lead.returned(0, "t-00002").later(1).returned(1, "t-00003\nand more");
    let lead = lead.and(longhaul::entry::Entry::Waiting {
        on: longhaul::entry::WaitReason::Tasks(vec![id(2), id(3)]),
        until: None,
    });
    let scout =
        lead.child(2, "scout", "Look into Go 世界 and all that there is to be known about it").claimed();
    let scout = scout.replied("", &[("shell", r#"{"cmd":"ls -la"}"#)]).called(0, "shell");
    let writer =
        lead.child(3, "writer", "Write it down").claimed().asked(leave(), "May write_file be called?");
    let over = TestJournal::new(4, "cook", "Make a soup")
        .claimed()
        .later(65)
        .replied("Soup.", &[])
        .completed("Soup.");
    let failed = over.child(5, "taster", "Taste it").claimed().later(3).failed("the spoon is gone");
    let lost = TestJournal::new(6, "cleaner", "Wash up").claimed().released();
    vec![over, failed, lead, scout, writer, lost]
}

fn chosen(model: &TuiModel) -> String {
    model.selected.map(|id| id.to_string()).unwrap_or_default()
}

#[test]
fn keys_do_what_the_help_says() {
    let send = |to, text: &str| vec![TuiEffect::Send { to: id(to), text: text.to_owned() }];
    let answer =
        |words: &str| vec![TuiEffect::Answer { task: id(3), question: question(), words: words.to_owned() }];
    // Keys pressed; the selection afterwards; the effects.
    let table: Vec<(&str, &str, Vec<TuiEffect>)> = vec![
        // The first task that needs input is selected.
        ("", "t-00006", vec![]),
        ("Down", "t-00001", vec![]),
        ("Down Down Down", "t-00003", vec![]),
        ("Down Down Down Up", "t-00002", vec![]),
        ("End", "t-00004", vec![]),
        ("End Home", "t-00006", vec![]),
        // Fold: the selection moves to the visible ancestor; and unfold.
        ("Down Left Down", "t-00004", vec![]),
        ("Down Left Right Down", "t-00002", vec![]),
        ("Down Down Left", "t-00001", vec![]),
        // Ended trees start folded.
        ("End Right Down", "t-00005", vec![]),
        // A letter goes to the task that was selected when it was begun.
        ("Down m hi Enter", "t-00001", send(1, "hi")),
        ("Down m Enter", "t-00001", vec![]),
        ("Down m hi Esc", "t-00001", vec![]),
        // Answers: from the task that asks, and from above it.
        ("Down y", "t-00001", answer("yes")),
        ("Down Down Down n", "t-00003", answer("no")),
        ("Down Down Down a", "t-00003", vec![]),
        ("Down Down Down a Esc p", "t-00003", vec![TuiEffect::SavePins(vec![id(1)])]),
        ("Down Down Down a e", "t-00003", answer("always exact")),
        // Stop asks for confirmation.
        ("Down s", "t-00001", vec![]),
        ("Down s n y", "t-00001", answer("yes")),
        ("Down s y", "t-00001", vec![TuiEffect::Stop(id(1))]),
        ("S Esc", "t-00006", vec![]),
        ("S y", "t-00006", vec![TuiEffect::StopAll]),
        // Resume an interrupted run; continue an ended one.
        ("r", "t-00006", vec![TuiEffect::Resume(id(6))]),
        ("End r more Enter", "t-00004", send(4, "more")),
        // Retry a failed task.
        ("End Right Down R", "t-00005", vec![TuiEffect::Retry(id(5))]),
        ("p", "t-00006", vec![TuiEffect::SavePins(vec![id(6)])]),
        ("p p", "t-00006", vec![TuiEffect::SavePins(vec![id(6)]), TuiEffect::SavePins(vec![])]),
        ("g Home", "t-00006", vec![]),
        // Search: the selection is among the matches.
        ("/ soup Enter", "t-00004", vec![]),
        ("/ taste Enter Down", "t-00005", vec![]),
        ("/ soup Esc", "t-00004", vec![]),
        ("/ soup Enter Esc Home", "t-00006", vec![]),
        // Quit asks for confirmation while something runs.
        ("q", "t-00006", vec![]),
        ("q Esc", "t-00006", vec![]),
        ("q q", "t-00006", vec![TuiEffect::Quit { drain: false }]),
        ("q d", "t-00006", vec![TuiEffect::Quit { drain: true }]),
        // Help takes all keys, and the first closes it.
        ("? q", "t-00006", vec![]),
    ];
    let journals = journals();
    for (keys, expected, actions) in table {
        let mut model = screen((120, 40), &journals);
        let mut effects = press(&mut model, keys, &journals);
        effects.retain(|effect| !matches!(effect, TuiEffect::ExpireNotice(_)));
        assert_eq!((chosen(&model).as_str(), effects), (expected, actions), "after: {keys}");
    }
}

#[test]
fn leaving_asks_nothing_where_nothing_goes_on() {
    let journals = [TestJournal::new(4, "cook", "Soup").claimed().completed("Soup.")];
    let mut model = screen((80, 24), &journals);
    assert_eq!(press(&mut model, "q", &journals), [TuiEffect::Quit { drain: false }]);
    assert!(model.quitting);
}

#[test]
fn a_journal_is_read_from_where_it_ends_and_only_what_is_new() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for _ in 0..5_000 {
        journal = journal.replied("Words of some length, to be wrapped.", &[]);
    }
    let mut model = screen((100, 30), &[]);
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![journal.state()]));
    let end = journal.records.len() as u64;
    let after = Seq(end - INITIAL_ENTRIES as u64);
    assert_eq!(
        effects,
        [TuiEffect::ReadJournal { task: id(1), after, limit: INITIAL_ENTRIES + READ_CHUNK, order: true }]
    );
    let journals = [journal];
    serve(&mut model, effects, &journals);
    let laid = model.detail.as_ref().unwrap().page.laid_out;
    assert_eq!(laid, INITIAL_ENTRIES);

    // One new entry: one is read, one is laid out.
    let [journal] = journals;
    let journals = [journal.replied("More.", &[])];
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()]));
    assert_eq!(
        effects,
        [TuiEffect::ReadJournal { task: id(1), after: Seq(end), limit: READ_CHUNK, order: false }]
    );
    // During that read, nothing is read twice.
    assert_eq!(update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()])), []);
    serve(&mut model, effects, &journals);
    assert_eq!(model.detail.as_ref().unwrap().page.laid_out, laid + 1);
    assert!(picture(&mut model).contains("More."));

    // To the start and back, within the memory limit.
    press(&mut model, "Enter Home", &journals);
    assert!(picture(&mut model).contains("› Do."), "{}", picture(&mut model));
    let kept = |model: &TuiModel| model.detail.as_ref().unwrap().transcript.entries;
    assert!(kept(&model) <= MAX_ENTRIES);
    for _ in 0..40 {
        press(&mut model, "PageUp", &journals);
        assert!(kept(&model) <= MAX_ENTRIES);
    }
    press(&mut model, "End", &journals);
    assert!(picture(&mut model).contains("More."), "{}", picture(&mut model));
    assert!(kept(&model) <= MAX_ENTRIES);
}

#[test]
fn whoever_scrolls_up_sees_all_of_it_and_is_not_carried_away() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for number in 0..1_500 {
        journal = journal.replied(&format!("number {number}."), &[]);
    }
    let mut journals = [journal];
    let mut model = screen((100, 30), &journals);
    press(&mut model, "Enter", &journals);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..150 {
        for line in picture(&mut model).lines() {
            if let Some((_, rest)) = line.split_once("number ") {
                seen.extend(rest.split('.').next().and_then(|number| number.parse::<u32>().ok()));
            }
        }
        press(&mut model, "PageUp", &journals);
    }
    assert_eq!(seen.len(), 1_500, "nothing is skipped on the way up");
    press(&mut model, "Home Down Down", &journals);
    let before = picture(&mut model);
    journals[0] = journals[0].clone().replied("Something new.", &[]);
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()]));
    serve(&mut model, effects, &journals);
    let text = |picture: &str| picture.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    let right = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split_once('│').map_or(String::new(), |(_, r)| r.to_owned())).collect()
    };
    assert_eq!(right(text(&picture(&mut model))), right(text(&before)), "what is read stays where it is");
    press(&mut model, "f", &journals);
    assert!(picture(&mut model).contains("Something new."));
}

#[test]
fn states_that_come_late_do_not_undo_what_is_known() {
    let before = TestJournal::new(1, "a", "Do.").claimed();
    let after = before.clone().completed("Done.");
    let mut model = screen((80, 24), &[]);
    update(&mut model, TuiMessage::TasksChanged(vec![after.state()]));
    update(&mut model, TuiMessage::TasksChanged(vec![before.state()]));
    assert!(model.tasks[&id(1)].status.is_final());
}

#[test]
fn where_hints_were_lost_all_is_read_anew_and_the_journal_goes_on() {
    let mut journals = journals();
    let mut model = screen((120, 40), &journals);
    press(&mut model, "Down", &journals);
    journals[2] = journals[2].clone().replied("Heard late.", &[]);
    let effects =
        update(&mut model, TuiMessage::Loaded(journals.iter().map(TestJournal::state).collect(), Vec::new()));
    serve(&mut model, effects, &journals);
    assert_eq!(chosen(&model), "t-00001");
    assert!(picture(&mut model).contains("Heard late."));
}

#[test]
fn a_task_that_was_deleted_goes_away_when_it_is_looked_at() {
    let journals = journals();
    let mut model = screen((80, 24), &journals);
    let effects = update(&mut model, TuiMessage::TaskGone(id(6)));
    serve(&mut model, effects, &journals);
    assert_eq!(chosen(&model), "t-00001");
    assert!(!picture(&mut model).contains("Wash up"));
}

#[test]
fn there_is_an_end_to_what_is_remembered() {
    let mut model = screen((80, 24), &[]);
    let open = TestJournal::new(0, "a", "Goes on").claimed();
    update(&mut model, TuiMessage::TasksChanged(vec![open.state()]));
    for number in 1..=(MAX_TASKS as u32 + 200) {
        let done = TestJournal::new(number, "a", "Do.").claimed().completed("Done.");
        update(&mut model, TuiMessage::TasksChanged(vec![done.state()]));
        assert!(model.tasks.len() <= MAX_TASKS);
    }
    assert!(model.tasks.contains_key(&id(0)), "what goes on is not forgotten");
}

#[test]
fn the_mouse_chooses_folds_opens_and_scrolls() {
    let journals = journals();
    let mut model = screen((120, 40), &journals);
    press(&mut model, "Down", &journals);
    let rows: Vec<String> = picture(&mut model).lines().map(str::to_owned).collect();
    press(&mut model, "Up", &journals);
    let row = |text: &str| rows.iter().position(|line| line.contains(text)).unwrap() as u16;
    let click = |model: &mut TuiModel, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        let effects =
            update(model, TuiMessage::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        serve(model, effects, &journals);
    };
    click(&mut model, 20, row("scout Look"));
    assert_eq!(chosen(&model), "t-00002");
    click(&mut model, 1, row("lead Compare"));
    assert!(model.folded.contains(&id(1)));
    click(&mut model, 1, row("lead Compare"));
    assert!(!model.folded.contains(&id(1)));
    click(&mut model, 20, row("lead Compare"));
    assert_eq!(model.focus, Focus::Detail);
    // A click unfolds a call, or selects a tab.
    assert!(!picture(&mut model).contains("and more"));
    click(&mut model, 70, row("run_background_agent(agent: writer"));
    assert!(picture(&mut model).contains("and more"), "{}", picture(&mut model));
    let column = rows[1].chars().position(|c| c == 'U').unwrap() as u16;
    click(&mut model, column, 1);
    assert_eq!(model.tab, DetailTab::Usage);
    click(&mut model, 5, 38);
    assert_eq!(model.focus, Focus::Prompt);
}

#[test]
fn one_pane_at_a_time_where_there_is_room_for_one() {
    let journals = journals();
    let mut model = screen((40, 12), &journals);
    assert!(picture(&mut model).contains("Wash up"));
    press(&mut model, "Down Enter", &journals);
    let open = picture(&mut model);
    assert!(open.contains("lead t-00001") && !open.contains("Wash up"), "{open}");
    press(&mut model, "Esc", &journals);
    assert!(picture(&mut model).contains("Tasks"));
}

#[test]
fn all_sizes_can_be_drawn_whatever_is_open() {
    let mut journals = journals();
    journals.push(TestJournal::new(7, "世界世界世界世界世界世界世界世界世界世界", "👩‍👩‍👧‍👦 e\u{301}\u{301} \x1b[2J and\ta tab").claimed().said(
        "averyveryverylongwordwithoutanyspaceinitthatgoesonandonandonandonandon 世界世界世界世界世界世界世界世界世界世界世界世界",
    ));
    for keys in ["", "?", "Home Enter", "m 世界 wide", "/ zzz", "s", "S", "q", "1", "2", "3", "4", "5", "6"]
    {
        for width in [1, 10, 39, 40, 41, 71, 72, 120] {
            for height in [1, 5, 12, 13, 24] {
                let mut model = screen((width, height), &journals);
                press(&mut model, keys, &journals);
                let picture = picture(&mut model);
                assert!(!picture.contains('\x1b'), "{picture}");
                assert_eq!(picture.split('\n').count(), usize::from(height), "{width}×{height}");
            }
        }
    }
}

#[test]
fn screens() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    let journals = journals();
    let mut shots = Vec::new();
    for size in [(120, 40), (80, 24), (40, 12)] {
        for (name, keys) in [
            ("list", "Down"),
            ("asks", "Down Down Down"),
            ("open", "Down Enter Up Up Enter"),
            ("timeline", "Down 5"),
            ("usage", "Down 6"),
            ("order", "Down 2"),
            ("search", "/ soup"),
            ("write", "Down m Hello"),
            ("stop", "Down s"),
            ("leave", "q"),
            ("help", "?"),
        ] {
            let mut model = screen(size, &journals);
            press(&mut model, keys, &journals);
            shots.push((format!("tui_{name}_{}x{}", size.0, size.1), picture(&mut model)));
        }
        let mut empty = screen(size, &[]);
        shots.push((format!("tui_nothing_{}x{}", size.0, size.1), picture(&mut empty)));
    }
    // The local time depends on where the tests run.
    settings.add_filter(r"\d\d:\d\d:\d\d", "hh:mm:ss");
    settings.add_filter(r"20\d\d-\d\d-\d\d", "yyyy-mm-dd");
    settings.bind(|| {
        for (name, picture) in shots {
            insta::assert_snapshot!(name, picture);
        }
    });
}

#[test]
fn letters_are_told_with_whether_they_were_read() {
    let journal = TestJournal::new(1, "a", "Do.")
        .claimed()
        .letter(Sender::Person, "Hurry.")
        .letter(Sender::Task(id(2)), "Done.");
    let journals = [journal];
    let mut model = screen((100, 30), &journals);
    press(&mut model, "4", &journals);
    let shown = picture(&mut model);
    assert!(
        shown.contains("from a person · not read yet")
            && shown.contains("Hurry.")
            && shown.contains("t-00002"),
        "{shown}"
    );
}

#[test]
fn without_colours_there_are_none() {
    let journals = journals();
    let mut model = screen((120, 40), &journals);
    let colours = |model: &mut TuiModel| {
        model.prepare_frame();
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| draw(model, frame)).unwrap();
        let cells = terminal.backend().buffer().content.iter();
        cells
            .filter(|cell| cell.fg != ratatui::style::Color::Reset || cell.bg != ratatui::style::Color::Reset)
            .count()
    };
    assert!(colours(&mut model) > 0);
    let mut model = screen((120, 40), &journals);
    model.theme.color = false;
    model.detail = None;
    assert_eq!(colours(&mut model), 0);
}

#[test]
fn control_c_takes_away_what_is_typed_and_then_leaves() {
    let journals = journals();
    let mut model = screen((80, 24), &journals);
    press(&mut model, "m abc", &journals);
    let key = || TuiMessage::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    update(&mut model, key());
    assert_eq!(model.draft().text(), "");
    update(&mut model, key());
    assert_eq!(model.confirm, Some(Confirmation::Quit));
    assert_eq!(update(&mut model, key()), [TuiEffect::Quit { drain: false }]);
}

#[test]
fn esc_and_a_key_at_once_are_two() {
    let journals = journals();
    let mut model = screen((80, 24), &journals);
    press(&mut model, "Down Enter", &journals);
    update(&mut model, TuiMessage::Key(KeyEvent::new(KeyCode::Char('m'), KeyModifiers::ALT)));
    assert_eq!((model.pane, model.focus), (Pane::List, Focus::Prompt));
}
