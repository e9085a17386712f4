use super::*;
use crate::tui::testing::{TestJournal, at, leave};

fn grow(journals: &[TestJournal], with: impl FnOnce(&mut TreeViewOptions<'_>)) -> TaskTreeView {
    let states = journals.iter().map(|journal| (journal.id, journal.state())).collect();
    let (folded, pinned) = (HashSet::new(), IndexSet::new());
    let mut plan = TreeViewOptions {
        tasks: &states,
        folded: &folded,
        pinned: &pinned,
        grouped: true,
        gaps: false,
        search: "",
        now: at(10),
    };
    with(&mut plan);
    TaskTreeView::build(&plan)
}

fn shape(task_tree: &TaskTreeView) -> Vec<String> {
    let row = |row: &TuiRow| match row {
        TuiRow::GroupTitle(group, many) => format!("{} {many}", group.title()),
        TuiRow::Gap => String::new(),
        TuiRow::Task(position) => format!("{}{}", "  ".repeat(position.depth.into()), position.id),
        TuiRow::Activity(_) => "…".to_owned(),
    };
    task_tree.rows.iter().map(row).filter(|row| row != "…").collect()
}

fn journals() -> Vec<TestJournal> {
    let asks = TestJournal::new(1, "lead", "Ask about it").claimed();
    let child = asks.child(2, "writer", "Write it").claimed().asked(leave(), "May it?");
    let works = TestJournal::new(3, "lead", "Work on it").claimed();
    let done = TestJournal::new(4, "lead", "Have it done").claimed().replied("Yes.", &[]).completed("Yes.");
    let below = done.child(5, "scout", "Look at it").claimed().replied("Seen.", &[]).completed("Seen.");
    let lost = TestJournal::new(6, "lead", "Lost it").claimed().released();
    let queued = TestJournal::new(7, "lead", "Wait for it");
    vec![asks, child, works, done, below, lost, queued]
}

#[test]
fn trees_are_grouped_by_what_is_most_pressing_in_them_the_newest_first() {
    let task_tree = grow(&journals(), |_| {});
    let expected = [
        "Needs you 2",
        "t-00006",
        "t-00001",
        "  t-00002",
        "Working 1",
        "t-00003",
        "Waiting 1",
        "t-00007",
        "Finished 1",
        "t-00004",
        "  t-00005",
    ];
    assert_eq!(shape(&task_tree), expected);
    let flat = grow(&journals(), |plan| plan.grouped = false);
    assert_eq!(shape(&flat)[..3], ["t-00007", "t-00006", "t-00004"]);
}

#[test]
fn what_is_folded_is_summed_up() {
    let journals = journals();
    let folded = HashSet::from([journals[3].id, journals[0].id]);
    let task_tree = grow(&journals, |plan| plan.folded = Box::leak(Box::new(folded)));
    assert!(!shape(&task_tree).iter().any(|row| row.starts_with("  ")), "{:?}", shape(&task_tree));
    let sum = task_tree.totals[&journals[3].id];
    assert_eq!((sum.descendants, sum.tokens, sum.cost), (1, 2 * 1234, 2 * 2500));
    assert_eq!(
        task_tree.totals[&journals[0].id].asking_task,
        Some(journals[1].id),
        "who asks below is known above"
    );
}

#[test]
fn what_is_searched_for_is_shown_with_what_is_above_it() {
    let journals = journals();
    let folded: &HashSet<TaskId> = Box::leak(Box::new(journals.iter().map(|journal| journal.id).collect()));
    let task_tree = grow(&journals, |plan| (plan.search, plan.folded) = ("LOOK scout", folded));
    assert_eq!(shape(&task_tree), ["Finished 1", "t-00004", "  t-00005"]);
    let task_tree = grow(&journals, |plan| plan.search = "t-00007");
    assert_eq!(shape(&task_tree), ["Waiting 1", "t-00007"]);
    assert_eq!(grow(&journals, |plan| plan.search = "nowhere").rows, []);
}

#[test]
fn what_is_pinned_is_above_all() {
    let journals = journals();
    let pinned: &IndexSet<TaskId> = Box::leak(Box::new(IndexSet::from([journals[3].id])));
    let task_tree = grow(&journals, |plan| plan.pinned = pinned);
    assert_eq!(shape(&task_tree)[..3], ["Pinned 1", "t-00004", "  t-00005"]);
    let task_tree = grow(&journals, |plan| (plan.pinned, plan.grouped) = (pinned, false));
    assert_eq!(shape(&task_tree)[0], "t-00004");
}

#[test]
fn a_child_whose_parent_is_not_known_is_shown_all_the_same() {
    let journals = journals();
    assert_eq!(shape(&grow(&journals[1..2], |_| {})), ["Needs you 1", "t-00002"]);
}

/// An unknown cost gets a column, and is shown as unknown.
#[test]
fn an_unknown_cost_is_shown_as_unknown() {
    use crate::view::{TaskLayout, summary_table, task_table};

    let unknown = TestJournal::new(1, "lead", "x").claimed().replied_unpriced("Hi.").completed("Hi.").state();
    let known = TestJournal::new(2, "lead", "x").claimed().replied("Hi.", &[]).completed("Hi.").state();
    assert_eq!((unknown.cost, unknown.unpriced), (0, 1));
    let term = crate::view::TerminalOutput { stream: Default::default(), color: false, live: false };
    for states in [vec![unknown.clone()], vec![unknown, known]] {
        for lines in
            [task_table(&states, term, at(60), TaskLayout::Table), summary_table(&states, term, at(60))]
        {
            let text = lines.join("\n");
            assert!(text.contains("COST") && text.contains('?'), "{text}");
            assert_eq!(text.contains("$0.0025"), states.len() == 2, "{text}");
        }
    }
}
