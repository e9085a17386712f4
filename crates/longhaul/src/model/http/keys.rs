//! Keys: who has them, and how they stay with those who need them.

use std::fmt;

use reqwest::Url;
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

    /// A text without this key in it: as it is, as JSON or a URL write it, whole or cut off.
    pub(super) fn scrub(&self, text: String) -> String {
        let key = self.expose();
        // Anything shorter is no key but a stand-in such as `none`, and may be a word of the text.
        if key.len() < 8 {
            return text;
        }
        let json = serde_json::to_string(key).unwrap_or_default();
        let json = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        let url = Url::parse_with_params("http://h", [("", key)]).ok();
        let query = url.as_ref().and_then(|url| url.query()).unwrap_or_default().trim_start_matches('=');
        let forms = [key, json, query];
        forms.iter().enumerate().fold(text, |text, (n, form)| match forms[..n].contains(form) {
            true => text,
            false => without(text, form),
        })
    }
}

/// A text without this word, and without what is left of it where it was cut off: half of it, or more.
fn without(text: String, word: &str) -> String {
    if word.len() < 8 {
        return text;
    }
    let least = word.floor_char_boundary((word.len() / 2).max(8));
    let beginning = &word[..least];
    if !text.contains(beginning) {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(beginning) {
        clean.push_str(&rest[..at]);
        clean.push_str(SCRUBBED);
        let same = rest[at..].bytes().zip(word.bytes()).take_while(|(a, b)| a == b).count();
        rest = &rest[rest.ceil_char_boundary(at + same)..];
    }
    clean.push_str(rest);
    clean
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
        assert_eq!(key.scrub("sk-very is not it".into()), "sk-very is not it");
        assert_eq!(key.scrub("cut off: sk-very-sec… (401)".into()), "cut off: [key]… (401)");
        assert_eq!(Key::new("none").scrub("none of it".into()), "none of it");
        let odd = Key::new("a/b+c=\"d\\e&f");
        let shown = format!("{0} {0:?} a%2Fb%2Bc%3D%22d%5Ce%26f", odd.expose());
        assert_eq!(odd.scrub(shown), "[key] \"[key]\" [key]");
        assert!(first(&NoKeys, &["REAL"]).is_none());
    }
}
