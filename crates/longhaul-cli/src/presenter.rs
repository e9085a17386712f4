//! Presents the events of a run to the person or program that watches it, and reads the answers they type.

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::approval::{GivenAnswer, QuestionKey, QuestionQueue, Reaction};
use longhaul::snapshot::{Event, EventKind};
use longhaul::transcript::TaskBoard;

use crate::cmd::CliContext;
use crate::data_dir::DataDir;
use crate::exit::CliError;
use crate::keyboard::KeyPress;
use crate::notify::Notifier;
use crate::view::questions::format_question;
use crate::view::{
    AnswerStream, EventDetail, EventFormatter, Ink, LiveBlockFrame, OutputStream, StyledLine, TerminalOutput,
    display_width, live_block_lines, one_line, sanitize, text_format::wrap_text, truncate,
};

/// How to present events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    /// For people: a live block, or plain lines.
    Human,
    /// One JSON event per line.
    Json,
    /// Only the answer.
    Quiet,
    /// No output.
    Silent,
}

/// Presents the events of a run.
pub(crate) struct Presenter<'a> {
    context: &'a CliContext,
    mode: OutputMode,
    /// The task whose text is streamed: the only root, if there is just one.
    streamed_task: Option<TaskId>,
    /// Events before this time update the state but are not printed again.
    since: Timestamp,
    /// The tasks, if a live block is drawn.
    pub(crate) board: TaskBoard,
    formatter: EventFormatter,
    answer_stream: AnswerStream,
    pub(crate) questions: QuestionQueue,
    data_dir: DataDir,
    /// Lines to print above the block with the next frame.
    above: Vec<StyledLine>,
    frame: usize,
    /// Whether the keyboard is read.
    pub(crate) reads_keys: bool,
    /// Whether the reader of our output has gone away.
    reader_gone: bool,
    notifier: Notifier,
}

/// Divides the rows of the screen among the parts of the live block.
struct RowAllocation {
    /// Rows that are still free.
    spare: usize,
    footer: usize,
}

impl RowAllocation {
    /// Reserves one row for the cursor, one for a task, and the footer.
    fn new(rows: usize, footer: usize) -> RowAllocation {
        RowAllocation { spare: rows.saturating_sub(2 + footer), footer }
    }

    /// Returns how many rows one part may use. At least three: fewer show nothing useful.
    fn max_part_rows(&self) -> usize {
        self.spare.max(3)
    }

    /// Takes up to `rows` free rows, and returns how many it took.
    fn allocate(&mut self, rows: usize) -> usize {
        let taken = rows.min(self.spare);
        self.spare -= taken;
        taken
    }

    /// Reserves rows for an optional footer if they are free, and returns whether they were.
    fn fit_footer(&mut self, footer: usize) -> bool {
        let fits = footer <= self.spare;
        self.footer += if fits { self.allocate(footer) } else { 0 };
        fits
    }

    /// Returns the screen height to give the task block so that it fills the remaining rows; it leaves two
    /// rows free.
    fn task_rows(&self) -> usize {
        self.spare.max(1) + self.footer + 2
    }
}

impl<'a> Presenter<'a> {
    pub(crate) fn new(
        context: &'a CliContext,
        data_dir: &DataDir,
        mode: OutputMode,
        since: Timestamp,
        notifier: Notifier,
    ) -> Presenter<'a> {
        let out = TerminalOutput::for_stream(OutputStream::Stdout);
        Presenter {
            context,
            mode,
            streamed_task: None,
            since,
            board: TaskBoard::default(),
            formatter: EventFormatter::new(context.term, EventDetail::Team).with_data_dir(data_dir),
            answer_stream: AnswerStream::new(out.live && out.color),
            questions: QuestionQueue::default(),
            data_dir: data_dir.clone(),
            above: Vec::new(),
            frame: 0,
            reads_keys: false,
            reader_gone: false,
            notifier,
        }
    }

    /// Streams the text of this task as it arrives, rendered if it is Markdown.
    pub(crate) fn stream_text_of(&mut self, root: TaskId, markdown: bool) {
        let out = TerminalOutput::for_stream(OutputStream::Stdout);
        self.answer_stream = AnswerStream::new(out.live && out.color && markdown);
        self.streamed_task = Some(root).filter(|_| out.live);
    }

    /// Returns whether a live block is drawn.
    pub(crate) fn is_live(&self) -> bool {
        self.context.term.live && self.mode == OutputMode::Human
    }

    /// Whether text is shown while it is streamed.
    pub(crate) fn shows_live_text(&self) -> bool {
        self.is_live() || self.mode == OutputMode::Json
    }

    /// Prints the lines that come before all events.
    pub(crate) async fn show_intro(&mut self, intro: &[String]) -> Result<(), CliError> {
        if self.mode == OutputMode::Human {
            for line in intro {
                self.write_text(self.context.term.stream, format!("{line}\n")).await?;
            }
        }
        Ok(())
    }

    /// Applies an event to the state, and prints it.
    pub(crate) async fn handle_event(&mut self, event: &Event) -> Result<(), CliError> {
        if self.is_live() {
            self.board.apply_event(event);
        }
        let settled = self.questions.apply_event(event);
        if event.at < self.since {
            self.formatter.note_event(event);
            self.replay_text(event);
            return Ok(());
        }
        if let EventKind::Asked { asks, .. } = &event.kind {
            let who = self.questions.agent_of(event.task);
            self.notifier.notify(&format!("{who} asks: {}", truncate(&one_line(&asks.text), 120)));
        }
        if let EventKind::Warned { text } = &event.kind {
            match self.mode {
                OutputMode::Human if self.is_live() && self.formatter.is_new(text) => {
                    let columns = self.columns();
                    for line in wrap_text(&sanitize(&format!("warning: {text}")), columns).lines() {
                        let text = self.context.term.paint(Ink::Attention, line);
                        self.above.push(StyledLine { width: display_width(line), text });
                    }
                }
                // This is not the answer, but no one should use the answer without knowing it.
                OutputMode::Quiet if self.formatter.is_new(text) => {
                    self.context.note(&format!("warning: {text}"))
                }
                _ => {}
            }
        }
        match self.mode {
            OutputMode::Json => self.print_json(event).await,
            OutputMode::Human if self.is_live() => {
                self.stream_event(event);
                if let Some(settled) = settled {
                    let text = truncate(&format!("✓ {settled}"), self.columns());
                    self.above.push(StyledLine {
                        width: display_width(&text),
                        text: self.context.term.paint(Ink::Faint, &text),
                    });
                }
                Ok(())
            }
            OutputMode::Human => {
                let lines = self.formatter.format_event(event);
                for line in lines {
                    self.write_text(self.context.term.stream, format!("{line}\n")).await?;
                }
                Ok(())
            }
            OutputMode::Quiet | OutputMode::Silent => Ok(()),
        }
    }

    /// Restores the text of a reply that was in progress before we started watching.
    fn replay_text(&mut self, event: &Event) {
        if Some(event.task) == self.streamed_task {
            match &event.kind {
                EventKind::Text { text } => self.answer_stream.push_text(text),
                EventKind::Usage { .. } => drop(self.answer_stream.discard_reply()),
                what if what.voids_partial_reply() => drop(self.answer_stream.discard_reply()),
                _ => {}
            }
        }
    }

    fn stream_event(&mut self, event: &Event) {
        if Some(event.task) != self.streamed_task {
            return;
        }
        let columns = self.columns();
        match &event.kind {
            EventKind::Text { text } => self.answer_stream.push_text(text),
            EventKind::Usage { .. } => {
                let lines = self.answer_stream.take_complete_lines(columns);
                self.above.extend(lines);
                let rest = self.answer_stream.finish_reply(columns);
                self.above.extend(rest);
            }
            what if what.voids_partial_reply() && self.answer_stream.discard_reply() => {
                let text = "(interrupted; the model is asked again)";
                self.above.push(StyledLine {
                    width: display_width(text),
                    text: self.context.term.paint(Ink::Faint, text),
                });
            }
            _ => {}
        }
    }

    fn columns(&self) -> usize {
        self.context.term.size().0
    }

    /// Draws the block, and prints new lines above it.
    pub(crate) fn draw(&mut self, footer: &str) -> Result<(), CliError> {
        self.frame += 1;
        let (term, now) = (self.context.term, Timestamp::now());
        let (columns, rows) = term.size();
        let lines = self.answer_stream.take_complete_lines(columns);
        self.above.extend(lines);
        let tall = |text: &str| wrap_text(text, columns).lines().count();
        let mut shares = RowAllocation::new(rows, tall(footer));
        // Questions get rows first, then unfinished text; the tasks get the rest.
        let asked = match self.reads_keys {
            true => {
                let size = (columns, shares.max_part_rows());
                format_question(&mut self.questions, Some(&self.data_dir), term, size, now)
            }
            false => Vec::new(),
        };
        shares.allocate(asked.len());
        let gaps = shares.allocate(2);
        let mut rest = self.answer_stream.pending_lines(columns);
        let heights = |lines: &[StyledLine]| {
            lines.iter().map(|line| line.width.div_ceil(columns).max(1)).sum::<usize>()
        };
        while heights(&rest) > (rows / 3).min(shares.spare) {
            rest.remove(0);
        }
        shares.allocate(heights(&rest));
        let away = "Ctrl-B: stop waiting, continue it in the background";
        let blocked = footer.is_empty() && self.reads_keys && self.board.is_blocked();
        let footer = if blocked && shares.fit_footer(tall(away)) { away } else { footer };
        let frame =
            LiveBlockFrame { term, size: (columns, shares.task_rows()), now, tick: self.frame, footer };
        let tasks = live_block_lines(&self.board, &frame);
        let gap = || StyledLine { text: String::new(), width: 0 };
        let mut block = rest;
        if gaps > 1 || (asked.is_empty() && gaps > 0) {
            block.push(gap());
        }
        if !asked.is_empty() {
            block.extend(asked);
            block.extend((gaps > 0).then(gap));
        }
        block.extend(tasks);
        let above = std::mem::take(&mut self.above);
        Ok(self.context.screen.draw_below(&above, &block, columns)?)
    }

    /// Removes the block. The lines above it stay.
    pub(crate) fn clear(&mut self) -> Result<(), CliError> {
        let columns = self.columns();
        if self.is_live() {
            let lines = self.answer_stream.take_complete_lines(columns);
            self.above.extend(lines);
            let above = std::mem::take(&mut self.above);
            self.context.screen.draw_below(&above, &[], columns)?;
        }
        Ok(self.context.screen.clear(columns)?)
    }

    /// Returns the lines of an answer that was not streamed already.
    pub(crate) fn answer_lines(&mut self, root: TaskId, output: &str) -> Vec<StyledLine> {
        if Some(root) == self.streamed_task
            && self.is_live()
            && self.answer_stream.last_reply().trim() == output.trim()
        {
            return Vec::new();
        }
        let columns = TerminalOutput::for_stream(OutputStream::Stdout).size().0;
        match TerminalOutput::for_stream(OutputStream::Stdout).live {
            true => self.answer_stream.format_whole(output, columns),
            false => sanitize(output.trim_end())
                .lines()
                .map(|line| StyledLine { width: 0, text: line.to_owned() })
                .collect(),
        }
    }

    /// Passes a key to the open question, and returns the answer if the key completes one.
    pub(crate) fn handle_key(&mut self, key: KeyPress) -> Option<GivenAnswer> {
        let key = match key {
            KeyPress::Char(c) => QuestionKey::Char(c),
            KeyPress::Enter => QuestionKey::Enter,
            KeyPress::Escape => QuestionKey::Escape,
            KeyPress::Backspace => QuestionKey::Backspace,
            KeyPress::Ctrl('u') => QuestionKey::Clear,
            KeyPress::Ctrl(_) => return None,
        };
        match self.questions.handle_key(key, Timestamp::now()) {
            Reaction::Answer(given) => Some(given),
            Reaction::Changed | Reaction::Ignored(_) => None,
        }
    }

    /// Prints a line above the block.
    pub(crate) fn note(&mut self, text: &str) {
        match self.is_live() {
            true => {
                let text = truncate(&sanitize(text), self.columns());
                self.above.push(StyledLine {
                    width: display_width(&text),
                    text: self.context.term.paint(Ink::Attention, &text),
                });
            }
            false => self.context.note(text),
        }
    }

    async fn print_json(&mut self, event: &Event) -> Result<(), CliError> {
        let line = TerminalOutput::to_json_line(event)?;
        self.write_text(OutputStream::Stdout, format!("{line}\n")).await
    }

    /// Writes text, and waits only for the reader: tasks go on meanwhile. If the reader has gone away, drops
    /// the text.
    async fn write_text(&mut self, out: OutputStream, text: String) -> Result<(), CliError> {
        if self.reader_gone {
            return Ok(());
        }
        match out.write_when_read(text).await {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.reader_gone = true;
                Ok(())
            }
            written => Ok(written?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_one_line_before_anything_of_a_question_is_left_out() {
        for rows in [8, 12, 16, 24] {
            for footer in [0, 1] {
                for wanted in 3..40 {
                    let mut shares = RowAllocation::new(rows, footer);
                    let asked = wanted.min(shares.max_part_rows());
                    shares.allocate(asked);
                    let gaps = shares.allocate(2);
                    // The task block leaves two rows of its screen height free.
                    let tasks = shares.task_rows() - 2;
                    assert!(asked + gaps + tasks < rows, "{rows} {wanted}");
                    assert!(asked == wanted || (gaps, tasks) == (0, 1 + footer), "{rows} {wanted}");
                }
            }
        }
    }
}
