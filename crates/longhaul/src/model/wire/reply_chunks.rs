//! Streams a reply as chunks.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::message::{Block, Call};
use crate::model::ReplyChunk;

/// Adds text to the chunks, merged with a text chunk right before it.
pub(super) fn push_text_chunk(chunks: &mut Vec<ReplyChunk>, text: &str) {
    match chunks.last_mut() {
        _ if text.is_empty() => {}
        Some(ReplyChunk::Text(said)) => said.push_str(text),
        _ => chunks.push(ReplyChunk::Text(text.to_owned())),
    }
}

/// Adds thinking to the chunks, merged with a thinking chunk right before it.
pub(super) fn push_reasoning_chunk(chunks: &mut Vec<ReplyChunk>, text: &str) {
    match chunks.last_mut() {
        _ if text.is_empty() => {}
        Some(ReplyChunk::Reasoning(thought)) => thought.push_str(text),
        _ => chunks.push(ReplyChunk::Reasoning(text.to_owned())),
    }
}

/// The prefix of the ids that Longhaul generates.
pub(super) const GENERATED_ID_PREFIX: &str = "lh_call_";

/// Gives a new id to every call whose id is missing or a duplicate.
pub(super) fn assign_call_ids(blocks: &mut [Block]) {
    let mut calls: Vec<&mut Call> = blocks
        .iter_mut()
        .filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    let mut used: HashSet<String> = HashSet::with_capacity(calls.len());
    for call in &mut calls {
        if !call.id.is_empty() && !used.insert(call.id.clone()) {
            call.id.clear();
        }
    }
    let mut n = 0;
    for call in calls {
        while call.id.is_empty() {
            n += 1;
            let id = format!("{GENERATED_ID_PREFIX}{n}");
            if used.insert(id.clone()) {
                call.id = id;
            }
        }
    }
}

/// A string from a provider: any other type counts as missing.
#[derive(Debug, Default)]
pub(super) struct LenientStr<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for LenientStr<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Lenient;
        impl<'de> Visitor<'de> for Lenient {
            type Value = LenientStr<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<LenientStr<'de>, E> {
                Ok(LenientStr::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<LenientStr<'de>, A::Error> {
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LenientStr::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<LenientStr<'de>, A::Error> {
                while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(LenientStr::default())
            }
        }
        from.deserialize_any(Lenient)
    }
}
