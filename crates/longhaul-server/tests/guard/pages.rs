//! The dashboard's page: only for browsers that are signed in, and it opens nothing else.

use http::Method;
use longhaul_server::access::DEFAULT_TOKEN;

use crate::credentials::sign_in;
use crate::kit::{Server, check_headers, problem};

const ASSETS: [&str; 3] = ["/assets/app.js", "/assets/app.css", "/assets/icon.svg"];

#[tokio::test]
async fn the_page_is_for_browsers_that_are_signed_in() {
    let server = Server::start().await;
    let get = |path: &str| server.request(&Method::GET, path);
    let first = get("/").send().await.unwrap().text().await.unwrap();
    assert!(first.contains("sign-in.js") && !first.contains("app.js"), "{first}");
    for path in ASSETS {
        let body = problem(get(path).send().await.unwrap(), path).await;
        assert_eq!(body["status"], 401, "{path}");
    }
    let cookie = sign_in(&server, DEFAULT_TOKEN).await;
    let page = get("/").header("cookie", &cookie).send().await.unwrap();
    check_headers(&page, "/");
    assert_eq!(page.headers()["cache-control"], "no-cache");
    assert!(page.text().await.unwrap().contains("/assets/app.js"));
    for path in ASSETS {
        let asset = get(path).header("cookie", &cookie).send().await.unwrap();
        check_headers(&asset, path);
        assert_eq!(asset.status(), 200, "{path}");
        let tag = asset.headers()["etag"].to_str().unwrap().to_owned();
        let again = get(path).header("cookie", &cookie).header("if-none-match", tag).send().await.unwrap();
        assert_eq!(again.status(), 304, "{path}");
    }
}

#[tokio::test]
async fn a_cookie_alone_opens_the_page_and_nothing_else() {
    let server = Server::start().await;
    let cookie = sign_in(&server, DEFAULT_TOKEN).await;
    for path in
        ["/api/v1/tasks", "/api/v1/session", "/assets/", "/assets/other.js", "/assets/app.js/", "/metrics"]
    {
        let answer = server.request(&Method::GET, path).header("cookie", &cookie).send().await.unwrap();
        assert_eq!(problem(answer, path).await["status"], 403, "{path}");
    }
    for path in ["/", "/assets/app.js"] {
        let answer = server.request(&Method::POST, path).header("cookie", &cookie).send().await.unwrap();
        assert_eq!(problem(answer, path).await["status"], 403, "{path}");
    }
    // A cookie that is not valid is as good as none, and guesses are counted.
    let name = cookie.split('=').next().unwrap();
    let wrong = format!("{name}=lhs_{}", "0".repeat(64));
    let page = server.request(&Method::GET, "/").header("cookie", &wrong).send().await.unwrap();
    assert!(page.text().await.unwrap().contains("sign-in.js"));
    let mut refused = false;
    for _ in 0..200 {
        let answer = server.request(&Method::GET, "/").header("cookie", &wrong).send().await.unwrap();
        refused |= answer.status() == 429;
    }
    assert!(refused);
}
