//! Random secrets, and the digests that are kept of them.

use std::fmt::Write as _;

use sha2::Digest as _;

use super::AccessError;

/// The SHA-256 digest of a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(pub(super) [u8; 32]);

impl Digest {
    pub(super) fn of(secret: &str) -> Digest {
        Digest(sha2::Sha256::digest(secret.as_bytes()).into())
    }

    pub(super) fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<Digest> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(Digest(bytes))
    }
}

/// Makes a secret of 256 random bits. The prefix says what it is, so that scanners find one that leaked.
pub(super) fn random(prefix: &str) -> Result<String, AccessError> {
    let mut bytes = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| AccessError::NoRandom)?;
    Ok(format!("{prefix}{}", hex(&bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
