//! Models over HTTP, against a provider of our own on loopback.

mod server;
mod stage;
mod tls;

mod bodies;
mod concurrency;
mod costs;
mod fallback;
mod limits;
mod outage;
mod recording;
mod secrets;
mod small;
mod streams;
