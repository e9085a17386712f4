//! Idempotency: the ids that clients give their own calls.

use longhaul::Order;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The key of a call, if the client names its calls. The same call gets the same key when the client repeats it
/// after a crash.
///
/// The key covers the order too: a client that uses an id twice for different orders gets two tasks.
pub(super) fn call_key(meta: &Map<String, Value>, tool: &str, order: &Order) -> Option<String> {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned)
    };
    let claude = || text(meta.get("claudecode/toolUseId")).map(|id| vec!["claude".to_owned(), id]);
    let codex = || {
        let call = text(meta.get("callId"))?;
        let turn = meta.get("x-codex-turn-metadata")?;
        // An object, or one that is encoded as text.
        let session = match turn {
            Value::String(encoded) => text(serde_json::from_str::<Value>(encoded).ok()?.get("session_id")),
            turn => text(turn.get("session_id")),
        };
        Some(vec!["codex".to_owned(), session?, call])
    };
    let parts = claude().or_else(codex)?;
    let mut hash = Sha256::new();
    for part in parts.iter().map(String::as_str).chain([tool]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(serde_json::to_vec(order).ok()?);
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("mcp/{}/{digest}", parts.first()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(meta: Value, task: &str) -> Option<String> {
        call_key(meta.as_object()?, "ask_lead", &Order::new("lead", task))
    }

    #[test]
    fn a_repeated_call_has_the_same_key_and_another_has_not() {
        let claude = json!({"claudecode/toolUseId": "toolu_1"});
        let codex = |session: &str, call: &str| json!({"callId": call, "x-codex-turn-metadata": {"session_id": session}});
        let encoded = json!({"callId": "c1", "x-codex-turn-metadata": "{\"session_id\":\"s1\"}"});
        assert!(key(claude.clone(), "Go.").is_some());
        assert_eq!(key(claude.clone(), "Go."), key(claude.clone(), "Go."));
        assert_ne!(key(claude.clone(), "Go."), key(claude, "Stay."));
        assert_eq!(key(codex("s1", "c1"), "Go."), key(encoded, "Go."));
        assert_ne!(key(codex("s1", "c1"), "Go."), key(codex("s2", "c1"), "Go."));
        assert_ne!(key(codex("s1", "c1"), "Go."), key(codex("s1", "c2"), "Go."));
    }

    #[test]
    fn a_call_without_an_id_has_no_key() {
        for meta in [
            json!({}),
            json!({"claudecode/toolUseId": ""}),
            json!({"claudecode/toolUseId": 7}),
            json!({"callId": "c1"}),
            json!({"callId": "c1", "x-codex-turn-metadata": "nonsense"}),
        ] {
            assert_eq!(key(meta.clone(), "Go."), None, "{meta}");
        }
    }
}
