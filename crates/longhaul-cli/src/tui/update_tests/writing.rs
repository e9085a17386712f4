//! Tests of typed text and its recipients.

use super::*;

#[test]
fn a_question_that_wants_words_is_answered_in_the_prompt() {
    let asks =
        TestJournal::new(1, "a", "Do.").claimed().asked(ExpectedAnswer::Words { schema: None }, "Which one?");
    let stories = [asks];
    let mut model = screen((80, 24), &stories);
    let wished = press(&mut model, "y", &stories);
    assert!(wished.iter().all(|effect| matches!(effect, TuiEffect::ExpireNotice(_))), "{wished:?}");
    let wished = press(&mut model, "both Enter", &stories);
    let words = "both".to_owned();
    assert_eq!(wished, [TuiEffect::Answer { task: id(1), question: question(), words }]);
}

#[test]
fn what_was_begun_to_be_written_goes_to_whom_it_was_begun_for() {
    let stories = stories();
    let mut model = screen((120, 40), &stories);
    press(&mut model, "Down m hel", &stories);
    // Another task asks meanwhile: only the user changes the selection.
    let news = TestJournal::new(9, "lead", "New").claimed().asked(leave(), "May it?");
    update(&mut model, TuiMessage::TasksChanged(vec![news.head()]));
    let wished = press(&mut model, "lo Enter", &stories);
    assert_eq!(wished, [TuiEffect::Send { to: id(1), text: "hello".to_owned() }]);
}

#[test]
fn what_is_not_whole_on_the_screen_is_opened_before_it_is_allowed() {
    let cmd = format!("FIRST {}LAST", "and more of it; ".repeat(400));
    let arguments = serde_json::json!({ "cmd": cmd }).to_string();
    let wants = ExpectedAnswer::Leave {
        tool: "shell".to_owned(),
        arguments,
        why: None,
        identity: None,
        changed: None,
    };
    let lead = TestJournal::new(1, "lead", "Do.").claimed();
    let asks = lead.child(2, "a", "Do.").claimed().asked(wants, &format!("May shell be called with {cmd}?"));
    let stories = [lead, asks];
    for (key, words) in [("y", "yes"), ("a", "always exact")] {
        for size in [(120, 40), (80, 24), (40, 12)] {
            let mut model = screen(size, &stories);
            assert_eq!(chosen(&model), "t-00001");
            let wished = press(&mut model, key, &stories);
            assert!(wished.iter().all(|effect| matches!(effect, TuiEffect::ExpireNotice(_))), "{wished:?}");
            assert_eq!((chosen(&model).as_str(), model.focus), ("t-00002", Focus::Detail));
            let shown = picture(&mut model);
            assert!(shown.contains(&format!("{key} again answers")), "{shown}");
            assert!(shown.contains("FIRST") && shown.contains("LAST"), "{size:?}: {shown}");
            let wished = press(&mut model, key, &stories);
            let words = words.to_owned();
            assert_eq!(wished, [TuiEffect::Answer { task: id(2), question: question(), words }]);
        }
    }
    // Denying does not require reading.
    let mut model = screen((40, 12), &stories);
    assert_eq!(press(&mut model, "n", &stories).len(), 1);
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
    let stories = [first, words, call];
    let mut model = screen((120, 40), &stories);
    let go = |model: &mut TuiModel, number| {
        let effects = model.reveal_task(id(number));
        serve(model, effects, &stories);
    };
    go(&mut model, 1);
    press(&mut model, "m", &stories);
    types(&mut model, "secret for one");
    press(&mut model, "Esc", &stories);
    assert!(
        line(&mut model).contains("m  goes on: to first t-00001› secret for one"),
        "{}",
        line(&mut model)
    );
    // Another text question: its own draft is empty, and Enter sends nothing.
    go(&mut model, 2);
    assert!(line(&mut model).contains("m  writes answer second"), "{}", line(&mut model));
    assert_eq!(press(&mut model, "m Enter", &stories), []);
    assert!(line(&mut model).ends_with("answer second t-00002›"), "{}", line(&mut model));
    types(&mut model, "blue");
    press(&mut model, "Esc", &stories);
    // Another approval: its keys are shown.
    go(&mut model, 3);
    assert!(line(&mut model).contains("y yes · n no · a always"), "{}", line(&mut model));
    press(&mut model, "m", &stories);
    types(&mut model, "why");
    press(&mut model, "Esc", &stories);
    assert!(line(&mut model).contains("y yes · n no · a always"), "not even its own draft covers them");
    // And back: each draft is as it was left, with its purpose.
    go(&mut model, 1);
    assert!(line(&mut model).contains("secret for one"), "{}", line(&mut model));
    let wished = press(&mut model, "m Enter", &stories);
    assert_eq!(wished, [TuiEffect::Send { to: id(1), text: "secret for one".to_owned() }]);
    assert!(!picture(&mut model).contains("secret"), "it is sent");
    go(&mut model, 2);
    let wished = press(&mut model, "m Enter", &stories);
    assert_eq!(wished, [TuiEffect::Answer { task: id(2), question: question(), words: "blue".to_owned() }]);
}

#[test]
fn a_click_elsewhere_and_tab_take_no_draft_along() {
    let stories = stories();
    let mut model = screen((120, 40), &stories);
    press(&mut model, "Down m hello", &stories);
    let row = picture(&mut model).lines().position(|line| line.contains("scout Look")).unwrap() as u16;
    let kind = MouseEventKind::Down(MouseButton::Left);
    let click = MouseEvent { kind, column: 20, row, modifiers: KeyModifiers::NONE };
    let effects = update(&mut model, TuiMessage::Mouse(click));
    serve(&mut model, effects, &stories);
    assert_eq!(chosen(&model), "t-00002");
    assert_eq!(press(&mut model, "m Enter Tab Down Up", &stories), []);
    assert!(!line(&mut model).contains("hello"), "{}", line(&mut model));
    // A task that asks meanwhile does not receive a letter that was begun before.
    let stories = [TestJournal::new(1, "a", "Do.").claimed()];
    let mut model = screen((120, 40), &stories);
    press(&mut model, "m hello Esc", &stories);
    let asks = stories[0].clone().asked(ExpectedAnswer::Words { schema: None }, "Which one?");
    let stories = [asks];
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![stories[0].head()]));
    serve(&mut model, effects, &stories);
    assert_eq!(press(&mut model, "m Enter", &stories), []);
}

#[test]
fn a_long_text_is_wrapped_and_the_prompt_grows() {
    let stories = stories();
    let text: String = (0..40).map(|number| format!("word{number:02} ")).collect();
    let word = regex::Regex::new(r"word\d\d").unwrap();
    for (size, most) in [((120, 40), 6), ((60, 20), 5), ((40, 15), 3)] {
        let mut model = screen(size, &stories);
        press(&mut model, "Down m", &stories);
        assert_eq!(model.areas().unwrap().prompt.height, 1);
        types(&mut model, &text);
        let shown = picture(&mut model);
        let rows: Vec<&str> = shown.lines().filter(|row| row.contains("word")).collect();
        assert!(rows.len() > 1 && rows.len() <= most, "{size:?}: {shown}");
        assert!(shown.contains("word39"), "where the cursor is, is in sight: {size:?}: {shown}");
        let all = word.find_iter(&shown).count();
        assert!(all == 40 || rows.len() == most, "{size:?}: {shown}");
        assert_eq!(all, shown.matches("word").count(), "no word is torn: {shown}");
        press(&mut model, "Esc", &stories);
        assert_eq!(model.areas().unwrap().prompt.height, 1);
    }
}
