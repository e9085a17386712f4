//! Attacks on a real listener. Each test is named after what is refused; docs/serve.md names the advisories of
//! other servers that they come from.

mod connections;
mod credentials;
mod kit;
mod origins;
mod routes;
mod streams;
