//! Who may use the server: tokens with scopes, and browser sessions.
//!
//! [`AccessDir`] is the directory in which tokens are kept; commands write it while a server runs.
//! [`AccessControl`] is the server's view of it: it notices a revoked token at the next request, and ends the
//! streams of that token within a second. Sessions survive a restart of the server.

mod access_dir;
mod secret;
mod sessions;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

pub use access_dir::{AccessDir, AccessError, CODE_LIFETIME, DEFAULT_TOKEN, NewToken, TokenRecord};
use access_dir::{FileStamp, StoredToken, TOKENS};
use secret::Digest;
pub(crate) use sessions::SESSION_LIFETIME;
use sessions::{SESSIONS, Sessions, StoredSession};

/// How often the server looks for revoked tokens when no request comes in. Open streams end after at most
/// this time.
const REVOCATION_POLL: Duration = Duration::from_millis(250);

/// What a token allows. Each scope includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read tasks, events and results.
    Read,
    /// Start, answer, message and stop tasks.
    Run,
    /// Change what is served.
    Admin,
}

impl Scope {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Run => "run",
            Scope::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The access that a request has. Handlers find it in the extensions of the request.
#[derive(Debug, Clone)]
pub struct Access {
    /// The name of the token, or of the token that the browser session came from.
    pub token: Arc<str>,
    /// What it allows.
    pub scope: Scope,
    /// Fires when the token is revoked or the session ends. The guard ends responses by itself then.
    pub revoked: CancellationToken,
}

impl Access {
    /// The access of a request with two credentials: only what both allow.
    pub(crate) fn weaker(self, other: Access) -> Access {
        if other.scope < self.scope { other } else { self }
    }
}

/// Checks tokens, codes and sessions. Clones share their state.
#[derive(Clone)]
pub struct AccessControl(Arc<AccessInner>);

struct AccessInner {
    dir: AccessDir,
    tokens: Mutex<LoadedTokens>,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct LoadedTokens {
    /// The files that were loaded; `None` before the first load and if there is no file.
    stamp: Option<FileStamp>,
    sessions_stamp: Option<FileStamp>,
    tokens: Vec<KnownToken>,
    is_loaded: bool,
}

struct KnownToken {
    digest: Digest,
    access: Access,
}

impl AccessControl {
    /// Loads the tokens of a directory. Fails if they cannot be read.
    pub fn open(dir: AccessDir) -> Result<AccessControl, AccessError> {
        dir.read_tokens()?;
        let inner = AccessInner { dir, tokens: Mutex::default(), sessions: Mutex::default() };
        let control = AccessControl(Arc::new(inner));
        control.refresh();
        Ok(control)
    }

    /// The access that a token gives; `None` if there is no such token.
    pub fn check_token(&self, presented: &str) -> Option<Access> {
        self.refresh();
        let presented = Digest::of(presented);
        let loaded = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        // Compare with all of them, so that the time does not tell which one came close.
        let mut found = None;
        for token in &loaded.tokens {
            if bool::from(token.digest.0.ct_eq(&presented.0)) {
                found = Some(token.access.clone());
            }
        }
        found
    }

    /// The access that a browser's session gives; `None` if there is no such session.
    pub fn check_session(&self, presented: &str) -> Option<Access> {
        self.refresh();
        self.sessions().find(&Digest::of(presented))
    }

    /// Turns a one-time code into a session. Returns the session's secret; `None` if the code is wrong, was
    /// used before, has expired, or belongs to a token that was revoked.
    pub fn sign_in(&self, code: &str) -> Option<(String, Access)> {
        self.refresh();
        let name = self.0.dir.redeem_code(code)?;
        let token = {
            let loaded = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            loaded.tokens.iter().find(|token| *token.access.token == *name)?.digest
        };
        let secret = secret::random("lhs_").ok()?;
        let digest = Digest::of(&secret);
        if let Err(error) = self.0.dir.add_session(StoredSession::new(digest, token)) {
            tracing::error!(%error, "the session cannot be kept; nobody is signed in");
            return None;
        }
        let access = self.check_session(&secret)?;
        Some((secret, access))
    }

    /// Ends a session.
    pub fn sign_out(&self, presented: &str) {
        let digest = Digest::of(presented);
        if let Err(error) = self.0.dir.remove_session(&digest) {
            tracing::error!(%error, "a session cannot be removed from the disk");
        }
        self.refresh();
        self.sessions().end(&digest);
    }

    /// Ends the streams of revoked tokens and expired sessions. Never returns: run it while the server runs.
    pub async fn watch(&self) {
        let mut poll = tokio::time::interval(REVOCATION_POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            self.refresh();
            self.sessions().expire();
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads tokens and sessions again if their files have changed. If one cannot be read, nothing in it is
    /// valid.
    fn refresh(&self) {
        let mut loaded = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.0.dir.stamp_of(TOKENS);
        let sessions_stamp = self.0.dir.stamp_of(SESSIONS);
        let is_same = loaded.stamp == stamp;
        if loaded.is_loaded && is_same && loaded.sessions_stamp == sessions_stamp {
            return;
        }
        if !(loaded.is_loaded && is_same) {
            let stored = self.0.dir.read_tokens().unwrap_or_else(|error| {
                tracing::error!(%error, "the tokens cannot be read; every request is refused");
                Vec::new()
            });
            loaded.replace(stored);
        }
        let sessions = self.0.dir.read_sessions().unwrap_or_else(|error| {
            tracing::error!(%error, "the sessions cannot be read; browsers have to sign in again");
            Vec::new()
        });
        let mut valid = self.sessions();
        valid.replace(&sessions, &loaded.tokens);
        valid.expire();
        loaded.stamp = stamp;
        loaded.sessions_stamp = sessions_stamp;
        loaded.is_loaded = true;
    }
}

impl LoadedTokens {
    /// Takes over the tokens of the file. Tokens that stay keep their streams; the others end.
    fn replace(&mut self, stored: Vec<StoredToken>) {
        let before = std::mem::take(&mut self.tokens);
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for token in before {
            let stays = stored.iter().any(|stored| {
                stored.digest == token.digest
                    && *stored.record.name == *token.access.token
                    && stored.record.scope == token.access.scope
            });
            if stays { kept.push(token) } else { gone.push(token) }
        }
        for stored in stored {
            if !kept.iter().any(|token| token.digest == stored.digest) {
                let access = Access {
                    token: stored.record.name.into(),
                    scope: stored.record.scope,
                    revoked: CancellationToken::new(),
                };
                kept.push(KnownToken { digest: stored.digest, access });
            }
        }
        self.tokens = kept;
        for token in gone {
            token.access.revoked.cancel();
        }
    }
}

#[cfg(test)]
mod tests;
