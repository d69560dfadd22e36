//! How a load generator shows who it is at a public port.

use std::fmt;

/// What it shows, and whom it believes. By default nothing, over plaintext.
#[derive(Clone, Default)]
pub struct Access {
    /// The tenant's key.
    pub key: Option<String>,
    /// The authority of the frontend's certificate, PEM: then it is talked to over TLS.
    pub authority: Option<Vec<u8>>,
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

    /// The header in which the key is shown.
    #[must_use]
    pub fn bearer(&self) -> Option<String> {
        self.key.as_ref().map(|key| format!("Bearer {key}"))
    }
}
