//! Tests on a real server.
