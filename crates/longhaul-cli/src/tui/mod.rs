//! The screen that people leave open: all tasks, what they do, and what they want from whoever watches.
//!
//! [`model`] is what it knows, [`update`] what happens to that, [`draw`] how it looks: all three without IO. [`edge`] is
//! the rest: it reads keys, listens to the store, does what is wished for and draws, at most thirty times a second and only
//! when something has changed.

mod areas;
mod blocks;
mod calls;
mod deeds;
mod draw;
mod edge;
mod find;
mod forest;
mod help;
mod input;
mod keys;
mod model;
mod mouse;
mod moves;
mod pages;
mod running;
mod talk;
mod terminal;
mod theme;
mod typing;
mod update;
mod wishes;

use crate::view::wrap;

pub(crate) use edge::run;

#[cfg(test)]
mod testing;
