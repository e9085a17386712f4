//! Which scope a request needs: a pure function of its method and path.

use http::Method;

use crate::access::Scope;
use crate::problem::Problem;

/// Paths whose every method but reading needs the scope admin.
const ADMIN_COLLECTIONS: [&str; 3] = ["teams", "tokens", "admin"];

/// The scope that a request needs. Reading needs `read`, everything else `run`; to change which teams or tokens
/// there are needs `admin`.
pub fn required_scope(method: &Method, path: &str) -> Scope {
    // As the router sees it, and also decoded: whichever needs more counts.
    scope_of(method, path).max(scope_of(method, &percent_decode(path)))
}

fn scope_of(method: &Method, path: &str) -> Scope {
    let path = path.to_ascii_lowercase();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let in_api = parts.next() == Some("api") && parts.next() == Some("v1");
    let collection = parts.next().unwrap_or_default();
    // `teams/NAME` is a team; what is below it belongs to the tasks of the team.
    let is_member = parts.nth(1).is_none();
    let reads = method == Method::GET || method == Method::HEAD;
    match in_api && ADMIN_COLLECTIONS.contains(&collection) {
        true if collection == "admin" => Scope::Admin,
        true if collection == "tokens" => Scope::Admin,
        true if !reads && is_member => Scope::Admin,
        _ if reads => Scope::Read,
        _ => Scope::Run,
    }
}

/// Refuses paths that could mean something else to another program on the way.
pub(super) fn check_path(path: &str) -> Result<(), Problem> {
    let decoded = percent_decode(path);
    let is_odd = decoded.contains(['\\', '\0'])
        || decoded.chars().any(char::is_control)
        || decoded.split('/').any(|part| matches!(part, "." | ".."));
    match is_odd {
        true => Err(Problem::invalid(
            "the path has a part that is not allowed: '.', '..', a backslash or a control character",
        )),
        false => Ok(()),
    }
}

fn percent_decode(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = (first == b'%').then(|| more.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_follows_from_method_and_path() {
        for (method, path, scope) in [
            (Method::GET, "/api/v1/tasks", Scope::Read),
            (Method::HEAD, "/v1/models", Scope::Read),
            (Method::GET, "/api/v1/teams", Scope::Read),
            (Method::GET, "/metrics", Scope::Read),
            (Method::GET, "/anything", Scope::Read),
            (Method::POST, "/api/v1/tasks", Scope::Run),
            (Method::POST, "/v1/responses", Scope::Run),
            (Method::POST, "/mcp", Scope::Run),
            (Method::DELETE, "/mcp", Scope::Run),
            (Method::OPTIONS, "/mcp", Scope::Run),
            (Method::POST, "/api/v1/teams/dev/tasks", Scope::Run),
            (Method::POST, "/api/v1/teams", Scope::Admin),
            (Method::PUT, "/api/v1/teams/dev", Scope::Admin),
            (Method::PUT, "/api/v1/%74eams/dev", Scope::Admin),
            (Method::PUT, "//api/v1//TEAMS/dev/", Scope::Admin),
            (Method::DELETE, "/api/v1/teams/dev", Scope::Admin),
            (Method::GET, "/api/v1/tokens", Scope::Admin),
            (Method::POST, "/api/v1/admin/anything/at/all", Scope::Admin),
        ] {
            assert_eq!(required_scope(&method, path), scope, "{method} {path}");
        }
        assert!(Scope::Read < Scope::Run && Scope::Run < Scope::Admin);
    }

    #[test]
    fn paths_mean_the_same_to_everyone() {
        for good in ["/", "/api/v1/tasks/t-abcde", "/v1/models/team%2Fagent", "/a..b/...", "/%zz"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for odd in ["/a/../b", "/a/%2e%2e/b", "/./a", "/a%2f..%2fb", "/a%5cb", "/a%00", "/a%0d%0a", "/.."] {
            assert!(check_path(odd).is_err(), "{odd}");
        }
    }
}
