//! Keys: who has them, and how they stay with those who need them.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Where keys come from. The library reads no environment; whoever calls it does, or has them from elsewhere.
pub trait Keys: Send + Sync {
    /// The key of a name such as `OPENAI_API_KEY`.
    fn key(&self, name: &str) -> Option<SecretString>;
}

impl<F: Fn(&str) -> Option<SecretString> + Send + Sync> Keys for F {
    fn key(&self, name: &str) -> Option<SecretString> {
        self(name)
    }
}

/// Nobody has any key.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn key(&self, _name: &str) -> Option<SecretString> {
        None
    }
}

/// The first of these names that has a key, and the key without the white space that clings to it.
pub(super) fn first(keys: &dyn Keys, names: &[&str]) -> Option<(String, Key)> {
    names.iter().find_map(|name| {
        let key = keys.key(name)?;
        let key = key.expose_secret().trim();
        (!key.is_empty()).then(|| ((*name).to_owned(), Key::new(key)))
    })
}

/// A key. It shows itself to nobody.
#[derive(Clone)]
pub struct Key(SecretString);

impl Key {
    /// A key of this text.
    pub fn new(text: &str) -> Key {
        Key(SecretString::from(text.to_owned()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Tells keys apart without keeping them.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.expose().as_bytes()).into()
    }

    /// A text without this key in it.
    pub(super) fn scrub(&self, text: String) -> String {
        // Anything shorter is no key but a stand-in such as `none`, and may be a word of the text.
        match self.expose() {
            key if key.len() >= 8 && text.contains(key) => text.replace(key, SCRUBBED),
            _ => text,
        }
    }
}

/// What stands where a key was.
pub(super) const SCRUBBED: &str = "[key]";

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCRUBBED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_the_first_name_that_has_one_and_never_shown() {
        let keys = |name: &str| match name {
            "EMPTY" => Some(SecretString::from("  ".to_owned())),
            "REAL" => Some(SecretString::from("sk-very-secret\n".to_owned())),
            _ => None,
        };
        let (name, key) = first(&keys, &["NONE", "EMPTY", "REAL"]).unwrap();
        assert_eq!((name.as_str(), key.expose()), ("REAL", "sk-very-secret"));
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.scrub("bad key sk-very-secret!".into()), "bad key [key]!");
        assert_eq!(Key::new("none").scrub("none of it".into()), "none of it");
        assert!(first(&NoKeys, &["REAL"]).is_none());
    }
}
