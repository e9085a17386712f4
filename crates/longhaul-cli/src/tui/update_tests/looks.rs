//! Regression tests: lines, columns, ids, commands, and the selection.

use longhaul::entry::Entry;

use super::*;

/// Returns the lines of the right pane's text.
fn right(model: &mut TuiModel) -> Vec<String> {
    let shown = picture(model);
    let rows = shown.lines().skip(3);
    rows.filter_map(|row| row.split_once('│')).map(|(_, text)| text.trim_end().to_owned()).collect()
}

#[test]
fn a_paragraph_has_no_empty_line_in_it_at_any_width() {
    let words =
        "BEGIN one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen END";
    let journals = [TestJournal::new(1, "a", "Do.").claimed().replied(words, &[])];
    for width in 72..=130 {
        let mut model = screen((width, 30), &journals);
        let lines = right(&mut model);
        let first = lines.iter().position(|line| line.contains("BEGIN")).unwrap();
        let last = lines.iter().position(|line| line.contains("END")).unwrap();
        assert!(lines[first..=last].iter().all(|line| !line.is_empty()), "{width}: {lines:#?}");
    }
}

#[test]
fn columns_made_with_spaces_stay_columns() {
    let text = "This is it:\n\nname      count   note\nalpha         1   first\nb            22   last\n\nThat was it.";
    let task = format!("Look at this:\n\n{}", text.split("\n\n").nth(1).unwrap());
    let journals = [TestJournal::new(1, "a", &task).claimed().replied(text, &[]).completed(text)];
    let mut model = screen((120, 40), &journals);
    for tab in ["1", "2", "3"] {
        press(&mut model, tab, &journals);
        let lines = right(&mut model);
        for line in ["name      count   note", "alpha         1   first", "b            22   last"] {
            assert!(lines.iter().any(|shown| shown.trim() == line), "{tab}: {line}: {lines:#?}");
        }
    }
}

#[test]
fn after_a_search_without_hits_what_was_chosen_is_chosen_still() {
    let journals = journals();
    for (keys, expected) in [
        ("Down Down / zzz Esc", "t-00002"),
        ("Down Down / zzz", "t-00002"),
        // Intermediate matches are not kept.
        ("Down Down / soupx Esc", "t-00002"),
        // Enter does not keep an empty list.
        ("Down Down / zzz Enter", "t-00002"),
        ("Down Down / zzz Enter Down", "t-00003"),
        ("Down Down / zzz Esc Down", "t-00003"),
        ("Down Down / soup Enter / zzz Esc", "t-00004"),
    ] {
        let mut model = screen((120, 40), &journals);
        press(&mut model, keys, &journals);
        assert_eq!(chosen(&model), expected, "after: {keys}");
        assert_eq!(model.detail.as_ref().map(|detail| detail.task.to_string()).as_deref(), Some(expected));
    }
    // A full reload does not change the selection either.
    let mut model = screen((120, 40), &journals);
    press(&mut model, "Down Down / zzz", &journals);
    let effects =
        update(&mut model, TuiMessage::Loaded(journals.iter().map(TestJournal::state).collect(), Vec::new()));
    serve(&mut model, effects, &journals);
    press(&mut model, "Esc", &journals);
    assert_eq!(chosen(&model), "t-00002");
}

#[test]
fn the_page_of_letters_says_from_whom_they_are_and_whether_the_task_has_read_them() {
    let journal = TestJournal::new(1, "a", "Do.").claimed().letter(Sender::Person, "Hurry.");
    let Entry::Letter(letter) = &journal.records.last().unwrap().entry else { panic!() };
    let letters = vec![letter.id.clone()];
    let read = Entry::Read { letters, known: Vec::new(), all_ended: None };
    let journal = journal.later(5).and(read).letter(Sender::Task(id(2)), "Done.");
    let journals = [journal];
    for size in [(100, 30), (40, 12)] {
        let mut model = screen(size, &journals);
        press(&mut model, "4", &journals);
        let shown = picture(&mut model);
        assert!(!shown.contains("you read"), "{shown}");
        assert!(
            shown.contains("from a person · read") && shown.contains("from t-00002 · not read yet"),
            "{shown}"
        );
    }
}

#[test]
fn the_list_has_the_ids_that_others_wait_for() {
    let journals = journals();
    for size in [(120, 40), (80, 24), (60, 20), (40, 15)] {
        let mut model = screen(size, &journals);
        let shown = picture(&mut model);
        assert!(shown.contains("waits for t-00002 and t-00003"), "{shown}");
        assert!(shown.contains("t-00002 scout") && shown.contains("t-00003 writer"), "{size:?}: {shown}");
    }
}

#[test]
fn the_list_says_what_a_tool_is_called_with() {
    let mut journals = journals();
    for (size, says) in
        [((80, 24), "shell(ls -la) · silent 1m40s"), ((40, 15), "shell(ls -la) · silent for 1m40s")]
    {
        let shown = picture(&mut screen(size, &journals));
        assert!(shown.contains(says), "{shown}");
    }
    let mut model = screen((160, 40), &journals);
    // The main argument is enough; later calls are shown when they come.
    let calls =
        [("shell", r#"{"timeout":9,"cmd":"make all"}"#), ("read_file", r#"{"path":"a.txt","from":1}"#)];
    journals[3] =
        journals[3].clone().returned(0, "").replied("", &calls).called(0, "shell").called(1, "read_file");
    let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[3].state()]));
    serve(&mut model, effects, &journals);
    let shown = picture(&mut model);
    assert!(shown.contains("shell(make all), read_file(a.txt)"), "{shown}");
}

#[test]
fn what_has_failed_is_tried_again_by_a_key() {
    let journals = journals();
    let mut model = screen((120, 40), &journals);
    let effects = press(&mut model, "End Right Down", &journals);
    assert_eq!((chosen(&model).as_str(), effects), ("t-00005", vec![]));
    assert!(picture(&mut model).contains("R  retries"), "{}", picture(&mut model));
    assert_eq!(press(&mut model, "R", &journals), [TuiEffect::Retry(id(5))]);
    // Other tasks cannot be retried: the notice says what to do instead.
    for (keys, says) in [("R", "r resumes it"), ("Down R", "being worked on"), ("End R", "r continues it")] {
        let mut model = screen((120, 40), &journals);
        let effects = press(&mut model, keys, &journals);
        assert!(
            effects.iter().all(|effect| matches!(effect, TuiEffect::ExpireNotice(_))),
            "{keys}: {effects:?}"
        );
        assert!(picture(&mut model).contains(says), "{keys}: {}", picture(&mut model));
    }
}
