//! `longhaul tasks --watch`: drawn again when the store hints that something has changed. In a pipe, what has changed.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::Kind;
use longhaul::store::{Hint, Hints, Kinds};
use longhaul::task::Head;
use longhaul::{Longhaul, Status, TaskId};

use super::Wanted;
use crate::cmd::Desk;
use crate::exit::{Code, Trouble};
use crate::view::{self, Ink, Line, clock, fit, left, many, one_line, standing, width};

/// What comes within this time is looked at together.
const TOGETHER: Duration = Duration::from_millis(150);
/// Clocks go on though nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// Hints may be lost, and a process that dies gives none.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// Watches until somebody presses Ctrl-C.
pub(super) async fn run(desk: &Desk, longhaul: &Longhaul, wanted: &Wanted<'_>) -> Result<Code, Trouble> {
    let drawn = desk.term.live && !wanted.args.json;
    // Before the first look, so that nothing falls between.
    let mut hints = longhaul.store().hints();
    let mut seen = Seen::default();
    let gone = tokio::signal::ctrl_c();
    tokio::pin!(gone);
    let mut heads = look(longhaul, wanted).await?;
    loop {
        if drawn {
            draw(desk, wanted, &heads)?;
        } else {
            seen.tell(desk, wanted, &heads)?;
        }
        let busy = drawn && heads.0.iter().any(|head| head.status == Status::Running);
        tokio::select! {
            () = news(&mut hints) => heads = look(longhaul, wanted).await?,
            () = tokio::time::sleep(LOOK_ANYWAY), if !busy => heads = look(longhaul, wanted).await?,
            () = tokio::time::sleep(TICK), if busy => {
                if heads.1.elapsed() >= LOOK_ANYWAY {
                    heads = look(longhaul, wanted).await?;
                }
            }
            _ = &mut gone => return Ok(Code::Fine),
        }
    }
}

/// The tasks, when that was, and how many older ones there are.
struct Looked(Vec<Head>, std::time::Instant, usize);

async fn look(longhaul: &Longhaul, wanted: &Wanted<'_>) -> Result<Looked, Trouble> {
    let now = Timestamp::now();
    let heads = wanted.list(longhaul, now).await?;
    let older = wanted.older(longhaul, now).await?;
    Ok(Looked(heads, std::time::Instant::now(), older))
}

/// Waits until a look is worth while, and a little longer for what comes with it.
async fn news(hints: &mut Hints) {
    // Words that are being said change nothing that is shown here.
    let said = Kinds::of([Kind::Said]);
    loop {
        match hints.next().await {
            Some(Hint::Task { kinds, .. }) if kinds == said => {}
            Some(_) => break,
            None => std::future::pending().await,
        }
    }
    tokio::time::sleep(TOGETHER).await;
}

fn draw(desk: &Desk, wanted: &Wanted<'_>, Looked(heads, _, older): &Looked) -> Result<(), Trouble> {
    let (term, now) = (desk.term, Timestamp::now());
    let (columns, rows) = term.size();
    let footer = wanted.footer(heads, *older);
    // The titles, the line that says what is left out, and the cursor's.
    let room = rows.saturating_sub(footer.len() + 3).max(1);
    let shown = most_wanted(heads, room);
    let mut lines = match heads.is_empty() {
        true => vec![term.paint(Ink::Faint, &fit("nothing to show yet", columns))],
        false => view::tasks(&shown, term, now, wanted.layout()),
    };
    if shown.len() < heads.len() {
        let more = format!("… and {}", many(heads.len() - shown.len(), "more task"));
        lines.push(term.paint(Ink::Faint, &fit(&more, columns)));
    }
    lines.extend(footer.iter().map(|(ink, text)| term.paint(*ink, &fit(text, columns))));
    let lines: Vec<Line> = lines.into_iter().map(|text| Line { width: seen_width(&text), text }).collect();
    Ok(desk.screen.draw(&lines, columns)?)
}

/// How wide a line is that has colours in it.
fn seen_width(text: &str) -> usize {
    width(&view::clean(text))
}

/// As many tasks as there is room for: those that have not ended with all above them, then the newest.
fn most_wanted(heads: &[Head], room: usize) -> Vec<Head> {
    if heads.len() <= room {
        return heads.to_vec();
    }
    let at: HashMap<TaskId, usize> = heads.iter().enumerate().map(|(index, head)| (head.id, index)).collect();
    let mut chosen = vec![false; heads.len()];
    let mut left = room;
    let open = heads.iter().enumerate().filter(|(_, head)| !head.status.is_final());
    let ended = heads.iter().enumerate().rev().filter(|(_, head)| head.status.is_final());
    for (index, _) in open.chain(ended) {
        let mut line = Vec::new();
        let mut next = Some(index);
        while let Some(index) = next.filter(|index| !chosen[*index]) {
            line.push(index);
            next = heads[index].parent.and_then(|parent| at.get(&parent).copied());
        }
        if line.len() <= left {
            left -= line.len();
            line.into_iter().for_each(|index| chosen[index] = true);
        }
    }
    heads.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(head, _)| head.clone()).collect()
}

/// What was told of each task last.
#[derive(Default)]
struct Seen(HashMap<TaskId, (&'static str, String)>);

impl Seen {
    fn tell(&mut self, desk: &Desk, wanted: &Wanted<'_>, Looked(heads, ..): &Looked) -> Result<(), Trouble> {
        for head in heads {
            let (sign, word, _) = standing(head);
            let stands = (word, view::what(head));
            if self.0.get(&head.id) == Some(&stands) {
                continue;
            }
            if wanted.args.json {
                desk.term.json(head)?;
            } else {
                let (at, agent) = (clock(head.active), one_line(head.agent.as_str()));
                let what = &stands.1;
                desk.term.line(&format!(
                    "{at}  {}  {sign} {}  {}  {what}",
                    head.id,
                    left(word, 11),
                    left(&agent, 12)
                ))?;
            }
            self.0.insert(head.id, stands);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::entry::{Entry, Order, Record, Submitted, TeamRef};
    use longhaul::id::{Seq, TaskKey};

    fn head(name: &str, parent: Option<&Head>, status: Status) -> Head {
        let id = TaskKey::chosen(name).candidates().next().unwrap();
        let submitted = Submitted {
            parent: parent.map(|parent| parent.id),
            ..Submitted::root(
                parent.map_or(id, |parent| parent.root),
                TaskKey::chosen(name),
                Order::new("a", name),
                TeamRef::Named("t".into()),
            )
        };
        let entry = Entry::Submitted(Box::new(submitted));
        let mut head = Head::begin(id, &Record { seq: Seq(1), at: Timestamp::UNIX_EPOCH, entry }).unwrap();
        head.status = status;
        head
    }

    #[test]
    fn where_there_is_little_room_the_open_ones_stay_with_those_above_them() {
        let done: Vec<Head> = (0..9).map(|n| head(&format!("done {n}"), None, Status::Completed)).collect();
        let root = head("root", None, Status::Completed);
        let child = head("child", Some(&root), Status::Running);
        let mut heads = done.clone();
        heads.insert(3, root.clone());
        heads.insert(4, child.clone());
        let ids = |room| most_wanted(&heads, room).iter().map(|head| head.id).collect::<Vec<_>>();
        assert_eq!(ids(2), [root.id, child.id]);
        assert_eq!(ids(3), [root.id, child.id, done[8].id]);
        assert_eq!(ids(99).len(), 11);
        assert_eq!(ids(1), [done[8].id], "an open one for which there is no room with its parent gives way");
    }
}
