//! DNS rebinding, WebSockets, and requests that are malformed on purpose.

use http::Method;

use crate::kit::{Server, client, problem};

fn head(server: &Server, line: &str, hosts: &[&str]) -> String {
    let hosts: String = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect();
    format!("{line}\r\n{hosts}Authorization: Bearer {}\r\nConnection: close\r\n\r\n", server.admin)
}

// CVE-2025-49596, CVE-2025-66414, CVE-2025-66416, CVE-2026-42559, CVE-2025-9611.
#[tokio::test]
async fn a_rebound_name_is_refused_in_every_form_of_request() {
    let server = Server::start().await;
    let (own, port) = (server.address.to_string(), server.address.port());
    let line = "GET /api/v1/tasks HTTP/1.1";
    for (what, request, status) in [
        ("its own", head(&server, line, &[&own]), "200"),
        ("localhost", head(&server, line, &[&format!("localhost:{port}")]), "200"),
        ("another name", head(&server, line, &["evil.example"]), "403"),
        ("another name and our port", head(&server, line, &[&format!("evil.example:{port}")]), "403"),
        ("no port", head(&server, line, &["localhost"]), "403"),
        ("a name that ends like ours", head(&server, line, &[&format!("x.localhost:{port}")]), "403"),
        ("no Host", head(&server, line, &[]), "400"),
        ("an empty Host", head(&server, line, &[""]), "403"),
        ("two Hosts", head(&server, line, &[&own, "evil.example"]), "400"),
        ("two Hosts, ours last", head(&server, line, &["evil.example", &own]), "400"),
        ("the same Host twice", head(&server, line, &[&own, &own]), "400"),
        (
            "an absolute URL of another name",
            head(&server, "GET http://evil.example/api/v1/tasks HTTP/1.1", &["evil.example"]),
            "403",
        ),
        (
            "an absolute URL that differs from Host",
            head(&server, "GET http://evil.example/api/v1/tasks HTTP/1.1", &[&own]),
            "400",
        ),
        (
            "an absolute URL of ours",
            head(&server, &format!("GET http://{own}/api/v1/tasks HTTP/1.1"), &[&own]),
            "200",
        ),
        ("HTTP/1.0 without Host", head(&server, "GET /api/v1/tasks HTTP/1.0", &[]), "400"),
    ] {
        let answer = server.raw(request).await;
        assert!(answer.split(' ').nth(1) == Some(status), "{what}: {answer}");
        assert!(status == "200" || answer.contains("application/problem+json"), "{what}: {answer}");
        assert!(!answer.to_lowercase().contains("access-control-"), "{what}: {answer}");
    }
}

#[tokio::test]
async fn a_rebound_name_is_refused_over_http_2() {
    let server = Server::start().await;
    let evil = client().http2_prior_knowledge().resolve("evil.example", server.address).build().unwrap();
    let url = format!("http://evil.example:{}/api/v1/tasks", server.address.port());
    let refused = evil.get(&url).bearer_auth(&server.admin).send().await.unwrap();
    assert_eq!(refused.version(), http::Version::HTTP_2);
    assert_eq!(problem(refused, "the :authority is evil").await["code"], "host_not_allowed");
    let own = client().http2_prior_knowledge().build().unwrap();
    let sent = own.get(server.url("/api/v1/tasks")).bearer_auth(&server.admin).send().await.unwrap();
    assert_eq!((sent.status().as_u16(), sent.version()), (200, http::Version::HTTP_2));
    let unauthorized = own.get(server.url("/api/v1/tasks")).send().await.unwrap();
    assert_eq!(problem(unauthorized, "no token over HTTP/2").await["status"], 401);
}

// Claude Code IDE CVE-2025-52882, AutoJack: WebSockets skipped the checks.
#[tokio::test]
async fn a_websocket_is_refused_and_an_offer_of_http_2_ignored() {
    let server = Server::start().await;
    for path in ["/api/v1/events", "/mcp", "/", "/ws"] {
        let request = server.get(path, &server.admin);
        let request = request.header("connection", "Upgrade").header("upgrade", "websocket");
        let request = request
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
        assert_eq!(problem(request.send().await.unwrap(), path).await["code"], "upgrade_refused");
    }
    let own = server.address;
    let connect = server.raw(format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n")).await;
    assert!(connect.starts_with("HTTP/1.1 40"), "{connect}");
    // As Java's client does.
    let request = server.get("/api/v1/tasks", &server.admin).header("connection", "Upgrade, HTTP2-Settings");
    let sent = request.header("upgrade", "h2c").header("http2-settings", "").send().await.unwrap();
    assert_eq!(sent.status(), 200);
}

// CVE-2026-22812: a page of any site drove the server.
#[tokio::test]
async fn a_preflight_of_another_origin_gets_no_permission() {
    let server = Server::start().await;
    for origin in ["http://evil.example", "https://app.example", "null", "http://localhost:3000"] {
        for path in ["/api/v1/tasks", "/mcp", "/v1/responses", "/", "/nothing"] {
            let request = server.request(&Method::OPTIONS, path).header("origin", origin);
            let request = request
                .header("access-control-request-method", "POST")
                .header("access-control-request-headers", "authorization")
                .header("access-control-request-private-network", "true");
            let found = problem(request.send().await.unwrap(), path).await;
            assert_eq!(found["code"], "origin_not_allowed", "{origin} {path}");
        }
    }
}

#[tokio::test]
async fn malformed_requests_get_no_answer_with_data() {
    let server = Server::start().await;
    let own = server.address;
    let auth = format!("Authorization: Bearer {}", server.admin);
    for (what, bytes) in [
        ("garbage", "\0\x01\x02 /garbage that is long enough\r\n\r\n".to_owned()),
        ("no version", format!("GET /api/v1/tasks\r\nHost: {own}\r\n{auth}\r\n\r\n")),
        ("a space in a header's name", format!("GET / HTTP/1.1\r\nHost : {own}\r\n{auth}\r\n\r\n")),
        (
            "two lengths",
            format!(
                "POST /api/v1/tasks HTTP/1.1\r\nHost: {own}\r\n{auth}\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{{}}"
            ),
        ),
        (
            "a length and chunks",
            format!(
                "POST /v1/responses HTTP/1.1\r\nHost: {own}\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/tasks HTTP/1.1\r\nHost: {own}\r\n\r\n"
            ),
        ),
    ] {
        let answer = server.raw(bytes).await;
        assert!(!answer.contains(" 200 "), "{what}: {answer}");
    }
}
