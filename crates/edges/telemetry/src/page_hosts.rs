//! Under which names a process shows its pages where they need no key.
//!
//! A hostile page can have its own name lead to an address of its reader's network (DNS rebinding). The browser then
//! takes what a process there answers for the page's own. It still says the page's name in `Host`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::PageRefusal;

/// The longest part of a name that is repeated in a refusal.
const SHOWN_CHARS_MAX: usize = 100;

/// Whether this host, with its port or without, is an IP address or `localhost`: no page has either for its name.
#[must_use]
pub fn is_unnamed_host(text: &[u8]) -> bool {
    Authority::try_from(text).is_ok_and(|authority| is_unnamed(authority.host()))
}

fn is_unnamed(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

/// The names of a process, beside its addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageHosts(Arc<[String]>);

impl PageHosts {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Refuses requests under another name. No browser leaves the name out.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), PageRefusal> {
        let in_uri = uri.authority().map(|authority| authority.as_str().as_bytes());
        let in_headers = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let Some(foreign) = in_uri.into_iter().chain(in_headers).find(|text| !self.has(text)) else { return Ok(()) };
        let shown: String = String::from_utf8_lossy(foreign).chars().take(SHOWN_CHARS_MAX).collect();
        let words = format!(
            "without a key this page is shown under IP addresses, `localhost` and names of the configuration; got \
             `{shown}`: if that is this process, add its name to security.page_hosts"
        );
        Err(PageRefusal { status: StatusCode::FORBIDDEN, reason: "foreign_host", words })
    }

    fn has(&self, text: &[u8]) -> bool {
        Authority::try_from(text).is_ok_and(|authority| {
            let host = authority.host();
            is_unnamed(host) || self.0.iter().any(|name| host.eq_ignore_ascii_case(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_good_and_the_name_of_a_page_is_not() {
        let hosts = PageHosts::new(["console.example".to_owned()]);
        let check = |uri: &str, names: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append(header::HOST, HeaderValue::from_str(name).unwrap());
            }
            hosts.check(&uri.parse().unwrap(), &headers).map_err(|refused| refused.reason)
        };
        for good in ["127.0.0.1", "127.0.0.1:8002", "10.0.0.7:8002", "[::1]:8002", "[fe80::1]", "localhost:8002"] {
            assert_eq!(check("/", &[good]), Ok(()), "{good}");
        }
        assert_eq!(check("/", &["Console.Example:8002"]), Ok(()));
        assert_eq!(check("/", &[]), Ok(()), "no browser");
        for foreign in
            ["evil.example", "evil.example:8002", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b"]
        {
            assert_eq!(check("/", &[foreign]), Err("foreign_host"), "{foreign}");
            assert!(!is_unnamed_host(foreign.as_bytes()), "{foreign}");
        }
        assert_eq!(check("/", &["localhost", "evil.example"]), Err("foreign_host"), "every line counts");
        assert_eq!(check("http://evil.example/", &["localhost"]), Err("foreign_host"));
        let mut long = HeaderMap::new();
        long.insert(header::HOST, HeaderValue::from_bytes(&[0xe9; 1 << 10]).unwrap());
        let refused = hosts.check(&Uri::from_static("/"), &long).unwrap_err();
        assert!(refused.words.len() < 1 << 10, "{}", refused.words);
        assert!(is_unnamed_host(b"[::1]:8000") && is_unnamed_host(b"LOCALHOST"));
    }
}
