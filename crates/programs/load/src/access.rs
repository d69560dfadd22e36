//! How a load generator shows who it is at a public port.

use std::fmt;
use std::time::Duration;

use symphony_config::Address;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a port that was not understood may take to show its protocol.
const SPEAKS_WITHIN: Duration = Duration::from_secs(2);
/// What an alert of TLS begins with, of any version: its type, and the first byte of the version.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// The credentials that it shows, and the authority that it trusts. By default none, over plaintext.
#[derive(Clone, Default)]
pub struct Access {
    /// The tenant's key.
    pub key: Option<String>,
    /// The authority of the frontend's certificate, PEM: with it, connections use TLS.
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

    /// Refuses to send a key readable over a network, where `addr` may be any process that registered as a frontend.
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

    /// Why a plaintext call was not understood, if the port is for TLS.
    pub(crate) async fn why_not(&self, addr: &str) -> Option<String> {
        let speaks_tls = self.authority.is_none()
            && tokio::time::timeout(SPEAKS_WITHIN, alerts(addr)).await.is_ok_and(|alerts| alerts.unwrap_or(false));
        speaks_tls.then(|| {
            "it speaks TLS: name the authority of its certificate by --public-ca (SYMPHONY_PUBLIC_CA)".to_owned()
        })
    }

    /// The header in which the key is shown.
    #[must_use]
    pub fn bearer(&self) -> Option<String> {
        self.key.as_ref().map(|key| format!("Bearer {key}"))
    }
}

/// Whether what listens there answers plaintext with an alert of TLS.
async fn alerts(addr: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    let mut answer = [0; TLS_ALERT.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer == TLS_ALERT)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A port that answers whatever comes with this, once.
    async fn answering(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = [0; 4];
            stream.read_exact(&mut received).await.unwrap();
            stream.write_all(answer).await.unwrap();
            // It stays open until the other side has read: closed with something unread, it would take the answer back.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        addr
    }

    #[tokio::test]
    async fn a_port_for_tls_is_known_by_its_alert() {
        let (plain, tls) = (Access::default(), Access { authority: Some(Vec::new()), ..Access::default() });
        let alert = &[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x32];
        let message = plain.why_not(&answering(alert).await).await.unwrap();
        assert!(message.contains("it speaks TLS") && message.contains("--public-ca"), "{message}");
        assert_eq!(plain.why_not(&answering(b"HTTP/1.1 400 Bad Request\r\n\r\n").await).await, None);
        assert_eq!(tls.why_not("127.0.0.1:1").await, None, "TLS was spoken already");
    }

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
