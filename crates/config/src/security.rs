//! `[security]`: who may talk to this node.

/// Who may talk to this node.
///
/// Connections are neither encrypted nor authenticated yet. Until they are, a node listens on and dials loopback
/// addresses only, unless the operator says by `insecure_dev` that everybody in its network may command the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityConfig {
    /// Allows addresses beyond loopback without any authentication.
    pub insecure_dev: bool,
}
