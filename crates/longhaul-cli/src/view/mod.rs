//! Formats output for people.

pub(crate) mod questions;
mod live_block;
mod answer_stream;
mod text_table;
pub(crate) mod markdown;
mod terminal_output;
mod live_region;
mod task_tables;
pub(crate) mod event_text;
pub(crate) mod text_format;
pub(crate) mod graphemes;

pub(crate) use answer_stream::AnswerStream;
pub(crate) use event_text::{EventDetail, EventFormatter};
pub(crate) use live_block::{LiveBlockFrame, live_block_lines};
pub(crate) use live_region::{LiveRegion, StyledLine};
pub(crate) use longhaul::transcript::{
    describe_wait, escape_invisible, one_line, sanitize, strip_control_chars,
};
pub(crate) use task_tables::{TaskLayout, summary_table, task_description, task_table, time_of};
pub(crate) use terminal_output::{Ink, OutputStream, TerminalOutput, status_glyph, status_label};
pub(crate) use text_format::{
    align_left, display_width, format_ago, format_bytes, format_clock, format_count, format_dollars,
    format_timestamp, parse_age, parse_dollars, parse_duration, pluralize, truncate,
};
