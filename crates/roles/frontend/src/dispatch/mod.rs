//! The links to the leaders of sub-clusters.

pub(crate) mod control_plane_contact;
pub(crate) mod leader_link;
#[cfg(test)]
mod leader_link_tests;
pub(crate) mod rerouter;
