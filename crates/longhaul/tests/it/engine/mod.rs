//! The engine as its users see it: whole runs, on the memory store unless a test is about the disk.

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
mod dispatcher;
mod envelopes;
mod failures;
mod features;
mod glossary;
mod hooks;
mod isolation;
mod jobs;
mod letters;
mod limits;
mod lookups;
mod lost_answers;
mod processes;
mod pruning;
mod public_api;
mod recovery;
mod relaunching;
mod rooms;
mod stopping;
mod waiting;
mod warnings;
mod worktime;
