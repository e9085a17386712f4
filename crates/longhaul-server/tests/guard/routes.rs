//! Every route, and every path that is none.

use http::Method;
use longhaul_server::access::Scope;

use crate::kit::{Options, ROUTES, Server, check_headers, problem};

/// The routes, and what is not one: unknown paths, other methods, odd spellings.
fn all_paths() -> Vec<(Method, String)> {
    let mut all: Vec<(Method, String)> =
        ROUTES.iter().map(|(method, path)| (method.clone(), (*path).to_owned())).collect();
    for path in
        ["/nothing", "/api", "/api/v1", "/api/v2/tasks", "/.well-known/x", "/index.html", "/mcp/x", "//"]
    {
        all.push((Method::GET, path.to_owned()));
        all.push((Method::POST, path.to_owned()));
    }
    for method in [Method::DELETE, Method::PATCH, Method::OPTIONS, Method::TRACE] {
        all.extend(
            ["/", "/api/v1/tasks", "/healthz", "/sign-in.js", "/api/v1/session"]
                .map(|path| (method.clone(), path.to_owned())),
        );
    }
    all.push((Method::POST, "/".to_owned()));
    all.push((Method::POST, "/healthz".to_owned()));
    all.push((Method::GET, "/healthz/".to_owned()));
    all.push((Method::GET, "/api/v1/session".to_owned()));
    all.push((Method::POST, "/api/v1/session".to_owned()));
    all
}

#[tokio::test]
async fn every_route_and_every_unknown_path_refuses_without_a_valid_token_host_and_origin() {
    let mut options = Options::default();
    options.limits.wrong_token_burst = 10_000.0;
    let server = Server::with(options).await;
    let revoked = server.token("revoked", Scope::Admin);
    assert_eq!(server.get("/api/v1/tasks", &revoked).send().await.unwrap().status(), 200);
    server.access.revoke("revoked").unwrap();
    for (method, path) in all_paths() {
        let what = format!("{method} {path}");
        let refused = |response, expected: u16, why: &'static str| {
            let what = format!("{what} {why}");
            async move {
                let found = problem(response, &what).await;
                assert_eq!(found["status"], expected, "{what}: {found}");
            }
        };
        let request = || server.request(&method, &path);
        refused(request().send().await.unwrap(), 401, "without a token").await;
        for token in ["wrong", &revoked, "", "lh_", &server.admin[..20]] {
            refused(request().bearer_auth(token).send().await.unwrap(), 401, "with a wrong token").await;
        }
        let with_token = || request().bearer_auth(&server.admin);
        for host in ["evil.example", "127.0.0.1", &format!("evil.example:{}", server.address.port())] {
            refused(with_token().header("host", host).send().await.unwrap(), 403, "with a wrong Host").await;
        }
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"] {
            let sent = with_token().header("origin", origin).send().await.unwrap();
            refused(sent, 403, "with a foreign Origin").await;
            refused(request().header("origin", origin).send().await.unwrap(), 403, "with neither").await;
        }
        for site in ["cross-site", "same-site"] {
            let sent = with_token().header("sec-fetch-site", site).send().await.unwrap();
            refused(sent, 403, "from a page of another site").await;
        }
    }
}

#[tokio::test]
async fn with_a_token_unknown_paths_and_methods_are_problem_documents() {
    let server = Server::start().await;
    let unknown =
        problem(server.get("/nothing?token=x", &server.admin).send().await.unwrap(), "unknown").await;
    assert_eq!((&unknown["status"], &unknown["code"]), (&404.into(), &"unknown_path".into()));
    assert!(!unknown.to_string().contains("token=x"), "{unknown}");
    let method = server.request(&Method::DELETE, "/metrics").bearer_auth(&server.admin).send().await.unwrap();
    assert_eq!(problem(method, "method").await["status"], 405);
    let broken = server.post("/api/v1/tasks", &server.admin).body("{").send().await.unwrap();
    assert_eq!(problem(broken, "broken JSON").await["code"], "invalid_request");
    // Clients would tidy these up.
    for path in ["/api/v1/%2e%2e/x", "/a%5cb", "/api/v1/../x", "/./x"] {
        let own = server.address;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {}", server.admin);
        let answer = server.raw(format!("{head}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    for (method, path) in ROUTES {
        if path.ends_with("slow") {
            continue;
        }
        let response = server.request(&method, path).bearer_auth(&server.admin).send().await.unwrap();
        check_headers(&response, path);
        assert_eq!(response.status(), 200, "{method} {path}");
    }
}

#[tokio::test]
async fn what_needs_no_token_says_nothing() {
    let server = Server::start().await;
    for (path, kind) in [("/", "text/html"), ("/sign-in.js", "text/javascript"), ("/sign-in.css", "text/css")]
    {
        let response = server.request(&Method::GET, path).send().await.unwrap();
        check_headers(&response, path);
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        let text = response.text().await.unwrap();
        let port = server.address.port().to_string();
        assert!(!text.contains(&port) && !text.contains(env!("CARGO_PKG_VERSION")), "{path}: {text}");
        assert!(
            !text.contains("<script>") && !text.contains("innerHTML") && !text.contains("location.search"),
            "{path}"
        );
    }
    let alive = server.request(&Method::GET, "/healthz").send().await.unwrap();
    assert_eq!((alive.status().as_u16(), alive.text().await.unwrap()), (204, String::new()));
}

#[tokio::test]
async fn a_scope_comes_from_the_token_and_not_from_the_client() {
    let server = Server::start().await;
    let (read, run) = (server.token("r", Scope::Read), server.token("x", Scope::Run));
    let status = |request: reqwest::RequestBuilder| async { request.send().await.unwrap().status().as_u16() };
    assert_eq!(status(server.get("/api/v1/tasks", &read)).await, 200);
    assert_eq!(status(server.post("/api/v1/tasks", &run)).await, 200);
    let put = |token: &str| server.request(&Method::PUT, "/api/v1/teams/dev").bearer_auth(token);
    assert_eq!((status(put(&run)).await, status(put(&server.admin)).await), (403, 200));
    // CVE-2026-25593 and GHSA-rqpp-rjj8-7wv8: what the client says about itself is ignored.
    for (name, value) in [("x-longhaul-scope", "admin"), ("x-scope", "admin"), ("x-user", "default")] {
        let sent = server.post("/api/v1/tasks?scope=admin", &read).header(name, value);
        let refused = problem(sent.body(r#"{"scope":"admin"}"#).send().await.unwrap(), name).await;
        assert_eq!(
            (&refused["status"], &refused["code"]),
            (&403.into(), &"scope_missing".into()),
            "{refused}"
        );
    }
    for path in ["/mcp", "/v1/responses"] {
        assert_eq!(status(server.post(path, &read)).await, 403, "{path}");
    }
    let who: serde_json::Value = server.get("/api/v1/who", &read).send().await.unwrap().json().await.unwrap();
    assert_eq!(who, serde_json::json!({"token": "r", "scope": "read"}));
}

#[tokio::test]
async fn no_answer_contains_a_token() {
    let server = Server::start().await;
    for path in ["/nothing", "/api/v1/session", "/api/v1/who", "/"] {
        let response =
            server.get(&format!("{path}?token={}", server.admin), &server.admin).send().await.unwrap();
        let headers = format!("{:?}", response.headers());
        let text = response.text().await.unwrap();
        assert!(
            !text.contains(&server.admin) && !headers.contains(&server.admin),
            "{path}: {headers} {text}"
        );
    }
    let wrong = "lh_this-one-is-wrong";
    let response = server.get("/nothing", wrong).send().await.unwrap();
    assert!(!response.text().await.unwrap().contains(wrong));
}
