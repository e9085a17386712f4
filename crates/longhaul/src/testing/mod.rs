//! What tests of Longhaul, and of anything that implements its traits, need (feature `testing`).

mod reply;
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "an exam is failed by panicking")]
pub mod store_exam;

pub use crate::model::FnModel;
pub use reply::{ReplyBuilder, reply};
