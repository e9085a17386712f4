//! Redacts what looks like a secret in tool output, before a model or the journal receives it.

use std::sync::Arc;

use regex::{Captures, Regex};

use super::Toolset;
use super::wrappers::map_tools;
use crate::model::ToolSpec;
use crate::tool::{CallContext, CallFuture, DynTool, PreviewFuture, ToolEffects, ToolError, ToolOutput};

/// The text that replaces a secret.
const REDACTED: &str = "[redacted]";

/// Patterns of secrets. The first group of a pattern is kept.
const SECRET_PATTERNS: [&str; 12] = [
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    r"\b(?:sk|xai|gsk|rk)-[A-Za-z0-9_-]{20,}",
    r"\b(?:gh[pousr]|npm|hf|gsk|glpat)[_-][A-Za-z0-9_-]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{40,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"(://[^/\s:@]+:)[^/\s@]+@",
    r"(?i)(\bauthorization:\s*(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}",
    r#"(\b[A-Z0-9_]*(?:API_?KEY|SECRET|TOKEN|PASSWORD|PASSWD)(?:_[A-Z0-9_]*)?=["']?)[^\s"']{6,}"#,
];

/// Wraps a toolset: redacts what looks like a secret in its output. It finds provider keys in their known
/// formats, private keys, passwords in URLs, and values assigned to variables with names such as `PASSWORD`.
/// It does not find other secrets.
pub fn with_redaction(inner: Arc<dyn Toolset>) -> Arc<dyn Toolset> {
    let patterns: Arc<[Regex]> =
        SECRET_PATTERNS.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect();
    map_tools(inner, move |tool| Arc::new(RedactingTool { tool, patterns: patterns.clone() }))
}

struct RedactingTool {
    tool: Arc<dyn DynTool>,
    patterns: Arc<[Regex]>,
}

impl DynTool for RedactingTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn effects(&self) -> ToolEffects {
        self.tool.effects()
    }

    fn wrapped(&self) -> Option<&dyn DynTool> {
        Some(&*self.tool)
    }

    fn preview<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> PreviewFuture<'a> {
        Box::pin(async move {
            let mut change = self.tool.preview(arguments, context).await?;
            change.diff = redact_secrets(&self.patterns, change.diff);
            Some(change)
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let clean = |text: String| redact_secrets(&self.patterns, text);
            match self.tool.call(arguments, context).await {
                Ok(output) => Ok(ToolOutput { text: clean(output.text), ..output }),
                Err(ToolError::Retry(text)) => Err(ToolError::Retry(clean(text))),
                Err(ToolError::Failed(text)) => Err(ToolError::Failed(clean(text))),
                Err(ToolError::Fatal(text)) => Err(ToolError::Fatal(clean(text))),
            }
        })
    }
}

fn redact_secrets(patterns: &[Regex], mut text: String) -> String {
    for pattern in patterns {
        if pattern.is_match(&text) {
            let blot = |found: &Captures<'_>| {
                let stays = found.get(1).map_or("", |group| group.as_str());
                let end = if found[0].ends_with('@') { "@" } else { "" };
                format!("{stays}{REDACTED}{end}")
            };
            text = pattern.replace_all(&text, blot).into_owned();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_blotted_out_and_nothing_else() {
        let patterns: Vec<Regex> =
            SECRET_PATTERNS.iter().map(|pattern| Regex::new(pattern).unwrap()).collect();
        let blot = |text: &str| redact_secrets(&patterns, text.to_owned());
        for secret in [
            "sk-proj-abcdefghijklmnopqrstuv",
            "ghp_0123456789abcdefghij0123456789abcdef",
            "AKIAABCDEFGHIJKLMNOP",
            "xoxb-1234567890-abc",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXZhbHVl",
            "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----",
        ] {
            assert_eq!(blot(&format!("a {secret} b")), "a [redacted] b");
        }
        assert_eq!(blot("postgres://me:hunter2@db/x"), "postgres://me:[redacted]@db/x");
        assert_eq!(blot("DB_PASSWORD='hunter22' x"), "DB_PASSWORD='[redacted]' x");
        assert_eq!(blot("Authorization: Bearer abcdef012345"), "Authorization: Bearer [redacted]");
        for plain in [
            "the token is missing",
            "let token = next();",
            "https://example.com/a:b@c",
            "task-force and sk-learn",
            "MAX_TOKENS=1000000",
        ] {
            assert_eq!(blot(plain), plain);
        }
    }
}
