//! What a node does for the sub-clusters that it leads, beside the decisions.

pub(crate) mod leads;
pub(crate) mod learning;
pub(crate) mod reach;
pub(crate) mod relapses;
pub(crate) mod servable;
pub(crate) mod standby;
pub(crate) mod subcluster;
