//! The server that this process is, as its own agents see it: they may neither call it nor read what gives
//! access to it. Otherwise a page that an agent reads could make the agent start tasks, or answer its own
//! approvals.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::fetch::{DnsLookup, why_private};

/// The addresses that this process listens on, and the directories with its tokens and its store. Tools neither
/// connect to the former nor read the latter. Empty for a process that serves nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnServer {
    ports: Arc<[u16]>,
    hidden: Arc<[PathBuf]>,
}

impl OwnServer {
    /// Creates it from the addresses that the process listens on and the directories to hide.
    pub fn new(
        addresses: impl IntoIterator<Item = SocketAddr>,
        hidden: impl IntoIterator<Item = PathBuf>,
    ) -> OwnServer {
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        OwnServer {
            ports: addresses.into_iter().map(|address| address.port()).collect(),
            hidden: hidden.into_iter().map(real).collect(),
        }
    }

    /// The directories that tools may not read.
    pub fn hidden(&self) -> &[PathBuf] {
        &self.hidden
    }

    /// Whether a URL has one of its ports. The host has to be checked then.
    pub(super) fn has_port_of(&self, url: &Url) -> bool {
        url.port_or_known_default().is_some_and(|port| self.ports.contains(&port))
    }

    /// Whether a URL leads to it, as far as the URL itself shows. Names are left to the resolver.
    pub(super) fn is_at(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        self.has_port_of(url) && literal.parse().is_ok_and(is_this_machine)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }
}

/// Whether a path is one of these directories, or below one.
pub(super) fn is_hidden(hidden: &[PathBuf], path: &Path) -> bool {
    hidden.iter().any(|dir| path.starts_with(dir))
}

/// Whether an address belongs to this machine.
pub(super) fn is_this_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    // Also as an IPv4 address that is wrapped in an IPv6 one.
    matches!(why_private(ip), Some("a loopback address" | "an address of this machine"))
        // Only an address of this machine can be bound.
        || UdpSocket::bind((ip, 0)).is_ok()
}

/// Why a host is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0} is the address of this Longhaul server, which its own agents may not use")]
pub(super) struct OwnServerRefused(pub(super) String);

/// A resolver for requests to a port of the server: it refuses names of this machine.
pub(super) struct OwnServerResolver(pub(super) DnsLookup);

impl Resolve for OwnServerResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let looking = (self.0)(host.clone());
        Box::pin(async move {
            let found = looking.await?;
            if found.iter().copied().any(is_this_machine) {
                return Err(OwnServerRefused(host).into());
            }
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_address_is_known_in_every_spelling() {
        let own = OwnServer::new(["127.0.0.1:4670".parse().unwrap()], []);
        for spelling in [
            "http://127.0.0.1:4670/",
            "http://127.1:4670/",
            "http://127.0.1:4670/",
            "http://2130706433:4670/",
            "http://0x7f000001:4670/",
            "http://0x7f.1:4670/",
            "http://017700000001:4670/",
            "http://127.0.0.2:4670/",
            "http://0.0.0.0:4670/",
            "http://0:4670/",
            "https://127.0.0.1:4670/",
            "http://[::1]:4670/",
            "http://[::]:4670/",
            "http://[::ffff:127.0.0.1]:4670/",
            "http://[::ffff:7f00:1]:4670/",
            "http://[0:0:0:0:0:0:0:1]:4670/",
            "http://[64:ff9b::7f00:1]:4670/",
            "http://user@127.0.0.1:4670/",
            "http://１２７.0.0.1:4670/",
        ] {
            assert!(own.is_at(&spelling.parse().unwrap()), "{spelling}");
        }
        for other in ["http://127.0.0.1:4671/", "http://127.0.0.1/", "http://192.0.2.1:4670/"] {
            assert!(!own.is_at(&other.parse().unwrap()), "{other}");
        }
        assert!(OwnServer::new(["0.0.0.0:80".parse().unwrap()], []).is_at(&"http://127.1/".parse().unwrap()));
        assert!(!OwnServer::default().is_at(&"http://127.0.0.1:4670/".parse().unwrap()));
    }

    #[test]
    fn what_is_below_a_hidden_directory_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        let own = OwnServer::new([], [dir.path().join("link")]);
        let real = data.canonicalize().unwrap();
        assert!(is_hidden(own.hidden(), &real) && is_hidden(own.hidden(), &real.join("access/token")));
        assert!(!is_hidden(own.hidden(), real.parent().unwrap()));
        assert!(!is_hidden(own.hidden(), &dir.path().canonicalize().unwrap().join("data2")));
    }
}
