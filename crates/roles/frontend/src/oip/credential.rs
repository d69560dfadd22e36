//! The key or token that a caller shows.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The scheme of the header.
const SCHEME: &str = "bearer";
/// The scheme by which browsers send what people type.
const PAGE_SCHEME: &str = "basic";
/// The header for clients that can set no other.
const KEY_HEADER: &str = "x-api-key";

/// The token of a call's header `x-api-key: TOKEN` or `authorization: Bearer TOKEN`, metadata of the same names over
/// gRPC; none if it has neither, or an empty one. The former goes first: the latter may be of a proxy on the way.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(Option<Arc<str>>);

impl Credential {
    /// Nothing is shown.
    pub(crate) const NONE: Self = Self(None);

    /// From the headers of a call.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let key = headers.get(KEY_HEADER).and_then(|value| value.to_str().ok());
        let key = key.map(str::trim).filter(|key| !key.is_empty());
        Self(key.or_else(|| authorization(headers, SCHEME)).map(Arc::from))
    }

    /// The same, or the password of `authorization: Basic`. Pages only read: what a browser sends by itself, wherever a
    /// call comes from, must not ask models or load them.
    pub(crate) fn of_page(headers: &HeaderMap) -> Self {
        let basic = || {
            let text = String::from_utf8(STANDARD.decode(authorization(headers, PAGE_SCHEME)?).ok()?).ok()?;
            let (_, password) = text.split_once(':')?;
            (!password.is_empty()).then(|| Arc::from(password))
        };
        Self(Self::of(headers).0.or_else(basic))
    }

    /// The token that the client showed; none if it showed nothing that can be one.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// The value of the header `authorization` after this scheme, whose case does not matter (RFC 9110); none if that is
/// empty.
fn authorization<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let (named, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let rest = rest.trim();
    (named.eq_ignore_ascii_case(scheme) && !rest.is_empty()).then_some(rest)
}

/// A token is not for logs.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Credential(…)" } else { "Credential(none)" })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_token_follows_the_scheme_and_is_not_shown() {
        let of = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            Credential::of(&headers)
        };
        for value in ["Bearer secret", "bearer secret", "BEARER  secret "] {
            assert_eq!(of(value).token(), Some("secret"), "{value}");
        }
        for value in ["Basic secret", "secret", "Bearer", "Bearer ", "Bearersecret", ""] {
            assert_eq!(of(value).token(), None, "{value}");
        }
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static("secret"))]);
        assert_eq!(Credential::of(&headers).token(), Some("secret"));
        assert_eq!(Credential::of(&HeaderMap::new()).token(), None);
        let both = |key: &'static str| {
            let key = ("x-api-key".parse().unwrap(), HeaderValue::from_static(key));
            let headers = HeaderMap::from_iter([key, (AUTHORIZATION, HeaderValue::from_static("Bearer of-a-proxy"))]);
            Credential::of(&headers).token().map(str::to_owned)
        };
        assert_eq!(both("secret").as_deref(), Some("secret"));
        assert_eq!(both(" ").as_deref(), Some("of-a-proxy"), "an empty one is none");
        assert!(!format!("{:?}", of("Bearer secret")).contains("secret"));
    }

    #[test]
    fn a_page_also_takes_the_password_of_a_browser_unless_it_is_empty() {
        let of = |text: &str| {
            let value = HeaderValue::try_from(format!("basic {}", STANDARD.encode(text))).unwrap();
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            assert_eq!(Credential::of(&headers).token(), None, "for pages only");
            Credential::of_page(&headers).token().map(str::to_owned)
        };
        assert_eq!(of("ann:secret").as_deref(), Some("secret"));
        assert_eq!((of("ann:"), of("ann")), (None, None));
    }
}
