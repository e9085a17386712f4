use super::*;
use crate::id::{CallId, Seq};
use crate::transcript::{LineKind, question_lines};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn task() -> TaskId {
    "t-aaaaa".parse().unwrap()
}

fn question(index: u32) -> QuestionId {
    QuestionId { call: CallId { turn: 0, index }, nth: 0 }
}

fn event(kind: EventKind) -> Event {
    Event { task: task(), seq: Seq(1), at: at(0), kind }
}

fn asks(queue: &mut QuestionQueue, index: u32, wants: ExpectedAnswer, until: Option<Timestamp>) {
    let asks = Box::new(Question { text: "Which colour?".to_owned(), wants });
    queue.apply_event(&event(EventKind::Asked { question: question(index), asks, until }));
}

fn answered(queue: &mut QuestionQueue, index: u32, words: &str) -> Option<String> {
    let answer = QuestionAnswer::Given(words.to_owned());
    queue.apply_event(&event(EventKind::Answered { question: question(index), answer }))
}

fn call(tool: &str, arguments: &str) -> ExpectedAnswer {
    ExpectedAnswer::approval(tool, arguments)
}

fn shell(cmd: &str) -> ExpectedAnswer {
    call("shell", &serde_json::json!({ "cmd": cmd }).to_string())
}

fn words() -> ExpectedAnswer {
    ExpectedAnswer::Words { schema: None }
}

fn press(queue: &mut QuestionQueue, c: char, ms: i64) -> Reaction {
    queue.handle_key(QuestionKey::Char(c), at(ms))
}

fn answer(reaction: Reaction) -> Option<String> {
    match reaction {
        Reaction::Answer(given) => given.text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_after_another_and_no_key_is_taken_for_the_next() {
    let mut queue = QuestionQueue::default();
    assert_eq!(press(&mut queue, 'y', 0), Reaction::Ignored(Ignored::NothingAsked));
    asks(&mut queue, 0, shell("rm -r x"), None);
    asks(&mut queue, 1, shell("rm -r y"), None);
    assert_eq!(press(&mut queue, 'y', 0), Reaction::Ignored(Ignored::TooSoon), "it was not shown yet");
    queue.mark_shown(Visibility::Whole, at(1000));
    assert_eq!(queue.key_help(at(1100))[0], "…");
    assert_eq!(press(&mut queue, 'y', 1100), Reaction::Ignored(Ignored::TooSoon));
    assert_eq!(queue.key_help(at(1400))[0], "[y] yes  [n] no  [a] always …");
    assert_eq!(answer(press(&mut queue, 'y', 2000)).as_deref(), Some("yes"));
    assert_eq!(press(&mut queue, 'y', 2001), Reaction::Ignored(Ignored::Sent));
    assert_eq!(answered(&mut queue, 0, "yes").unwrap(), "? · shell: yes");
    queue.mark_shown(Visibility::Whole, at(2100));
    assert_eq!(press(&mut queue, 'y', 2200), Reaction::Ignored(Ignored::TooSoon), "that was for the first");
    assert_eq!(answer(press(&mut queue, 'n', 3000)).as_deref(), Some("no"));
}

#[test]
fn what_is_answered_elsewhere_disappears_and_says_so() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("make"), None);
    queue.mark_shown(Visibility::Whole, at(0));
    press(&mut queue, 'a', 1000);
    assert_eq!(answered(&mut queue, 0, "no").unwrap(), "? · shell: no (answered elsewhere)");
    assert!(queue.is_empty() && queue.choices().is_empty());
    assert_eq!(press(&mut queue, 'y', 9000), Reaction::Ignored(Ignored::NothingAsked));
    // An *always* from here answers other questions too.
    asks(&mut queue, 0, shell("make"), None);
    asks(&mut queue, 1, shell("make"), None);
    queue.mark_shown(Visibility::Whole, at(0));
    press(&mut queue, 'a', 1000);
    assert_eq!(answer(press(&mut queue, 'e', 1000)).as_deref(), Some("always exact"));
    assert_eq!(answered(&mut queue, 1, "yes").unwrap(), "? · shell: yes");
}

#[test]
fn after_its_deadline_nothing_answers_it() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("make"), Some(at(5000)));
    queue.mark_shown(Visibility::Whole, at(0));
    assert_eq!(press(&mut queue, 'y', 5000), Reaction::Ignored(Ignored::Expired));
    assert!(matches!(press(&mut queue, 'y', 4999), Reaction::Answer(_)));
}

#[test]
fn what_cannot_be_seen_is_not_allowed() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("make"), None);
    queue.mark_shown(Visibility::Hidden, at(0));
    assert_eq!(queue.key_help(at(1000))[0], "[n] no; a taller terminal for yes");
    for key in ['y', 'Y', 'a', 'A', 'e', 't'] {
        assert_eq!(press(&mut queue, key, 1000), Reaction::Ignored(Ignored::NotVisible), "{key}");
    }
    assert_eq!(answer(press(&mut queue.clone(), 'n', 1000)).as_deref(), Some("no"));
    queue.mark_shown(Visibility::Ends, at(1000));
    assert_eq!(answer(press(&mut queue, 'y', 1000)).as_deref(), Some("yes"));
}

#[test]
fn always_says_in_full_what_it_allows_before_it_does() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("rm -rf build && make"), None);
    queue.mark_shown(Visibility::Whole, at(0));
    assert_eq!(press(&mut queue, 'a', 1000), Reaction::Changed, "nothing is allowed yet");
    let texts: Vec<String> = queue.choices().into_iter().map(|choice| choice.text).collect();
    assert_eq!(texts[0], "exactly this call: =shell {\"cmd\":\"rm -rf build && make\"}");
    assert!(texts[1].starts_with("every call of shell,"), "it is not one plain command: {texts:?}");
    assert_eq!(press(&mut queue, 'p', 1000), Reaction::Ignored(Ignored::NoMeaning));
    assert_eq!(queue.handle_key(QuestionKey::Escape, at(1000)), Reaction::Changed);
    assert!(queue.choices().is_empty());

    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("git status -s"), None);
    queue.mark_shown(Visibility::Whole, at(0));
    press(&mut queue, 'a', 1000);
    let program = queue.choices().into_iter().find(|choice| choice.key == 'p').unwrap();
    assert_eq!(program.text, "this program with any arguments, as one plain command: shell:cmd=git *");
    assert_eq!(answer(press(&mut queue, 'p', 1000)).as_deref(), Some("always program"));
}

#[test]
fn words_are_typed_and_a_rejected_answer_can_be_changed() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, words(), None);
    queue.mark_shown(Visibility::Whole, at(0));
    for c in ['b', 'x'] {
        assert_eq!(press(&mut queue, c, 1000), Reaction::Changed);
    }
    queue.handle_key(QuestionKey::Backspace, at(1000));
    press(&mut queue, 'ü', 1000);
    assert_eq!(queue.typed(), "bü");
    assert_eq!(answer(queue.handle_key(QuestionKey::Enter, at(1000))).as_deref(), Some("bü"));
    queue.reject_answer("no \x1b[1msuch colour");
    assert_eq!((queue.rejected(), queue.typed()), ("no such colour", "bü"));
    queue.handle_key(QuestionKey::Clear, at(1000));
    let nothing = queue.handle_key(QuestionKey::Enter, at(1000));
    assert_eq!(nothing, Reaction::Ignored(Ignored::NoMeaning));
    assert_eq!(answer(queue.handle_key(QuestionKey::Escape, at(1000))), None);
}

#[test]
fn another_question_in_front_has_its_own_guard_time() {
    let mut queue = QuestionQueue::default();
    asks(&mut queue, 0, shell("one"), None);
    asks(&mut queue, 1, shell("two"), None);
    queue.mark_shown(Visibility::Whole, at(0));
    press(&mut queue, 'a', 1000);
    assert!(queue.focus(task(), question(1)) && !queue.is_choosing());
    queue.mark_shown(Visibility::Whole, at(1000));
    assert_eq!(press(&mut queue, 'y', 1001), Reaction::Ignored(Ignored::TooSoon));
    let Reaction::Answer(given) = press(&mut queue, 'y', 1400) else { panic!() };
    assert_eq!(given.question, question(1));
    assert!(!queue.focus(task(), question(7)));
    assert!(!queue.retain(|open| open.id == question(0)), "it was answered from here");
    assert!(queue.retain(|_| false) && queue.is_empty(), "answered elsewhere");
}

#[test]
fn arguments_are_laid_out_and_what_hides_is_shown() {
    let wants = call("shell", r#"{"cmd":"echo a\nrm -r \u001b[8mb","timeout":3}"#);
    let lines = question_lines(&Question { text: String::new(), wants });
    let lines: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["shell", "  cmd:", "    echo a", "    rm -r ␛[8mb", "  timeout: 3"]);
}

#[test]
fn a_file_that_is_replaced_is_said_to_be_and_compared() {
    let mut wants = call("write_file", r#"{"path":"a.txt","content":"one\nthree\n"}"#);
    if let ExpectedAnswer::Leave { file, changed, .. } = &mut wants {
        let diff = " one\n-two\n+three".to_owned();
        *file = Some(Box::new(crate::entry::FileChange {
            path: "a.txt".into(),
            exists: true,
            diff,
            problem: None,
        }));
        *changed = Some("it is another server".to_owned());
    }
    let lines = question_lines(&Question { text: String::new(), wants });
    assert_eq!(lines[1], (LineKind::Note, "  changes a.txt, which exists: +1 −1 lines".to_owned()));
    assert_eq!(
        lines[2..5].iter().map(|line| line.0).collect::<Vec<_>>(),
        [LineKind::Same, LineKind::Removed, LineKind::Added]
    );
    assert!(lines.iter().any(|(_, line)| line == "    three"), "the arguments are complete: {lines:?}");
    assert_eq!(lines.last().unwrap(), &(LineKind::Note, "Note: it is another server".to_owned()));
}

#[test]
fn of_a_question_that_does_not_fit_both_ends_are_shown() {
    let all: Vec<usize> = (0..20).collect();
    let hint = |left: usize, _: bool| vec![1000 + left];
    assert_eq!(fit_question(&all, 20, hint), (all.clone(), Visibility::Whole));
    let (lines, visibility) = fit_question(&all, 5, hint);
    assert_eq!((lines, visibility), (vec![0, 1, 1016, 18, 19], Visibility::Ends));
    assert_eq!(fit_question(&all, 3, hint).1, Visibility::Hidden);
    let long = |left: usize, whole: bool| if whole { vec![0; 9] } else { vec![left] };
    assert_eq!(
        fit_question(&all, 6, long).0,
        [0, 1, 2, 15, 18, 19],
        "the short hint, if the long one does not fit"
    );
}

#[test]
fn a_typed_answer_counts_when_a_key_would() {
    let mut queue = QuestionQueue::default();
    assert_eq!(queue.answer_in_words("yes", at(0)), Reaction::Ignored(Ignored::NothingAsked));
    asks(&mut queue, 0, shell("make"), Some(at(9000)));
    queue.mark_shown(Visibility::Hidden, at(0));
    for (text, ms, why) in [
        ("yes", 100, Ignored::TooSoon),
        ("yes", 1000, Ignored::NotVisible),
        ("always tool", 1000, Ignored::NotVisible),
        ("perhaps", 1000, Ignored::NotVisible),
        (" ", 1000, Ignored::NoMeaning),
        ("no", 9000, Ignored::Expired),
    ] {
        assert_eq!(queue.answer_in_words(text, at(ms)), Reaction::Ignored(why), "{text} at {ms}");
    }
    let denied = answer(queue.clone().answer_in_words("no, not today", at(1000)));
    assert_eq!(denied.as_deref(), Some("no, not today"), "anything can be denied");
    queue.mark_shown(Visibility::Ends, at(1000));
    let always = answer(queue.answer_in_words(" always tool\n", at(1000)));
    assert_eq!(always.as_deref(), Some("always tool"));
    assert_eq!(queue.answer_in_words("yes", at(1001)), Reaction::Ignored(Ignored::Sent));
}
