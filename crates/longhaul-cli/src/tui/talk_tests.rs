use longhaul::entry::{Answer, Entry, Sender, Wait};

use super::*;
use crate::tui::testing::{Story, leave, question};

fn texts(talk: &Talk) -> Vec<&str> {
    let text = |block: &'_ Block| matches!(block.what, What::Text { .. });
    talk.blocks
        .iter()
        .filter(|block| text(block))
        .map(|block| match &block.what {
            What::Text { text, .. } => text.as_str(),
            _ => "",
        })
        .collect()
}

fn results(talk: &Talk) -> Vec<(&str, Option<&str>)> {
    let call = |block: &'_ Block| matches!(block.what, What::Call { .. });
    talk.blocks
        .iter()
        .filter(|block| call(block))
        .map(|block| match &block.what {
            What::Call { told, result, .. } => (told.as_str(), result.as_ref().map(|got| got.text.as_str())),
            _ => ("", None),
        })
        .collect()
}

#[test]
fn words_that_come_as_they_are_said_are_told_once() {
    let story = Story::new(1, "a", "Do.").claimed().said("Hel").said("lo wor");
    let mut talk = Talk::of(Seq(0), &story.records);
    assert_eq!(texts(&talk), ["Hello wor"]);
    let began = talk.blocks.back().unwrap().seq;
    let story = story.replied("Hello world.", &[]).said("Next");
    story.records.iter().for_each(|record| talk.feed(record));
    assert_eq!(texts(&talk), ["Hello world.", "Next"]);
    assert!(talk.blocks.iter().any(|block| block.seq == began), "what is being read stays the same block");
    // The provider is asked again: what it said of this reply is void.
    let story = story.and(Entry::Waiting { on: Wait::Provider("429".to_owned()), until: None }).said("Anew");
    story.records.iter().for_each(|record| talk.feed(record));
    assert_eq!(texts(&talk), ["Hello world.", "Anew"]);
}

#[test]
fn a_stretch_from_the_middle_is_told_as_well_as_can_be() {
    let story = Story::new(1, "a", "Do.")
        .claimed()
        .replied("", &[("shell", r#"{"cmd":"ls"}"#), ("shell", r#"{"cmd":"pwd"}"#)])
        .called(0, "shell")
        .called(1, "shell")
        .returned(1, "/tmp\n")
        .returned(0, "a\nb\n");
    let whole = Talk::of(Seq(0), &story.records);
    assert_eq!(results(&whole), [("shell(ls)", Some("a\nb\n")), ("shell(pwd)", Some("/tmp\n"))]);
    // From after the reply: the arguments are not there, the results are.
    let part = Talk::of(Seq(3), &story.records[3..]);
    assert_eq!(results(&part), [("shell()", Some("a\nb\n")), ("shell()", Some("/tmp\n"))]);
    // From after the calls.
    let part = Talk::of(Seq(5), &story.records[5..]);
    assert_eq!(results(&part), [("a tool", Some("/tmp\n")), ("a tool", Some("a\nb\n"))]);
}

#[test]
fn escape_sequences_are_not_kept_and_what_is_long_is_cut() {
    let evil = "\x1b[2J\x1b]0;title\x07red \u{202e}desrever\x1b[31m";
    let story = Story::new(1, "a", evil)
        .claimed()
        .said(evil)
        .letter(Sender::Person, evil)
        .replied(evil, &[("sh\x1b[0mell", &format!("{{\"cmd\":{}}}", serde_json::json!(evil)))])
        .called(0, "sh\x1b[0mell")
        .returned(0, &format!("{evil}{}", "x\n".repeat(100_000)))
        .asked(leave(), evil)
        .failed(evil);
    let talk = Talk::of(Seq(0), &story.records);
    let told = format!("{:?}", talk.blocks);
    assert!(!told.contains("\\u{1b}") && !told.contains("\\u{7}") && !told.contains("202e"), "{told}");
    assert!(told.len() < 120_000, "{}", told.len());
    let What::Call { result: Some(got), .. } =
        &talk.blocks.iter().find(|block| matches!(block.what, What::Call { .. })).unwrap().what
    else {
        panic!("no result");
    };
    assert!(got.text.contains("KiB more") && got.lines == 100_000, "{}", got.lines);
}

#[test]
fn a_question_is_told_with_its_answer() {
    let story = Story::new(1, "a", "Do.")
        .claimed()
        .asked(leave(), "May it?")
        .and(Entry::Answered { question: question(), answer: Answer::Given("no, not today".to_owned()) });
    let talk = Talk::of(Seq(0), &story.records);
    let asked = What::Asked {
        question: question(),
        text: "may it call write_file(notes.txt)?".to_owned(),
        answer: Some("no, not today".to_owned()),
    };
    assert_eq!(talk.blocks.back().unwrap().what, asked);
}

#[test]
fn the_oldest_is_forgotten_and_can_be_read_again_from_there() {
    let mut story = Story::new(1, "a", "Do.").claimed();
    for _ in 0..50 {
        story = story.replied("Words.", &[]);
    }
    let mut talk = Talk::of(Seq(0), &story.records);
    let all = talk.blocks.len();
    assert_eq!(talk.keep(10), all - 10);
    assert_eq!(talk.after, Seq(talk.blocks[0].seq.0 - 1));
    let again = Talk::of(talk.after, &story.records[talk.after.0 as usize..]);
    assert_eq!(again.blocks.len(), 10);
}
