//! The engine as its users see it: whole runs, on the memory store unless a test is about the disk.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod moody;
mod ownership;
mod smoke;
mod stage;
mod starting;

mod asking;
mod backgrounding;
mod chat;
mod consent;
mod continuing;
mod desk;
mod envelopes;
mod failures;
mod features;
#[cfg(unix)]
mod glossary;
mod hooks;
mod isolation;
#[cfg(unix)]
mod jobs;
mod letters;
mod limits;
#[cfg(unix)]
mod processes;
mod pruning;
mod recovery;
mod relaunching;
mod rooms;
mod stopping;
mod waiting;
mod warnings;
mod worktime;
