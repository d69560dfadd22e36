//! The surroundings of a [`ClusterPolicy`](crate::ClusterPolicy): what it knows, how it orders, where its name is
//! looked up, and what checks it.

pub(crate) mod facts;
pub(crate) mod guard;
pub(crate) mod model;
pub(crate) mod orders;
pub(crate) mod referee;
pub(crate) mod registry;
