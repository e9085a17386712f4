//! An idle task: ends it, or waits for letters without a seat.

use std::time::Duration;

use tokio::time::Instant;

use super::worktime::people_wake;
use super::{AttemptEnd, Halt, TaskRun, deadline_passed, journal_may_have_changed};
use crate::conversation::{NextStep, PendingCall};
use crate::entry::{Entry, OnFinish, StopCause, WaitReason};
use crate::id::{LetterId, TaskId};
use crate::journal::stop_descendants;
use crate::store::{Fence, TaskFilter};

/// How many of the tasks that it waits for a task lists.
const NAMED: usize = 100;
/// Ends of children that come this close together are read together.
const TOGETHER: Duration = Duration::from_millis(200);
/// How often to look meanwhile whether any child still runs: not for each of a thousand letters.
const LOOK_FOR_OPEN: Duration = Duration::from_millis(25);
/// From this many identical polls in a row on, a poll is delayed.
const HELD_FROM: u32 = 3;
/// The first delay.
const HOLD: Duration = Duration::from_secs(15);

impl TaskRun {
    /// Ends the task if nothing more can arrive; otherwise waits until something has.
    pub(super) async fn end_or_wait(&mut self) -> Result<Option<AttemptEnd>, Halt> {
        let open = self.open_children(NAMED).await?;
        if !self.state.interactive {
            if open.is_empty()
                && self.policy.on_finish == OnFinish::Wait
                && let Some(NextStep::ReadLetters { letters, known }) = self.conversation.unread_letters()
            {
                // Also quiet ones: a task that waits for its children reads their letters before it ends.
                self.read_letters(letters, known).await?;
                return Ok(None);
            }
            if open.is_empty() || self.policy.on_finish == OnFinish::Detach {
                return self.end_with_answer().await;
            }
            if self.policy.on_finish == OnFinish::Stop {
                let owner = Some((self.state.id, Fence::Attempt(self.attempt)));
                stop_descendants(&*self.context.store, &self.state, StopCause::ParentEnded, owner).await?;
                return self.end_without_children().await;
            }
        }
        let on = if open.is_empty() { WaitReason::Letter } else { WaitReason::Tasks(open) };
        if self.state.waiting.as_ref().is_none_or(|waiting| waiting.on != on) {
            self.append_entries(vec![Entry::Waiting { on: on.clone(), until: None }]).await?;
            if on == WaitReason::Letter {
                self.run_user_input_hooks(None);
            }
        }
        self.flush().await?;
        self.seat.park();
        match on {
            WaitReason::Tasks(tasks) => self.count_time_unless_waiting_for_people(&tasks).await?,
            _ => self.count_time(false),
        }
        self.wait_for_news(None).await?;
        if self.conversation.has_new_endings_only() && self.has_open_children().await? {
            self.wait_for_more_endings(TOGETHER).await?;
        }
        Ok(None)
    }

    /// Adds letters to the conversation.
    pub(super) async fn read_letters(
        &mut self,
        letters: Vec<LetterId>,
        known: Vec<LetterId>,
    ) -> Result<(), Halt> {
        let all_ended = match self.conversation.includes_endings(&letters) {
            true => Some(!self.has_open_children().await?),
            false => None,
        };
        self.append_entries(vec![Entry::Read { letters, known, all_ended }]).await
    }

    /// Finishes, unless there is an unread letter: then the task continues.
    async fn end_with_answer(&mut self) -> Result<Option<AttemptEnd>, Halt> {
        match self
            .finish(self.conversation.answer(self.agent.output_schema.as_deref()), Some(self.state.seq))
            .await
        {
            Err(Halt::Store(crate::store::StoreError::JournalMoved { .. })) => {
                self.catch_up().await?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Finishes although children still run or have just been stopped: it does not wait for their letters,
    /// but reads the letters that others have sent meanwhile.
    async fn end_without_children(&mut self) -> Result<Option<AttemptEnd>, Halt> {
        loop {
            self.catch_up().await?;
            let wanted =
                self.conversation.unread_letters().is_some() && !self.conversation.has_only_endings();
            if self.state.stop.is_some() || wanted {
                return Ok(None);
            }
            if let Some(ended) = self.end_with_answer().await? {
                return Ok(Some(ended));
            }
        }
    }

    /// Waits until a letter may have arrived, at most until `longest`.
    async fn wait_for_news(&mut self, longest: Option<Instant>) -> Result<(), Halt> {
        tokio::select! {
            () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {}
            () = deadline_passed(longest) => {}
            () = people_wake(self.people_subscription.as_ref()) => {}
            () = self.context.drain.cancelled() => return Err(Halt::Drain),
            () = deadline_passed(self.stopwatch.deadline()) => return Err(self.timeout_halt()),
        }
        self.catch_up().await?;
        if self.state.stop.is_some() { Err(Halt::Stop) } else { Ok(()) }
    }

    /// Waits this long, until the last child has ended, or until something else arrives.
    async fn wait_for_more_endings(&mut self, time: Duration) -> Result<(), Halt> {
        let until = Instant::now() + time;
        let mut look = Instant::now() + LOOK_FOR_OPEN;
        while self.conversation.has_new_endings_only() && Instant::now() < until {
            self.wait_for_news(Some(until.min(look))).await?;
            if Instant::now() >= look {
                if !self.has_open_children().await? {
                    break;
                }
                look = Instant::now() + LOOK_FOR_OPEN;
            }
        }
        Ok(())
    }

    /// A model that keeps polling its tasks learns nothing new, and pays for each poll with a turn. From the
    /// third identical poll on, this waits until something has happened, for longer each time.
    pub(super) async fn throttle_polling(&mut self, pending_calls: &[PendingCall]) -> Result<(), Halt> {
        let looks = |pending: &PendingCall| {
            self.tools.tool(&pending.call.tool).is_some_and(|tool| tool.effects.polls_tasks)
        };
        let times = pending_calls
            .iter()
            .map(|pending| self.conversation.times_called(&pending.call.tool))
            .max()
            .unwrap_or(0);
        if times < HELD_FROM || !pending_calls.iter().all(looks) {
            return Ok(());
        }
        let open = self.open_children(NAMED).await?;
        self.catch_up().await?;
        if open.is_empty() || self.conversation.unread_letters().is_some() {
            return Ok(());
        }
        let time = HOLD.saturating_mul(1 << (times - HELD_FROM).min(2));
        let until = self.context.store.now().checked_add(time).ok();
        let on = WaitReason::Tasks(open);
        self.append_entries(vec![Entry::Waiting { on, until }]).await?;
        self.seat.park();
        let until = Instant::now() + time;
        while self.conversation.unread_letters().is_none() && Instant::now() < until {
            self.wait_for_news(Some(until)).await?;
        }
        Ok(())
    }

    /// Whether the unread letters are better read together with those to come.
    pub(super) async fn should_wait_for_children(&self) -> Result<bool, Halt> {
        let may =
            self.policy.on_finish == OnFinish::Wait && self.conversation.should_batch_endings(&self.policy);
        Ok(may && self.has_open_children().await?)
    }

    pub(super) async fn has_open_children(&self) -> Result<bool, Halt> {
        let open = TaskFilter { limit: Some(1), ..TaskFilter::children(self.state.id).live() };
        Ok(self.may_launch && self.context.store.count(open).await? > 0)
    }

    /// The unfinished children, at most `most` of them.
    async fn open_children(&self, most: usize) -> Result<Vec<TaskId>, Halt> {
        if !self.may_launch {
            return Ok(Vec::new());
        }
        let open = TaskFilter { limit: Some(most), ..TaskFilter::children(self.state.id).live() };
        Ok(self.context.store.ids(open).await?)
    }
}
