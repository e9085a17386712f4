//! What people see.

mod block;
mod board;
mod clean;
mod grid;
mod paint;
mod screen;
mod tables;
mod tell;
mod words;

pub(crate) use block::{Frame, lines};
pub(crate) use board::Board;
pub(crate) use clean::{clean, one_line};
pub(crate) use paint::{Ink, Out, Term, glyph, standing};
pub(crate) use screen::Screen;
pub(crate) use tables::{summary, tasks};
pub(crate) use tell::{Detail, Teller, waits_for};
pub(crate) use words::{ago, count, duration, elapsed, many, moment};
