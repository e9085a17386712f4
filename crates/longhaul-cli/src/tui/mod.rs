//! The TUI: shows all tasks, what they do, and what they need from the user.
//!
//! [`model`] is the state, [`update`] changes it, [`draw`] renders it: all three without IO. [`event_loop`]
//! does the rest: it reads keys, listens to the store, runs effects and draws, at most thirty times a second
//! and only when something has changed.

mod layout;
mod transcript_view;
mod signals;
mod side_effects;
mod draw;
mod event_loop;
mod text_search;
mod tree;
mod help;
mod text_input;
mod key_bindings;
mod model;
mod mouse;
mod navigation;
mod detail_page;
mod running;
mod terminal;
mod theme;
mod prompt_input;
mod update;
mod actions;

use crate::view::graphemes;

pub(crate) use event_loop::run;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod transcript_tests;
