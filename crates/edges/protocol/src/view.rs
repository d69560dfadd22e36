//! The view of a cluster: the protobuf [`ClusterView`](crate::control::ClusterView), checked and typed.

mod advice;
mod backend;
mod behind;
mod cut;
mod error;
mod event;
mod frontend;
mod group;
mod load;
mod message;
mod model;
mod node;
mod operation;
mod pipeline;
mod subcluster;
mod traffic;
mod trunk;
mod viewed_model_spec;

pub use advice::{AdviceView, DriftView, FleetAdviceView, FleetChoiceView, KindAdviceView, SlowGpuView};
pub use backend::{BackendView, GpuView};
pub use cut::{BackendScope, SortedView};
pub use error::ViewError;
pub use event::EventView;
pub use frontend::FrontendView;
pub use group::{GroupMemberView, GroupRole};
pub use load::{GpuLoadView, LoadView, ModelLoadView};
pub use model::{HolderView, ModelView, NoGpu, Readiness};
pub use node::NodeView;
pub use operation::OperationView;
pub use pipeline::{PipelineCounts, PipelineLoadView, PipelineView, StageReadiness};
pub use subcluster::{PolicyView, SubclusterView, SuccessorView};
pub use symphony_cluster_state::{Shadow, TRAFFIC_VERSIONS_MAX, Traffic};
pub use trunk::{TrunkView, cuts_from_pb, cuts_to_pb};
pub(crate) use viewed_model_spec::tensors_to_pb;
pub use viewed_model_spec::{KindProfile, ModelSource, ModelSpec};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_types::{BackendId, Epoch, FrontendId, Level, ModelId, NodeId, SubclusterId, Token};

use crate::epoch_plan_view::EpochPlanView;

/// The largest view, of a cluster or a federation, as a message: what a replicated state may take.
pub const VIEW_BYTES_MAX: usize = symphony_cluster_state::SNAPSHOT_BYTES_MAX;

/// Within this time after a commit, all views that processes route by have it: an older view is that of a process which
/// has lost the control group, and knows it.
pub const VIEWS_FOLLOW_WITHIN: Duration = Duration::from_secs(2);

/// The state of the cluster that all processes route by, as one replica has applied it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Name of the cluster.
    pub cluster: String,
    /// Raft log index that this view reflects; orders views of different replicas.
    pub applied_index: u64,
    /// Version of the plan.
    pub epoch: Epoch,
    /// What the cluster writes by.
    pub level: Level,
    /// The replica that answered.
    pub replica: NodeId,
    /// The Raft leader, as far as that replica knows.
    pub control_leader: Option<NodeId>,
    /// Scheduler replicas.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Sub-clusters.
    pub subclusters: BTreeMap<SubclusterId, SubclusterView>,
    /// Registered backends, up and dead.
    pub backends: BTreeMap<BackendId, BackendView>,
    /// Registered frontends, with those that have left and are not forgotten yet.
    pub frontends: BTreeMap<FrontendId, FrontendView>,
    /// Loaded models; in cut views, those that concern the reader.
    pub models: BTreeMap<ModelId, ModelView>,
    /// How requests that name no version are split, by model or pipeline; empty in cut views.
    pub traffic: BTreeMap<String, Traffic>,
    /// Pipelines, by the names of their versions; empty in cut views.
    pub pipelines: BTreeMap<String, PipelineView>,
    /// What changed lately, newest last.
    pub events: Vec<EventView>,
    /// What operators asked for last, newest last; more of them in linearizable answers.
    pub operations: Vec<OperationView>,
    /// The control group as its leader knows it; empty but in linearizable answers.
    pub group: BTreeMap<NodeId, GroupMemberView>,
    /// Ids of removed replicas; they are never reused.
    pub removed_nodes: BTreeSet<NodeId>,
    /// The last plans, newest last; empty in watched views and cut views.
    pub plans: Vec<EpochPlanView>,
}

impl View {
    /// The token that fences a GPU: the larger of its leader's assignment and its own binding
    /// (docs/concepts/take-over.md).
    #[must_use]
    pub fn gpu_token(&self, backend: &BackendView, gpu: &GpuView) -> Token {
        let assigned = self.subclusters.get(&backend.subcluster).map_or(Token::default(), |s| s.token);
        assigned.max(gpu.binding)
    }

    /// Finds a model by the name under which it was loaded.
    #[must_use]
    pub fn model_named(&self, name: &str) -> Option<(ModelId, &ModelView)> {
        self.models.iter().find(|(_, m)| m.spec.name == name).map(|(&id, m)| (id, m))
    }
}

#[cfg(test)]
mod tests;
