use super::*;
use crate::tui::testing::{TestJournal, picture, press, screen};

fn at(model: &mut TuiModel) -> String {
    model.prepare_frame();
    let detail = model.detail.as_ref().unwrap();
    let line = detail.page.lines(detail.cursor, 1).next().unwrap();
    line.spans.iter().map(|span| span.content.as_ref()).collect::<String>().trim().to_owned()
}

#[test]
fn words_are_found_in_any_case_and_over_the_ends_of_lines() {
    let lines = ["  the quick Brown", "  fox jumps", "", "世界 the fox"].map(Line::raw);
    let marks = |words: &str| TextSearchPattern::parse(words).unwrap().find_in_lines(&lines);
    assert_eq!(marks("quick"), [(0, 6, 5)]);
    assert_eq!(marks("brown  fox"), [(0, 12, 5), (1, 2, 3)]);
    assert_eq!(marks("Brown"), [(0, 12, 5)]);
    assert_eq!(marks("bRown"), []);
    assert_eq!(marks("fox"), [(1, 2, 3), (3, 9, 3)]);
    assert_eq!(marks("界"), [(3, 2, 2)]);
    assert!(TextSearchPattern::parse("  ").is_none());
}

#[test]
fn a_search_goes_from_match_to_match_and_unfolds_what_it_finds() {
    let journals = [TestJournal::new(1, "a", "Find the needle.")
        .claimed()
        .replied("Hay.\n\nMore hay.", &[("shell", r#"{"cmd":"ls"}"#)])
        .called(0, "shell")
        .returned(0, "straw\nanother Needle here\nstraw")
        .replied("The end of the hay.", &[])];
    let mut model = screen((100, 30), &journals);
    press(&mut model, "Enter", &journals);
    assert!(!picture(&mut model).contains("another Needle here"));
    // The view follows the end, so the last match is found.
    press(&mut model, "/ needle Enter", &journals);
    assert_eq!(at(&mut model), "another Needle here");
    assert!(picture(&mut model).contains("another Needle here"), "it is unfolded");
    press(&mut model, "N", &journals);
    assert_eq!(at(&mut model), "› Find the needle.");
    press(&mut model, "N", &journals);
    assert_eq!(at(&mut model), "› Find the needle.");
    assert!(picture(&mut model).contains("\"needle\" is not further up; n goes down"));
    press(&mut model, "n", &journals);
    assert_eq!(at(&mut model), "another Needle here");
    // The first Esc ends the search, the next goes back.
    press(&mut model, "Esc", &journals);
    assert!(!model.has_text_search() && model.focus == Focus::Detail);
    // An empty search repeats the previous one.
    press(&mut model, "Home / Enter", &journals);
    assert_eq!((model.has_text_search(), at(&mut model).as_str()), (true, "› Find the needle."));
    press(&mut model, "Esc Esc", &journals);
    assert_eq!(model.focus, Focus::List);
}

#[test]
fn a_search_reads_as_far_back_as_it_has_to_and_comes_back_where_it_finds_nothing() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for number in 0..9_000 {
        journal = journal.replied(&format!("number {number}."), &[]);
    }
    let journals = [journal];
    let mut model = screen((100, 30), &journals);
    press(&mut model, "Enter / number Space 1234. Enter", &journals);
    assert_eq!(at(&mut model), "number 1234.");
    assert!(picture(&mut model).contains("number 1235."));
    press(&mut model, "/ number Space 8999. Enter", &journals);
    press(&mut model, "n", &journals);
    assert_eq!(at(&mut model), "number 8999.");
    press(&mut model, "Esc f / nowhere Enter", &journals);
    let shown = picture(&mut model);
    assert!(shown.contains("\"nowhere\" is not in it") && shown.contains("number 8999."), "{shown}");
    assert!(model.detail.as_ref().unwrap().transcript.entries <= MAX_ENTRIES);
}

#[test]
fn a_search_that_finds_nothing_leaves_the_reader_where_they_were() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for number in 0..9_000 {
        journal = journal.replied(&format!("number {number}."), &[]);
    }
    let journals = [journal];
    let mut model = screen((100, 30), &journals);
    press(&mut model, "Enter PageUp Up Up", &journals);
    let (before, line) = (picture(&mut model), at(&mut model));
    for keys in ["/ nowhere Enter", "N", "n"] {
        press(&mut model, keys, &journals);
        assert_eq!(at(&mut model), line, "{keys}");
        let text = |shown: &str| shown.lines().skip(3).take(20).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(text(&picture(&mut model)), text(&before), "{keys}");
    }
}

#[test]
fn n_answers_no_question_while_something_is_searched_for() {
    use crate::tui::testing::leave;
    let journals = [TestJournal::new(1, "a", "Do.").claimed().asked(leave(), "May it?")];
    let mut model = screen((100, 30), &journals);
    let answers = |effects: Vec<TuiEffect>| effects.iter().any(|e| matches!(e, TuiEffect::Answer { .. }));
    assert!(!answers(press(&mut model, "Enter / Do Enter n", &journals)));
    assert!(picture(&mut model).contains("Esc, then n no"), "{}", picture(&mut model));
    assert!(answers(press(&mut model, "Esc n", &journals)));
}
