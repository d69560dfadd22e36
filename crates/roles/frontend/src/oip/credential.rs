//! What a caller shows to be allowed more than to ask models.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

/// The scheme of the header.
const SCHEME: &str = "Bearer ";

/// The token of a call's header `authorization: Bearer TOKEN`, metadata of the same name over gRPC; none if it has
/// none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(Option<String>);

impl Credential {
    /// From the headers of a call.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        Self(value.and_then(|value| value.strip_prefix(SCHEME)).map(|token| token.trim().to_owned()))
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
        assert_eq!(Credential::of(&HeaderMap::new()).token(), None);
        assert!(!format!("{:?}", of("Bearer secret")).contains("secret"));
    }
}
