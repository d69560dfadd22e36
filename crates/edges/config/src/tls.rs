//! `[frontend.tls]`: TLS at the ports that clients call.

use std::path::PathBuf;

/// Certificate and key of the public ports; plaintext if neither is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate that clients are shown, and the intermediate ones, PEM.
    #[serde(with = "crate::empty_is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(with = "crate::empty_is_none")]
    pub key: Option<PathBuf>,
    /// Authorities of clients, PEM: a client may then show a certificate in place of a key.
    #[serde(with = "crate::empty_is_none")]
    pub client_ca: Option<PathBuf>,
}

impl TlsConfig {
    /// The certificate and its key, if there is TLS.
    #[must_use]
    pub fn pair(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.cert.as_ref().zip(self.key.as_ref())
    }
}
