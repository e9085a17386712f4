//! Sessions of browsers. They live in memory: after a restart the browser signs in again.

use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use super::Access;
use super::secret::Digest;

/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// How many there may be. The oldest ends when another one begins.
const MOST: usize = 100;

#[derive(Default)]
pub(super) struct Sessions(Vec<Session>);

struct Session {
    digest: Digest,
    access: Access,
    since: Instant,
}

impl Sessions {
    pub(super) fn add(&mut self, digest: Digest, access: Access) {
        self.expire();
        if self.0.len() >= MOST {
            self.0.remove(0).access.revoked.cancel();
        }
        self.0.push(Session { digest, access, since: Instant::now() });
    }

    pub(super) fn find(&mut self, digest: &Digest) -> Option<Access> {
        self.expire();
        let mut found = None;
        for session in &self.0 {
            if bool::from(session.digest.0.ct_eq(&digest.0)) {
                found = Some(session.access.clone());
            }
        }
        found
    }

    pub(super) fn remove(&mut self, digest: &Digest) {
        self.keep(|session| session.digest != *digest);
    }

    /// Drops the sessions that are too old or whose token was revoked.
    pub(super) fn expire(&mut self) {
        self.keep(|session| {
            session.since.elapsed() < SESSION_LIFETIME && !session.access.revoked.is_cancelled()
        });
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
