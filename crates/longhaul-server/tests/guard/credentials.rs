//! Tokens, cookies and codes.

use http::Method;
use longhaul_server::access::{DEFAULT_TOKEN, Scope};
use serde_json::{Value, json};

use crate::kit::{Server, problem};

async fn status(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

/// Signs in, and returns the cookie.
async fn sign_in(server: &Server, token: &str) -> String {
    let code = server.access.create_code(token).unwrap();
    let response = post_code(server, &code).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    cookie.split(';').next().unwrap().to_owned()
}

fn post_code(server: &Server, code: &str) -> reqwest::RequestBuilder {
    let request = server.request(&Method::POST, "/api/v1/session").body(json!({"code": code}).to_string());
    request.header("x-longhaul", "1").header("sec-fetch-site", "same-origin").header("origin", server.url(""))
}

fn as_page(request: reqwest::RequestBuilder, cookie: &str) -> reqwest::RequestBuilder {
    request.header("cookie", cookie).header("x-longhaul", "1").header("sec-fetch-site", "same-origin")
}

// OpenClaw PR#57647, ClawJacked: no exception for loopback, and none for whoever has another credential.
#[tokio::test]
async fn a_thousand_wrong_tokens_on_loopback_are_throttled() {
    let server = Server::start().await;
    let cookie = sign_in(&server, DEFAULT_TOKEN).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let (mut wrong, mut throttled) = (0, 0);
    for guess in 0..1_000 {
        let request = client.get(server.url("/api/v1/tasks")).bearer_auth(format!("lh_{guess:064x}"));
        // Every other one with a valid cookie.
        let request = if guess % 2 == 0 { request } else { as_page(request, &cookie) };
        match status(request).await {
            401 => wrong += 1,
            429 => throttled += 1,
            other => panic!("{other}"),
        }
    }
    assert!(wrong < 300 && throttled > 700, "{wrong} answered, {throttled} throttled");
    let refused = server.get("/api/v1/tasks", "wrong").send().await.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    // Codes are throttled with them, and whoever has a token is not locked out.
    assert_eq!(status(post_code(&server, "wrong")).await, 429);
    assert_eq!(status(server.get("/api/v1/tasks", &server.admin)).await, 200);
}

#[tokio::test]
async fn of_two_credentials_the_worse_one_counts() {
    let server = Server::start().await;
    let (read, admin) = (server.token("r", Scope::Read), server.admin.clone());
    let page = sign_in(&server, DEFAULT_TOKEN).await;
    let reader = sign_in(&server, "r").await;
    let post = |token: &str, cookie: &str| as_page(server.post("/api/v1/tasks", token), cookie);
    assert_eq!(status(post(&admin, &page)).await, 200);
    assert_eq!(status(post(&read, &page)).await, 403, "the token may only read");
    assert_eq!(status(post(&admin, &reader)).await, 403, "the session may only read");
    assert_eq!(status(post("wrong", &page)).await, 401, "a valid cookie does not make up for a wrong token");
    let no_session = format!("longhaul-{}=wrong", server.address.port());
    assert_eq!(status(post(&admin, &no_session)).await, 401, "and the other way round");
    let bare = server.post("/api/v1/tasks", &admin).header("cookie", &page);
    assert_eq!(status(bare).await, 403, "a cookie that comes along without the page's headers");
    let twice = server.post("/api/v1/tasks", &admin).header("authorization", format!("Bearer {admin}"));
    assert_eq!(status(twice).await, 401, "two tokens");
}

#[tokio::test]
async fn a_code_signs_a_browser_in_once() {
    let server = Server::start().await;
    let code = server.access.create_code(DEFAULT_TOKEN).unwrap();
    let response = post_code(&server, &code).send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", &format!("longhaul-{}=", server.address.port())] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&server.admin) && !response.text().await.unwrap().contains("lhs_"));
    let again = problem(post_code(&server, &code).send().await.unwrap(), "again").await;
    assert_eq!((&again["status"], &again["code"]), (&401.into(), &"code_not_valid".into()));
    let cookie = cookie.split(';').next().unwrap();
    let who: Value = as_page(server.request(&Method::GET, "/api/v1/session"), cookie)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(who, json!({"token": "default", "scope": "admin"}));
    assert_eq!(status(as_page(server.request(&Method::POST, "/api/v1/tasks"), cookie)).await, 200);
    let out = as_page(server.request(&Method::DELETE, "/api/v1/session"), cookie);
    assert_eq!(status(out).await, 204);
    assert_eq!(status(as_page(server.request(&Method::GET, "/api/v1/session"), cookie)).await, 401);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_cookie_or_sign_in() {
    let server = Server::start().await;
    let cookie = sign_in(&server, DEFAULT_TOKEN).await;
    let get = || server.request(&Method::GET, "/api/v1/tasks").header("cookie", &cookie);
    assert_eq!(status(get()).await, 403, "an image or a link");
    assert_eq!(status(get().header("sec-fetch-site", "same-origin")).await, 403, "a script tag");
    assert_eq!(status(get().header("x-longhaul", "1")).await, 403, "an old browser");
    assert_eq!(status(get().header("x-longhaul", "1").header("sec-fetch-site", "cross-site")).await, 403);
    assert_eq!(status(get().header("x-longhaul", "1").header("sec-fetch-site", "same-site")).await, 403);
    let code = server.access.create_code(DEFAULT_TOKEN).unwrap();
    let form = server.request(&Method::POST, "/api/v1/session").body(json!({"code": code}).to_string());
    assert_eq!(status(form).await, 401, "a form cannot send the header");
    let other = post_code(&server, &code).header("origin", "http://evil.example");
    assert_eq!(status(other).await, 403);
    assert_eq!(status(post_code(&server, &code)).await, 200, "the code was not used up");
}

#[tokio::test]
async fn bad_forms_of_signing_in_are_problems() {
    let server = Server::start().await;
    for body in ["", "{", "[]", "{\"code\":1}", "{\"code\":\"\"}", "{\"code\":\"../tokens.json\"}"] {
        let response = post_code(&server, "x").body(body.to_owned()).send().await.unwrap();
        let status = problem(response, body).await["status"].as_u64().unwrap();
        assert!(matches!(status, 400 | 401), "{body}: {status}");
    }
    let large = post_code(&server, &"x".repeat(5_000)).send().await.unwrap();
    assert_eq!(problem(large, "large").await["status"], 400);
}

#[tokio::test]
async fn a_token_in_the_url_or_in_another_header_is_none() {
    let server = Server::start().await;
    let admin = &server.admin;
    for query in ["token", "access_token", "key", "api_key", "authorization"] {
        let path = format!("/api/v1/tasks?{query}={admin}");
        assert_eq!(status(server.request(&Method::GET, &path)).await, 401, "{query}");
    }
    let get = || server.request(&Method::GET, "/api/v1/tasks");
    assert_eq!(status(get().header("x-api-key", admin)).await, 401);
    assert_eq!(status(get().header("authorization", admin)).await, 401);
    assert_eq!(status(get().basic_auth("x", Some(admin))).await, 401);
    let digest = std::fs::read_to_string(server.access.path().join("tokens.json")).unwrap();
    let digest =
        serde_json::from_str::<Value>(&digest).unwrap()["tokens"][0]["sha256"].as_str().unwrap().to_owned();
    assert_eq!(status(get().bearer_auth(digest)).await, 401, "what is in the file is no token");
}

// OpenClaw behind a proxy: every visitor is loopback.
#[tokio::test]
async fn no_rule_depends_on_the_address_of_the_client() {
    let server = Server::start().await;
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1;host=localhost"),
        ("x-forwarded-host", "localhost"),
        ("x-forwarded-user", "admin"),
    ] {
        let request = server.request(&Method::GET, "/api/v1/tasks").header(name, value);
        assert_eq!(status(request).await, 401, "{name}");
        let request =
            server.get("/api/v1/tasks", &server.admin).header("host", "evil.example").header(name, value);
        assert_eq!(status(request).await, 403, "{name}");
    }
}

#[tokio::test]
async fn a_token_that_sends_too_much_is_slowed_down_and_others_are_not() {
    let mut options = crate::kit::Options::default();
    (options.limits.request_burst, options.limits.requests_per_second) = (5.0, 0.1);
    let server = Server::with(options).await;
    let busy = server.token("busy", Scope::Read);
    let mut found = Vec::new();
    for _ in 0..8 {
        found.push(status(server.get("/api/v1/tasks", &busy)).await);
    }
    assert_eq!(found, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!(status(server.get("/api/v1/tasks", &server.admin)).await, 200);
}
