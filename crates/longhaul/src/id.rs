//! Typed ids instead of bare strings.
//!
//! A [`TaskId`] is short enough for a person to read and a model to copy (`t-7f3k2`). It is not random: it is
//! the start of a hash of the task's [`TaskKey`], as long as needed to be unique in the store. The same key
//! therefore always finds the same task, which makes submitting idempotent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The characters of an id: base 32 without `i`, `l`, `o` and `u`, so that no two look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The length of the first candidate for a task's id, without its `t-`.
const SHORTEST: usize = 5;
/// The maximum length of an id: 75 bits, enough for any realistic store.
const LONGEST: usize = 15;

/// The id of a task: `t-` and 5 to 15 characters, unique in its store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    letters: [u8; LONGEST],
    len: u8,
}

/// Why a text is not a [`TaskId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a task id: an id looks like t-7f3k2")]
pub struct ParseTaskIdError(pub String);

impl TaskId {
    /// The id without its `t-`.
    pub fn letters(&self) -> &str {
        std::str::from_utf8(&self.letters[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Normalizes what a person or a model typed as an id, or as a prefix of one, to the form of
    /// [`letters`](Self::letters): lower case, without the `t-`. Returns `None` if it cannot be the start of
    /// an id.
    pub fn parse_prefix(typed: &str) -> Option<String> {
        let lower = typed.trim().to_ascii_lowercase();
        let letters = lower.strip_prefix("t-").unwrap_or(&lower);
        let fits = (1..=LONGEST).contains(&letters.len()) && letters.bytes().all(|b| ALPHABET.contains(&b));
        fits.then(|| letters.to_owned())
    }
}

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    fn from_str(text: &str) -> Result<Self, ParseTaskIdError> {
        let letters = TaskId::parse_prefix(text)
            .filter(|l| l.len() >= SHORTEST)
            .ok_or_else(|| ParseTaskIdError(text.chars().take(40).collect()))?;
        let mut id = TaskId { letters: [0; LONGEST], len: 0 };
        id.letters[..letters.len()].copy_from_slice(letters.as_bytes());
        id.len = u8::try_from(letters.len()).unwrap_or(0);
        Ok(id)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("t-{}", self.letters()))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t-{}", self.letters())
    }
}

impl Serialize for TaskId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The identity of a task: two submissions with the same key are the same task.
///
/// A child's key is derived from its parent's id and the call that launched it, a continuation's from the
/// task that it continues. Every other task gets a random key, or one that its submitter chose.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskKey(Arc<str>);

impl TaskKey {
    /// A new random key.
    pub fn random() -> Self {
        TaskKey(uuid::Uuid::now_v7().simple().to_string().into())
    }

    /// A key chosen by the submitter: the same text means the same task.
    pub fn named(words: &str) -> Self {
        TaskKey(format!("chosen:{words}").into())
    }

    /// The key of the child that `parent` launches with its call `call`.
    pub fn for_child(parent: TaskId, call: CallId) -> Self {
        TaskKey(format!("child:{parent}:{call}").into())
    }

    /// The key of the task that continues `old`: there is only one.
    pub fn for_continuation(old: TaskId) -> Self {
        TaskKey(format!("continues:{old}").into())
    }

    /// The key of the `nth` retry of `old`.
    pub fn for_retry(old: TaskId, nth: u32) -> Self {
        TaskKey(format!("retries:{old}:{nth}").into())
    }

    /// The ids that this key may have, shortest first. The task gets the first one that is free or already
    /// belongs to this key.
    pub fn candidate_ids(&self) -> impl Iterator<Item = TaskId> {
        let hash = Sha256::digest(self.0.as_bytes());
        let mut letters = [0; LONGEST];
        for (letter, byte) in letters.iter_mut().zip(hash) {
            *letter = ALPHABET[usize::from(byte & 31)];
        }
        (SHORTEST..=LONGEST).map(move |len| {
            let mut id = TaskId { letters: [0; LONGEST], len: u8::try_from(len).unwrap_or(0) };
            id.letters[..len].copy_from_slice(&letters[..len]);
            id
        })
    }

    /// The key as text, for a store to compare.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_name!(
    /// The name of an agent in its team.
    AgentName
);
text_name!(
    /// The id of a worker.
    WorkerId
);
text_name!(
    /// The id of a letter. A task accepts each letter id only once.
    LetterId
);
text_name!(
    /// The SHA-256 of a blob in the store, in hexadecimal.
    Digest
);

impl WorkerId {
    /// A new random worker id.
    pub fn random() -> Self {
        WorkerId(uuid::Uuid::now_v7().simple().to_string().into())
    }
}

impl LetterId {
    /// A new random letter id.
    pub fn random() -> Self {
        LetterId(uuid::Uuid::now_v7().simple().to_string().into())
    }

    /// An id chosen by the sender: the same text means the same letter.
    pub fn named(words: &str) -> Self {
        LetterId(format!("chosen:{words}").into())
    }

    /// The id of the one letter that tells a parent about the end of its child.
    pub fn for_task_end(child: TaskId) -> Self {
        LetterId(format!("end:{child}").into())
    }
}

impl Digest {
    /// The digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        use std::fmt::Write as _;
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            let _ = write!(hex, "{byte:02x}");
        }
        Digest(hex.into())
    }
}

/// How often a task has been claimed. It is the fence that keeps a superseded owner from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The attempt after this one.
    pub fn next(self) -> Self {
        Attempt(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of an entry in its task's journal. The first is 1; `Seq(0)` means "before everything".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a tool call in its task: the reply that made it, and its position in that reply.
///
/// Providers reuse their own call ids or leave them out. This id is unique in a task and survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId {
    /// The number of the reply, from 1.
    pub turn: u32,
    /// The position of the call in the reply, from 0.
    pub index: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.index)
    }
}

/// The id of a question in its task: the call that asks, and the number of the question within the call.
/// Number 0 asks whether the call may be made at all. Written `2.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId {
    /// The call.
    pub call: CallId,
    /// The number of the question within the call.
    pub nth: u32,
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.call, self.nth))
    }
}

/// Why a text is not a [`QuestionId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a question id: an id looks like 2.0.1")]
pub struct ParseQuestionIdError(pub String);

impl FromStr for QuestionId {
    type Err = ParseQuestionIdError;

    fn from_str(text: &str) -> Result<Self, ParseQuestionIdError> {
        let number = |part: &str| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()));
        let parts: Option<Vec<u32>> = text.trim().split('.').map(number).collect();
        match parts.as_deref() {
            Some([turn, index, nth]) => {
                Ok(QuestionId { call: CallId { turn: *turn, index: *index }, nth: *nth })
            }
            _ => Err(ParseQuestionIdError(text.chars().take(40).collect())),
        }
    }
}

impl Serialize for QuestionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QuestionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_as_it_was_shown() {
        for id in TaskKey::random().candidate_ids() {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(serde_json::from_str::<TaskId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        }
    }

    #[test]
    fn a_question_is_read_back_as_it_was_shown() {
        let question = QuestionId { call: CallId { turn: 12, index: 3 }, nth: 1 };
        assert_eq!(question.to_string(), "12.3.1");
        assert_eq!(" 12.3.1 ".parse(), Ok(question));
        for wrong in ["", "1.2", "1.2.3.4", "1.2.x", "1.2.+3", "1..3", "99999999999.0.0"] {
            assert!(wrong.parse::<QuestionId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_same_key_has_the_same_candidates_and_each_begins_with_the_one_before() {
        let key = TaskKey::named("nightly");
        let ids: Vec<_> = key.candidate_ids().collect();
        assert_eq!(ids, TaskKey::named("nightly").candidate_ids().collect::<Vec<_>>());
        assert!(ids.windows(2).all(|w| w[1].letters().starts_with(w[0].letters())));
        assert_ne!(ids[0], TaskKey::named("weekly").candidate_ids().next().unwrap());
    }

    #[test]
    fn what_people_type_is_understood_and_what_cannot_be_an_id_is_refused() {
        assert_eq!(TaskId::parse_prefix(" T-7F3 ").as_deref(), Some("7f3"));
        for wrong in ["", "t-", "t-il", "../etc", "t-0123456789abcdefg", "é"] {
            assert_eq!(TaskId::parse_prefix(wrong), None, "{wrong}");
        }
        assert!("t-7f3".parse::<TaskId>().is_err(), "a prefix is not an id");
    }
}
