//! Approvals on the screen: the same as in `run`, from the same state machine.

use longhaul::approval::QuestionQueue;
use longhaul::entry::{Entry, Question, QuestionAnswer};

use super::*;
use crate::view::questions::tests::{approvals, question_id};

fn asking(questions: &[Question]) -> TestJournal {
    questions.iter().zip(0..).fold(TestJournal::new(1, "lead", "Do.").claimed(), |journal, (asks, index)| {
        let (question, asks) = (question_id(index), Box::new(asks.clone()));
        journal.and(Entry::Asked { question, asks, until: None })
    })
}

#[test]
fn approvals_on_the_screen() {
    for size in [(80, 24), (40, 15)] {
        for (name, questions) in approvals() {
            let mut journals = [asking(&questions)];
            let mut model = screen(size, &journals);
            if size.0 == 40 {
                press(&mut model, "Enter", &journals);
            }
            let name = format!("approval_{name}_{}x{}", size.0, size.1);
            insta::assert_snapshot!(name.clone(), clockless(&picture(&mut model)));
            press(&mut model, "a", &journals);
            insta::assert_snapshot!(format!("{name}_always"), clockless(&picture(&mut model)));
            if questions.len() > 1 {
                let answer = QuestionAnswer::Given("no".to_owned());
                journals[0] = journals[0].clone().and(Entry::Answered { question: question_id(0), answer });
                let effects = update(&mut model, TuiMessage::TasksChanged(vec![journals[0].state()]));
                serve(&mut model, effects, &journals);
                let shown = picture(&mut model);
                assert!(shown.contains("answered elsewhere"), "{shown}");
                insta::assert_snapshot!(format!("{name}_elsewhere"), clockless(&shown));
                // The key is for the second question now.
                let effects = press(&mut model, "y", &journals);
                let answered = |effect: &TuiEffect| matches!(effect, TuiEffect::Answer { question, .. } if *question == question_id(1));
                assert!(effects.iter().any(answered), "{effects:?}");
            }
        }
    }
}

fn clockless(picture: &str) -> String {
    picture.replace("08:00:00", "hh:mm:ss")
}

#[test]
fn a_key_counts_only_when_its_question_was_there_to_be_read() {
    let (_, questions) = approvals().into_iter().next_back().unwrap();
    let journals = [asking(&questions)];
    let mut model = screen((120, 40), &[]);
    model.questions = QuestionQueue::default();
    let states = journals.iter().map(TestJournal::state).collect();
    let effects = update(&mut model, TuiMessage::Loaded(states, Vec::new()));
    serve(&mut model, effects, &journals);
    let is_answer = |effect: &TuiEffect| matches!(effect, TuiEffect::Answer { .. });
    assert!(!press(&mut model, "y", &journals).iter().any(is_answer), "it has just appeared");
    assert!(picture(&mut model).contains("just appeared"));
    model.now = at(101);
    assert!(press(&mut model, "y", &journals).iter().any(is_answer));
    assert!(!press(&mut model, "y", &journals).iter().any(is_answer), "the answer is on its way");
}

#[test]
fn a_typed_answer_counts_only_when_its_question_was_there_to_be_read() {
    let long = serde_json::json!({ "cmd": "and more of it; ".repeat(400) }).to_string();
    let ExpectedAnswer::Leave { tool, .. } = leave() else { unreachable!() };
    let (why, identity, changed, file) = (None, None, None, None);
    let wants = ExpectedAnswer::Leave { tool, arguments: long, why, identity, changed, file };
    let journals = [asking(&[Question { text: "May it?".to_owned(), wants }])];
    let answers = |effects: Vec<TuiEffect>| -> Vec<String> {
        let words = |effect| if let TuiEffect::Answer { words, .. } = effect { Some(words) } else { None };
        effects.into_iter().filter_map(words).collect()
    };
    let mut model = screen((80, 24), &journals);
    assert!(
        answers(press(&mut model, "A always Space tool Enter", &journals)).is_empty(),
        "it is not visible"
    );
    assert!(picture(&mut model).contains("press the key again"));
    // The task is open now, and the draft is kept.
    assert_eq!(answers(press(&mut model, "A Enter", &journals)), ["always tool"]);
    assert!(answers(press(&mut model, "A yes Enter", &journals)).is_empty(), "the answer is on its way");
    // Anything can be denied.
    let mut model = screen((80, 24), &journals);
    assert_eq!(answers(press(&mut model, "A no Enter", &journals)), ["no"]);
}
