//! The transcript as the TUI renders it.

use longhaul::entry::{Entry, QuestionAnswer, Sender, WaitReason};
use longhaul::id::Seq;
use longhaul::transcript::{ItemKind, Transcript, format_call};

use super::model::TEXT_LIMITS;
use super::testing::{TestJournal, leave, question};
use super::transcript_view::item_text;

fn from_records(after: Seq, journal: &TestJournal) -> Transcript {
    let records = &journal.records[after.0 as usize..];
    Transcript::starting_after(journal.id, after, TEXT_LIMITS).with_records(records)
}

fn texts(transcript: &Transcript) -> Vec<&str> {
    let text = transcript.items.iter().map(|item| match &item.kind {
        ItemKind::Said { text, .. } => Some(text.as_str()),
        _ => None,
    });
    text.flatten().collect()
}

fn results(transcript: &Transcript) -> Vec<(String, Option<&str>)> {
    let call = transcript.items.iter().map(|item| match &item.kind {
        ItemKind::Call { tool, arguments, result, .. } => {
            Some((format_call(tool, arguments, 40), result.as_ref().map(|got| got.output.as_str())))
        }
        _ => None,
    });
    call.flatten().collect()
}

#[test]
fn words_that_come_as_they_are_said_are_told_once() {
    let journal = TestJournal::new(1, "a", "Do.").claimed().said("Hel").said("lo wor");
    let mut transcript = from_records(Seq(0), &journal);
    assert_eq!(texts(&transcript), ["Hello wor"]);
    let began = transcript.items.back().unwrap().seq;
    let journal = journal.replied("Hello world.", &[]).said("Next");
    journal.records.iter().for_each(|record| transcript.apply_record(record));
    assert_eq!(texts(&transcript), ["Hello world.", "Next"]);
    assert!(
        transcript.items.iter().any(|block| block.seq == began),
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
    let whole = from_records(Seq(0), &journal);
    assert_eq!(
        results(&whole),
        [("shell(ls)".to_owned(), Some("a\nb\n")), ("shell(pwd)".to_owned(), Some("/tmp\n"))]
    );
    // Starting after the reply: results are known, arguments are not.
    let part = from_records(Seq(3), &journal);
    assert_eq!(
        results(&part),
        [("shell()".to_owned(), Some("a\nb\n")), ("shell()".to_owned(), Some("/tmp\n"))]
    );
    // Starting after the calls.
    let part = from_records(Seq(5), &journal);
    assert_eq!(results(&part), [("()".to_owned(), Some("/tmp\n")), ("()".to_owned(), Some("a\nb\n"))]);
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
    let transcript = from_records(Seq(0), &journal);
    let text: String = transcript.items.iter().map(|item| item_text(&item.kind)).collect();
    assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text}");
    assert!(text.len() < 120_000, "{}", text.len());
    let call = transcript.items.iter().find_map(|item| match &item.kind {
        ItemKind::Call { result, .. } => result.as_ref(),
        _ => None,
    });
    let got = call.expect("a result");
    assert!(got.output.contains("KiB more") && got.lines == 100_000, "{}", got.lines);
}

#[test]
fn a_question_is_told_with_its_answer() {
    let journal = TestJournal::new(1, "a", "Do.").claimed().asked(leave(), "May it?").and(Entry::Answered {
        question: question(),
        answer: QuestionAnswer::Given("no, not today".to_owned()),
    });
    let transcript = from_records(Seq(0), &journal);
    let ItemKind::Asked { answer: Some(answer), .. } = &transcript.items.back().unwrap().kind else {
        panic!()
    };
    assert_eq!(answer.to_string(), "no, not today");
    assert_eq!(
        item_text(&transcript.items.back().unwrap().kind),
        "may it call this?\nwrite_file\n  path: notes.txt"
    );
}

#[test]
fn the_oldest_is_forgotten_and_can_be_read_again_from_there() {
    let mut journal = TestJournal::new(1, "a", "Do.").claimed();
    for _ in 0..50 {
        journal = journal.replied("Words.", &[]);
    }
    let mut transcript = from_records(Seq(0), &journal);
    let all = transcript.items.len();
    assert_eq!(transcript.truncate_to(10), all - 10);
    assert_eq!(transcript.after, Seq(transcript.items[0].seq.0 - 1));
    let again = from_records(transcript.after, &journal);
    assert_eq!(again.items.len(), 10);
}
