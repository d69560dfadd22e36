//! Who may see the status pages.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use symphony_net::CertificateNames;

/// A connection to the metrics port.
#[derive(Clone, Debug)]
pub struct PageConnection {
    /// Where it comes from.
    pub addr: SocketAddr,
    /// The names in its certificate, if it has shown one.
    pub certificate: CertificateNames,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`: numbers for Prometheus.
    Metrics,
    /// `/api/view`: the cluster as this process knows it.
    View,
    /// The files of the console, which hold no data themselves.
    Files,
    /// `/api/console…`, `/api/history` and `/api/explain`: the whole cluster, and single requests of all clients.
    Cluster,
}

/// Who asks for a page.
#[derive(Clone, Copy, Debug)]
pub struct PageCaller<'a> {
    /// What it asks for.
    pub page: Page,
    /// Its connection; none if that is not known.
    pub connection: Option<&'a PageConnection>,
    /// What it shows.
    pub headers: &'a HeaderMap,
}

/// Why a page is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRefusal {
    /// 401 asks browsers to ask for a key.
    pub status: StatusCode,
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub words: String,
}

impl PageRefusal {
    /// The question makes no sense.
    #[must_use]
    pub const fn bad_request(words: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason: "bad_request", words }
    }

    /// There is no such thing.
    #[must_use]
    pub const fn not_found(words: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, reason: "not_found", words }
    }

    /// The answer is not available now.
    #[must_use]
    pub const fn unavailable(words: String) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, reason: "unavailable", words }
    }
}

impl IntoResponse for PageRefusal {
    fn into_response(self) -> Response {
        let Self { status, reason, words } = self;
        let mut response = (status, Json(serde_json::json!({ "error": words, "reason": reason }))).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let ask = HeaderValue::from_static("Basic realm=\"symphony\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
        }
        response
    }
}

type Check = dyn Fn(&PageCaller<'_>) -> Result<(), PageRefusal> + Send + Sync;

/// Decides who sees `/api/view` and the console.
#[derive(Clone)]
pub struct PageGuard {
    check: Arc<Check>,
    /// Whether `/metrics` is guarded, too.
    pub(crate) metrics: bool,
    /// Whether callers show who they are, and not only where they are.
    pub(crate) needs_key: bool,
}

impl fmt::Debug for PageGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageGuard").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

impl PageGuard {
    /// Admits the callers that `check` admits by their credentials; with `metrics` it is asked about `/metrics` as
    /// well.
    #[must_use]
    pub fn new(
        metrics: bool,
        check: impl Fn(&PageCaller<'_>) -> Result<(), PageRefusal> + Send + Sync + 'static,
    ) -> Self {
        Self { check: Arc::new(check), metrics, needs_key: true }
    }

    /// Lets in callers of this host: for processes that know no keys.
    #[must_use]
    pub fn this_host() -> Self {
        let check = |caller: &PageCaller<'_>| {
            let addr = caller.connection.map(|connection| connection.addr.ip().to_canonical());
            if addr.is_some_and(|addr| addr.is_loopback()) {
                return Ok(());
            }
            let words = "this page is for callers of its own host; use `symphony get` or `symphony top`, a tunnel, or set \
                         security.insecure_public";
            Err(PageRefusal { status: StatusCode::FORBIDDEN, reason: "this_host_only", words: words.into() })
        };
        Self { needs_key: false, ..Self::new(false, check) }
    }

    pub(crate) fn check(&self, caller: &PageCaller<'_>) -> Result<(), PageRefusal> {
        (self.check)(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_host_shows_its_pages_to_callers_on_loopback_only() {
        let asks = |addr: &str| {
            let connection = PageConnection { addr: addr.parse().unwrap(), certificate: CertificateNames::default() };
            let caller = PageCaller { page: Page::View, connection: Some(&connection), headers: &HeaderMap::new() };
            PageGuard::this_host().check(&caller).map_err(|refused| refused.status)
        };
        for host in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            assert_eq!(asks(host), Ok(()), "{host}");
        }
        for other in ["10.0.0.1:9", "[::ffff:10.0.0.1]:9", "[fe80::1]:9"] {
            assert_eq!(asks(other), Err(StatusCode::FORBIDDEN), "{other}");
        }
        let unknown = PageCaller { page: Page::View, connection: None, headers: &HeaderMap::new() };
        assert!(PageGuard::this_host().check(&unknown).is_err());
    }
}
