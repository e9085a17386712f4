use longhaul::entry::{Entry, QuestionAnswer, Sender, WaitReason};

use super::*;
use crate::tui::testing::{TestJournal, leave, question};

fn texts(transcript: &TuiTranscript) -> Vec<&str> {
    let text = |block: &'_ TranscriptBlock| matches!(block.kind, TranscriptBlockKind::Text { .. });
    transcript
        .blocks
        .iter()
        .filter(|block| text(block))
        .map(|block| match &block.kind {
            TranscriptBlockKind::Text { text, .. } => text.as_str(),
            _ => "",
        })
        .collect()
}

fn results(transcript: &TuiTranscript) -> Vec<(&str, Option<&str>)> {
    let call = |block: &'_ TranscriptBlock| matches!(block.kind, TranscriptBlockKind::Call { .. });
    transcript
        .blocks
        .iter()
        .filter(|block| call(block))
        .map(|block| match &block.kind {
            TranscriptBlockKind::Call { summary, result, .. } => {
                (summary.as_str(), result.as_ref().map(|got| got.text.as_str()))
            }
            _ => ("", None),
        })
        .collect()
}

#[test]
fn words_that_come_as_they_are_said_are_told_once() {
    let journal = TestJournal::new(1, "a", "Do.").claimed().said("Hel").said("lo wor");
    let mut transcript = TuiTranscript::from_records(Seq(0), &journal.records);
    assert_eq!(texts(&transcript), ["Hello wor"]);
    let began = transcript.blocks.back().unwrap().seq;
    let journal = journal.replied("Hello world.", &[]).said("Next");
    journal.records.iter().for_each(|record| transcript.apply_record(record));
    assert_eq!(texts(&transcript), ["Hello world.", "Next"]);
    assert!(
        transcript.blocks.iter().any(|block| block.seq == began),
        "what is being read stays the same block"
    );
    // The provider is asked again: the partial reply is void.
    let journal =
        journal.and(Entry::Waiting { on: WaitReason::Provider("429".to_owned()), until: None }).said("Anew");
    journal.records.iter().for_each(|record| transcript.apply_record(record));
    assert_eq!(texts(&transcript), ["Hello world.", "Anew"]);
}

#[test]
fn a_stretch_from_the_middle_is_told_as_well_as_can_be() {
    let journal = TestJournal::new(1, "a", "Do.")
        .claimed()
        .replied("", &[("shell", r#"{"cmd":"ls"}"#), ("shell", r#"{"cmd":"pwd"}"#)])
        .called(0, "shell")
        .called(1, "shell")
        .returned(1, "/tmp\n")
        .returned(0, "a\nb\n");
    let whole = TuiTranscript::from_records(Seq(0), &journal.records);
    assert_eq!(results(&whole), [("shell(ls)", Some("a\nb\n")), ("shell(pwd)", Some("/tmp\n"))]);
    // Starting after the reply: results are known, arguments are not.
    let part = TuiTranscript::from_records(Seq(3), &journal.records[3..]);
    assert_eq!(results(&part), [("shell()", Some("a\nb\n")), ("shell()", Some("/tmp\n"))]);
    // Starting after the calls.
    let part = TuiTranscript::from_records(Seq(5), &journal.records[5..]);
    assert_eq!(results(&part), [("a tool", Some("/tmp\n")), ("a tool", Some("a\nb\n"))]);
}

#[test]
fn escape_sequences_are_not_kept_and_what_is_long_is_cut() {
    let evil = "\x1b[2J\x1b]0;title\x07red \u{202e}desrever\x1b[31m";
    let journal = TestJournal::new(1, "a", evil)
        .claimed()
        .said(evil)
        .letter(Sender::Person, evil)
        .replied(evil, &[("sh\x1b[0mell", &format!("{{\"cmd\":{}}}", serde_json::json!(evil)))])
        .called(0, "sh\x1b[0mell")
        .returned(0, &format!("{evil}{}", "x\n".repeat(100_000)))
        .asked(leave(), evil)
        .failed(evil);
    let transcript = TuiTranscript::from_records(Seq(0), &journal.records);
    let text = format!("{:?}", transcript.blocks);
    assert!(!text.contains("\\u{1b}") && !text.contains("\\u{7}") && !text.contains("202e"), "{text}");
    assert!(text.len() < 120_000, "{}", text.len());
    let TranscriptBlockKind::Call { result: Some(got), .. } = &transcript
        .blocks
        .iter()
        .find(|block| matches!(block.kind, TranscriptBlockKind::Call { .. }))
        .unwrap()
        .kind
    else {
        panic!("no result");
    };
    assert!(got.text.contains("KiB more") && got.lines == 100_000, "{}", got.lines);
}

#[test]
fn a_question_is_told_with_its_answer() {
    let journal = TestJournal::new(1, "a", "Do.").claimed().asked(leave(), "May it?").and(Entry::Answered {
        question: question(),
        answer: QuestionAnswer::Given("no, not today".to_owned()),
    });
    let transcript = TuiTranscript::from_records(Seq(0), &journal.records);
    let asked = TranscriptBlockKind::Asked {
        question: question(),
        text: "may it call write_file(notes.txt)?".to_owned(),
        answer: Some("no, not today".to_owned()),
    };
    assert_eq!(transcript.blocks.back().unwrap().kind, asked);
}

#[test]
fn the_oldest_is_forgotten_and_can_be_read_again_from_there() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for _ in 0..50 {
        journal = journal.replied("Words.", &[]);
    }
    let mut transcript = TuiTranscript::from_records(Seq(0), &journal.records);
    let all = transcript.blocks.len();
    assert_eq!(transcript.truncate_to(10), all - 10);
    assert_eq!(transcript.after, Seq(transcript.blocks[0].seq.0 - 1));
    let again =
        TuiTranscript::from_records(transcript.after, &journal.records[transcript.after.0 as usize..]);
    assert_eq!(again.blocks.len(), 10);
}
