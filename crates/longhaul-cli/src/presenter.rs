//! Who watches: what happens is told to them as they want it, and they may answer.

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::snapshot::{Event, EventKind};

use crate::cmd::CliContext;
use crate::data_dir::DataDir;
use crate::exit::CliError;
use crate::keyboard::KeyPress;
use crate::notify::Notifier;
use crate::view::{
    AnswerStream, EventDetail, EventFormatter, Ink, LiveBlockFrame, LiveTaskBoard, OutputStream,
    QuestionQueue, StyledLine, TerminalOutput, TypedAnswer, display_width, live_block_lines, one_line,
    sanitize, text_format::wrap_text, truncate,
};

/// How it is told what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    /// To people: a live block, or lines.
    Human,
    /// One event a line.
    Json,
    /// Only the answer.
    Quiet,
    /// Not at all.
    Silent,
}

/// Those who watch.
pub(crate) struct Presenter<'a> {
    context: &'a CliContext,
    mode: OutputMode,
    /// The task whose words are told as they come: the only root there is.
    streamed_task: Option<TaskId>,
    /// What was before this is known, and not told again.
    since: Timestamp,
    pub(crate) board: LiveTaskBoard,
    formatter: EventFormatter,
    answer_stream: AnswerStream,
    pub(crate) questions: QuestionQueue,
    /// What goes above the block with its next picture.
    above: Vec<StyledLine>,
    frame: usize,
    /// Whether keys are heard.
    pub(crate) reads_keys: bool,
    /// Whoever read what we tell is gone.
    reader_gone: bool,
    notifier: Notifier,
}

/// How the rows of a screen are shared out.
struct RowAllocation {
    /// What nobody has yet.
    spare: usize,
    footer: usize,
}

impl RowAllocation {
    /// One row is the cursor's; one task and the footer are always there.
    fn new(rows: usize, footer: usize) -> RowAllocation {
        RowAllocation { spare: rows.saturating_sub(2 + footer), footer }
    }

    /// How many rows one part may have; three at least, or it says nothing.
    fn max_part_rows(&self) -> usize {
        self.spare.max(3)
    }

    /// Takes so many rows, or as many as there are.
    fn allocate(&mut self, rows: usize) -> usize {
        let taken = rows.min(self.spare);
        self.spare -= taken;
        taken
    }

    /// Whether there is room for a footer that can be done without; it has it then.
    fn fit_footer(&mut self, footer: usize) -> bool {
        let fits = footer <= self.spare;
        self.footer += if fits { self.allocate(footer) } else { 0 };
        fits
    }

    /// The rows of a screen on which the block takes what is left: it leaves two free.
    fn task_rows(&self) -> usize {
        self.spare.max(1) + self.footer + 2
    }
}

impl<'a> Presenter<'a> {
    pub(crate) fn new(
        desk: &'a CliContext,
        place: &DataDir,
        manner: OutputMode,
        since: Timestamp,
        bell: Notifier,
    ) -> Presenter<'a> {
        let out = TerminalOutput::for_stream(OutputStream::Stdout);
        Presenter {
            context: desk,
            mode: manner,
            streamed_task: None,
            since,
            board: LiveTaskBoard::default(),
            formatter: EventFormatter::new(desk.term, EventDetail::Team).with_data_dir(place),
            answer_stream: AnswerStream::new(out.live && out.color),
            questions: QuestionQueue::with_data_dir(place),
            above: Vec::new(),
            frame: 0,
            reads_keys: false,
            reader_gone: false,
            notifier: bell,
        }
    }

    /// Whose words are told as they come, and whether they are Markdown.
    pub(crate) fn stream_text_of(&mut self, root: TaskId, markdown: bool) {
        let out = TerminalOutput::for_stream(OutputStream::Stdout);
        self.answer_stream = AnswerStream::new(out.live && out.color && markdown);
        self.streamed_task = Some(root).filter(|_| out.live);
    }

    /// Whether there is a block that is drawn over.
    pub(crate) fn is_live(&self) -> bool {
        self.context.term.live && self.mode == OutputMode::Human
    }

    /// Says what comes first.
    pub(crate) async fn show_intro(&mut self, intro: &[String]) -> Result<(), CliError> {
        if self.mode == OutputMode::Human {
            for line in intro {
                self.write_text(self.context.term.stream, format!("{line}\n")).await?;
            }
        }
        Ok(())
    }

    /// Takes an event in, and tells it.
    pub(crate) async fn handle_event(&mut self, event: &Event) -> Result<(), CliError> {
        self.board.apply_event(event);
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
                // Not the answer, but nobody should take it for what was asked for without knowing this.
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
                let told = self.formatter.format_event(event);
                for line in told {
                    self.write_text(self.context.term.stream, format!("{line}\n")).await?;
                }
                Ok(())
            }
            OutputMode::Quiet | OutputMode::Silent => Ok(()),
        }
    }

    /// What was said before: only of a reply that is still on its way.
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
                let told = self.answer_stream.take_complete_lines(columns);
                self.above.extend(told);
                let rest = self.answer_stream.finish_reply(columns);
                self.above.extend(rest);
            }
            what if what.voids_partial_reply() && self.answer_stream.discard_reply() => {
                let text = "(broken off; it begins again)";
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

    /// Draws the block, with what is new above it.
    pub(crate) fn draw(&mut self, footer: &str) -> Result<(), CliError> {
        self.frame += 1;
        let (term, now) = (self.context.term, Timestamp::now());
        let (columns, rows) = term.size();
        let told = self.answer_stream.take_complete_lines(columns);
        self.above.extend(told);
        let tall = |text: &str| wrap_text(text, columns).lines().count();
        let mut shares = RowAllocation::new(rows, tall(footer));
        // What is asked comes first, then words that are not settled; the tasks have the rest.
        let asked = match self.reads_keys {
            true => self.questions.lines(term, columns, shares.max_part_rows(), now),
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
        let away = "Ctrl-B: do not wait for it, let it go on in the background";
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

    /// Takes the block away; what is above it stays.
    pub(crate) fn clear(&mut self) -> Result<(), CliError> {
        let columns = self.columns();
        if self.is_live() {
            let told = self.answer_stream.take_complete_lines(columns);
            self.above.extend(told);
            let above = std::mem::take(&mut self.above);
            self.context.screen.draw_below(&above, &[], columns)?;
        }
        Ok(self.context.screen.clear(columns)?)
    }

    /// The lines of an answer that was not told as it came.
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

    /// What a key means for what is asked.
    pub(crate) fn handle_key(&mut self, key: KeyPress) -> Option<TypedAnswer> {
        self.questions.handle_key(key, Timestamp::now())
    }

    /// Says something above the block.
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

    /// Writes without holding up anything else: who does not read is waited for, who is gone is told nothing more, and
    /// the tasks go on in both cases.
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
                    // The block leaves two rows of the screen that it is told of.
                    let tasks = shares.task_rows() - 2;
                    assert!(asked + gaps + tasks < rows, "{rows} {wanted}");
                    assert!(asked == wanted || (gaps, tasks) == (0, 1 + footer), "{rows} {wanted}");
                }
            }
        }
    }
}
