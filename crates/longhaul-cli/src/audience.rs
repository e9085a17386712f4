//! Who watches: what happens is told to them as they want it, and they may answer.

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::snapshot::{Event, Happening};

use crate::cmd::Desk;
use crate::exit::Trouble;
use crate::keys::Key;
use crate::notify::Bell;
use crate::place::Place;
use crate::view::{
    Asked, Board, Detail, Flow, Frame, Ink, Line, Out, Reply, Teller, Term, clean, fit, lines, one_line,
    width, words::wrap,
};

/// How it is told what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// To people: a live block, or lines.
    Told,
    /// One event a line.
    Json,
    /// Only the answer.
    Quiet,
    /// Not at all.
    Silent,
}

/// Those who watch.
pub(crate) struct Audience<'a> {
    desk: &'a Desk,
    manner: Manner,
    /// The task whose words are told as they come: the only root there is.
    speaker: Option<TaskId>,
    /// What was before this is known, and not told again.
    since: Timestamp,
    pub(crate) board: Board,
    teller: Teller,
    flow: Flow,
    pub(crate) asked: Asked,
    /// What goes above the block with its next picture.
    above: Vec<Line>,
    beat: usize,
    /// Whether keys are heard.
    pub(crate) hears_keys: bool,
    /// Whoever read what we tell is gone.
    gone: bool,
    bell: Bell,
}

/// How the rows of a screen are shared out.
struct Shares {
    /// What nobody has yet.
    spare: usize,
    footer: usize,
}

impl Shares {
    /// One row is the cursor's; one task and the footer are always there.
    fn of(rows: usize, footer: usize) -> Shares {
        Shares { spare: rows.saturating_sub(2 + footer), footer }
    }

    /// How many rows one part may have; three at least, or it says nothing.
    fn most(&self) -> usize {
        self.spare.max(3)
    }

    /// Takes so many rows, or as many as there are.
    fn take(&mut self, rows: usize) -> usize {
        let taken = rows.min(self.spare);
        self.spare -= taken;
        taken
    }

    /// Whether there is room for a footer that can be done without; it has it then.
    fn fits(&mut self, footer: usize) -> bool {
        let fits = footer <= self.spare;
        self.footer += if fits { self.take(footer) } else { 0 };
        fits
    }

    /// The rows of a screen on which the block takes what is left: it leaves two free.
    fn tasks(&self) -> usize {
        self.spare.max(1) + self.footer + 2
    }
}

impl<'a> Audience<'a> {
    pub(crate) fn new(
        desk: &'a Desk,
        place: &Place,
        manner: Manner,
        since: Timestamp,
        bell: Bell,
    ) -> Audience<'a> {
        let out = Term::of(Out::Stdout);
        Audience {
            desk,
            manner,
            speaker: None,
            since,
            board: Board::default(),
            teller: Teller::new(desk.term, Detail::Lines).at(place),
            flow: Flow::new(out.live && out.color),
            asked: Asked::at(place),
            above: Vec::new(),
            beat: 0,
            hears_keys: false,
            gone: false,
            bell,
        }
    }

    /// Whose words are told as they come, and whether they are Markdown.
    pub(crate) fn listens_to(&mut self, root: TaskId, markdown: bool) {
        let out = Term::of(Out::Stdout);
        self.flow = Flow::new(out.live && out.color && markdown);
        self.speaker = Some(root).filter(|_| out.live);
    }

    /// Whether there is a block that is drawn over.
    pub(crate) fn is_live(&self) -> bool {
        self.desk.term.live && self.manner == Manner::Told
    }

    /// Says what comes first.
    pub(crate) async fn begin(&mut self, intro: &[String]) -> Result<(), Trouble> {
        if self.manner == Manner::Told {
            for line in intro {
                self.put(self.desk.term.out, format!("{line}\n")).await?;
            }
        }
        Ok(())
    }

    /// Takes an event in, and tells it.
    pub(crate) async fn hear(&mut self, event: &Event) -> Result<(), Trouble> {
        self.board.feed(event);
        let settled = self.asked.feed(event);
        if event.at < self.since {
            self.teller.skip(event);
            self.recall(event);
            return Ok(());
        }
        if let Happening::Asked { asks, .. } = &event.what {
            let who = self.asked.agent(event.task);
            self.bell.ring(&format!("{who} asks: {}", fit(&one_line(&asks.text), 120)));
        }
        if let Happening::Warned { text } = &event.what {
            match self.manner {
                Manner::Told if self.is_live() && self.teller.is_new(text) => {
                    let columns = self.columns();
                    for line in wrap(&clean(&format!("warning: {text}")), columns).lines() {
                        let text = self.desk.term.paint(Ink::Waits, line);
                        self.above.push(Line { width: width(line), text });
                    }
                }
                // Not the answer, but nobody should take it for what was asked for without knowing this.
                Manner::Quiet if self.teller.is_new(text) => self.desk.note(&format!("warning: {text}")),
                _ => {}
            }
        }
        match self.manner {
            Manner::Json => self.json(event).await,
            Manner::Told if self.is_live() => {
                self.listen(event);
                if let Some(settled) = settled {
                    let text = fit(&format!("✓ {settled}"), self.columns());
                    self.above
                        .push(Line { width: width(&text), text: self.desk.term.paint(Ink::Faint, &text) });
                }
                Ok(())
            }
            Manner::Told => {
                let told = self.teller.tell(event);
                for line in told {
                    self.put(self.desk.term.out, format!("{line}\n")).await?;
                }
                Ok(())
            }
            Manner::Quiet | Manner::Silent => Ok(()),
        }
    }

    /// What was said before: only of a reply that is still on its way.
    fn recall(&mut self, event: &Event) {
        if Some(event.task) == self.speaker {
            match &event.what {
                Happening::Text { text } => self.flow.say(text),
                Happening::Usage { .. } => drop(self.flow.void()),
                what if what.voids_words() => drop(self.flow.void()),
                _ => {}
            }
        }
    }

    fn listen(&mut self, event: &Event) {
        if Some(event.task) != self.speaker {
            return;
        }
        let columns = self.columns();
        match &event.what {
            Happening::Text { text } => self.flow.say(text),
            Happening::Usage { .. } => {
                let told = self.flow.told(columns);
                self.above.extend(told);
                let rest = self.flow.end(columns);
                self.above.extend(rest);
            }
            what if what.voids_words() && self.flow.void() => {
                let text = "(broken off; it begins again)";
                self.above.push(Line { width: width(text), text: self.desk.term.paint(Ink::Faint, text) });
            }
            _ => {}
        }
    }

    fn columns(&self) -> usize {
        self.desk.term.size().0
    }

    /// Draws the block, with what is new above it.
    pub(crate) fn draw(&mut self, footer: &str) -> Result<(), Trouble> {
        self.beat += 1;
        let (term, now) = (self.desk.term, Timestamp::now());
        let (columns, rows) = term.size();
        let told = self.flow.told(columns);
        self.above.extend(told);
        let tall = |text: &str| wrap(text, columns).lines().count();
        let mut shares = Shares::of(rows, tall(footer));
        // What is asked comes first, then words that are not settled; the tasks have the rest.
        let asked = match self.hears_keys {
            true => self.asked.lines(term, columns, shares.most(), now),
            false => Vec::new(),
        };
        shares.take(asked.len());
        let gaps = shares.take(2);
        let mut rest = self.flow.rest(columns);
        let heights =
            |lines: &[Line]| lines.iter().map(|line| line.width.div_ceil(columns).max(1)).sum::<usize>();
        while heights(&rest) > (rows / 3).min(shares.spare) {
            rest.remove(0);
        }
        shares.take(heights(&rest));
        let away = "Ctrl-B: do not wait for it, let it go on in the background";
        let blocked = footer.is_empty() && self.hears_keys && self.board.is_blocked();
        let footer = if blocked && shares.fits(tall(away)) { away } else { footer };
        let frame = Frame { term, size: (columns, shares.tasks()), now, beat: self.beat, footer };
        let tasks = lines(&self.board, &frame);
        let gap = || Line { text: String::new(), width: 0 };
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
        Ok(self.desk.screen.show(&above, &block, columns)?)
    }

    /// Takes the block away; what is above it stays.
    pub(crate) fn clear(&mut self) -> Result<(), Trouble> {
        let columns = self.columns();
        if self.is_live() {
            let told = self.flow.told(columns);
            self.above.extend(told);
            let above = std::mem::take(&mut self.above);
            self.desk.screen.show(&above, &[], columns)?;
        }
        Ok(self.desk.screen.clear(columns)?)
    }

    /// The lines of an answer that was not told as it came.
    pub(crate) fn answer(&mut self, root: TaskId, output: &str) -> Vec<Line> {
        if Some(root) == self.speaker && self.is_live() && self.flow.last().trim() == output.trim() {
            return Vec::new();
        }
        let columns = Term::of(Out::Stdout).size().0;
        match Term::of(Out::Stdout).live {
            true => self.flow.whole(output, columns),
            false => clean(output.trim_end())
                .lines()
                .map(|line| Line { width: 0, text: line.to_owned() })
                .collect(),
        }
    }

    /// What a key means for what is asked.
    pub(crate) fn key(&mut self, key: Key) -> Option<Reply> {
        self.asked.key(key, Timestamp::now())
    }

    /// Says something above the block.
    pub(crate) fn note(&mut self, text: &str) {
        match self.is_live() {
            true => {
                let text = fit(&clean(text), self.columns());
                self.above.push(Line { width: width(&text), text: self.desk.term.paint(Ink::Waits, &text) });
            }
            false => self.desk.note(text),
        }
    }

    async fn json(&mut self, event: &Event) -> Result<(), Trouble> {
        let line = Term::as_json(event)?;
        self.put(Out::Stdout, format!("{line}\n")).await
    }

    /// Writes without holding up anything else: who does not read is waited for, who is gone is told nothing more, and
    /// the tasks go on in both cases.
    async fn put(&mut self, out: Out, text: String) -> Result<(), Trouble> {
        if self.gone {
            return Ok(());
        }
        match out.write_when_read(text).await {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.gone = true;
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
                    let mut shares = Shares::of(rows, footer);
                    let asked = wanted.min(shares.most());
                    shares.take(asked);
                    let gaps = shares.take(2);
                    // The block leaves two rows of the screen that it is told of.
                    let tasks = shares.tasks() - 2;
                    assert!(asked + gaps + tasks < rows, "{rows} {wanted}");
                    assert!(asked == wanted || (gaps, tasks) == (0, 1 + footer), "{rows} {wanted}");
                }
            }
        }
    }
}
