use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::address::why_private;
use super::fetch_client::DnsLookup;
use super::{Fetch, PageFormat};
use crate::toolset::OwnServer;
use crate::toolset::loopback::{LoopbackAction, LoopbackServer, http_response};
use crate::toolset::tool_fixture::ToolFixture;

/// A toolset that may connect anywhere.
async fn anywhere() -> ToolFixture {
    ToolFixture::new(&Fetch::new().allow_private(true)).await
}

/// A lookup that returns these addresses one after the other, and counts its calls.
fn fixed_lookup(addresses: &[&str]) -> (DnsLookup, Arc<AtomicUsize>) {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let times = Arc::new(AtomicUsize::new(0));
    let counted = times.clone();
    let lookup: DnsLookup = Arc::new(move |_| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        let address = addresses[n.min(addresses.len() - 1)];
        Box::pin(async move { Ok(vec![address]) })
    });
    (lookup, times)
}

#[tokio::test]
async fn no_form_of_a_private_address_is_fetched() {
    let server =
        LoopbackServer::start(|_| http_response(200, &[("content-type", "text/plain")], "secret")).await;
    let port = server.at.port();
    let mut fixture = ToolFixture::new(&Fetch::new()).await;
    for (host, why) in [
        ("127.0.0.1", "a loopback address"),
        ("127.1", "a loopback address"),
        ("127.0.1", "a loopback address"),
        ("2130706433", "a loopback address"),
        ("0x7f000001", "a loopback address"),
        ("0x7f.0.0.1", "a loopback address"),
        ("0177.0.0.1", "a loopback address"),
        ("017700000001", "a loopback address"),
        ("%31%32%37.0.0.1", "a loopback address"),
        ("１２７.０.０.１", "a loopback address"),
        ("127.0.0.1.", "a loopback address"),
        ("0", "an address of this machine"),
        ("0.0.0.0", "an address of this machine"),
        ("10.0.0.1", "a private address"),
        ("172.20.0.1", "a private address"),
        ("192.168.0.1", "a private address"),
        ("169.254.169.254", "a cloud's metadata address"),
        ("2852039166", "a cloud's metadata address"),
        ("100.64.1.1", "inside a provider's network"),
        ("[::1]", "a loopback address"),
        ("[::]", "an address of this machine"),
        ("[::ffff:127.0.0.1]", "a loopback address"),
        ("[::ffff:7f00:1]", "a loopback address"),
        ("[64:ff9b::7f00:1]", "a loopback address"),
        ("[2002:7f00:1::1]", "a loopback address"),
        ("[fe80::1]", "a link-local address"),
        ("[fd00:ec2::254]", "a private address"),
        ("localhost", "a loopback address"),
    ] {
        for url in [format!("http://{host}:{port}/"), format!("http://{host}/")] {
            let error = fixture.call_error("fetch", json!({"urls": [url]})).await;
            assert!(error.contains("was not read: ") && error.contains(why), "{url}: {error}");
        }
    }
    assert_eq!(server.requests().len(), 0, "nothing was even asked");
}

#[tokio::test]
async fn what_is_no_plain_web_address_is_refused() {
    let mut fixture = anywhere().await;
    for (url, why) in [
        ("file:///etc/passwd", "'file:' is not fetched"),
        ("ftp://example.com/x", "'ftp:' is not fetched"),
        ("gopher://127.0.0.1:6379/_x", "'gopher:' is not fetched"),
        ("data:text/html,x", "'data:' is not fetched"),
        ("http://user:pass@example.com/", "a user or a password"),
        ("http://example.com@127.0.0.1/", "a user or a password"),
        ("example.com", "not a URL that begins with http"),
        ("http://", "not a URL"),
        ("http://[::1", "not a URL"),
    ] {
        let error = fixture.call_error("fetch", json!({"urls": [url]})).await;
        assert!(error.contains(why), "{url}: {error}");
    }
    assert!(fixture.call_error("fetch", json!({"urls": []})).await.contains("give 1 to 20"));
    let many: Vec<String> = (0..21).map(|n| format!("http://x/{n}")).collect();
    assert!(fixture.call_error("fetch", json!({"urls": many})).await.contains("21 URLs"));
}

/// Treats the test's server as public, and filters all other addresses as usual.
fn but_for_the_server(address: IpAddr) -> Option<&'static str> {
    why_private(address).filter(|_| address != IpAddr::from([127, 0, 0, 1]))
}

#[tokio::test]
async fn a_name_is_checked_each_time_it_is_connected_to() {
    let server =
        LoopbackServer::start(|_| http_response(200, &[("content-type", "text/plain")], "public")).await;
    // Public at first, private afterwards: a client that resolved twice would connect to the second address.
    let (lookup, times) = fixed_lookup(&["127.0.0.1", "127.0.0.2"]);
    let mut fixture = ToolFixture::new(&Fetch::new().with_resolver(but_for_the_server, lookup)).await;
    let url = format!("http://rebind.example:{}/", server.at.port());
    assert!(fixture.call_text("fetch", json!({"urls": [url]})).await.contains("public"));
    assert_eq!(times.load(Ordering::SeqCst), 1, "what was looked up and checked is what was connected to");
    let second = fixture.call_error("fetch", json!({"urls": [url]})).await;
    assert!(second.contains("rebind.example is a loopback address, which is not fetched"), "{second}");
    assert_eq!(
        (times.load(Ordering::SeqCst), server.requests().len()),
        (2, 1),
        "no connection was kept and used again"
    );
    for private in ["::ffff:127.0.0.1", "169.254.169.254", "10.0.0.5", "fd00::1", "0.0.0.0"] {
        let (lookup, _) = fixed_lookup(&[private]);
        let mut fixture = ToolFixture::new(&Fetch::new().with_resolver(why_private, lookup)).await;
        let error = fixture.call_error("fetch", json!({"urls": [url]})).await;
        assert!(error.contains("which is not fetched"), "{private}: {error}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_name_with_a_public_and_a_private_address_is_not_trusted() {
    let server = LoopbackServer::start(|_| http_response(200, &[], "secret")).await;
    let both = || vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap()];
    let lookup: DnsLookup = Arc::new(move |_| Box::pin(async move { Ok(both()) }));
    let mut fixture = ToolFixture::new(&Fetch::new().with_resolver(but_for_the_server, lookup)).await;
    let url = format!("http://both.example:{}/", server.at.port());
    assert!(fixture.call_error("fetch", json!({"urls": [url]})).await.contains("a private address"));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn redirects_are_checked_again_at_each_step() {
    let places = [
        ("http://127.0.0.2/", "127.0.0.2 is a loopback address"),
        ("http://2130706434:81/", "127.0.0.2 is a loopback address"),
        ("http://0x7f.2/", "127.0.0.2 is a loopback address"),
        ("//169.254.169.254/latest/meta-data/", "169.254.169.254 is a cloud's metadata address"),
        ("http://[::1]/", "::1 is a loopback address"),
        ("http://[::ffff:10.0.0.1]/", "is a private address"),
        ("https://192.168.1.1/", "192.168.1.1 is a private address"),
        ("http://inner.example/", "inner.example is a private address"),
        ("file:///etc/passwd", "'file:' is not fetched"),
        ("http://a:b@127.0.0.1/", "a user or a password"),
        ("http://[", "it redirects to something that is no URL"),
    ];
    let server = LoopbackServer::start(move |asked| match asked.line.trim_start_matches("GET /") {
        "loop" => http_response(302, &[("location", "/loop")], ""),
        "one" => http_response(308, &[("location", "two?x=1#y")], ""),
        "two?x=1" => http_response(200, &[("content-type", "text/plain")], "arrived"),
        "far" => http_response(302, &[("location", "/0")], ""),
        number => match number.parse::<usize>() {
            Ok(number) => http_response(302, &[("location", places[number].0)], ""),
            Err(_) => http_response(302, &[], "no location"),
        },
    })
    .await;
    let (lookup, _) = fixed_lookup(&["10.0.0.7"]);
    let mut fixture = ToolFixture::new(&Fetch::new().with_resolver(but_for_the_server, lookup)).await;
    for (number, (to, why)) in places.iter().enumerate() {
        let error = fixture.call_error("fetch", json!({"urls": [server.url(&format!("/{number}"))]})).await;
        assert!(error.contains(why), "{to}: {error}");
    }
    let far = fixture.call_error("fetch", json!({"urls": [server.url("/far")]})).await;
    assert!(far.contains("it redirects to http://127.0.0.2/, and 127.0.0.2 is a loopback address"), "{far}");
    let round = fixture.call_error("fetch", json!({"urls": [server.url("/loop")]})).await;
    assert!(round.contains("it redirects more than 10 times"), "{round}");
    let before = server.requests().len();
    let text = fixture.call_text("fetch", json!({"urls": [server.url("/one")]})).await;
    assert!(
        text.contains("arrived") && text.contains("/two?x=1") && text.contains("Redirected from"),
        "{text}"
    );
    assert_eq!(server.requests().len(), before + 2);
    assert!(
        server
            .requests()
            .iter()
            .all(|asked| asked.header("referer").is_none() && asked.header("cookie").is_none())
    );
}

#[tokio::test]
async fn a_page_is_read_in_the_form_that_is_wanted() {
    let html = "<html><head><title>News</title></head><body><nav>menu</nav><h1>Big</h1><p>See <a href='/x'>x</a></p></body></html>";
    let server = LoopbackServer::start(move |asked| match asked.line.as_str() {
        "GET /html" => http_response(200, &[("content-type", "text/html; charset=utf-8")], html),
        "GET /json" => http_response(200, &[("content-type", "application/json")], r#"{"a": [1, 2]}"#),
        "GET /latin" => http_response(200, &[("content-type", "text/plain; charset=iso-8859-1")], b"caf\xe9"),
        "GET /untyped" => http_response(200, &[], "just words"),
        "GET /png" => http_response(200, &[("content-type", "image/png")], b"\x89PNG"),
        "GET /binary" => http_response(200, &[], b"\0\x01\x02"),
        "GET /empty" => http_response(204, &[], ""),
        _ => http_response(404, &[("content-type", "text/html")], "<h1>No such page</h1>"),
    })
    .await;
    let mut fixture = anywhere().await;
    let url = |path| server.url(path);
    let markdown = fixture.call_text("fetch", json!({"urls": [url("/html")]})).await;
    let link = format!("[x]({})", url("/x"));
    for part in ["(status 200, text/html; charset=utf-8, ", "Title: News", "# Big", link.as_str()] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
    assert!(!markdown.contains("menu"));
    let text = fixture.call_text("fetch", json!({"urls": url("/html"), "format": "text"})).await;
    assert!(text.contains("Big\n\nSee x") && !text.contains("menu"), "{text}");
    let raw = fixture.call_text("fetch", json!({"url": url("/html"), "format": "HTML"})).await;
    assert!(raw.contains("<nav>menu</nav>"), "{raw}");
    for (path, says) in [
        ("/json", r#"{"a": [1, 2]}"#),
        ("/latin", "café"),
        ("/untyped", "just words"),
        ("/empty", "[nothing"),
    ] {
        let text = fixture.call_text("fetch", json!({"urls": [url(path)]})).await;
        assert!(text.contains(says), "{path}: {text}");
    }
    for (path, why) in [
        ("/png", "it is image/png, 4 bytes, and not a text"),
        ("/binary", "not a text"),
        ("/nowhere", "(status 404, text/html, 21 bytes)\n\n# No such page"),
    ] {
        let error = fixture.call_error("fetch", json!({"urls": [url(path)]})).await;
        assert!(error.contains(why), "{path}: {error}");
    }
    let several =
        fixture.call_text("fetch", json!({"urls": [url("/json"), url("/png"), url("/untyped")]})).await;
    let parts: Vec<&str> = several.split("\n\n---\n\n").collect();
    assert!(
        parts.len() == 3 && parts[1].contains("was not read") && parts[2].contains("just words"),
        "{several}"
    );
}

#[tokio::test]
async fn size_and_time_are_bounded_whatever_the_server_does() {
    let headers =
        |rest: &str| format!("HTTP/1.1 200 X\r\ncontent-type: text/plain\r\n{rest}\r\n").into_bytes();
    let gzip: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
    let server = LoopbackServer::start(move |asked| match asked.line.as_str() {
        "GET /endless" => LoopbackAction::Endless(headers(""), b"x".repeat(4096)),
        "GET /chunks" => LoopbackAction::Endless(
            headers("transfer-encoding: chunked\r\n"),
            [b"400\r\n".to_vec(), b"y".repeat(1024), b"\r\n".to_vec()].concat(),
        ),
        "GET /stall" => {
            LoopbackAction::Stall([headers("content-length: 100\r\n"), b"some".to_vec()].concat())
        }
        "GET /silent" => LoopbackAction::Stall(Vec::new()),
        "GET /short" => {
            LoopbackAction::Bytes([headers("content-length: 100\r\n"), b"some".to_vec()].concat())
        }
        "GET /headers" => {
            LoopbackAction::Endless(b"HTTP/1.1 200 X\r\n".to_vec(), b"x-more: and more\r\n".to_vec())
        }
        "GET /bomb" => {
            http_response(200, &[("content-type", "text/html"), ("content-encoding", "gzip")], gzip)
        }
        "GET /garbage" => LoopbackAction::Bytes(b"hello, I am no web server\r\n\r\n".to_vec()),
        _ => LoopbackAction::Bytes(Vec::new()),
    })
    .await;
    let fetch = Fetch::new().allow_private(true).max_bytes(10_000);
    let mut fixture = ToolFixture::new(&fetch).await;
    for path in ["/endless", "/chunks"] {
        let text = fixture.call_text("fetch", json!({"urls": [server.url(path)]})).await;
        assert!(
            text.contains("10,000 bytes)") && text.contains("[… only the first 10,000 bytes were read …]"),
            "{path}"
        );
        assert!(text.len() < 11_000);
    }
    server.wait_for_disconnects(2).await;
    let short = fixture.call_text("fetch", json!({"urls": [server.url("/short")]})).await;
    assert!(short.contains("some\n\n[… the rest did not come: the answer broke off"), "{short}");
    let mut fixture = ToolFixture::new(&fetch.timeout(Duration::from_millis(700))).await;
    for (path, why) in [
        ("/stall", "it took longer than 700ms"),
        ("/silent", "it took longer than 700ms"),
        ("/headers", "it does not answer as it should"),
        ("/bomb", "it came compressed (gzip), which was not asked for"),
        ("/garbage", "it does not answer as it should"),
        ("/closed", "it does not answer as it should"),
    ] {
        let error = fixture.call_error("fetch", json!({"urls": [server.url(path)]})).await;
        assert!(error.contains(why), "{path}: {error}");
    }
    server.wait_for_disconnects(4).await;
    assert!(server.requests().iter().all(|asked| asked.header("accept-encoding").is_none()));
}

#[tokio::test]
async fn a_stop_ends_a_fetch() {
    let server = LoopbackServer::start(|_| LoopbackAction::Stall(Vec::new())).await;
    let mut fixture = anywhere().await;
    let cancel = fixture.context.cancel.clone();
    let stop = async {
        server.wait_for_requests(1).await;
        cancel.cancel();
    };
    let (error, ()) = tokio::join!(fixture.call_error("fetch", json!({"urls": [server.url("/")]})), stop);
    assert!(error.contains("being stopped"), "{error}");
    server.wait_for_disconnects(1).await;
}

#[test]
fn the_form_is_markdown_unless_told() {
    assert_eq!(PageFormat::default(), PageFormat::Markdown);
}

#[tokio::test]
async fn the_own_server_is_not_fetched_in_any_spelling_even_if_private_addresses_are_allowed() {
    let own =
        LoopbackServer::start(|_| http_response(200, &[("content-type", "text/plain")], "drive me")).await;
    let port = own.at.port();
    let target = own.url("/api/v1/tasks");
    let other = LoopbackServer::start(move |asked| match asked.line.as_str() {
        "GET /fine" => {
            http_response(200, &[("content-type", "text/plain")], "another server of this machine")
        }
        line => {
            let to = match line {
                "GET /short" => format!("http://127.1:{port}/"),
                "GET /name" => format!("http://localhost:{port}/"),
                _ => target.clone(),
            };
            http_response(302, &[("location", &to)], "")
        }
    })
    .await;
    let fetch = Fetch::new().allow_private(true).own_server(OwnServer::new([own.at], []));
    let mut fixture = ToolFixture::new(&fetch).await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "%31%32%37.0.0.1",
        "１２７.０.０.１",
        "127.0.0.1.",
        "127.0.0.2",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST",
    ];
    let urls = hosts.iter().map(|host| format!("http://{host}:{port}/api/v1/tasks"));
    let redirects = ["/", "/short", "/name"].map(|path| other.url(path));
    for url in urls.chain(redirects) {
        let error = fixture.call_error("fetch", json!({"urls": [url]})).await;
        assert!(error.contains("its own agents may not use"), "{url}: {error}");
    }
    assert_eq!(own.requests().len(), 0, "it was not even asked");
    let fine = fixture.call_text("fetch", json!({"urls": [other.url("/fine")]})).await;
    assert!(fine.contains("another server"), "{fine}");
}

#[tokio::test]
async fn a_name_that_leads_to_the_own_server_is_refused_where_it_is_connected_to() {
    let own = LoopbackServer::start(|_| http_response(200, &[], "drive me")).await;
    let (lookup, times) = fixed_lookup(&["192.0.2.1", "127.0.0.1"]);
    let fetch = Fetch::new().with_resolver(|_| None, lookup).own_server(OwnServer::new([own.at], []));
    let mut fixture = ToolFixture::new(&fetch.timeout(Duration::from_millis(200))).await;
    let url = format!("http://rebind.example:{}/", own.at.port());
    for _ in 0..2 {
        fixture.call_error("fetch", json!({"urls": [url]})).await;
    }
    let error = fixture.call_error("fetch", json!({"urls": [url]})).await;
    assert!(error.contains("its own agents may not use"), "{error}");
    assert!(times.load(Ordering::SeqCst) >= 2 && own.requests().is_empty());
}
