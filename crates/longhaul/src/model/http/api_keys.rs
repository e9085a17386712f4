//! API keys: where they come from, and how they are kept out of texts.

use std::fmt;

use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// A source of keys. The library does not read the environment; its caller does, or gets the keys elsewhere.
pub trait KeySource: Send + Sync {
    /// The key in a variable such as `OPENAI_API_KEY`, if it is set.
    fn key(&self, name: &str) -> Option<SecretString>;
}

impl<F: Fn(&str) -> Option<SecretString> + Send + Sync> KeySource for F {
    fn key(&self, name: &str) -> Option<SecretString> {
        self(name)
    }
}

/// A source without keys.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKeys;

impl KeySource for NoKeys {
    fn key(&self, _name: &str) -> Option<SecretString> {
        None
    }
}

/// The first of these variables that holds a key, and the key without surrounding white space.
pub(super) fn first_key(keys: &dyn KeySource, names: &[&str]) -> Option<(String, ApiKey)> {
    names.iter().find_map(|name| {
        let key = keys.key(name)?;
        let key = key.expose_secret().trim();
        (!key.is_empty()).then(|| ((*name).to_owned(), ApiKey::new(key)))
    })
}

/// A key. Its `Debug` output does not show it.
#[derive(Clone)]
pub struct ApiKey(SecretString);

impl ApiKey {
    /// A key of this text.
    pub fn new(text: &str) -> ApiKey {
        ApiKey(SecretString::from(text.to_owned()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Tells keys apart without storing them.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.expose().as_bytes()).into()
    }

    /// Removes this key from a text.
    #[cfg(test)]
    fn redact(&self, text: String) -> String {
        scrub(text, std::slice::from_ref(self))
    }
}

/// Removes these secrets from a text: raw, as JSON or a URL writes them, whole or cut off.
pub(super) fn scrub(text: String, secrets: &[ApiKey]) -> String {
    let mut forms: Vec<String> = Vec::new();
    // Anything shorter is a placeholder such as `none`, not a key, and may be a word of the text.
    for secret in secrets.iter().map(ApiKey::expose).filter(|secret| secret.len() >= 8) {
        let json = serde_json::to_string(secret).unwrap_or_default();
        let json = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        let url = Url::parse_with_params("http://h", [("", secret)]).ok();
        let query = url.as_ref().and_then(|url| url.query()).unwrap_or_default().trim_start_matches('=');
        forms.extend([secret, json, query].map(str::to_owned));
    }
    forms.sort_unstable();
    forms.dedup();
    // Replace whole secrets first: replacing a cut-off form first would leave the rest of an encoded one.
    let whole = forms.iter().fold(text, |text, form| text.replace(form, REDACTED));
    forms.iter().fold(whole, |text, form| without_half(text, form))
}

/// Removes a cut-off form of this word from a text: half of it or more.
fn without_half(text: String, word: &str) -> String {
    let least = word.floor_char_boundary((word.len() / 2).max(8));
    let beginning = &word[..least];
    if !text.contains(beginning) {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(beginning) {
        clean.push_str(&rest[..at]);
        clean.push_str(REDACTED);
        let same = rest[at..].bytes().zip(word.bytes()).take_while(|(a, b)| a == b).count();
        rest = &rest[rest.ceil_char_boundary(at + same)..];
    }
    clean.push_str(rest);
    clean
}

/// The replacement for a key.
pub(super) const REDACTED: &str = "[key]";

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
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
        let (name, key) = first_key(&keys, &["NONE", "EMPTY", "REAL"]).unwrap();
        assert_eq!((name.as_str(), key.expose()), ("REAL", "sk-very-secret"));
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.redact("bad key sk-very-secret!".into()), "bad key [key]!");
        assert_eq!(key.redact("sk-very is not it".into()), "sk-very is not it");
        assert_eq!(key.redact("cut off: sk-very-sec… (401)".into()), "cut off: [key]… (401)");
        assert_eq!(ApiKey::new("none").redact("none of it".into()), "none of it");
        let odd = ApiKey::new("a/b+c=\"d\\e&f");
        let shown = format!("{0} {0:?} a%2Fb%2Bc%3D%22d%5Ce%26f", odd.expose());
        assert_eq!(odd.redact(shown), "[key] \"[key]\" [key]");
        assert!(first_key(&NoKeys, &["REAL"]).is_none());
    }
}
