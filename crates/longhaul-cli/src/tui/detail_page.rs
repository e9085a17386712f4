//! Lays out the tabs of the selected task as lines. Only changed parts are laid out again.

use std::cell::Cell;
use std::collections::VecDeque;

use jiff::Timestamp;
use longhaul::id::Seq;
use longhaul::task::TaskState;
use longhaul::transcript::{ItemKind, Transcript, TranscriptItem};
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::model::{DetailTab, TuiDetail, TuiModel};
use super::transcript_view::{
    BlockRenderer, LiveReplyLayout, letter_lines, timeline_lines, transcript_lines,
};
use crate::view::text_format::{format_count, format_duration, format_short_count, format_timestamp};
use crate::view::{Ink, one_line, sanitize, status_label};

/// The lines of a tab.
#[derive(Debug, Clone, Default)]
pub(crate) struct DetailPage {
    key: Option<(DetailTab, usize)>,
    /// The version of the data that the page shows, if it has one.
    made_of: Option<u64>,
    chunks: VecDeque<PageChunk>,
    total: usize,
    growing: LiveReplyLayout,
    /// How many chunks were laid out so far.
    pub(crate) laid_out: usize,
}

/// The lines of a block.
#[derive(Debug, Clone)]
struct PageChunk {
    seq: Seq,
    version: u32,
    opened: bool,
    start: usize,
    lines: Vec<Line<'static>>,
}

impl DetailPage {
    /// Returns the number of lines.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns `many` lines starting at `from`, each with the block that it belongs to.
    pub(crate) fn lines(&self, from: usize, many: usize) -> impl Iterator<Item = &Line<'static>> {
        let first = self.chunk_index(from).unwrap_or(self.chunks.len());
        let skip = self.chunks.get(first).map_or(0, |chunk| from - chunk.start);
        self.chunks.range(first..).flat_map(|chunk| &chunk.lines).skip(skip).take(many)
    }

    /// Returns the block of a line, and the index of the line in it.
    pub(crate) fn block_at(&self, line: usize) -> Option<(Seq, usize)> {
        let chunk = self.chunks.get(self.chunk_index(line)?)?;
        Some((chunk.seq, line - chunk.start))
    }

    /// Returns a part by its index: its block, its first line, and its lines.
    pub(crate) fn part_lines(&self, at: usize) -> Option<(Seq, usize, &[Line<'static>])> {
        self.chunks.get(at).map(|chunk| (chunk.seq, chunk.start, &chunk.lines[..]))
    }

    /// Returns the index of the part that contains a line.
    pub(crate) fn part_at(&self, line: usize) -> Option<usize> {
        self.chunk_index(line)
    }

    /// Returns the first line of a block, or of the next block.
    fn start_of(&self, seq: Seq) -> Option<usize> {
        let at = self.chunks.partition_point(|chunk| chunk.seq < seq);
        self.chunks.get(at).map(|chunk| chunk.start)
    }

    fn chunk_index(&self, line: usize) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| chunk.start <= line);
        let at = after.checked_sub(1)?;
        // Some blocks have no lines.
        (line < self.total).then_some(at)
    }

    fn fill<'a>(
        &mut self,
        key: (DetailTab, usize),
        blocks: impl Iterator<Item = (&'a TranscriptItem, bool)>,
        mut lay: impl FnMut(&TranscriptItem, bool) -> Vec<Line<'static>>,
    ) {
        self.made_of = None;
        let mut old = std::mem::take(&mut self.chunks);
        if self.key.replace(key) != Some(key) {
            old.clear();
        }
        let mut start = 0;
        for (block, opened) in blocks {
            while old.front().is_some_and(|chunk| chunk.seq < block.seq) {
                old.pop_front();
            }
            let same = |chunk: &PageChunk| {
                (chunk.seq, chunk.version, chunk.opened) == (block.seq, block.version, opened)
            };
            let mut chunk = match old.pop_front_if(|chunk| same(chunk)) {
                Some(chunk) => chunk,
                None => {
                    self.laid_out += 1;
                    let (seq, version) = (block.seq, block.version);
                    PageChunk { seq, version, opened, start, lines: lay(block, opened) }
                }
            };
            chunk.start = start;
            start += chunk.lines.len();
            if !chunk.lines.is_empty() {
                self.chunks.push_back(chunk);
            }
        }
        self.total = start;
    }

    fn fill_with(&mut self, key: (DetailTab, usize), lines: Vec<Line<'static>>) {
        (self.key, self.made_of) = (Some(key), None);
        self.total = lines.len();
        self.chunks = VecDeque::from([PageChunk { seq: Seq(0), version: 0, opened: false, start: 0, lines }]);
    }

    /// Fills the page, unless it already shows the same data.
    fn fill_once(
        &mut self,
        key: (DetailTab, usize),
        made_of: u64,
        lines: impl FnOnce() -> Vec<Line<'static>>,
    ) {
        if (self.key, self.made_of) != (Some(key), Some(made_of)) {
            self.laid_out += 1;
            self.fill_with(key, lines());
            self.made_of = Some(made_of);
        }
    }
}

impl TuiModel {
    /// Lays out the selected task.
    pub(super) fn layout_detail(&mut self, area: Rect) {
        let (theme, tab, now) = (self.theme, self.tab, self.now);
        let below = self.usage_below();
        let Some(detail) = &mut self.detail else { return };
        let state = self.tasks.get(&detail.task);
        let columns = usize::from(area.width.saturating_sub(2)).max(10);
        let key = (tab, columns);
        let TuiDetail { page, transcript, unfolded: opened, order, team, .. } = detail;
        let renderer = BlockRenderer { theme, highlighter: &self.highlighter, columns, now };
        match tab {
            DetailTab::Transcript => {
                let blocks = transcript.items.iter().map(|block| (block, opened.contains(&block.seq)));
                let mut growing = std::mem::take(&mut page.growing);
                page.fill(key, blocks, |block, opened| {
                    transcript_lines(block, opened, renderer, &mut growing)
                });
                page.growing = growing;
            }
            DetailTab::Timeline => {
                let (before, last) = (Cell::<Option<Timestamp>>::default(), Cell::default());
                let blocks = transcript.items.iter().map(|block| {
                    before.set(last.replace(Some(block.at)));
                    (block, false)
                });
                page.fill(key, blocks, |block, _| timeline_lines(block, before.get(), renderer));
            }
            DetailTab::Letters => {
                let is_letter = |block: &&TranscriptItem| matches!(block.kind, ItemKind::Letter { .. });
                page.fill(
                    key,
                    transcript.items.iter().filter(is_letter).map(|block| (block, true)),
                    |block, _| letter_lines(block, renderer),
                );
                if page.total == 0 {
                    let nothing = if transcript.after.0 > 0 {
                        "No letters in the part of the journal that is shown."
                    } else {
                        "Nobody has written to it."
                    };
                    page.fill_with(key, vec![Line::styled(nothing, theme.ink(Ink::Faint))]);
                }
            }
            DetailTab::Order => page.fill_once(key, order.is_some().into(), || {
                order
                    .as_ref()
                    .map(|order| order_lines((order, team.as_deref()), state, renderer))
                    .unwrap_or_default()
            }),
            DetailTab::Output => {
                page.fill_once(key, transcript.last.0, || output_lines(transcript, renderer))
            }
            DetailTab::Usage => {
                let lines = state.map(|state| usage_lines(state, below, renderer)).unwrap_or_default();
                page.fill_with(key, lines);
            }
        }
        detail.clamp_scroll(
            usize::from(area.height),
            matches!(tab, DetailTab::Transcript | DetailTab::Timeline | DetailTab::Letters),
        );
    }

    fn usage_below(&self) -> Option<(usize, u64, String)> {
        let sum = self.tree.totals.get(&self.selected?)?;
        let cost = || crate::view::text_format::format_price(sum.cost, sum.unpriced);
        (sum.descendants > 0).then(|| (sum.descendants, sum.tokens, cost()))
    }
}

impl TuiDetail {
    /// Keeps the scroll position within the page.
    fn clamp_scroll(&mut self, height: usize, runs: bool) {
        let total = self.page.total();
        let most = total.saturating_sub(height);
        if let Some((seq, offset)) = self.anchor.take()
            && let Some(start) = self.page.start_of(seq)
        {
            let moved = (start + offset) as isize - self.top as isize;
            self.cursor = self.cursor.saturating_add_signed(moved);
            self.top = start + offset;
        }
        if self.follow && runs {
            self.top = most;
            self.cursor = total.saturating_sub(1);
        }
        self.top = self.top.min(most);
        self.cursor = self.cursor.min(total.saturating_sub(1));
    }
}

fn output_lines(transcript: &Transcript, renderer: BlockRenderer<'_>) -> Vec<Line<'static>> {
    let (text, note) = match &transcript.end {
        Some(end) if end.output.is_empty() => (String::new(), "It said nothing."),
        Some(end) => (sanitize(&end.output), ""),
        None => {
            (sanitize(&transcript.text_so_far()), "It has not ended yet: this is what it has said so far.")
        }
    };
    let mut lines = Vec::new();
    if let Some(error) = transcript.end.as_ref().and_then(|end| end.error.as_ref()) {
        lines.extend(renderer.wrapped(Ink::Bad, &one_line(error)));
        lines.push(Line::default());
    }
    if !note.is_empty() {
        lines.extend(renderer.wrapped(Ink::Faint, note));
        lines.push(Line::default());
    }
    lines.extend(renderer.markdown_lines(&text));
    lines
}

fn order_lines(
    (order, team): (&longhaul::Order, Option<&str>),
    state: Option<&TaskState>,
    renderer: BlockRenderer<'_>,
) -> Vec<Line<'static>> {
    let mut lines = renderer.markdown_lines(&sanitize(&order.task));
    let mut more = |title: &str, text: &str| {
        lines.push(Line::default());
        lines.push(Line::styled(title.to_owned(), renderer.theme.ink(Ink::Strong)));
        lines.extend(renderer.wrapped(Ink::Plain, &sanitize(text)));
    };
    let texts = [("Expected output", &order.expected_output), ("Context", &order.context)];
    for (title, text) in texts {
        text.iter().for_each(|text| more(title, text));
    }
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| format!("{name:<10} {}", one_line(&value))));
    };
    fact("agent", state.map(|state| state.agent.to_string()));
    fact("task", state.map(|state| state.id.to_string()));
    fact("for", state.and_then(|state| state.parent).map(|parent| parent.to_string()));
    fact("continues", state.and_then(|state| state.continues).map(|old| old.to_string()));
    fact("team", team.map(str::to_owned));
    fact("model", order.model.clone());
    fact("works in", order.working_dir.as_ref().map(|dir| dir.display().to_string()));
    fact("turns", order.max_turns.map(|turns| format!("at most {turns}")));
    fact("time", order.timeout.map(|time| format!("at most {}", format_duration(time))));
    fact("tokens", order.budget.tokens.map(|tokens| format!("at most {}", format_count(tokens))));
    fact("tools", order.tools.as_ref().map(|tools| tools.join(", ")));
    more("Facts", &facts.join("\n"));
    lines
}

fn usage_lines(
    state: &TaskState,
    below: Option<(usize, u64, String)>,
    renderer: BlockRenderer<'_>,
) -> Vec<Line<'static>> {
    let dollars = |cost: u64| format!("${:.4}", cost as f64 / 1e6);
    let usage = &state.usage;
    let mut rows = vec![
        ("status", status_label(state).1.to_owned()),
        ("elapsed", crate::view::time_of(state, renderer.now)),
        ("submitted", format_timestamp(state.created)),
    ];
    rows.extend(state.ended.map(|ended| ("ended", format_timestamp(ended))));
    rows.extend([
        ("turns", format_count(state.turns.into())),
        ("tool calls", format_count(state.calls.into())),
        ("tokens in", format_count(usage.input)),
        ("  cached", format_count(usage.cached)),
        ("tokens out", format_count(usage.output)),
        ("  thinking", format_count(usage.reasoning)),
        (
            "cost",
            if state.cost == 0 && state.unpriced > 0 { "not known".to_owned() } else { dollars(state.cost) },
        ),
    ]);
    if state.unpriced > 0 && state.cost > 0 {
        rows.push(("", format!("and {} replies of unknown price", state.unpriced)));
    }
    if state.attempt.0 > 1 {
        rows.push(("attempts", state.attempt.0.to_string()));
    }
    if let Some((tasks, tokens, cost)) = below {
        rows.push(("", String::new()));
        rows.push(("with below", format!("{} tasks", tasks + 1)));
        rows.push(("tokens", format_short_count(tokens)));
        rows.push(("cost", if cost == "?" { "not known".to_owned() } else { cost }));
    }
    let line = |(name, value): (&str, String)| {
        let name = ratatui::text::Span::styled(format!("{name:<12}"), renderer.theme.ink(Ink::Faint));
        Line::from(vec![name, ratatui::text::Span::raw(value)])
    };
    rows.into_iter().map(line).collect()
}
