//! What a node does for the sub-clusters that it leads, beside the decisions.

pub(crate) mod families;
pub(crate) mod leads;
pub(crate) mod learners;
pub(crate) mod policy;
pub(crate) mod prepared_handover;
pub(crate) mod repeated_failures;
pub(crate) mod servable;
pub(crate) mod served_as;
pub(crate) mod stuck_links;
pub(crate) mod subcluster;
