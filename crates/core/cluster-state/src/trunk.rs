//! Where a model can be cut.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::CutDigest;

/// Where a model can be cut, and what it shares.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Trunk {
    /// What it computes up to each cut point, the shallowest first: those that every backend found which reported on
    /// it. Empty if it has to be served whole.
    pub cuts: Vec<CutDigest>,
    /// The one of them up to which it shares its trunk. Its family is all models of its sub-cluster with the same.
    pub shared: Option<CutDigest>,
}
