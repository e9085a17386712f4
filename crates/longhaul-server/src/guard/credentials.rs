//! The credentials of a request: a bearer token, a browser's cookie, or both. If there are two, both have to
//! be valid, and the weaker one counts.

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::access::{Access, AccessControl};
use crate::problem::Problem;

/// Why a request has no access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialError {
    /// There is no credential.
    Missing,
    /// A credential is not valid.
    Wrong,
    /// A cookie came with a request that the page of this server did not send.
    CookieAlone,
}

impl CredentialError {
    /// Whether someone tried a credential.
    pub(super) fn is_guess(self) -> bool {
        self == CredentialError::Wrong
    }
}

impl From<CredentialError> for Problem {
    fn from(error: CredentialError) -> Problem {
        let (status, detail) = match error {
            CredentialError::Missing => {
                (StatusCode::UNAUTHORIZED, "send a token: `Authorization: Bearer TOKEN`")
            }
            CredentialError::Wrong => (StatusCode::UNAUTHORIZED, "the token is not valid, or was revoked"),
            CredentialError::CookieAlone => (
                StatusCode::FORBIDDEN,
                "a cookie counts only with `X-Longhaul: 1` and `Sec-Fetch-Site: same-origin`",
            ),
        };
        Problem::new(status, "unauthorized", "The request is not authorized", detail)
            .with_hint("`longhaul token create NAME` creates a token")
    }
}

/// The credentials of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credentials<'a> {
    token: Option<&'a str>,
    session: Option<&'a str>,
}

impl Credentials<'_> {
    /// Finds the credentials. Fails if one has not the right form, or if there are two of a kind.
    pub(super) fn of<'a>(parts: &'a Parts, cookie: &str) -> Result<Credentials<'a>, CredentialError> {
        let mut tokens = parts.headers.get_all(AUTHORIZATION).iter();
        let token = match (tokens.next(), tokens.next()) {
            (_, Some(_)) => return Err(CredentialError::Wrong),
            (Some(value), None) => Some(bearer(value.as_bytes()).ok_or(CredentialError::Wrong)?),
            (None, None) => None,
        };
        let session = session_cookie(&parts.headers, cookie)?;
        if session.is_some() && !is_from_own_page(&parts.headers) {
            return Err(CredentialError::CookieAlone);
        }
        Ok(Credentials { token, session })
    }

    pub(super) fn check(&self, access: &AccessControl) -> Result<Access, CredentialError> {
        let token = self.token.map(|token| access.check_token(token).ok_or(CredentialError::Wrong));
        let session = self.session.map(|session| access.check_session(session).ok_or(CredentialError::Wrong));
        match (token.transpose()?, session.transpose()?) {
            (Some(token), Some(session)) => Ok(token.weaker(session)),
            (Some(only), None) | (None, Some(only)) => Ok(only),
            (None, None) => Err(CredentialError::Missing),
        }
    }
}

/// The cookie with the session of this server. Cookies do not know ports, so those of other servers on this
/// machine come along.
pub(super) fn session_cookie<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, CredentialError> {
    let mut found = None;
    for header in headers.get_all(COOKIE) {
        let Ok(text) = header.to_str() else { return Err(CredentialError::Wrong) };
        for pair in text.split(';') {
            let Some((key, value)) = pair.split_once('=') else { continue };
            if key.trim() == name && found.replace(value.trim()).is_some() {
                return Err(CredentialError::Wrong);
            }
        }
    }
    Ok(found)
}

/// Whether a page of this server sent the request: other pages can make a browser send the cookie, but not
/// these headers.
fn is_from_own_page(headers: &HeaderMap) -> bool {
    headers.get("x-longhaul").is_some_and(|value| value == "1")
        && headers.get("sec-fetch-site").is_some_and(|value| value == "same-origin")
}

fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> Result<(Option<String>, Option<String>), CredentialError> {
        let mut request = http::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let found = Credentials::of(&parts, "longhaul-1")?;
        Ok((found.token.map(str::to_owned), found.session.map(str::to_owned)))
    }

    #[test]
    fn credentials_come_from_two_headers_only() {
        let own = [("x-longhaul", "1"), ("sec-fetch-site", "same-origin")];
        assert_eq!(of(&[]), Ok((None, None)));
        assert_eq!(of(&[("authorization", "bearer  a")]), Ok((Some("a".into()), None)));
        assert_eq!(of(&[("x-api-key", "a")]), Ok((None, None)));
        let cookie = ("cookie", "a=b; longhaul-2=z; longhaul-1=x");
        assert_eq!(of(&[cookie, own[0], own[1]]), Ok((None, Some("x".into()))));
        assert_eq!(
            of(&[("authorization", "Bearer a"), cookie, own[0], own[1]]),
            Ok((Some("a".into()), Some("x".into())))
        );
        for alone in
            [&[cookie][..], &[cookie, own[0]], &[cookie, own[1]], &[("authorization", "Bearer a"), cookie]]
        {
            assert_eq!(of(alone), Err(CredentialError::CookieAlone));
        }
        for wrong in [
            &[("authorization", "Basic a")][..],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[("cookie", "longhaul-1=x; longhaul-1=y"), own[0], own[1]],
        ] {
            assert_eq!(of(wrong), Err(CredentialError::Wrong), "{wrong:?}");
        }
    }
}
