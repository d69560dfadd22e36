//! The clusters that this frontend serves: registration, routes, and which of them is tried for a model.

pub(crate) mod cluster;
pub(crate) mod cluster_order;
pub(crate) mod federation;
pub(crate) mod live_pipeline;
pub(crate) mod routing;
pub(crate) mod traffic;
