//! Sessions of browsers. They are kept in a file, as digests, so that a browser stays signed in when the server
//! restarts. A session ends with its time or its token, or when somebody signs out.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::access_dir::read_text;
use super::secret::Digest;
use super::{Access, AccessDir, AccessError, KnownToken};

/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// How many there may be. The oldest ends when another one begins.
const MOST: usize = 100;

/// The file with the sessions.
pub(super) const SESSIONS: &str = "sessions.json";

/// A session as it is kept.
#[derive(Clone, Copy)]
pub(super) struct StoredSession {
    digest: Digest,
    /// The token that it came from. Another token of the same name is not that token.
    token: Digest,
    expires: Timestamp,
}

impl StoredSession {
    pub(super) fn new(digest: Digest, token: Digest) -> StoredSession {
        StoredSession { digest, token, expires: Timestamp::now() + SESSION_LIFETIME }
    }

    fn is_current(&self) -> bool {
        let now = Timestamp::now();
        // A clock that was set back does not make a session longer.
        now < self.expires && self.expires <= now + SESSION_LIFETIME
    }
}

#[derive(Serialize, Deserialize)]
struct SessionLine {
    sha256: String,
    token_sha256: String,
    expires: Timestamp,
}

#[derive(Default, Serialize, Deserialize)]
struct SessionFile {
    sessions: Vec<SessionLine>,
}

impl AccessDir {
    /// The sessions that have not expired.
    pub(super) fn read_sessions(&self) -> Result<Vec<StoredSession>, AccessError> {
        let path = self.path().join(SESSIONS);
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(AccessError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let file: SessionFile = serde_json::from_str(&text)
            .map_err(|error| AccessError::Damaged { path, why: error.to_string() })?;
        let stored = file.sessions.iter().filter_map(|line| {
            let digest = Digest::from_hex(&line.sha256)?;
            Some(StoredSession {
                digest,
                token: Digest::from_hex(&line.token_sha256)?,
                expires: line.expires,
            })
        });
        Ok(stored.filter(StoredSession::is_current).collect())
    }

    /// Keeps a new session.
    pub(super) fn add_session(&self, new: StoredSession) -> Result<(), AccessError> {
        self.change_sessions(|sessions| {
            let surplus = (sessions.len() + 1).saturating_sub(MOST);
            sessions.drain(..surplus);
            sessions.push(new);
        })
    }

    /// Ends a session.
    pub(super) fn remove_session(&self, digest: &Digest) -> Result<(), AccessError> {
        self.change_sessions(|sessions| sessions.retain(|session| session.digest != *digest))
    }

    /// Ends the sessions of a token that was revoked. They are not valid without it; this only tidies up. The
    /// caller holds the lock.
    pub(super) fn forget_sessions_of(&self, token: &Digest) {
        let Ok(mut sessions) = self.read_sessions() else { return };
        let before = sessions.len();
        sessions.retain(|session| session.token != *token);
        if sessions.len() < before {
            let _ = self.write_sessions(&sessions);
        }
    }

    fn change_sessions(&self, change: impl FnOnce(&mut Vec<StoredSession>)) -> Result<(), AccessError> {
        let _lock = self.lock()?;
        // A file that cannot be trusted is replaced: nobody is signed in by it.
        let mut sessions = self.read_sessions().unwrap_or_default();
        change(&mut sessions);
        self.write_sessions(&sessions)
    }

    fn write_sessions(&self, sessions: &[StoredSession]) -> Result<(), AccessError> {
        let line = |session: &StoredSession| SessionLine {
            sha256: session.digest.to_hex(),
            token_sha256: session.token.to_hex(),
            expires: session.expires,
        };
        self.replace_file(SESSIONS, &SessionFile { sessions: sessions.iter().map(line).collect() })
    }
}

/// The sessions that are valid, with the access that each gives.
#[derive(Default)]
pub(super) struct Sessions(Vec<Session>);

struct Session {
    stored: StoredSession,
    access: Access,
}

impl Sessions {
    /// Takes over the sessions of the file. Those that stay keep their streams; the others end.
    pub(super) fn replace(&mut self, stored: &[StoredSession], tokens: &[KnownToken]) {
        let is_same = |one: &StoredSession, other: &StoredSession| {
            one.digest == other.digest && one.token == other.token && one.expires == other.expires
        };
        self.keep(|session| stored.iter().any(|stored| is_same(stored, &session.stored)));
        for stored in stored {
            let token = tokens.iter().find(|token| token.digest == stored.token);
            if let Some(token) = token.filter(|_| self.0.iter().all(|had| had.stored.digest != stored.digest))
            {
                let revoked = token.access.revoked.child_token();
                let access = Access { revoked, ..token.access.clone() };
                self.0.push(Session { stored: *stored, access });
            }
        }
    }

    pub(super) fn find(&mut self, digest: &Digest) -> Option<Access> {
        self.expire();
        // Compare with all of them, so that the time does not tell which one came close.
        let mut found = None;
        for session in &self.0 {
            if bool::from(session.stored.digest.0.ct_eq(&digest.0)) {
                found = Some(session.access.clone());
            }
        }
        found
    }

    /// Ends a session, also if it could not be removed from the file.
    pub(super) fn end(&mut self, digest: &Digest) {
        self.keep(|session| session.stored.digest != *digest);
    }

    /// Drops the sessions that are too old or whose token was revoked.
    pub(super) fn expire(&mut self) {
        self.keep(|session| session.stored.is_current() && !session.access.revoked.is_cancelled());
    }

    fn keep(&mut self, stays: impl Fn(&Session) -> bool) {
        self.0.retain(|session| {
            let stays = stays(session);
            if !stays {
                session.access.revoked.cancel();
            }
            stays
        });
    }
}
