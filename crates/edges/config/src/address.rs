//! `host:port`, checked when it is parsed, not when it is first dialled.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The address of a listener or of a peer: a name or an IP address, and a port.
///
/// IPv6 addresses stand in brackets: `[::1]:8001`. A port of 0 lets the operating system choose one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    host: String,
    port: u16,
}

/// Text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an address: {problem}; expected host:port, such as 127.0.0.1:8001 or [::1]:8001")]
pub struct AddressError {
    /// The text.
    pub given: String,
    /// The defect.
    pub problem: &'static str,
}

impl Address {
    /// The longest host name that DNS allows.
    pub const HOST_BYTES_MAX: usize = 253;

    /// An address on this machine only.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
    }

    /// An address by number.
    #[must_use]
    pub fn at(host: IpAddr, port: u16) -> Self {
        Self { host: host.to_string(), port }
    }

    /// Another port of the same host.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port }
    }

    /// The name or IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 means that the operating system chooses.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether only this machine can reach it. A name other than `localhost` never counts as loopback, because it is
    /// not resolved here.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.ip().is_some_and(|ip| ip.is_loopback())
    }

    /// Whether it stands for every address of this machine (`0.0.0.0`, `[::]`): good to listen on, useless to dial.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_unspecified())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |problem| Err(AddressError { given: text.to_owned(), problem });
        let Some((host, port)) = text.rsplit_once(':') else {
            return refuse("there is no colon");
        };
        let Ok(port) = port.parse::<u16>() else {
            return refuse("the port is not a number from 0 to 65535");
        };
        let host = if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            if !matches!(inner.parse(), Ok(IpAddr::V6(_))) {
                return refuse("what stands in brackets is not an IPv6 address");
            }
            inner
        } else {
            if host.is_empty() {
                return refuse("there is no host");
            }
            if host.len() > Self::HOST_BYTES_MAX {
                return refuse("the host is longer than 253 bytes");
            }
            if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b)) {
                return refuse("the host has other characters than letters, digits, dots, dashes and underscores");
            }
            host
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;
    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_is_known_and_names_are_not_guessed() {
        for local in ["127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "localhost:1"] {
            assert!(parsed(local).is_loopback(), "{local}");
        }
        for other in ["10.0.0.1:1", "0.0.0.0:1", "scheduler-1.internal:1", "[2001:db8::1]:1", "localhost.evil:1"] {
            assert!(!parsed(other).is_loopback(), "{other}");
        }
        assert!(parsed("0.0.0.0:1").is_wildcard() && parsed("[::]:1").is_wildcard());
        assert!(!parsed("127.0.0.1:1").is_wildcard());
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("127.0.0.1", "no colon"),
            (":80", "no host"),
            ("host:", "not a number"),
            ("host:65536", "not a number"),
            ("::1:80", "other characters"),
            ("[host]:80", "not an IPv6 address"),
            ("ho st:80", "other characters"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("expected host:port"), "{text}: {error}");
        }
        assert!(format!("{}:1", "a".repeat(254)).parse::<Address>().is_err());
    }

    proptest! {
        #[test]
        fn text_never_panics_and_what_parses_round_trips(text in "\\PC{0,40}|[a-z0-9.:\\[\\]]{0,30}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
            }
        }
    }
}
