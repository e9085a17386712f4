//! What people see.

mod asked;
mod block;
mod board;
mod clean;
mod flow;
mod grid;
pub(crate) mod letter;
pub(crate) mod markdown;
mod paint;
mod screen;
mod tables;
pub(crate) mod tell;
pub(crate) mod words;
pub(crate) mod wrap;

pub(crate) use asked::{QuestionQueue, TypedAnswer};
pub(crate) use block::{LiveBlockFrame, live_block_lines};
pub(crate) use board::LiveTaskBoard;
pub(crate) use clean::{sanitize, one_line, strip_control_chars, escape_invisible, escape_invisible_line};
pub(crate) use flow::AnswerStream;
pub(crate) use paint::{Ink, OutputStream, TerminalOutput, status_glyph, status_label};
pub(crate) use screen::{StyledLine, LiveRegion};
pub(crate) use tables::{TaskLayout, summary_table, task_table, time_of, task_description};
pub(crate) use tell::{EventDetail, EventFormatter, describe_wait};
pub(crate) use words::{
    parse_age, format_ago, parse_dollars, format_bytes, format_clock, format_count, format_dollars, parse_duration, truncate, align_left, pluralize, format_timestamp, display_width,
};
