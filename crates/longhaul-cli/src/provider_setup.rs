//! What model providers need: environment variables, prices, and the network or a recording of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use longhaul::model::http::{Cassette, CassetteError, HttpClient, HttpOptions};
use longhaul::model::prices::PriceTable;

use crate::args::ProviderArgs;
use crate::exit::{CliError, CliExitCode};

/// Environment variables: from files first, then from the process.
#[derive(Clone, Default)]
pub(crate) struct EnvFileVariables(Arc<HashMap<String, String>>);

impl EnvFileVariables {
    /// Reads the files of `--env-from-file`. Fails if one cannot be read or has a line that is not
    /// NAME=VALUE.
    pub(crate) fn read(providers: &ProviderArgs) -> Result<EnvFileVariables, CliError> {
        let mut all = HashMap::new();
        for path in &providers.env_from_file {
            let text = read_flag_file(path, "--env-from-file")?;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let Some((name, value)) = line.strip_prefix("export ").unwrap_or(line).split_once('=') else {
                    // Do not print the line itself: it may contain a key.
                    let what = format!("{}:{}: this line is not NAME=VALUE", path.display(), number + 1);
                    return Err(CliError::new(CliExitCode::Usage, what)
                        .with_hint("lines that begin with # are ignored"));
                };
                all.insert(name.trim().to_owned(), unquoted(value.trim()).to_owned());
            }
        }
        Ok(EnvFileVariables(Arc::new(all)))
    }

    /// Returns the value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned().or_else(|| std::env::var(name).ok())
    }
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

/// Creates the HTTP client for model requests.
pub(crate) fn build_http(
    providers: &ProviderArgs,
    variables: &EnvFileVariables,
) -> Result<HttpClient, CliError> {
    let mut prices = PriceTable::built_in();
    if let Some(path) = &providers.prices {
        let text = read_flag_file(path, "--prices")?;
        prices = prices.with_overrides(&text).map_err(|error| {
            CliError::new(CliExitCode::Usage, format!("the prices in {} cannot be read: {error}", path.display()))
                .with_hint("the format is {\"openai/gpt-5\": {\"input\": 1250000, \"output\": 10000000}}, in millionths of a dollar for a million tokens")
        })?;
    }
    let base_urls = provider_base_urls(|name| variables.get(name));
    let options = HttpOptions::default()
        .system_proxy(true)
        .prices(prices)
        .base_urls(base_urls)
        .max_concurrent(providers.max_concurrent);
    let tape = |flag: &str, path: &Path, error: CassetteError| {
        let (file, hint) = (
            path.display().to_string(),
            match flag {
                "--record" => "name a file in a directory that you may write to",
                _ => "`longhaul run … --record FILE` makes a recording",
            },
        );
        let error = match error {
            CassetteError::File { error, .. } => error.to_string(),
            error => error.to_string(),
        };
        CliError::new(CliExitCode::Usage, format!("{flag}: {file} cannot be used: {error}")).with_hint(hint)
    };
    let made = match (&providers.record, &providers.replay) {
        (_, Some(path)) => {
            let cassette = Cassette::load(path).map_err(|error| tape("--replay", path, error))?;
            Ok(HttpClient::replaying(options, cassette))
        }
        (Some(path), None) => {
            let cassette = Cassette::create(path).map_err(|error| tape("--record", path, error))?;
            HttpClient::recording(options, cassette)
        }
        (None, None) => HttpClient::new(options),
    };
    made.map_err(|error| CliError::new(CliExitCode::Failed, error.to_string()))
}

/// The variables in which the SDKs of providers look for their base URL.
const BASE_URL_VARIABLES: [(&str, &str); 4] = [
    ("OPENAI_BASE_URL", "openai"),
    ("ANTHROPIC_BASE_URL", "anthropic"),
    ("GOOGLE_GEMINI_BASE_URL", "google"),
    ("AZURE_OPENAI_ENDPOINT", "azure"),
];

/// Returns the base URLs of providers, from the variables that their SDKs read, and of local servers, from
/// the variables that configure those servers.
fn provider_base_urls(get: impl Fn(&str) -> Option<String>) -> HashMap<String, String> {
    let set = |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let mut base_urls = HashMap::new();
    for (variable, provider) in BASE_URL_VARIABLES {
        base_urls.extend(set(variable).map(|url| (provider.to_owned(), url)));
    }
    if let Some(host) = set("OLLAMA_HOST") {
        base_urls.insert("ollama".to_owned(), server_base_url(&host, "11434"));
    }
    let (host, port) = (set("LLAMA_ARG_HOST"), set("LLAMA_ARG_PORT"));
    if host.is_some() || port.is_some() {
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        base_urls.insert("llamacpp".to_owned(), server_base_url(&host, port.as_deref().unwrap_or("8080")));
    }
    base_urls
}

/// Returns the base URL of a server that listens at `host`, `host:port`, `:port` or a URL.
fn server_base_url(listens: &str, port: &str) -> String {
    let (scheme, rest) = listens.split_once("://").unwrap_or(("http", listens));
    let (at, path) = rest.split_once('/').map_or((rest, ""), |(at, path)| (at, path.trim_matches('/')));
    let (host, own) = match at.rsplit_once(':') {
        Some((host, own)) if !own.contains(']') => (host, Some(own)),
        _ => (at, None),
    };
    // A server that listens on all interfaces is reachable on localhost.
    let host = if matches!(host, "" | "0.0.0.0" | "[::]" | "*") { "127.0.0.1" } else { host };
    let port = own.or((!listens.contains("://")).then_some(port));
    let path = if path.is_empty() { "/v1".to_owned() } else { format!("/{path}") };
    format!("{scheme}://{host}{}{path}", port.map(|port| format!(":{port}")).unwrap_or_default())
}

fn read_flag_file(path: &Path, flag: &str) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| {
        CliError::new(CliExitCode::Usage, format!("{flag}: {} cannot be read: {error}", path.display()))
            .with_hint("name a file that exists and that you may read")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EnvFileVariables, CliError> {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = dir.path().join("env");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        EnvFileVariables::read(&ProviderArgs { env_from_file: vec![path], ..ProviderArgs::default() })
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
    fn servers_are_found_where_they_listen() {
        for (listens, found) in [
            ("127.0.0.1", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:9000", "http://127.0.0.1:9000/v1"),
            (":9000", "http://127.0.0.1:9000/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
            ("[::1]:9000", "http://[::1]:9000/v1"),
            ("https://models.example", "https://models.example/v1"),
            ("http://models.example:81/ollama/v1/", "http://models.example:81/ollama/v1"),
        ] {
            assert_eq!(server_base_url(listens, "11434"), found);
        }
        let found = provider_base_urls(|name| (name == "LLAMA_ARG_PORT").then(|| "8081".to_owned()));
        assert_eq!(found, HashMap::from([("llamacpp".to_owned(), "http://127.0.0.1:8081/v1".to_owned())]));
        for (variable, provider) in BASE_URL_VARIABLES {
            let found =
                provider_base_urls(|name| (name == variable).then(|| "https://gateway.example".to_owned()));
            assert_eq!(found, HashMap::from([(provider.to_owned(), "https://gateway.example".to_owned())]));
        }
        assert_eq!(provider_base_urls(|_| None), HashMap::new());
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        let error = read("A=1\nsk-secret\n").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(":2: this line is not NAME=VALUE") && !error.contains("sk-secret"), "{error}");
    }
}
