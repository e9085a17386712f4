//! Token prices. The program ships a small table; a file of the same format can override it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::message::Usage;

/// The token prices of one model, in millionths of a dollar per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Price {
    /// Input tokens.
    pub input: u64,
    /// Input tokens read from the provider's cache. Default: `input`.
    pub cached: Option<u64>,
    /// Input tokens written to the provider's cache. Default: `input`.
    pub cache_write: Option<u64>,
    /// Output tokens.
    pub output: u64,
    /// The prices of a request with a very long input, if they differ.
    pub above: Option<Above>,
}

/// The prices of a request whose input is longer than a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Above {
    /// The limit in input tokens, including those read from the cache.
    pub tokens: u64,
    /// As in [`Price`].
    pub input: u64,
    /// As in [`Price`].
    pub cached: Option<u64>,
    /// As in [`Price`].
    pub cache_write: Option<u64>,
    /// As in [`Price`].
    pub output: u64,
}

impl Price {
    /// Whether all prices are zero.
    pub fn is_free(&self) -> bool {
        self.input == 0
            && self.output == 0
            && self.cached.unwrap_or(0) == 0
            && self.cache_write.unwrap_or(0) == 0
    }

    /// The cost of this usage, in millionths of a dollar.
    pub fn cost_of(&self, usage: &Usage) -> u64 {
        let fresh = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written);
        let (input, cached, cache_write, output) = match self.above.filter(|above| usage.input > above.tokens)
        {
            Some(above) => (above.input, above.cached, above.cache_write, above.output),
            None => (self.input, self.cached, self.cache_write, self.output),
        };
        let parts = [
            (fresh, input),
            (usage.cached, cached.unwrap_or(input)),
            (usage.cache_written, cache_write.unwrap_or(input)),
            (usage.output, output),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from((sum + 500_000) / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// A table of prices, by `provider/model`. A model that is not in it has no known price.
#[derive(Debug, Clone)]
pub struct PriceTable(Arc<BTreeMap<String, Option<Price>>>);

impl PriceTable {
    /// The table that ships with the program.
    pub fn built_in() -> PriceTable {
        let table = serde_json::from_str(include_str!("prices.json")).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the built-in price table: no price is known");
            BTreeMap::new()
        });
        PriceTable(Arc::new(table))
    }

    /// A table without prices.
    pub fn empty() -> PriceTable {
        PriceTable(Arc::default())
    }

    /// A copy of this table with overrides: `{"openai/gpt-5": {"input": 1250000, "output": 10000000}}`.
    /// `null` makes a price unknown. Fails if the JSON is not such a table.
    pub fn with_overrides(&self, json: &str) -> Result<PriceTable, serde_json::Error> {
        let over: BTreeMap<String, Option<Price>> = serde_json::from_str(json)?;
        let mut table = (*self.0).clone();
        table.extend(over.into_iter().map(|(name, price)| (name.to_ascii_lowercase(), price)));
        Ok(PriceTable(Arc::new(table)))
    }

    /// The maker's model that is closest to a name that is not in the table, if one is close. A name that may
    /// be a new model is not treated as a typo.
    pub fn meant(&self, maker: &str, model: &str) -> Option<&str> {
        let named = format!("{maker}/{}", model.to_ascii_lowercase());
        if self.0.contains_key(&named) {
            return None;
        }
        let model = undated_name(model);
        let of_maker = |name: &'_ str| name.strip_prefix(maker).is_some_and(|rest| rest.starts_with('/'));
        let known = self.0.keys().filter(|name| of_maker(name)).map(|name| &name[maker.len() + 1..]);
        super::spelling::nearest_model(model, known)
    }

    /// The price of a model, or of the model that it is a dated version of.
    pub fn price_of(&self, name: &str) -> Option<Price> {
        let name = name.to_ascii_lowercase();
        if let Some(price) = self.0.get(&name) {
            return *price;
        }
        self.0.get(undated_name(&name)).copied().flatten()
    }
}

/// `openai/gpt-5-2025-08-07` is a dated version of `openai/gpt-5`; so are `…-20250929`, `…-latest` and
/// `…@20250929`.
fn undated_name(name: &str) -> &str {
    let name = name.strip_suffix("-latest").unwrap_or(name);
    let dated = |tail: &str| tail.len() >= 4 && tail.chars().all(|c| c.is_ascii_digit() || c == '-');
    let marks = name.char_indices().filter(|(_, c)| matches!(c, '-' | '@'));
    for (at, _) in marks {
        let tail = &name[at + 1..];
        let digits = tail.chars().filter(char::is_ascii_digit).count();
        if dated(tail) && (digits == 8 || digits == 4 && tail.len() == 4) {
            return &name[..at];
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, cache_written: u64, output: u64) -> Usage {
        Usage { input, cached, cache_written, output, reasoning: 0 }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price = Price {
            input: 3_000_000,
            cached: Some(300_000),
            cache_write: Some(3_750_000),
            output: 15_000_000,
            above: None,
        };
        assert_eq!(price.cost_of(&usage(1_000_000, 0, 0, 0)), 3_000_000);
        assert_eq!(price.cost_of(&usage(1_000, 400, 100, 200)), 1_500 + 120 + 375 + 3_000);
        let plain = Price { input: 1_000_000, cached: None, cache_write: None, output: 0, above: None };
        assert_eq!(plain.cost_of(&usage(10, 4, 4, 99)), 10);
        assert_eq!(plain.cost_of(&usage(u64::MAX, 0, 0, 0)), u64::MAX);
        assert_eq!(plain.cost_of(&usage(1, 2, 0, 0)), 2, "more from the cache than read at all is believed");
    }

    #[test]
    fn the_table_is_whole_and_editions_are_found() {
        let prices = PriceTable::built_in();
        assert!(prices.0.len() > 50);
        assert!(prices.0.keys().all(|name| *name == name.to_ascii_lowercase() && name.contains('/')));
        let sonnet = prices.price_of("anthropic/claude-sonnet-4-5").unwrap();
        assert_eq!((sonnet.input, sonnet.output), (3_000_000, 15_000_000));
        assert_eq!(prices.price_of("anthropic/claude-sonnet-4-5-20250929"), Some(sonnet));
        assert_eq!(prices.price_of("OpenAI/gpt-5-2025-08-07"), prices.price_of("openai/gpt-5"));
        assert!(prices.price_of("openai/gpt-5").is_some());
        // The names that docker-agent's examples use.
        for name in
            ["claude-sonnet-4-0", "claude-opus-4-0", "claude-3-7-sonnet-latest", "claude-3-5-haiku-latest"]
        {
            assert!(prices.price_of(&format!("anthropic/{name}")).is_some(), "{name}");
        }
        // The newer models on Anthropic's "Pricing" page, and an alias that points to another model every few
        // weeks.
        let dollars =
            |name: &str| prices.price_of(name).map(|price| (price.input, price.cached, price.output));
        assert_eq!(dollars("anthropic/claude-opus-5-5"), Some((4_000_000, Some(200_000), 20_000_000)));
        assert_eq!(dollars("anthropic/claude-fable-5-1"), Some((10_000_000, Some(250_000), 50_000_000)));
        assert_eq!(dollars("google/gemini-flash-latest"), None);
        assert_eq!(prices.price_of("openai/gpt-99"), None, "unknown is unknown, not free");
        assert_eq!(prices.price_of("acme/gpt-5"), None);
    }

    /// Some models charge more for a long request, and for all of its tokens.
    #[test]
    fn a_long_request_has_its_own_price() {
        let cost = |name: &str, usage| PriceTable::built_in().price_of(name).unwrap().cost_of(&usage);
        assert_eq!(cost("anthropic/claude-haiku-5-5", usage(100_000, 0, 0, 1_000)), 10_000 + 500);
        assert_eq!(
            cost("anthropic/claude-haiku-5-5", usage(200_000, 100_000, 0, 1_000)),
            50_000 + 5_000 + 2_500
        );
        assert_eq!(
            cost("openai/gpt-5.4", usage(300_000, 0, 0, 0)),
            2 * cost("openai/gpt-5.4", usage(150_000, 0, 0, 0)) * 2
        );
        assert_eq!(cost("google/gemini-2.5-pro", usage(200_001, 0, 0, 0)), 500_003);
    }

    #[test]
    fn no_known_name_is_taken_for_a_misspelt_one_and_none_of_its_editions() {
        let prices = PriceTable::built_in();
        for name in prices.0.keys() {
            let (maker, model) = name.split_once('/').unwrap();
            for edition in ["", "-2031-02-03", "-20310203", "-latest"] {
                let model = format!("{model}{edition}");
                assert_eq!(prices.meant(maker, &model), None, "{maker}/{model}");
            }
        }
        assert_eq!(prices.meant("anthropic", "claude-sonet-4-5"), Some("claude-sonnet-4-5"));
        assert_eq!(prices.meant("anthropic", "claude-sonet-4-5-20250929"), Some("claude-sonnet-4-5"));
        assert_eq!(prices.meant("openai", "claude-sonet-4-5"), None);
    }

    #[test]
    fn a_file_is_laid_over_the_table() {
        let json = r#"{"Acme/One": {"input": 5, "output": 6}, "openai/gpt-5": null}"#;
        let prices = PriceTable::built_in().with_overrides(json).unwrap();
        assert_eq!(prices.price_of("acme/one").map(|price| price.output), Some(6));
        assert_eq!(prices.price_of("openai/gpt-5"), None);
        assert!(prices.price_of("openai/gpt-5-mini").is_some());
        assert!(PriceTable::empty().with_overrides(r#"{"a/b": {"input": 1}}"#).is_err());
        assert!(
            PriceTable::empty().with_overrides(r#"{"a/b": {"input": 1, "output": 1, "Output": 2}}"#).is_err()
        );
    }
}
