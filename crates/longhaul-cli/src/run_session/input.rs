//! What a person gives a session: answers, keys, and the next prompts.

use longhaul::approval::GivenAnswer;
use longhaul::entry::WaitReason;
use longhaul::snapshot::{Event, EventKind};
use longhaul::{LonghaulError, TaskId};

use super::RunSession;
use crate::exit::CliError;
use crate::keyboard::KeyPress;
use crate::presenter::{OutputMode, Presenter};
use crate::view::{OutputStream, TerminalOutput};

impl RunSession<'_> {
    /// In a session: sends the next prompt when the root waits for one, and closes the session after the
    /// last.
    pub(super) async fn send_next_prompt(
        &mut self,
        presenter: &mut Presenter<'_>,
        event: &Event,
    ) -> Result<(), CliError> {
        let silent = matches!(event.kind, EventKind::Waiting { on: WaitReason::Letter, .. });
        let Some(next) = &mut self.next_prompts else { return Ok(()) };
        if !silent || event.at < self.since || !self.roots.contains(&event.task) {
            return Ok(());
        }
        let Some(next) = next.pop_front() else {
            return Ok(self.longhaul.close_session(event.task).await?);
        };
        if matches!(self.mode, OutputMode::Human | OutputMode::Quiet) {
            let output = self.last_reply(event.task).await?;
            let lines = presenter.answer_lines(event.task, &output);
            presenter.clear()?;
            lines.iter().try_for_each(|line| {
                TerminalOutput::for_stream(OutputStream::Stdout).print_line(&line.text)
            })?;
            if !TerminalOutput::for_stream(OutputStream::Stdout).live {
                TerminalOutput::for_stream(OutputStream::Stdout).print_line("")?;
            }
        }
        self.longhaul.send(event.task, next).await?;
        Ok(())
    }

    pub(super) async fn last_reply(&self, session: TaskId) -> Result<String, CliError> {
        let journal = self.longhaul.store().read(session, longhaul::id::Seq(0), usize::MAX).await?;
        let last = journal.iter().rev().find_map(|record| match &record.entry {
            longhaul::entry::Entry::Replied(reply) => Some(reply.text()),
            _ => None,
        });
        Ok(last.unwrap_or_default())
    }

    pub(super) async fn handle_key(
        &self,
        presenter: &mut Presenter<'_>,
        key: KeyPress,
    ) -> Result<(), CliError> {
        if key == KeyPress::Ctrl('b') {
            return self.send_to_background(presenter).await;
        }
        let Some(GivenAnswer { task, question, text: words }) = presenter.handle_key(key) else {
            return Ok(());
        };
        let taken = match words {
            Some(words) => self.longhaul.answer(task, Some(question), words).await,
            None => self.longhaul.decline(task, Some(question)).await,
        };
        match taken {
            // Someone else answered first: an event reports that.
            Ok(_) | Err(LonghaulError::AlreadyAnswered { .. } | LonghaulError::NotAsking { .. }) => Ok(()),
            Err(error @ LonghaulError::BadAnswer(_)) => {
                presenter.questions.reject_answer(&error.to_string());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn send_to_background(&self, presenter: &mut Presenter<'_>) -> Result<(), CliError> {
        // The root first: the tasks below it go on anyway.
        let blocked: Vec<TaskId> = presenter.board.blocked().collect();
        let Some(task) = blocked.iter().find(|task| self.roots.contains(task)).or(blocked.first()) else {
            return Ok(());
        };
        if self.longhaul.background(*task).await? {
            presenter.note("✓ it goes on in the background");
        }
        Ok(())
    }
}
