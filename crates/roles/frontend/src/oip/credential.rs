//! The key or token that a caller shows.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The scheme of the header.
const SCHEME: &str = "Bearer ";
/// The scheme by which browsers send what people type.
const PAGE_SCHEME: &str = "Basic ";
/// The header for clients that can set no other.
const KEY_HEADER: &str = "x-api-key";

/// The token of a call's header `authorization: Bearer TOKEN` or `x-api-key: TOKEN`, metadata of the same names over
/// gRPC; none if it has neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(Option<String>);

impl Credential {
    /// From the headers of a call.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix(SCHEME));
        Self(bearer.or_else(|| text(KEY_HEADER)).map(|token| token.trim().to_owned()))
    }

    /// The same, or the password of `authorization: Basic`. Pages only read: what a browser sends by itself, wherever a
    /// call comes from, must not ask models or load them.
    pub(crate) fn of_page(headers: &HeaderMap) -> Self {
        let basic = || {
            let value = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix(PAGE_SCHEME)?;
            let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
            Some(text.split_once(':')?.1.to_owned())
        };
        Self(Self::of(headers).0.or_else(basic))
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.0.as_deref()
    }
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
        assert_eq!(of("Bearer secret").token(), Some("secret"));
        assert_eq!((of("Basic secret").token(), of("secret").token()), (None, None));
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static("secret"))]);
        assert_eq!(Credential::of(&headers).token(), Some("secret"));
        assert_eq!(Credential::of(&HeaderMap::new()).token(), None);
        assert!(!format!("{:?}", of("Bearer secret")).contains("secret"));
    }
}
