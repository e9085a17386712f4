use serde_json::{Map, Value, json};

use super::{Api, ApiSettings};
use crate::tool::ToolEffects;
use crate::toolset::loopback::{LoopbackAction, LoopbackServer, http_response};
use crate::toolset::tool_fixture::ToolFixture;
use crate::toolset::{OwnServer, Toolset as _, ToolsetContext};

fn args(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect()
}

fn settings(method: &str, endpoint: String, names: &[&str]) -> ApiSettings {
    ApiSettings {
        name: "lookup".to_owned(),
        instruction: "Looks something up.".to_owned(),
        method: method.to_owned(),
        endpoint,
        headers: [("Authorization", "Bearer tok-0123456789")].into_iter().collect(),
        args: args(names),
        required: names.first().map(|name| (*name).to_owned()).into_iter().collect(),
        output_schema: None,
    }
}

#[tokio::test]
async fn arguments_go_where_the_endpoint_says_and_mean_only_themselves() {
    let server = LoopbackServer::start(|asked| http_response(200, &[], asked.line.clone())).await;
    let endpoint = server.url("/users/${user}/posts?q=${q}");
    let mut fixture = ToolFixture::new(&Api::new(settings("get", endpoint, &["user", "q", "page"]))).await;
    assert_eq!(fixture.tool("lookup").effects(), ToolEffects::READ_ONLY);
    assert_eq!(fixture.tool("lookup").spec().parameters["required"], json!(["user"]));
    for (arguments, line) in [
        (json!({"user": "ada", "q": "x"}), "GET /users/ada/posts?q=x"),
        (
            json!({"user": "a/b?c#d", "q": "1&admin=true"}),
            "GET /users/a%2Fb%3Fc%23d/posts?q=1%26admin%3Dtrue",
        ),
        (json!({"user": "ü %2e", "q": null}), "GET /users/%C3%BC%20%252e/posts?q="),
        (json!({"user": 7, "page": [1, 2]}), "GET /users/7/posts?q=&page=1%2C2"),
        (json!({"user": "${q}", "q": "never twice"}), "GET /users/%24%7Bq%7D/posts?q=never%20twice"),
    ] {
        assert_eq!(fixture.call_text("lookup", arguments).await, line);
    }
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer tok-0123456789"));
    let before = server.requests().len();
    for (arguments, says) in [
        (json!({"user": ".."}), "must not be '.' or '..'"),
        (json!({"user": "."}), "must not be '.' or '..'"),
        (json!({}), "the argument 'user' is missing"),
        (json!({"user": null}), "the argument 'user' is missing"),
        (json!({"user": "a", "admin": true}), "there is no argument 'admin'"),
    ] {
        let error = fixture.call_error("lookup", arguments).await;
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(server.requests().len(), before);
}

#[tokio::test]
async fn the_rest_of_the_arguments_is_the_body_of_a_post() {
    let server = LoopbackServer::start(|_| http_response(201, &[], r#"{"ok":true}"#)).await;
    let endpoint = server.url("/items/${id}");
    let mut fixture = ToolFixture::new(&Api::new(settings("POST", endpoint, &["id", "title", "tags"]))).await;
    assert_eq!(fixture.tool("lookup").effects(), ToolEffects::default(), "it may do something twice");
    let said = fixture.call_text("lookup", json!({"id": "7", "title": "x", "tags": ["a"]})).await;
    assert_eq!(said, r#"{"ok":true}"#);
    let asked = &server.requests()[0];
    assert_eq!(asked.line, "POST /items/7");
    assert_eq!(asked.json(), json!({"title": "x", "tags": ["a"]}));
    assert_eq!(asked.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn an_argument_of_the_host_is_a_word_and_nothing_else() {
    let mut fixture =
        ToolFixture::new(&Api::new(settings("GET", "http://${region}.invalid/x".into(), &["region"]))).await;
    for region in ["evil.com/", "a@b", "127.0.0.1:80#", "", "a.b"] {
        let error = fixture.call_error("lookup", json!({"region": region})).await;
        assert!(error.contains("cannot be a part of a host's name"), "{error}");
    }
}

#[tokio::test]
async fn no_secret_is_in_an_error_or_an_answer() {
    let server = LoopbackServer::start(|asked| match asked.line.as_str() {
        "GET /echo" => {
            http_response(200, &[], format!("you sent {}", asked.header("authorization").unwrap()))
        }
        line if line.starts_with("GET /refuse") => http_response(401, &[], "bad token tok-0123456789"),
        "GET /away" => http_response(302, &[("location", "http://localhost:1/?key=tok-0123456789")], ""),
        "GET /near" => http_response(302, &[("location", "/echo")], ""),
        "GET /big" => http_response(200, &[], "x".repeat(2 << 20)),
        _ => LoopbackAction::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 99\r\n\r\nshort".to_vec()),
    })
    .await;
    let tool = |path: &str| Api::new(settings("GET", server.url(path), &[]));
    for path in ["/echo", "/near"] {
        assert_eq!(
            ToolFixture::new(&tool(path)).await.call_text("lookup", json!({})).await,
            "you sent [secret]"
        );
    }
    for (path, says) in [
        ("/refuse", "status 401: bad token [secret]"),
        ("/away", "redirects to another server (localhost)"),
        ("/cut", "the answer broke off"),
        ("/refuse?key=hidden-in-query", "status 401"),
    ] {
        let error = ToolFixture::new(&tool(path)).await.call_error("lookup", json!({})).await;
        assert!(error.contains(says) && error.contains("GET http://127.0.0.1:"), "{error}");
        assert!(!error.contains("tok-0123456789") && !error.contains("hidden-in-query"), "{error}");
    }
    let big = ToolFixture::new(&tool("/big")).await.call_text("lookup", json!({})).await;
    assert!(big.len() < (1 << 20) + 100 && big.ends_with("only the first 1,048,576 bytes were read …]"));
    assert!(!format!("{:?}", tool("/echo")).contains("tok-0123456789"));
    let nowhere = Api::new(settings("GET", "http://127.0.0.1:1/x".into(), &[]));
    let error = ToolFixture::new(&nowhere).await.call_error("lookup", json!({})).await;
    assert!(error.contains("it cannot be connected to"), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_named() {
    let toolset_context = ToolsetContext::new("a");
    let good = || settings("GET", "https://example.com/${a}".into(), &["a"]);
    let at = |endpoint: &str| ApiSettings { endpoint: endpoint.into(), ..good() };
    let headers = [("X", "a\nb")].into_iter().collect();
    for (wrong, says) in [
        (ApiSettings { name: "two words".into(), ..good() }, "name: 'two words'"),
        (ApiSettings { method: "BREW".into(), ..good() }, "method: 'BREW'"),
        (at("example.com/${a}"), "endpoint: an argument cannot stand before"),
        (at("ftp://example.com"), "endpoint: it does not begin with http"),
        (at("https://example.com/${b}"), "it names ${b}, which is not under args"),
        (at("https://example.com/${a"), "has no '}'"),
        (at("https://example.com/${a || 'x'}"), "is not the name of an argument"),
        (ApiSettings { required: vec!["z".into()], ..good() }, "required: 'z'"),
        (ApiSettings { headers, ..good() }, "headers: the value of the header 'X'"),
    ] {
        let api = Api::new(wrong);
        let error = api.open(&toolset_context).await.err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
    let with_schema = ApiSettings { output_schema: Some(json!({"type": "object"})), ..good() };
    let tools = Api::new(with_schema).open(&toolset_context).await.unwrap();
    assert!(tools[0].spec().description.ends_with(r#"this schema: {"type":"object"}"#));
}

#[tokio::test]
async fn the_own_server_is_not_called_by_address_by_name_or_by_redirect() {
    let own = LoopbackServer::start(|_| http_response(200, &[], "drive me")).await;
    let (port, target) = (own.at.port(), own.url("/"));
    let other = LoopbackServer::start(move |_| http_response(307, &[("location", &target)], "")).await;
    for endpoint in [
        own.url("/x"),
        format!("http://127.1:{port}/x"),
        format!("http://localhost:{port}/x"),
        format!("http://[::ffff:127.0.0.1]:{port}/x"),
        other.url("/x"),
    ] {
        let api = Api::new(settings("post", endpoint.clone(), &[])).own_server(OwnServer::new([own.at], []));
        let error = ToolFixture::new(&api).await.call_error("lookup", json!({})).await;
        let why = if endpoint == other.url("/x") {
            "redirects to another server"
        } else {
            "its own agents may not use"
        };
        assert!(error.contains(why), "{endpoint}: {error}");
    }
    assert_eq!(own.requests().len(), 0);
}
