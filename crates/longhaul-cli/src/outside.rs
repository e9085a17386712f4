//! What comes from outside this program: variables of the environment, prices, the network or a recording of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use longhaul::model::http::{Cassette, Http, HttpOptions};
use longhaul::model::prices::Prices;

use crate::args::Outside;
use crate::exit::{Code, Trouble};

/// Variables: those of files first, then those of the process.
#[derive(Clone, Default)]
pub(crate) struct Variables(Arc<HashMap<String, String>>);

impl Variables {
    /// The variables of these files.
    pub(crate) fn read(outside: &Outside) -> Result<Variables, Trouble> {
        let mut all = HashMap::new();
        for path in &outside.env_from_file {
            let text = file(path, "--env-from-file")?;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let Some((name, value)) = line.strip_prefix("export ").unwrap_or(line).split_once('=') else {
                    // Not the line itself: it may be a key.
                    let what = format!("{}:{}: this line is not NAME=VALUE", path.display(), number + 1);
                    return Err(Trouble::new(Code::Usage, what).hint("lines that begin with # are left out"));
                };
                all.insert(name.trim().to_owned(), unquoted(value.trim()).to_owned());
            }
        }
        Ok(Variables(Arc::new(all)))
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned().or_else(|| std::env::var(name).ok())
    }
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

/// The way to models.
pub(crate) fn http(outside: &Outside) -> Result<Http, Trouble> {
    let mut prices = Prices::shipped();
    if let Some(path) = &outside.prices {
        let text = file(path, "--prices")?;
        prices = prices.overlaid(&text).map_err(|error| {
            Trouble::new(Code::Usage, format!("the prices in {} cannot be read: {error}", path.display()))
                .hint("the form is {\"openai/gpt-5\": {\"input\": 1250000, \"output\": 10000000}}, in millionths of a dollar for a million tokens")
        })?;
    }
    let options = HttpOptions { system_proxy: true, prices, ..HttpOptions::default() };
    let tape = |error: longhaul::model::http::CassetteError| Trouble::new(Code::Usage, error.to_string());
    let made = match (&outside.record, &outside.replay) {
        (_, Some(path)) => Ok(Http::replaying(options, Cassette::load(path).map_err(tape)?)),
        (Some(path), None) => Http::recording(options, Cassette::create(path).map_err(tape)?),
        (None, None) => Http::new(options),
    };
    made.map_err(|error| Trouble::new(Code::Failed, error.to_string()))
}

fn file(path: &Path, flag: &str) -> Result<String, Trouble> {
    std::fs::read_to_string(path).map_err(|error| {
        Trouble::new(Code::Usage, format!("{flag}: {} cannot be read: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Variables, Trouble> {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = dir.path().join("env");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        Variables::read(&Outside { env_from_file: vec![path], ..Outside::default() })
    }

    #[test]
    fn variables_come_from_files_first() {
        let all =
            read("# keys\n\nPATH=\"mine\"\nexport KEY='a=b'\n").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(all.get("PATH").as_deref(), Some("mine"));
        assert_eq!(all.get("KEY").as_deref(), Some("a=b"));
        assert_eq!(all.get("LONGHAUL_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        let error = read("A=1\nsk-secret\n").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(":2: this line is not NAME=VALUE") && !error.contains("sk-secret"), "{error}");
    }
}
