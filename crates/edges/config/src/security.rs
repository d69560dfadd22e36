//! `[security]`: the processes that may talk to this node.

use std::path::PathBuf;

/// The processes that may talk to this node: those with a certificate of the cluster's authority, in a role that the
/// port accepts.
///
/// Without certificates connections are neither encrypted nor authenticated. This needs `insecure_dev`, and then all
/// addresses must be on loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityConfig {
    /// Certificates of the trusted authorities, PEM.
    #[serde(with = "crate::empty_is_none")]
    pub ca: Option<PathBuf>,
    /// This node's certificate, PEM; it names the cluster, the role and the node.
    #[serde(with = "crate::empty_is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(with = "crate::empty_is_none")]
    pub key: Option<PathBuf>,
    /// Plaintext, on loopback only.
    pub insecure_dev: bool,
    /// Public ports beyond loopback serve every caller: clients without keys, and people who look at status pages.
    pub insecure_public: bool,
    /// Names by which browsers may ask for status pages that need no key.
    pub page_hosts: Vec<String>,
}

impl SecurityConfig {
    /// The three files with their keys.
    #[must_use]
    pub fn files(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        [("security.ca", self.ca.as_ref()), ("security.cert", self.cert.as_ref()), ("security.key", self.key.as_ref())]
    }
}
