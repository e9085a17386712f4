//! The MCP client and real servers: those of the npm registry, pinned in `package-lock.json` and installed once.

mod calls;
mod consent;
mod kill;
mod last_words;
mod login;
mod npm;
mod remote;
mod servers;
mod sharing;
mod stage;
mod strange;
