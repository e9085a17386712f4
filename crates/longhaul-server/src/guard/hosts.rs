//! Which names the server answers to. A page of another site that resolves its own name to this machine
//! (DNS rebinding) sends its own name as the Host.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{StatusCode, Version};

use crate::problem::Problem;

/// The header with which a browser says where a request comes from. Pages cannot set it.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The names that the server answers to.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    tls: bool,
    port: u16,
    hosts: Vec<AllowedHost>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    /// Name and port as in a Host header, in lower case.
    authority: String,
    /// Whether a proxy in front may use the other scheme.
    any_scheme: bool,
}

/// A name that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the name of a host: write NAME or NAME:PORT, without a scheme or path")]
pub struct HostError(String);

impl AllowedHosts {
    /// The names of this machine, with the port that the server listens on.
    pub fn loopback(tls: bool, port: u16) -> AllowedHosts {
        let mut hosts = AllowedHosts { tls, port, hosts: Vec::new() };
        for name in ["127.0.0.1", "[::1]", "localhost"] {
            hosts.push(name, false);
        }
        hosts
    }

    /// Also answers to the address that the server listens on, unless that is every address.
    #[must_use]
    pub fn with_address(mut self, address: SocketAddr) -> AllowedHosts {
        if !address.ip().is_unspecified() {
            let name = match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            };
            self.push(&name, false);
        }
        self
    }

    /// Also answers to a name: `NAME` with the server's port or the usual one, `NAME:PORT` exactly.
    pub fn allow(mut self, name: &str) -> Result<AllowedHosts, HostError> {
        let name = name.trim().to_ascii_lowercase();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']' | '_');
        let authority = name.parse::<http::uri::Authority>().ok().filter(|_| name.chars().all(fits));
        let authority = authority.filter(|found| !found.host().is_empty() && found.as_str() == name);
        let Some(authority) = authority else { return Err(HostError(name)) };
        match authority.port_u16() {
            Some(_) => self.hosts.push(AllowedHost { authority: name, any_scheme: true }),
            None if authority.host() != name => return Err(HostError(name)),
            None => {
                self.push(&name, true);
                self.hosts.push(AllowedHost { authority: name, any_scheme: true });
            }
        }
        Ok(self)
    }

    fn push(&mut self, name: &str, any_scheme: bool) {
        let authority = format!("{name}:{}", self.port);
        self.hosts.push(AllowedHost { authority, any_scheme });
        if self.port == if self.tls { 443 } else { 80 } {
            self.hosts.push(AllowedHost { authority: name.to_owned(), any_scheme });
        }
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the client sees HTTPS: from here, or from a proxy in front.
    pub(super) fn is_https(&self, parts: &Parts) -> bool {
        let origin = parts.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        self.tls || origin.is_some_and(|origin| origin.starts_with("https://"))
    }

    /// Checks the Host of a request: there is one, it is said once, and it is one of ours.
    pub(super) fn check_host(&self, parts: &Parts) -> Result<(), Problem> {
        let mut headers = parts.headers.get_all(HOST).iter();
        let header = match (headers.next(), headers.next()) {
            (_, Some(_)) => return Err(Problem::invalid("the request has several Host headers")),
            (Some(host), None) => Some(host.to_str().unwrap_or_default().to_ascii_lowercase()),
            (None, None) => None,
        };
        // HTTP/2 has it in `:authority`; HTTP/1 has one there if the whole URL is in the request line.
        let authority = parts.uri.authority().map(|authority| authority.as_str().to_ascii_lowercase());
        if parts.version < Version::HTTP_2 && header.is_none() {
            return Err(Problem::invalid("the request has no Host header"));
        }
        let host = match (header, authority) {
            (Some(host), Some(authority)) if host != authority => {
                return Err(Problem::invalid("the Host header and the URL of the request differ"));
            }
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) => return Err(Problem::invalid("the request has no Host header")),
        };
        if self.hosts.iter().any(|known| known.authority == host) {
            return Ok(());
        }
        let detail = "the server does not answer to the Host of this request";
        Err(Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", "The Host is not allowed", detail)
            .with_hint("use the address that `longhaul serve` prints, or start it with `--allow-host NAME`"))
    }

    /// Refuses requests that a page of another origin sends. A program sends no Origin.
    pub(super) fn check_origin(&self, parts: &Parts) -> Result<(), Problem> {
        let foreign = || {
            let detail = "requests from pages of other origins are refused";
            Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", "The Origin is not allowed", detail)
        };
        let all_own =
            parts.headers.get_all(ORIGIN).iter().all(|origin| self.is_own_origin(origin.as_bytes()));
        if !all_own || parts.headers.get_all(ORIGIN).iter().count() > 1 {
            return Err(foreign());
        }
        for site in parts.headers.get_all(SEC_FETCH_SITE) {
            let is_link = parts.headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
                && super::pages::is_start_page(&parts.method, parts.uri.path());
            let is_own = site == "same-origin" || site == "none";
            if !is_own && !is_link {
                return Err(foreign());
            }
        }
        Ok(())
    }

    fn is_own_origin(&self, origin: &[u8]) -> bool {
        let Ok(origin) = std::str::from_utf8(origin) else { return false };
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let own = if self.tls { "https" } else { "http" };
        let known = |host: &AllowedHost| {
            host.authority == authority
                && (scheme == own || (host.any_scheme && matches!(scheme, "http" | "https")))
        };
        self.hosts.iter().any(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &AllowedHosts, headers: &[(&str, &str)], uri: &str) -> Option<u16> {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        hosts.check_host(&parts).and_then(|()| hosts.check_origin(&parts)).err().map(|problem| problem.status)
    }

    #[test]
    fn a_host_is_exact() {
        let hosts = AllowedHosts::loopback(false, 4670);
        for good in ["127.0.0.1:4670", "[::1]:4670", "localhost:4670", "LocalHost:4670"] {
            assert_eq!(check(&hosts, &[("host", good)], "/"), None, "{good}");
        }
        for bad in [
            "127.0.0.1",
            "localhost",
            "127.0.0.1:80",
            "127.0.0.1:46700",
            "127.0.0.2:4670",
            "127.1:4670",
            "evil.example:4670",
            "localhost.evil.example:4670",
            "evil.localhost:4670",
            "localhost.:4670",
            "a@127.0.0.1:4670",
            "127.0.0.1:4670,evil",
            "[::ffff:127.0.0.1]:4670",
            "",
        ] {
            assert_eq!(check(&hosts, &[("host", bad)], "/"), Some(403), "{bad}");
        }
        assert_eq!(check(&hosts, &[], "/"), Some(400));
        let twice = [("host", "localhost:4670"), ("host", "localhost:4670")];
        assert_eq!(check(&hosts, &twice, "/"), Some(400));
        assert_eq!(check(&hosts, &[("host", "localhost:4670")], "http://evil.example/"), Some(400));
        assert_eq!(check(&hosts, &[("host", "evil.example")], "http://evil.example/"), Some(403));
        assert_eq!(check(&hosts, &[("host", "localhost:4670")], "http://localhost:4670/x"), None);
        let usual = AllowedHosts::loopback(true, 443);
        assert_eq!(check(&usual, &[("host", "localhost")], "/"), None);
    }

    #[test]
    fn an_origin_is_ours_or_none() {
        let hosts = AllowedHosts::loopback(false, 4670).allow("agents.example").unwrap();
        let host = ("host", "127.0.0.1:4670");
        for good in ["http://127.0.0.1:4670", "http://localhost:4670", "https://agents.example"] {
            assert_eq!(check(&hosts, &[host, ("origin", good)], "/"), None, "{good}");
        }
        for bad in [
            "null",
            "http://evil.example",
            "https://127.0.0.1:4670",
            "http://127.0.0.1:4671",
            "http://127.0.0.1",
            "http://localhost:4670.evil.example",
            "http://evil.example#http://localhost:4670",
            "file://",
            "",
        ] {
            assert_eq!(check(&hosts, &[host, ("origin", bad)], "/"), Some(403), "{bad}");
        }
        let two = [host, ("origin", "http://127.0.0.1:4670"), ("origin", "http://evil.example")];
        assert_eq!(check(&hosts, &two, "/"), Some(403));
        for site in ["cross-site", "same-site", "other"] {
            assert_eq!(check(&hosts, &[host, ("sec-fetch-site", site)], "/v1/models"), Some(403), "{site}");
        }
        let link = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(check(&hosts, &link, "/"), None, "a link to the start page, which shows nothing");
        assert_eq!(check(&hosts, &link, "/api/v1/tasks"), Some(403));
    }

    #[test]
    fn names_are_added_as_they_are_written() {
        let hosts = AllowedHosts::loopback(true, 8443);
        let hosts = hosts.allow("Agents.Example").unwrap().allow("box:9000").unwrap();
        for good in ["agents.example", "agents.example:8443", "box:9000"] {
            assert_eq!(check(&hosts, &[("host", good)], "/"), None, "{good}");
        }
        for bad in ["agents.example:9000", "box", "box:8443"] {
            assert_eq!(check(&hosts, &[("host", bad)], "/"), Some(403), "{bad}");
        }
        for wrong in ["", "https://x", "x/y", "a b", "x:", "*", "u@x", "x:99999"] {
            assert!(AllowedHosts::loopback(false, 1).allow(wrong).is_err(), "{wrong}");
        }
    }
}
