//! Letters: steering, completions, broadcast, the mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul::entry::Entry;
use longhaul::task::MAILBOX;

use crate::engine::stage::*;
use longhaul::agent::CompletionNotice;
use longhaul::testing::reply;
use longhaul::{Longhaul, Order, Status};

/// Demand 2, and the claim of the issue.
#[tokio::test(start_paused = true)]
async fn twenty_children_that_end_during_a_model_call_are_all_told_once_and_in_few_letters() {
    let (gate, log) = (Gate::new(), Log::default());
    let (at, notes) = (gate.clone(), log.clone());
    let model = slow(move |asked| {
        let (gate, log) = (at.clone(), notes.clone());
        async move {
            log.note(&asked);
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => (0..20).fold(reply(), |reply, n| launch(reply, &format!("number {n:02}"))),
                ("lead", 1) => {
                    gate.pass().await;
                    reply().text("thinking aloud")
                }
                ("lead", _) => reply().text("all read"),
                _ => reply().text(format!("result of {}", asked.order)),
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    let ids: Vec<_> = children(&longhaul, id).await.iter().map(|child| child.id).collect();
    assert_eq!(ids.len(), 20);
    within(longhaul.wait(ids)).await.unwrap();
    gate.open(1);
    assert_done(&end(&longhaul, id).await);

    let asked = log.of("lead");
    let last = asked.last().unwrap();
    for n in 0..20 {
        assert_eq!(last.times(&format!("result of number {n:02}")), 1, "{:?}", last.said);
    }
    assert_eq!(letters(&longhaul, id).await.len(), 20, "one letter a child");
    let reads = journal(&longhaul, id).await;
    let reads = reads.iter().filter(|record| matches!(record.entry, Entry::Read { .. })).count();
    assert_eq!(reads, 1, "they were read together");
}

#[tokio::test(start_paused = true)]
async fn ends_close_together_are_one_letter_to_a_resting_parent() {
    let (gate, log) = (Gate::new(), Log::default());
    let (at, notes) = (gate.clone(), log.clone());
    let model = slow(move |asked| {
        let (gate, log) = (at.clone(), notes.clone());
        async move {
            log.note(&asked);
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => (0..6).fold(reply(), |reply, n| launch(reply, &format!("n{n}"))),
                ("lead", _) => reply().text("ok"),
                _ => {
                    gate.pass().await;
                    reply().text(format!("did {}", asked.order))
                }
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(6).await;
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    gate.open(5);
    let five = children(&longhaul, id).await.into_iter().map(|child| child.id).take(5);
    within(longhaul.wait(five)).await.unwrap();
    until(&longhaul, id, |state| state.turns == 3).await;
    gate.open(1);
    let done = end(&longhaul, id).await;
    assert_done(&done);
    assert_eq!(done.state.turns, 4, "one for the launch, one rest, one for five, one for the last");
}

/// Demand 2 and 10: the completion wakes an idle parent; nobody polls.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_child_wakes_an_idle_session() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "x"),
            ("lead", 1) => reply().text("waiting for it"),
            ("lead", _) => reply().text(format!("heard: {}", asked.last())),
            _ => {
                gate.pass().await;
                reply().text("the news")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let (id, events) = longhaul.open_session("go").await.unwrap();
    gate.came(1).await;
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    gate.open(1);
    let events = all(events).await;
    assert!(text(&events, id).contains("the news"), "{}", text(&events, id));
}

/// A small model does not know whether more will come: it is told, below each end.
#[tokio::test(start_paused = true)]
async fn below_the_ends_of_children_stands_whether_others_still_run() {
    let (gate, log) = (Gate::new(), Log::default());
    let (at, notes) = (gate.clone(), log.clone());
    let model = slow(move |asked| {
        let (gate, log) = (at.clone(), notes.clone());
        async move {
            log.note(&asked);
            match (asked.agent.as_str(), asked.turn, asked.order.as_str()) {
                ("lead", 0, _) => launch(launch(reply(), "quick"), "slow"),
                ("lead", ..) => reply().text("ok"),
                (_, _, "slow") => {
                    gate.pass().await;
                    reply().text("slow news")
                }
                _ => reply().text("quick news"),
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&longhaul, id, |state| state.turns == 3).await;
    gate.open(1);
    assert_done(&end(&longhaul, id).await);
    let asked = log.of("lead");
    let last = asked.last().unwrap();
    let said = |text: &str| last.said.iter().position(|said| said.contains(text)).unwrap();
    let (some, all) =
        (said("are still running"), said("All the tasks that you have started have ended. Your task was:"));
    assert_eq!((some, all), (said("quick news"), said("slow news")), "{:?}", last.said);
    assert_eq!(
        (last.times("are still running"), last.times("Your task was:\n\ngo\n\nIf these results answer it")),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_session_is_not_woken() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(reply(), "x"),
        ("lead", n) => reply().text(format!("turn {n}: {}", asked.last())),
        _ => reply().text("the news"),
    });
    let longhaul =
        start(pair(&model).policy(policy(|h| h.completion_notice = CompletionNotice::Quiet))).await;
    let id = longhaul.submit(Order::new("lead", "go").interactive()).await.unwrap();
    until(&longhaul, id, |state| state.unread == 1 && state.waiting.is_some()).await;
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.turns, 2);
    let events = all(longhaul.send_to_session(id, "and?").await.unwrap()).await;
    assert!(text(&events, id).contains("the news"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_task_reads_what_its_children_said_before_it_ends() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(launch(reply(), "x"), "y"),
        ("lead", 1) => reply().text("waiting"),
        ("lead", n) => reply().text(format!("turn {n}: {} news", asked.last().matches("the news").count())),
        _ => reply().text("the news"),
    });
    let longhaul =
        start(pair(&model).policy(policy(|h| h.completion_notice = CompletionNotice::Quiet))).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!((done.output.as_str(), done.state.turns, done.state.unread), ("turn 2: 2 news", 3, 0));
}

/// "Sent for what was already read."
#[tokio::test(start_paused = true)]
async fn a_result_that_was_collected_is_not_told_again() {
    let log = Log::default();
    let notes = log.clone();
    let model = model(move |asked| {
        notes.note(&asked);
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "x"),
            ("lead", 1) => wait_for(&asked.id()),
            ("lead", _) => reply().text("done"),
            _ => reply().text("the very result"),
        }
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_done(&done);
    assert_eq!(done.state.turns, 3, "nothing woke it again");
    assert_eq!(log.of("lead").last().unwrap().times("the very result"), 1);
    assert_eq!(done.state.unread, 0, "the letter is done with");
}

#[tokio::test(start_paused = true)]
async fn letters_about_collected_results_do_not_fill_the_mailbox() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 3) => {
                gate.pass().await;
                reply().text("done")
            }
            ("lead", n) => (0..3).fold(reply(), |reply, i| {
                let task = format!("{n}.{i}");
                reply.call("transfer_task", serde_json::json!({"agent": "worker", "task": task}))
            }),
            _ => reply().text("r"),
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    let state = longhaul.snapshot(id).await.unwrap().state;
    assert!(state.unread <= 3, "{} letters nobody will read count as unread", state.unread);
    gate.open(1);
    assert_eq!(end(&longhaul, id).await.state.unread, 0);
}

/// Demand 13.
#[tokio::test(start_paused = true)]
async fn a_letter_reaches_a_running_task_before_its_next_model_call() {
    let gate = Gate::new();
    let tools = gate.tool("work", move |gate, _, _| async move {
        gate.pass().await;
        Ok("worked".into())
    });
    let model = model(|asked| match asked.turn {
        0 => reply().call("work", serde_json::json!({})),
        _ => reply().text(asked.said[2..].join("|")),
    });
    let longhaul = start(agent("solo", &model).toolset(tools)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let sent = longhaul.send(id, "only the last two years").await.unwrap();
    assert_eq!((sent.to, sent.continued), (id, false));
    gate.open(1);
    assert_eq!(end(&longhaul, id).await.output, "t:worked|u:only the last two years");
}

/// "Lost when the parent's turn ends at that moment": the letter comes while the last reply is being written down.
#[tokio::test(start_paused = true)]
async fn a_letter_at_the_very_moment_of_the_end_is_not_lost() {
    for steps in 0..40 {
        let (gate, model) = gated(move |gate, asked| async move {
            if asked.turn == 0 && asked.said.len() == 1 {
                gate.pass().await;
            }
            reply().text(format!("said {}", asked.said.join("|")))
        });
        let longhaul = start(agent("solo", &model)).await;
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        gate.open(1);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        let sent = longhaul.send(id, "one more thing").await.unwrap();
        let done = end(&longhaul, sent.to).await;
        assert!(done.output.contains("one more thing"), "after {steps} steps: {}", done.output);
        longhaul.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_at_the_very_moment_of_the_end_is_not_lost_with_real_threads() {
    let model = model(|asked| reply().text(format!("said {}", asked.said.join("|"))));
    let longhaul = start(agent("solo", &model)).await;
    for n in 0..200 {
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        for _ in 0..n % 20 {
            tokio::task::yield_now().await;
        }
        let sent = longhaul.send(id, "one more thing").await.unwrap();
        let done = end(&longhaul, sent.to).await;
        assert!(done.output.contains("one more thing"), "{}", done.output);
    }
    longhaul.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_reaches_all_that_run_and_wakes_nobody_from_the_dead() {
    let (gate, model) = gated(move |gate, asked| async move {
        if asked.order != "quick" && asked.turn == 0 {
            gate.pass().await;
        }
        reply().text(asked.last())
    });
    let longhaul = start(agent("solo", &model)).await;
    let ended = ask(&longhaul, Order::new("solo", "quick")).await.state.id;
    let mut running = Vec::new();
    for n in 0..3 {
        running.push(longhaul.submit(Order::new("solo", format!("long {n}"))).await.unwrap());
    }
    gate.came(3).await;
    assert_eq!(longhaul.broadcast("wrap up").await.unwrap(), running);
    gate.open(3);
    for id in running {
        assert_eq!(end(&longhaul, id).await.output, "u:wrap up");
    }
    assert_eq!(longhaul.snapshot(ended).await.unwrap().state.continued_by, None);
}

/// The list of a broadcast is old by the time its letters are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_continues_no_task_that_ends_meanwhile() {
    let model = model(|_| reply().text("x"));
    let longhaul = start(agent("solo", &model)).await;
    for _ in 0..30 {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(longhaul.submit(Order::new("solo", "go")).await.unwrap());
        }
        longhaul.broadcast("hear").await.unwrap();
        within(longhaul.wait(ids)).await.unwrap();
    }
    let continued = longhaul.list(Default::default()).await.unwrap();
    assert_eq!(continued.iter().filter(|task| task.continues.is_some()).count(), 0);
    longhaul.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_says_so_and_a_broadcast_passes_it_by() {
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("x")
    });
    let longhaul = start(agent("solo", &model)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let other = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(2).await;
    for n in 0..MAILBOX {
        longhaul.send(id, format!("{n}")).await.unwrap();
    }
    let error = longhaul.send(id, "one too many").await.unwrap_err().to_string();
    assert!(error.contains("mailbox is full"), "{error}");
    assert_eq!(longhaul.broadcast("all").await.unwrap(), [other]);
    longhaul.stop_all().await.unwrap();
    within(longhaul.shutdown()).await;
}

/// "The completion wakes the parent, which spawns again: an endless, expensive chain."
#[tokio::test(start_paused = true)]
async fn a_chain_of_wakes_and_launches_comes_to_an_end() {
    let launched = Arc::new(AtomicUsize::new(0));
    let count = launched.clone();
    let model = model(move |asked| match asked.agent.as_str() {
        "lead" if asked.tools.is_empty() => reply().text("enough"),
        "lead" if asked.last().starts_with("t:") => reply().text("I wait"),
        "lead" => launch(reply(), &count.fetch_add(1, Ordering::Relaxed).to_string()),
        _ => reply().text("again!"),
    });
    let longhaul = start(pair(&model).policy(policy(|h| {
        h.max_wakes = 5;
        h.max_turns = 0;
    })))
    .await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Completed, "enough"));
    assert!(done.state.cut_short.is_some(), "and it is marked");
    assert!(launched.load(Ordering::Relaxed) <= 7);
}

#[tokio::test]
async fn too_long_or_empty_texts_are_refused_with_a_sentence() {
    let longhaul: Longhaul = start(agent("solo", &model(|_| reply().text("x")))).await;
    for (text, part) in [("  ".to_owned(), "empty"), ("x".repeat(10 << 20), "at most")] {
        let error = longhaul.submit(Order::new("solo", text)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    longhaul.shutdown().await;
}

/// A lead with many children is not cut short for hearing of each: when it was woken often, it waits for the rest.
#[tokio::test(start_paused = true)]
async fn a_lead_hears_of_all_its_children_however_many_and_however_far_apart_they_end() {
    let log = Log::default();
    let notes = log.clone();
    let model = slow(move |asked| {
        let log = notes.clone();
        async move {
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => (0..90).fold(reply(), |reply, n| launch(reply, &format!("{n:02}"))),
                ("lead", _) => {
                    log.note(&asked);
                    reply().text("noted")
                }
                _ => {
                    let n: u64 = asked.order.parse().unwrap();
                    tokio::time::sleep(std::time::Duration::from_secs(n * 2)).await;
                    reply().text(format!("result {}", asked.order))
                }
            }
        }
    });
    let limits = longhaul::dispatch::TaskLimits::default().running(100);
    let longhaul = Longhaul::builder(team(pair(&model))).limits(limits).start().await.unwrap();
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_done(&done);
    assert_eq!(done.state.cut_short, None);
    let asked = log.all();
    for n in 0..90 {
        assert_eq!(asked.last().unwrap().times(&format!("result {n:02}")), 1, "{n}");
    }
    assert!(asked.len() <= 25, "it was asked {} times", asked.len());
}
