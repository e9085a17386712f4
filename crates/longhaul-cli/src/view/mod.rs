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

pub(crate) use asked::{Asked, Reply};
pub(crate) use block::{Frame, lines};
pub(crate) use board::Board;
pub(crate) use clean::{clean, one_line, typed, visible, visible_line};
pub(crate) use flow::Flow;
pub(crate) use paint::{Ink, Out, Term, glyph, standing};
pub(crate) use screen::{Line, Screen};
pub(crate) use tables::{Layout, summary, tasks, time_of, what};
pub(crate) use tell::{Detail, Teller, waits_for};
pub(crate) use words::{
    age, ago, amount, bytes, clock, count, dollars, duration, fit, left, many, moment, width,
};
