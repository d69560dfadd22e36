//! `[network]`: how the others are reached from this node.

use crate::Address;

/// How the others are reached from this node, where that is not by the addresses they give.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Addresses that are dialled at another place: behind address translation, a forwarder, or a proxy that a test
    /// puts in between. Who must answer stays the same.
    pub routes: Vec<RouteConfig>,
}

/// One address that is dialled at another place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The address as its owner gives it.
    pub to: Address,
    /// What this node dials instead.
    pub via: Address,
}
