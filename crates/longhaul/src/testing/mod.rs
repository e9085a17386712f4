//! What tests of Longhaul, and of anything that implements its traits, need (feature `testing`).

mod reply;
mod sse;
pub mod store_exam;

pub use crate::model::FnModel;
pub use reply::{ReplyBuilder, reply};
pub use sse::sse_events;
