//! The federation as frontends and tools see it: the protobuf [`FederationView`](crate::control::FederationView), typed.

use std::collections::BTreeMap;

use symphony_types::{Nanos, RequestValue};

use crate::control as pb;

/// Clusters and the homes of models, as one replica of the top-level group has applied them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederationView {
    /// Name of the federation.
    pub federation: String,
    /// Raft log index that this view reflects; orders views of different replicas.
    pub applied_index: u64,
    /// Version of where models are at home (invariant F2).
    pub plan: u64,
    /// The replica that answered.
    pub replica: u64,
    /// Who leads, as far as that replica knows.
    pub leader: Option<u64>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, FederatedClusterView>,
    /// Models by name.
    pub models: BTreeMap<String, FederatedModelView>,
    /// What changed lately: log index and sentence, newest last.
    pub events: Vec<(u64, String)>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederatedClusterView {
    /// `host:port` of its control surfaces.
    pub control: Vec<String>,
    /// A quorum of it answers.
    pub reachable: bool,
    /// Log index since which it does, or does not.
    pub since: u64,
    /// GPUs and their memory in bytes, by kind.
    pub kinds: BTreeMap<String, (u32, u64)>,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederatedModelView {
    /// Where new requests go.
    pub home: Option<String>,
    /// Where it is going.
    pub moves_to: Option<String>,
    /// Why: a stable label.
    pub cause: String,
    /// Clusters that may hold a copy which is to be let go of.
    pub leftovers: Vec<String>,
    /// It goes as soon as there is no copy left.
    pub unloading: bool,
    /// Why it has no place.
    pub unplaced: Option<String>,
    /// Its objective.
    pub slo: Nanos,
    /// What a request is worth.
    pub value: RequestValue,
    /// Requests per second that it was said to need.
    pub wanted_rps: f64,
    /// Requests per second that its clients ask for; known to the leader only.
    pub measured_rps: f64,
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<pb::FederationView> for FederationView {
    fn from(view: pb::FederationView) -> Self {
        let clusters = view.clusters.into_iter().map(|cluster| {
            let kinds = cluster.kinds.into_iter().map(|kind| (kind.gpu_kind, (kind.gpus, kind.memory_bytes)));
            let (control, reachable, since) = (cluster.control, cluster.reachable, cluster.since);
            (cluster.name, FederatedClusterView { control, reachable, since, kinds: kinds.collect() })
        });
        let models = view.models.into_iter().map(|model| {
            let typed = FederatedModelView {
                home: some(model.home),
                moves_to: some(model.moves_to),
                cause: model.cause,
                leftovers: model.leftovers,
                unloading: model.unloading,
                unplaced: some(model.unplaced),
                slo: Nanos::new(model.slo_ns),
                value: RequestValue::from_thousandths(model.value_thousandths).unwrap_or(RequestValue::ONE),
                wanted_rps: model.wanted_rps,
                measured_rps: model.measured_rps,
            };
            (model.name, typed)
        });
        Self {
            federation: view.federation,
            applied_index: view.applied_index,
            plan: view.plan,
            replica: view.replica,
            leader: (view.leader != 0).then_some(view.leader),
            clusters: clusters.collect(),
            models: models.collect(),
            events: view.events.into_iter().map(|event| (event.index, event.what)).collect(),
        }
    }
}
