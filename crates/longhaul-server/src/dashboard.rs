//! The dashboard: a page with its script and style. They are built from `web/` and committed below `assets/`, so
//! that a build of this crate needs no Node.js.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sha2::{Digest as _, Sha256};

/// A file that never changes while the server runs.
struct Asset {
    path: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    /// The same, compressed with Brotli.
    brotli: Option<&'static [u8]>,
}

const ASSETS: [Asset; 4] = [
    Asset {
        path: "/",
        kind: "text/html; charset=utf-8",
        plain: include_bytes!("../assets/index.html"),
        brotli: None,
    },
    Asset {
        path: "/assets/app.js",
        kind: "text/javascript; charset=utf-8",
        plain: include_bytes!("../assets/app.js"),
        brotli: Some(include_bytes!("../assets/app.js.br")),
    },
    Asset {
        path: "/assets/app.css",
        kind: "text/css; charset=utf-8",
        plain: include_bytes!("../assets/app.css"),
        brotli: Some(include_bytes!("../assets/app.css.br")),
    },
    Asset {
        path: "/assets/icon.svg",
        kind: "image/svg+xml",
        plain: include_bytes!("../assets/icon.svg"),
        brotli: None,
    },
];

/// The tags of the assets: digests of their bytes.
static TAGS: LazyLock<[String; ASSETS.len()]> = LazyLock::new(|| {
    ASSETS.each_ref().map(|asset| {
        let digest = Sha256::digest(asset.plain);
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    })
});

/// The router: `/` and what is below `/assets/`. It shows nothing of the server; the page reads the API.
pub fn router() -> Router {
    let serve = |index: usize| get(move |headers: HeaderMap| async move { respond(index, &headers) });
    ASSETS
        .iter()
        .enumerate()
        .fold(Router::new(), |router, (index, asset)| router.route(asset.path, serve(index)))
}

/// Whether a request loads a part of the page: a browser sends these without the header that the API wants.
pub(crate) fn is_page_load(method: &Method, path: &str) -> bool {
    (method == Method::GET || method == Method::HEAD) && ASSETS.iter().any(|asset| asset.path == path)
}

fn respond(index: usize, headers: &HeaderMap) -> Response {
    let (asset, tag) = (&ASSETS[index], &TAGS[index]);
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known =
        known.flat_map(|list| list.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag);
    let brotli = asset.brotli.filter(|_| accepts_brotli(headers));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Bytes::from_static(brotli.unwrap_or(asset.plain)).into_response(),
    };
    let to = response.headers_mut();
    to.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    // The browser keeps it, and asks each time whether it is still the same: a new version is there at once.
    to.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    to.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        to.insert(ETAG, tag);
    }
    if brotli.is_some() && !is_known {
        to.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    response
}

fn accepts_brotli(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("br")
            && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, headers: &[(&str, &str)]) -> Response {
        let index = ASSETS.iter().position(|asset| asset.path == path).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        respond(index, &map)
    }

    #[test]
    fn an_asset_that_the_browser_has_is_not_sent_again() {
        let first = get("/assets/app.js", &[]);
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[ETAG].to_str().unwrap().to_owned();
        let again = get("/assets/app.js", &[("if-none-match", &format!("\"x\", W/{tag}"))]);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(get("/assets/app.js", &[("if-none-match", "\"x\"")]).status(), StatusCode::OK);
        assert_ne!(get("/assets/app.css", &[]).headers()[ETAG], tag.as_str());
    }

    #[test]
    fn brotli_is_sent_to_those_who_take_it() {
        let coded = |accepts: &str| get("/assets/app.css", &[("accept-encoding", accepts)]);
        assert_eq!(coded("gzip, br").headers()[CONTENT_ENCODING], "br");
        assert!(coded("gzip, br;q=0").headers().get(CONTENT_ENCODING).is_none());
        assert!(coded("gzip").headers().get(CONTENT_ENCODING).is_none());
        assert!(get("/", &[("accept-encoding", "br")]).headers().get(CONTENT_ENCODING).is_none());
    }

    #[test]
    fn only_the_parts_of_the_page_are_page_loads() {
        assert!(is_page_load(&Method::GET, "/assets/app.js") && is_page_load(&Method::HEAD, "/"));
        for (method, path) in [
            (Method::POST, "/"),
            (Method::GET, "/assets/"),
            (Method::GET, "/assets/app.js/"),
            (Method::GET, "/assets/../api/v1/tasks"),
            (Method::GET, "/api/v1/tasks"),
        ] {
            assert!(!is_page_load(&method, path), "{method} {path}");
        }
    }
}
