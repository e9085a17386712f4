//! What a model's name says about its capabilities.

/// A tier of Claude models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaudeTier {
    Opus,
    Sonnet,
    Haiku,
    /// The tiers that always think, e.g. Fable and Mythos.
    Deep,
    Unknown,
}

/// The tier and the version in a model's name. Other models also use this protocol; nothing is known about
/// those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaudeVersion {
    pub(super) tier: ClaudeTier,
    /// The version of a Claude model. A name without one counts as the newest.
    version: Option<(u32, u32)>,
}

impl ClaudeVersion {
    pub(super) fn from_name(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let Some(at) = name.find("claude") else {
            return ClaudeVersion { tier: ClaudeTier::Unknown, version: None };
        };
        let mut line = ClaudeTier::Unknown;
        let mut numbers = Vec::new();
        for word in name[at + "claude".len()..].split(|c: char| !c.is_ascii_alphanumeric()) {
            match word {
                "opus" => line = ClaudeTier::Opus,
                "sonnet" => line = ClaudeTier::Sonnet,
                "haiku" => line = ClaudeTier::Haiku,
                "fable" | "mythos" => line = ClaudeTier::Deep,
                _ if word.len() <= 2 => numbers.extend(word.parse::<u32>().ok()),
                _ => {}
            }
        }
        let newest = (u32::MAX, 0);
        let version = numbers.first().map_or(newest, |major| (*major, numbers.get(1).copied().unwrap_or(0)));
        ClaudeVersion { tier: line, version: Some(version) }
    }

    pub(super) fn is_claude(self) -> bool {
        self.version.is_some()
    }

    pub(super) fn is_at_least(self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version >= (major, minor))
    }

    pub(super) fn is_before(self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version < (major, minor))
    }

    /// Whether it supports only adaptive thinking: no budget, and no sampling parameters.
    pub(super) fn is_adaptive_only(self) -> bool {
        self.tier == ClaudeTier::Deep || self.is_at_least(4, 7)
    }

    /// Whether it supports adaptive thinking.
    pub(super) fn is_adaptive(self) -> bool {
        self.is_adaptive_only() || self.is_at_least(4, 6)
    }

    /// Whether it checks that nothing before its thinking has changed ("Preserved thinking").
    pub(super) fn binds_thinking(self) -> bool {
        let named = self.version.is_some_and(|(major, _)| major != u32::MAX);
        named && (self.is_at_least(5, 5) || self.tier == ClaudeTier::Deep && self.is_at_least(5, 1))
    }

    /// Whether it supports structured output.
    pub(super) fn enforces_schema(self) -> bool {
        self.is_at_least(4, 5)
    }

    pub(super) fn default_max_tokens(self) -> u64 {
        match self.version {
            None => 8_192,
            Some(version) if version < (3, 5) => 4_096,
            Some(version) if version < (3, 7) => 8_192,
            Some(_) => 32_000,
        }
    }
}

/// Whether two names mean the same model, ignoring a date, `-latest` and the host's prefix.
pub(super) fn same_model(one: &str, other: &str) -> bool {
    one == other || (core(one) == core(other) && !core(one).is_empty())
}

fn core(model: &str) -> &str {
    let model = model.rsplit('/').next().unwrap_or(model);
    let model = model.find("claude").and_then(|at| model.get(at..)).unwrap_or(model);
    let model = model.split(['@', ':']).next().unwrap_or(model);
    let model = model.strip_suffix("-latest").unwrap_or(model);
    match model.rsplit_once('-') {
        Some((rest, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_line_and_version() {
        let of = |name: &str| (ClaudeVersion::from_name(name).tier, ClaudeVersion::from_name(name).version);
        assert_eq!(of("claude-3-5-sonnet-20241022"), (ClaudeTier::Sonnet, Some((3, 5))));
        assert_eq!(of("claude-sonnet-4-20250514"), (ClaudeTier::Sonnet, Some((4, 0))));
        assert_eq!(of("claude-haiku-4-5-20251001"), (ClaudeTier::Haiku, Some((4, 5))));
        assert_eq!(of("anthropic/claude-opus-4.6"), (ClaudeTier::Opus, Some((4, 6))));
        assert_eq!(of("us.anthropic.claude-opus-4-7-v1:0"), (ClaudeTier::Opus, Some((4, 7))));
        assert_eq!(of("claude-opus-5"), (ClaudeTier::Opus, Some((5, 0))));
        assert_eq!(of("claude-mythos-preview"), (ClaudeTier::Deep, Some((u32::MAX, 0))));
        assert_eq!(of("qwen2.5-1.5b-instruct"), (ClaudeTier::Unknown, None));
    }

    #[test]
    fn names_of_the_same_model() {
        assert!(same_model("claude-haiku-4-5", "claude-haiku-4-5-20251001"));
        assert!(same_model("anthropic/claude-opus-5", "claude-opus-5"));
        assert!(!same_model("claude-opus-5", "claude-opus-5-5"));
        assert!(!same_model("", "claude-opus-5"));
    }
}
