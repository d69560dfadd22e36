//! A version of a pipeline of the cluster.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_pipeline::{CommittedSplit, PipelineDeclaration};
use symphony_types::Epoch;

/// A version of a pipeline of the cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct LoadedPipeline {
    /// Stages, edges and SLO.
    pub declaration: PipelineDeclaration,
    /// The epoch in which it was loaded.
    pub epoch: Epoch,
    /// By which budgets it runs; none before the epoch loop has found any.
    pub split: Option<CommittedSplit>,
}
