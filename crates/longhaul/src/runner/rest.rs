//! Having nothing more to say: end, or wait for letters without a seat.

use std::time::Duration;

use tokio::time::Instant;

use super::settle::stop_below;
use super::worktime::rung;
use super::{Ended, Halt, Run, heard, overdue};
use crate::entry::{Entry, OnFinish, StopCause, Wait};
use crate::id::LetterId;
use crate::store::{Fence, Filter};
use crate::task::Head;
use crate::turn::{Act, Step};

/// How many of the tasks that it waits for a task names.
const NAMED: usize = 100;
/// Ends of children that come this close together are one letter.
const TOGETHER: Duration = Duration::from_millis(200);
/// The same look at tasks is held from this time in a row on.
const HELD_FROM: u32 = 3;
/// For how long it is held the first time.
const HOLD: Duration = Duration::from_secs(15);

impl Run {
    /// Ends the task if nothing can come any more; otherwise waits until something has.
    pub(super) async fn end_or_wait(&mut self) -> Result<Option<Ended>, Halt> {
        let open = self.open_children(NAMED).await?;
        if !self.head.interactive {
            if open.is_empty()
                && self.habits.on_finish == OnFinish::Wait
                && let Some(Step::Read { letters, known }) = self.turn.unread()
            {
                // Quiet as they are: a task that waits for its children reads what they had to say before it ends.
                self.read(letters, known).await?;
                return Ok(None);
            }
            if open.is_empty() || self.habits.on_finish == OnFinish::Detach {
                return self.end_with_answer().await;
            }
            if self.habits.on_finish == OnFinish::Stop {
                let owner = Some((self.head.id, Fence::Attempt(self.attempt)));
                stop_below(&*self.around.store, &self.head, StopCause::ParentEnded, owner).await?;
                return self.end_without_children().await;
            }
        }
        let on = if open.is_empty() {
            Wait::Letter
        } else {
            Wait::Tasks(open.iter().map(|task| task.id).collect())
        };
        if self.head.waiting.as_ref().is_none_or(|waiting| waiting.on != on) {
            self.note(vec![Entry::Waiting { on: on.clone(), until: None }]).await?;
            if on == Wait::Letter {
                self.announce(None);
            }
        }
        self.pay().await?;
        self.seat.park();
        match on {
            Wait::Tasks(tasks) => self.count_unless_people_are_waited_for(&tasks).await?,
            _ => self.count(false),
        }
        self.doze(None).await?;
        if self.turn.only_endings() && self.has_open_children().await? {
            self.doze_through(TOGETHER).await?;
        }
        Ok(None)
    }

    /// Takes letters into the conversation.
    pub(super) async fn read(&mut self, letters: Vec<LetterId>, known: Vec<LetterId>) -> Result<(), Halt> {
        let all_ended = match self.turn.tells_of_ends(&letters) {
            true => Some(!self.has_open_children().await?),
            false => None,
        };
        self.note(vec![Entry::Read { letters, known, all_ended }]).await
    }

    /// Finishes, unless a letter came that nobody has read: then there is something to do after all.
    async fn end_with_answer(&mut self) -> Result<Option<Ended>, Halt> {
        match self.finish(self.turn.answer(self.agent.shape.as_deref()), Some(self.head.seq)).await {
            Err(Halt::Store(crate::store::StoreError::Moved { .. })) => {
                self.catch_up().await?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Finishes though children still run or have just been stopped: what they have to say is not waited for. But
    /// what others have written meanwhile is read.
    async fn end_without_children(&mut self) -> Result<Option<Ended>, Halt> {
        loop {
            self.catch_up().await?;
            let wanted = self.turn.unread().is_some() && !self.turn.has_only_endings();
            if self.head.stop.is_some() || wanted {
                return Ok(None);
            }
            if let Some(ended) = self.end_with_answer().await? {
                return Ok(Some(ended));
            }
        }
    }

    /// Waits until somebody may have written, but no longer than this.
    async fn doze(&mut self, longest: Option<Instant>) -> Result<(), Halt> {
        tokio::select! {
            () = heard(&self.bell, self.look_at, &self.tenure) => {}
            () = overdue(longest) => {}
            () = rung(self.people.as_ref()) => {}
            () = self.around.drain.cancelled() => return Err(Halt::Drain),
            () = overdue(self.watch.deadline()) => return Err(self.too_late()),
        }
        self.catch_up().await?;
        if self.head.stop.is_some() { Err(Halt::Stop) } else { Ok(()) }
    }

    /// Waits this long, but no longer than until something else than the end of a child comes.
    async fn doze_through(&mut self, time: Duration) -> Result<(), Halt> {
        let until = Instant::now() + time;
        while self.turn.only_endings() && Instant::now() < until {
            self.doze(Some(until)).await?;
        }
        Ok(())
    }

    /// A model that makes the same look at its tasks again and again gets nothing else to see by it, and pays for each
    /// look with a turn. From the third on it is made to wait until something has happened, for longer each time.
    pub(super) async fn hold_looks(&mut self, acts: &[Act]) -> Result<(), Halt> {
        let looks = |act: &Act| self.gear.tool(&act.call.tool).is_some_and(|tool| tool.manner.looks);
        let times = acts.iter().map(|act| self.turn.times_called(&act.call.tool)).max().unwrap_or(0);
        if times < HELD_FROM || !acts.iter().all(looks) {
            return Ok(());
        }
        let open = self.open_children(NAMED).await?;
        self.catch_up().await?;
        if open.is_empty() || self.turn.unread().is_some() {
            return Ok(());
        }
        let time = HOLD.saturating_mul(1 << (times - HELD_FROM).min(2));
        let until = self.around.store.now().checked_add(time).ok();
        let on = Wait::Tasks(open.iter().map(|task| task.id).collect());
        self.note(vec![Entry::Waiting { on, until }]).await?;
        self.seat.park();
        let until = Instant::now() + time;
        while self.turn.unread().is_none() && Instant::now() < until {
            self.doze(Some(until)).await?;
        }
        Ok(())
    }

    /// Whether what lies in the mailbox is better read together with what will come.
    pub(super) async fn rather_waits(&self) -> Result<bool, Halt> {
        let may = self.habits.on_finish == OnFinish::Wait && self.turn.is_weary(&self.habits);
        Ok(may && self.has_open_children().await?)
    }

    pub(super) async fn has_open_children(&self) -> Result<bool, Halt> {
        Ok(!self.open_children(1).await?.is_empty())
    }

    /// The children that have not ended, at most so many of them.
    async fn open_children(&self, most: usize) -> Result<Vec<Head>, Halt> {
        if !self.may_launch {
            return Ok(Vec::new());
        }
        let open = Filter { limit: Some(most), ..Filter::children(self.head.id).live() };
        Ok(self.around.store.list(open).await?)
    }
}
