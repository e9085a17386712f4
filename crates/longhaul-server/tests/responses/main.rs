//! The OpenAI Responses API, over a real listener, on a real database, and with OpenAI's own SDKs.

mod clients;
mod http_api;
mod restart;
mod stage;
