//! How a load generator shows who it is at a public port.

use std::fmt;

use symphony_config::Address;

/// What it shows, and whom it believes. By default nothing, over plaintext.
#[derive(Clone, Default)]
pub struct Access {
    /// The tenant's key.
    pub key: Option<String>,
    /// The authority of the frontend's certificate, PEM: then it is talked to over TLS.
    pub authority: Option<Vec<u8>>,
    /// The key may be sent readable beyond loopback.
    pub insecure_key: bool,
}

/// A key is not for logs.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("key", &self.key.is_some()).field("tls", &self.authority.is_some()).finish()
    }
}

impl Access {
    /// The scheme of addresses.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.authority.is_some() { "https" } else { "http" }
    }

    /// Refuses to send a key readable over a network, where `addr` may be whoever registered as a frontend.
    ///
    /// # Errors
    /// If that would happen, with what to do instead.
    pub fn check(&self, addr: &str) -> Result<(), String> {
        let is_loopback = || addr.parse().is_ok_and(|addr: Address| addr.is_loopback());
        if self.key.is_none() || self.authority.is_some() || self.insecure_key || is_loopback() {
            return Ok(());
        }
        Err("a key is not sent in plaintext beyond loopback: name the authority of the frontends' certificates in \
             SYMPHONY_PUBLIC_CA, or set SYMPHONY_INSECURE_KEY=1 if the network is trusted"
            .into())
    }

    /// The header in which the key is shown.
    #[must_use]
    pub fn bearer(&self) -> Option<String> {
        self.key.as_ref().map(|key| format!("Bearer {key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_beyond_loopback_over_tls_only_unless_that_is_wanted() {
        let open = Access::default();
        let keyed = Access { key: Some("key".into()), ..Access::default() };
        let secured = Access { authority: Some(Vec::new()), ..keyed.clone() };
        let wanted = Access { insecure_key: true, ..keyed.clone() };
        for near in ["127.0.0.1:8002", "[::1]:8002", "localhost:8002"] {
            assert_eq!(keyed.check(near), Ok(()), "{near}");
        }
        for far in ["10.0.0.1:8002", "frontend:8002", "127.0.0.1:8002@evil.example:80", "127.0.0.1.evil.example:80"] {
            assert!(keyed.check(far).unwrap_err().contains("SYMPHONY_PUBLIC_CA"), "{far}");
            for other in [&open, &secured, &wanted] {
                assert_eq!(other.check(far), Ok(()), "{far}");
            }
        }
    }
}
