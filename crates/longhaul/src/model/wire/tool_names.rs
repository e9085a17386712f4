//! Tool names that every provider accepts.
//!
//! Models call tools by names that were never offered (`functions.alpha beta`,
//! `assistant<|channel|>commentary`, an empty name), and MCP servers offer names that providers refuse. One
//! such name in a conversation fails every later request.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::ToolSpec;

/// The shortest length limit of any provider.
const LONGEST: usize = 64;
/// The length of the suffix of a changed name: an underscore and eight digits.
const MARK: usize = 9;

/// A name that every provider accepts: at most 64 of `a-z A-Z 0-9 _ -`, beginning with a letter or an
/// underscore.
///
/// A valid name stays unchanged. Any other gets a suffix with a hash of the whole name, so that two names
/// never collide and the same name always gives the same result. [`resolve_tool_name`] maps it back.
pub(crate) fn wire_name(name: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if name.len() <= LONGEST && name.chars().next().is_some_and(first) && name.chars().all(fine) {
        return Cow::Borrowed(name);
    }
    let mut cleaned = String::with_capacity(LONGEST);
    if !name.chars().next().is_some_and(first) {
        cleaned.push_str(if name.is_empty() { "unnamed" } else { "_" });
    }
    cleaned.extend(name.chars().map(|c| if fine(c) { c } else { '_' }).take(LONGEST - MARK - cleaned.len()));
    cleaned.push_str(&format!("_{:08x}", mark(name)));
    Cow::Owned(cleaned)
}

/// The tool that a model called: by its name, or by its wire name.
pub(crate) fn resolve_tool_name<'a>(called: &str, tools: &'a [Arc<ToolSpec>]) -> Option<&'a str> {
    let names = || tools.iter().map(|tool| tool.name.as_str());
    names().find(|name| *name == called).or_else(|| names().find(|name| wire_name(name) == called))
}

/// FNV-1a: the same in every process, because a conversation outlives the process that began it.
fn mark(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_name_is_taken_and_no_two_become_one() {
        let long = "x".repeat(90);
        let longer = format!("{long}y");
        let odd = [
            "functions.alpha beta",
            "functions_alpha_beta",
            "functions.alpha_beta",
            "assistant<|channel|>commentary",
            "",
            "unnamed",
            " ",
            "3d",
            "-dash",
            "größe",
            &long,
            &longer,
        ];
        let mut seen = HashSet::new();
        for name in odd {
            let wire = wire_name(name).into_owned();
            let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!((1..=64).contains(&wire.len()) && wire.chars().all(fine), "{name} → {wire}");
            assert!(wire.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), "{name} → {wire}");
            assert_eq!(wire_name(&wire), wire, "cleaned twice is cleaned once");
            assert!(seen.insert(wire), "{name}");
        }
        assert_eq!(wire_name("read_file"), "read_file");
    }

    #[test]
    fn a_cleaned_name_leads_back_to_its_tool() {
        let tool = |name: &str| {
            Arc::new(ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) })
        };
        let tools = [tool("a b"), tool("a.b"), tool("plain")];
        for name in ["a b", "a.b", "plain"] {
            assert_eq!(resolve_tool_name(&wire_name(name), &tools), Some(name));
        }
        assert_eq!(resolve_tool_name("a_b", &tools), None, "nobody offered that");
    }
}
