//! `[network]`: substitutes for the addresses of other processes.

use crate::Address;

/// Where this node dials other processes at addresses other than their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Addresses that are dialled at another place: behind address translation, a forwarder, or a test's proxy. The
    /// expected peers stay the same.
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
