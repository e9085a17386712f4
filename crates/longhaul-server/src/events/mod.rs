//! What happens to tasks, as server-sent events.
//!
//! One [`EventHub`] per server reads the store's feed once, turns each entry into events once and writes each
//! event as bytes once. They are kept in a ring of bounded size. Every watcher has a place in the ring and
//! nothing else; one that begins further back reads from the store until it is inside the ring, and one that
//! falls out is told so and closed. It comes back with the id of its last event and misses nothing.

mod frame;
mod hub;
mod projection;
mod ring;
mod watcher;

pub use frame::{EventId, ParseEventIdError};
pub use hub::{EventHub, HubOptions, HubStats};
pub use watcher::{StreamEnd, Watch, WatchStart};
