//! Tests of typed text and its recipients.

use super::*;

#[test]
fn a_question_that_wants_words_is_answered_in_the_prompt() {
    let asks =
        TestJournal::new(1, "a", "Do.").claimed().asked(ExpectedAnswer::Words { schema: None }, "Which one?");
    let journals = [asks];
    let mut model = screen((80, 24), &journals);
    let effects = press(&mut model, "y", &journals);
    assert!(effects.iter().all(|effect| matches!(effect, TuiEffect::ExpireNotice(_))), "{effects:?}");
    let effects = press(&mut model, "both Enter", &journals);
    let words = "both".to_owned();
    assert_eq!(effects, [TuiEffect::Answer { task: id(1), question: question(), words }]);
}

#[test]
fn what_was_begun_to_be_written_goes_to_whom_it_was_begun_for() {
    let journals = journals();
    let mut model = screen((120, 40), &journals);
    press(&mut model, "Down m hel", &journals);
    // Another task asks meanwhile: only the user changes the selection.
    let news = TestJournal::new(9, "lead", "New").claimed().asked(leave(), "May it?");
    update(&mut model, TuiMessage::TasksChanged(vec![news.state()]));
    let effects = press(&mut model, "lo Enter", &journals);
    assert_eq!(effects, [TuiEffect::Send { to: id(1), text: "hello".to_owned() }]);
}

#[test]
fn what_is_not_whole_on_the_screen_is_opened_before_it_is_allowed() {
    let cmd = format!("FIRST {}LAST", "and more of it; ".repeat(400));
    let arguments = serde_json::json!({ "cmd": cmd }).to_string();
    let wants = ExpectedAnswer::approval("shell", arguments);
    let lead = TestJournal::new(1, "lead", "Do.").claimed();
    let asks = lead.child(2, "a", "Do.").claimed().asked(wants, &format!("May shell be called with {cmd}?"));
    let journals = [lead, asks];
    for (key, again, words) in [("y", "y", "yes"), ("a", "a e", "always exact")] {
        for size in [(120, 40), (80, 24), (40, 12)] {
            // There the choices do not fit, and what cannot be read cannot be chosen.
            if (key, size) == ("a", (40, 12)) {
                continue;
            }
            let mut model = screen(size, &journals);
            assert_eq!(chosen(&model), "t-00001");
            let effects = press(&mut model, key, &journals);
            assert!(effects.iter().all(|effect| matches!(effect, TuiEffect::ExpireNotice(_))), "{effects:?}");
            assert_eq!((chosen(&model).as_str(), model.focus), ("t-00002", Focus::Detail));
            let shown = picture(&mut model);
            assert!(shown.contains("press the key again"), "{shown}");
            assert!(shown.contains("FIRST") && shown.contains("LAST"), "{size:?}: {shown}");
            let effects = press(&mut model, again, &journals);
            let words = words.to_owned();
            assert_eq!(effects, [TuiEffect::Answer { task: id(2), question: question(), words }]);
        }
    }
    // Denying does not require reading.
    let mut model = screen((40, 12), &journals);
    assert_eq!(press(&mut model, "n", &journals).len(), 1);
}

/// Types a text as it is, including spaces.
fn types(model: &mut TuiModel, text: &str) {
    for c in text.chars() {
        update(model, TuiMessage::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
    }
}

/// Returns the prompt line.
fn line(model: &mut TuiModel) -> String {
    picture(model).lines().rev().nth(1).unwrap().to_owned()
}

#[test]
fn a_draft_is_for_whom_it_was_begun_and_for_nobody_else() {
    let first = TestJournal::new(1, "first", "Do.").claimed();
    let words = TestJournal::new(2, "second", "Do.")
        .claimed()
        .asked(ExpectedAnswer::Words { schema: None }, "Which one?");
    let call = TestJournal::new(3, "third", "Do.").claimed().asked(leave(), "May it?");
    let journals = [first, words, call];
    let mut model = screen((120, 40), &journals);
    let go = |model: &mut TuiModel, number| {
        let effects = model.reveal_task(id(number));
        serve(model, effects, &journals);
    };
    go(&mut model, 1);
    press(&mut model, "m", &journals);
    types(&mut model, "secret for one");
    press(&mut model, "Esc", &journals);
    assert!(
        line(&mut model).contains("m  goes on: to first t-00001› secret for one"),
        "{}",
        line(&mut model)
    );
    // Another text question: its own draft is empty, and Enter sends nothing.
    go(&mut model, 2);
    assert!(line(&mut model).contains("m  writes answer second"), "{}", line(&mut model));
    assert_eq!(press(&mut model, "m Enter", &journals), []);
    assert!(line(&mut model).ends_with("answer second t-00002›"), "{}", line(&mut model));
    types(&mut model, "blue");
    press(&mut model, "Esc", &journals);
    // Another approval: its keys are shown.
    go(&mut model, 3);
    assert!(line(&mut model).contains("y yes · n no · a always"), "{}", line(&mut model));
    press(&mut model, "m", &journals);
    types(&mut model, "why");
    press(&mut model, "Esc", &journals);
    assert!(line(&mut model).contains("y yes · n no · a always"), "not even its own draft covers them");
    // And back: each draft is as it was left, with its purpose.
    go(&mut model, 1);
    assert!(line(&mut model).contains("secret for one"), "{}", line(&mut model));
    let effects = press(&mut model, "m Enter", &journals);
    assert_eq!(effects, [TuiEffect::Send { to: id(1), text: "secret for one".to_owned() }]);
    assert!(!picture(&mut model).contains("secret"), "it is sent");
    go(&mut model, 2);
    let effects = press(&mut model, "m Enter", &journals);
    assert_eq!(effects, [TuiEffect::Answer { task: id(2), question: question(), words: "blue".to_owned() }]);
}

#[test]
fn a_click_elsewhere_and_tab_take_no_draft_along() {
    let journals = journals();
    let mut model = screen((120, 40), &journals);
    press(&mut model, "Down m hello", &journals);
    let row = picture(&mut model).lines().position(|line| line.contains("scout Look")).unwrap() as u16;
    let kind = MouseEventKind::Down(MouseButton::Left);
    let click = MouseEvent { kind, column: 20, row, modifiers: KeyModifiers::NONE };
    let effects = update(&mut model, TuiMessage::Mouse(click));
    serve(&mut model, effects, &journals);
    assert_eq!(chosen(&model), "t-00002");
    assert_eq!(press(&mut model, "m Enter Tab Down Up", &journals), []);
    assert!(!line(&mut model).contains("hello"), "{}", line(&mut model));
    // A task that asks meanwhile does not receive a letter that was begun before.
    let journals = [TestJournal::new(1, "a", "Do.").claimed()];
    let mut model = screen((120, 40), &journals);
    press(&mut model, "m hello Esc", &journals);
    let asks = journals[0].clone().asked(ExpectedAnswer::Words { schema: None }, "Which one?");
    let journals = [asks];
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()]));
    serve(&mut model, effects, &journals);
    assert_eq!(press(&mut model, "m Enter", &journals), []);
}

#[test]
fn a_long_text_is_wrapped_and_the_prompt_grows() {
    let journals = journals();
    let text: String = (0..40).map(|number| format!("word{number:02} ")).collect();
    let word = regex::Regex::new(r"word\d\d").unwrap();
    for (size, most) in [((120, 40), 6), ((60, 20), 5), ((40, 15), 3)] {
        let mut model = screen(size, &journals);
        press(&mut model, "Down m", &journals);
        assert_eq!(model.areas().unwrap().prompt.height, 1);
        types(&mut model, &text);
        let shown = picture(&mut model);
        let rows: Vec<&str> = shown.lines().filter(|row| row.contains("word")).collect();
        assert!(rows.len() > 1 && rows.len() <= most, "{size:?}: {shown}");
        assert!(shown.contains("word39"), "where the cursor is, is in sight: {size:?}: {shown}");
        let all = word.find_iter(&shown).count();
        assert!(all == 40 || rows.len() == most, "{size:?}: {shown}");
        assert_eq!(all, shown.matches("word").count(), "no word is torn: {shown}");
        press(&mut model, "Esc", &journals);
        assert_eq!(model.areas().unwrap().prompt.height, 1);
    }
}
