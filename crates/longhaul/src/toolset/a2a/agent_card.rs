//! The card of a remote agent: its name, its skills, and how to reach it.

use reqwest::Url;
use serde_json::Value;

use super::wire::A2aVersion;
use crate::toolset::http_client::{RemoteToolError, display_url, parse_web_url};
use crate::toolset::text::truncate;

/// The parts of a card that are used here.
#[derive(Debug, Clone)]
pub(super) struct AgentCard {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) skills: Vec<A2aSkill>,
    /// The endpoint for requests, and the protocol version it speaks.
    pub(super) url: Url,
    pub(super) version: A2aVersion,
    pub(super) streaming: bool,
}

#[derive(Debug, Clone)]
pub(super) struct A2aSkill {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
}

impl AgentCard {
    /// Parses a card that was fetched from `at`.
    pub(super) fn parse(text: &str, at: &Url) -> Result<AgentCard, RemoteToolError> {
        let card: Value = serde_json::from_str(text)
            .map_err(|error| RemoteToolError(format!("its agent card is not JSON: {error}")))?;
        let words = |value: &Value, most: usize| truncate(value.as_str().unwrap_or_default().trim(), most);
        let name = words(&card["name"], 100);
        if name.is_empty() {
            return Err(RemoteToolError("its agent card has no name".to_owned()));
        }
        let skill = |skill: &Value| A2aSkill {
            id: words(&skill["id"], 100),
            name: words(&skill["name"], 100),
            description: words(&skill["description"], 1_000),
        };
        let skills = card["skills"].as_array().into_iter().flatten().take(100).map(skill).collect();
        let (url, version) = interface(&card, at)?;
        Ok(AgentCard {
            name,
            description: words(&card["description"], 2_000),
            skills,
            url,
            version,
            streaming: card["capabilities"]["streaming"] == true,
        })
    }
}

/// Finds the JSON-RPC endpoint. Since 1.0 it is one of several interfaces; before that it is the URL of the
/// card or one of its additional transports.
fn interface(card: &Value, at: &Url) -> Result<(Url, A2aVersion), RemoteToolError> {
    let is_rpc = |binding: &Value| binding.as_str().is_none_or(|word| word.eq_ignore_ascii_case("JSONRPC"));
    let whole = |url: &Value| match url.as_str().map(str::trim) {
        None | Some("") => Ok(origin(at)),
        Some(text) => match parse_web_url(text) {
            Ok(url) => Ok(url),
            Err(_) if !text.contains("://") => {
                at.join(text).map_err(|error| RemoteToolError(error.to_string()))
            }
            Err(why) => Err(RemoteToolError(format!(
                "its agent card names the address '{}': {why}",
                truncate(text, 100)
            ))),
        },
    };
    if let Some(interfaces) = card["supportedInterfaces"].as_array() {
        let found = interfaces.iter().find(|one| is_rpc(&one["protocolBinding"]));
        let Some(found) = found else { return Err(no_rpc()) };
        let new = found["protocolVersion"].as_str().is_none_or(|version| !version.starts_with("0."));
        return Ok((whole(&found["url"])?, if new { A2aVersion::V1 } else { A2aVersion::V0 }));
    }
    if is_rpc(&card["preferredTransport"]) {
        return Ok((whole(&card["url"])?, A2aVersion::V0));
    }
    let others = card["additionalInterfaces"].as_array().into_iter().flatten();
    match others.into_iter().find(|one| one["transport"].is_string() && is_rpc(&one["transport"])) {
        Some(found) => Ok((whole(&found["url"])?, A2aVersion::V0)),
        None => Err(no_rpc()),
    }
}

fn no_rpc() -> RemoteToolError {
    RemoteToolError("its agent card names no interface that speaks JSON-RPC".to_owned())
}

fn origin(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path("/");
    url.set_query(None);
    url
}

/// Checks whether headers that are meant for one URL may be sent to another.
pub(super) fn check_headers_allowed(configured: &Url, card: &Url) -> Result<(), RemoteToolError> {
    let same = configured.host_str() == card.host_str()
        && configured.port_or_known_default() == card.port_or_known_default()
        && (configured.scheme() == card.scheme() || card.scheme() == "https");
    match same {
        true => Ok(()),
        false => Err(RemoteToolError(format!(
            "its agent card says that it is spoken to at {}, which is another server: the headers are not sent there. \
             Set `url` to that address if it is right.",
            display_url(card)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(card: Value) -> Result<AgentCard, RemoteToolError> {
        AgentCard::parse(
            &card.to_string(),
            &Url::parse("https://agents.example/.well-known/agent-card.json").unwrap(),
        )
    }

    #[test]
    fn cards_of_both_generations_are_read() {
        let old = read(
            json!({"name": "Old", "url": "https://agents.example/rpc", "protocolVersion": "0.3.0",
            "capabilities": {"streaming": true}, "skills": [{"id": "s", "name": "S", "description": "does s"}]}),
        );
        let old = old.unwrap();
        assert_eq!(
            (old.url.as_str(), old.version, old.streaming),
            ("https://agents.example/rpc", A2aVersion::V0, true)
        );
        assert_eq!(old.skills[0].description, "does s");
        let new = read(json!({"name": "New", "supportedInterfaces": [
            {"url": "https://agents.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "https://agents.example/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}));
        let new = new.unwrap();
        assert_eq!(
            (new.url.as_str(), new.version, new.streaming),
            ("https://agents.example/v1", A2aVersion::V1, false)
        );
        let both = read(json!({"name": "B", "preferredTransport": "GRPC", "url": "https://agents.example/g",
            "additionalInterfaces": [{"transport": "JSONRPC", "url": "/j"}]}));
        assert_eq!(both.unwrap().url.as_str(), "https://agents.example/j");
        assert_eq!(read(json!({"name": "N"})).unwrap().url.as_str(), "https://agents.example/");
        for (card, says) in [
            (json!({}), "has no name"),
            (json!({"name": "x", "preferredTransport": "GRPC"}), "no interface that speaks JSON-RPC"),
            (json!({"name": "x", "supportedInterfaces": []}), "no interface that speaks JSON-RPC"),
            (json!({"name": "x", "url": "file:///etc/passwd"}), "names the address 'file:///etc/passwd'"),
        ] {
            assert!(read(card).unwrap_err().to_string().contains(says));
        }
    }

    #[test]
    fn headers_stay_with_the_server_they_are_for() {
        let url = |text: &str| Url::parse(text).unwrap();
        let configured = url("http://a.example:8080/x");
        assert!(check_headers_allowed(&configured, &url("http://a.example:8080/rpc")).is_ok());
        for other in ["http://b.example:8080/", "http://a.example/", "http://a.example:8081/"] {
            assert!(
                check_headers_allowed(&configured, &url(other))
                    .unwrap_err()
                    .to_string()
                    .contains("another server"),
                "{other}"
            );
        }
        assert!(check_headers_allowed(&url("https://a.example/"), &url("http://a.example:443/")).is_err());
    }
}
