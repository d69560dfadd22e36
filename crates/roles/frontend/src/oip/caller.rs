//! The caller, and what it may do.

use std::sync::Arc;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{Extensions, HeaderMap};
use symphony_config::Right;
use symphony_telemetry::is_unnamed_host;
use symphony_types::RequestValue;

use super::{AccessError, Credential};
use crate::access::tenant::Tenant;

/// Every right: what a caller of a page that is good for any of them needs.
pub(crate) const ANY_RIGHT: &[Right] = &Right::ALL;

/// What a caller shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The headers of its call.
    pub headers: &'a HeaderMap,
    /// The names in its certificate; empty if it has shown none.
    pub certificate: &'a [String],
}

impl Shown<'_> {
    /// Refuses what a browser sends for a page of another origin, but for these `origins`. A browser shows a
    /// certificate by itself, whichever page asks, and reaches the loopback of its own host; a key it sends only for
    /// pages that CORS lets send it.
    ///
    /// # Errors
    /// If the page is foreign, and no key is shown.
    pub(crate) fn check_origin(&self, origins: &[String]) -> Result<(), AccessError> {
        let Some(origin) = self.headers.get(ORIGIN) else { return Ok(()) };
        if Credential::of(self.headers).token().is_some() {
            return Ok(());
        }
        let origin = origin.to_str().unwrap_or_default();
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok());
        // A page that came in plaintext may be of any origin whose name resolves to this host by now, unless it has
        // none.
        let own = origin.split_once("://").is_some_and(|(scheme, from)| {
            host.is_some_and(|host| host.eq_ignore_ascii_case(from))
                && (scheme == "https" || (self.certificate.is_empty() && is_unnamed_host(from.as_bytes())))
        });
        if own || origins.iter().any(|known| known == origin) { Ok(()) } else { Err(AccessError::ForeignOrigin) }
    }
}

/// By what a caller is known.
#[derive(Clone, Debug)]
pub(crate) enum KnownBy {
    /// The hash of its key.
    Key([u8; 32]),
    /// A name in its certificate.
    Certificate(Arc<str>),
}

/// A tenant, as the file had it when the call came, and by what it was found there.
#[derive(Clone, Debug)]
struct Known {
    tenant: Arc<Tenant>,
    by: KnownBy,
}

/// In a request that came over the loopback of this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromLoopback;

/// Headers by which proxies show that they forward another host's call.
const OF_PROXIES: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "x-envoy-external-address",
    "via",
];

/// Whether a call was made by a process of this host, as far as is known. A page is never one: its browser may be on
/// this host and the page from anywhere, under a name that leads to the loopback by now.
pub(crate) fn is_local(extensions: &Extensions, headers: &HeaderMap) -> bool {
    extensions.get::<FromLoopback>().is_some()
        && !headers.contains_key(ORIGIN)
        && !OF_PROXIES.iter().any(|&name| headers.contains_key(name))
}

/// A known caller, or an anonymous one where every caller is served; with the token that it shows.
#[derive(Clone, Debug)]
pub struct Caller {
    known: Option<Known>,
    credential: Credential,
    is_local: bool,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Caller {}

impl Caller {
    /// An anonymous caller, where every caller is served.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { known: None, credential: Credential::NONE, is_local: false }
    }

    pub(crate) const fn tenant(tenant: Arc<Tenant>, by: KnownBy) -> Self {
        Self { known: Some(Known { tenant, by }), credential: Credential::NONE, is_local: false }
    }

    /// The same caller, with what it shows.
    #[must_use]
    pub fn showing(self, credential: Credential) -> Self {
        Self { credential, ..self }
    }

    /// The token that it shows: without tenants, it may be the one for loading models.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.credential.token()
    }

    /// The same caller, as a process of this host or of another, by its connection.
    pub(crate) fn with_locality(self, is_local: bool) -> Self {
        Self { is_local, ..self }
    }

    /// Whether it is a process of this host, or behind a proxy that is one.
    pub(crate) const fn is_local(&self) -> bool {
        self.is_local
    }

    /// By what it is known; none if it is anonymous.
    pub(crate) fn known_by(&self) -> Option<&KnownBy> {
        self.known.as_ref().map(|known| &known.by)
    }

    /// The caller, as the check of callers has written it into a request.
    ///
    /// # Errors
    /// If the caller was not checked: such a call is not taken for an anonymous one.
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, AccessError> {
        extensions.get::<Self>().cloned().ok_or(AccessError::CallerUnknown)
    }

    /// The tenant's name; empty if it is anonymous.
    #[must_use]
    pub fn name(&self) -> &str {
        self.known.as_ref().map_or("", |known| &known.tenant.config.name)
    }

    /// Whether it has one of these rights. An anonymous caller has them all but `repository`, for which there is a
    /// token.
    ///
    /// # Errors
    /// If not.
    pub fn may(&self, rights: &'static [Right]) -> Result<(), AccessError> {
        match &self.known {
            Some(known) if !rights.iter().any(|&right| known.tenant.may(right)) => Err(AccessError::NoRight(rights)),
            _ => Ok(()),
        }
    }

    /// Whether it is a tenant with the right to load and unload models.
    pub(crate) fn may_load(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.tenant.may(Right::Repository))
    }

    /// The value of its requests.
    #[must_use]
    pub fn weight(&self) -> RequestValue {
        self.known.as_ref().map_or(RequestValue::ONE, |known| known.tenant.weight())
    }

    pub(crate) fn known_tenant(&self) -> Option<&Arc<Tenant>> {
        self.known.as_ref().map(|known| &known.tenant)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use tonic::Code;

    use super::*;

    #[test]
    fn a_foreign_page_gets_nothing_unless_it_is_named_or_shows_a_key() {
        let checked = |headers: &[(&'static str, &'static str)], certificate: &[String]| {
            let header = |&(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let headers: HeaderMap = headers.iter().map(header).collect();
            let shown = Shown { headers: &headers, certificate };
            shown.check_origin(&["https://console.example".to_owned()])
        };
        let (nobody, ann): (&[String], _) = (&[], ["ann".to_owned()]);
        let host = ("host", "a.example:8000");
        assert_eq!(checked(&[host], &ann), Ok(()), "no browser, or a page's own GET");
        for known in ["https://console.example", "https://a.example:8000", "https://A.example:8000"] {
            assert_eq!(checked(&[host, ("origin", known)], &ann), Ok(()), "{known}");
        }
        for foreign in ["https://evil.example", "https://a.example", "https://console.example:1", "null", ""] {
            for certificate in [nobody, &ann[..]] {
                let origin = ("origin", foreign);
                assert_eq!(checked(&[host, origin], certificate), Err(AccessError::ForeignOrigin), "{foreign}");
                assert_eq!(checked(&[host, origin, ("x-api-key", "key")], certificate), Ok(()), "{foreign}");
                let typed = ("authorization", "Basic YW5uOmtleQ==");
                assert!(checked(&[host, origin, typed], certificate).is_err(), "a browser sends it by itself");
            }
        }
        let plain = ("origin", "http://a.example:8000");
        assert_eq!(checked(&[host, plain], nobody), Err(AccessError::ForeignOrigin), "its name may lead here by now");
        assert_eq!(checked(&[host, plain], &ann), Err(AccessError::ForeignOrigin), "over TLS its own pages are https");
        for (host, origin) in [("127.0.0.1:8000", "http://127.0.0.1:8000"), ("localhost", "http://localhost")] {
            let own = [("host", host), ("origin", origin)];
            assert_eq!(checked(&own, nobody), Ok(()), "{host}");
            assert_eq!(checked(&own, &ann), Err(AccessError::ForeignOrigin), "{host}");
        }
        assert!(checked(&[("origin", "https://a.example:8000")], nobody).is_err(), "no host");
    }

    #[test]
    fn a_call_is_of_this_host_unless_a_proxy_says_otherwise() {
        let mut near = Extensions::new();
        assert!(!is_local(&near, &HeaderMap::new()));
        near.insert(FromLoopback);
        assert!(is_local(&near, &HeaderMap::new()));
        for name in OF_PROXIES.into_iter().chain(["origin"]) {
            let headers = [(HeaderName::from_static(name), HeaderValue::from_static("192.0.2.1"))];
            assert!(!is_local(&near, &headers.into_iter().collect()), "{name}");
        }
    }

    #[test]
    fn a_call_that_was_not_checked_for_its_caller_is_refused() {
        let mut extensions = Extensions::new();
        let refused = Caller::of(&extensions).unwrap_err();
        assert_eq!((refused.error_status().http.as_u16(), refused.error_status().grpc), (500, Code::Internal));
        extensions.insert(Caller::anonymous());
        assert_eq!(Caller::of(&extensions), Ok(Caller::anonymous()));
    }
}
