//! The engine as its users see it: whole runs, on the memory store unless a test is about the disk.

mod smoke;
mod stage;

mod chat;
mod continuing;
mod desk;
mod failures;
mod letters;
mod limits;
mod recovery;
mod stopping;
mod waiting;
