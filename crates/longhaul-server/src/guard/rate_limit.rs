//! How many requests a token may send, and how many wrong tokens are answered. The address of the client
//! plays no part: neither loopback nor a proxy is an exception.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::StatusCode;

use super::GuardLimits;
use crate::problem::ProblemDocument;

pub(super) struct RateLimits {
    limits: GuardLimits,
    requests: Mutex<HashMap<Arc<str>, Bucket>>,
    wrong_tokens: Mutex<Bucket>,
}

/// Tokens that are taken out one by one and come back over time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(burst: f64, now: Instant) -> Bucket {
        Bucket { left: burst, at: now }
    }

    fn take(&mut self, per_second: f64, burst: f64, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + waited * per_second).min(burst);
        self.at = now;
        let is_there = self.left >= 1.0;
        if is_there {
            self.left -= 1.0;
        }
        is_there
    }
}

impl RateLimits {
    pub(super) fn new(limits: &GuardLimits) -> RateLimits {
        let wrong_tokens = Mutex::new(Bucket::full(limits.wrong_token_burst, Instant::now()));
        RateLimits { limits: limits.clone(), requests: Mutex::default(), wrong_tokens }
    }

    /// Counts a request of a token.
    pub(super) fn take_request(&self, token: &Arc<str>) -> Result<(), ProblemDocument> {
        let GuardLimits { requests_per_second, request_burst, .. } = self.limits;
        let now = Instant::now();
        let mut buckets = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(token.clone()).or_insert_with(|| Bucket::full(request_burst, now));
        match bucket.take(requests_per_second, request_burst, now) {
            true => Ok(()),
            false => Err(throttled(format!("the token '{token}' sends too many requests"))),
        }
    }

    /// Counts a wrong token. Fails if there were too many.
    pub(super) fn take_wrong_token(&self) -> Result<(), ProblemDocument> {
        let GuardLimits { wrong_tokens_per_second, wrong_token_burst, .. } = self.limits;
        let mut bucket = self.wrong_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        match bucket.take(wrong_tokens_per_second, wrong_token_burst, Instant::now()) {
            true => Ok(()),
            false => Err(throttled("too many requests with a wrong token")),
        }
    }
}

fn throttled(detail: impl Into<String>) -> ProblemDocument {
    ProblemDocument::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_requests",
        "There are too many requests",
        detail,
    )
    .with_hint("wait a second, then send fewer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let start = Instant::now();
        let mut bucket = Bucket::full(2.0, start);
        let taken: Vec<bool> = (0..3).map(|_| bucket.take(1.0, 2.0, start)).collect();
        assert_eq!(taken, [true, true, false]);
        assert!(bucket.take(1.0, 2.0, start + Duration::from_millis(1_100)));
        assert!(!bucket.take(1.0, 2.0, start + Duration::from_millis(1_200)));
        let much_later = start + Duration::from_secs(100);
        let taken = (0..5).filter(|_| bucket.take(1.0, 2.0, much_later)).count();
        assert_eq!(taken, 2, "never more than the burst");
    }
}
