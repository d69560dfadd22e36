//! The cluster as everybody sees it: the protobuf [`ClusterView`](crate::control::ClusterView), checked and typed.

mod cut;
mod message;

pub(crate) use message::tensors_to_pb;

use std::collections::{BTreeMap, BTreeSet};

use symphony_policy::{ModelPolicy, PolicyError};
use symphony_types::{
    BackendId, BootId, Duty, Epoch, FrontendId, GpuId, LatencyProfile, ModelId, Nanos, NoOperationId, NodeId,
    OperationId, ProfileError, RequestValue, Signature, SubclusterId, Token, Transforms, UnknownDataType,
};

use crate::plan::{BackendMoveView, ModelMoveView, PlanView};
pub use cut::{BackendScope, SortedView};

/// What everybody routes by, as one replica has applied it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Name of the cluster.
    pub cluster: String,
    /// Raft log index that this view reflects; orders views of different replicas.
    pub applied_index: u64,
    /// Version of the plan.
    pub epoch: Epoch,
    /// The replica that answered.
    pub replica: NodeId,
    /// Who leads the control group, as far as that replica knows.
    pub control_leader: Option<NodeId>,
    /// Scheduler replicas.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Sub-clusters.
    pub subclusters: BTreeMap<SubclusterId, SubclusterView>,
    /// Backends.
    pub backends: BTreeMap<BackendId, BackendView>,
    /// Frontends.
    pub frontends: BTreeMap<FrontendId, FrontendView>,
    /// Models.
    pub models: BTreeMap<ModelId, ModelView>,
    /// What changed lately: log index and sentence, newest last.
    pub events: Vec<(u64, String)>,
    /// What operators asked for last, newest last; more of them in linearizable answers.
    pub operations: Vec<OperationView>,
    /// The control group as its leader knows it; empty but in linearizable answers.
    pub group: BTreeMap<NodeId, GroupMemberView>,
    /// Ids of replicas that were removed; nobody gets them again.
    pub removed_nodes: BTreeSet<NodeId>,
    /// The last plans, newest last; empty where the view is watched, or cut for somebody.
    pub plans: Vec<PlanView>,
}

/// What an operator asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// Its place in the log.
    pub index: u64,
    /// Names it.
    pub id: OperationId,
    /// Role and name in the certificate of who asked; `insecure` on a plaintext port.
    pub actor: String,
    /// Wall clock of the replica that was asked, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What was asked for, in words.
    pub what: String,
    /// Why nothing was done; none if it was.
    pub refusal: Option<String>,
}

/// A replica in the control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberView {
    /// `host:port` where the others reach it.
    pub control_addr: String,
    /// Its part.
    pub role: GroupRole,
    /// How far it has applied the log, by its last beat; 0 if it was never heard of.
    pub applied_index: u64,
    /// Entries that it has still to apply.
    pub lag: u64,
}

/// A replica's part in the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    /// It leads.
    Leader,
    /// It votes.
    Voter,
    /// It follows and does not vote (yet).
    Learner,
}

impl GroupRole {
    /// The stable label, for tables and JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "learner",
        }
    }
}

/// A scheduler replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its life; none before it registered.
    pub boot: Option<BootId>,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests for the sub-clusters it leads.
    pub dispatch_addr: String,
    /// `host:port` where it takes beats while it leads the control group.
    pub beat_addr: String,
    /// What it is there for.
    pub duty: Duty,
}

/// A sub-cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubclusterView {
    /// Its name.
    pub name: String,
    /// The replica that leads it and the life that was assigned.
    pub leader: Option<(NodeId, BootId)>,
    /// Log index of that assignment.
    pub token: Token,
    /// Who may lead next.
    pub standbys: Vec<NodeId>,
    /// Who gets ready to lead next, by a planned hand-over that has begun.
    pub successor: Option<SuccessorView>,
    /// How many GPUs it should have; in linearizable answers only, once its lead has reported.
    pub advice: Option<AdviceView>,
    /// What its lead has had to do; in linearizable answers only, once that has reported.
    pub load: Option<LoadView>,
}

/// What a lead has had to do since it began, by its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// The lead: under another token everything is counted anew.
    pub token: Token,
    /// How long ago the report came.
    pub age: Nanos,
    /// By model.
    pub models: BTreeMap<ModelId, ModelLoadView>,
    /// By GPU.
    pub gpus: BTreeMap<GpuId, GpuLoadView>,
}

/// What a lead has counted of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLoadView {
    /// Items of the requests that came.
    pub arrived_items: u64,
    /// Requests that were given up.
    pub dropped: u64,
    /// Requests whose batch ran.
    pub executed: u64,
    /// Requests that waited for a batch when it was reported.
    pub queued: u64,
}

/// What a lead has counted of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoadView {
    /// Execution time of its batches, summed.
    pub busy: Nanos,
    /// Batches.
    pub plans: u64,
}

/// How many GPUs a sub-cluster should have.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceView {
    /// Why, as a stable label.
    pub reason: String,
    /// Share of the requests that are given up.
    pub bad_rate: f64,
    /// Share of the GPU time without work.
    pub idle_fraction: f64,
    /// By kind.
    pub kinds: Vec<KindAdviceView>,
    /// GPUs that are set aside because they are slower than their peers.
    pub slow: Vec<SlowGpuView>,
    /// Models whose batches take longer, or less long, than their profiles say.
    pub drifts: Vec<DriftView>,
}

/// A GPU that gets no batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowGpuView {
    /// Which.
    pub gpu: GpuId,
    /// How many times as long as usual its batches took.
    pub slowdown: f64,
    /// How long it stays set aside, in milliseconds.
    pub quarantined_ms: u64,
}

/// What batches of a model really take.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftView {
    /// The model.
    pub model: ModelId,
    /// On GPUs of this kind.
    pub kind: String,
    /// So many times as long as its profile says, in the median.
    pub factor: f64,
}

/// How many GPUs of a kind there should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindAdviceView {
    /// The kind.
    pub kind: String,
    /// So many.
    pub target: u32,
    /// Those that may go now, the highest ids.
    pub release: Vec<GpuId>,
}

/// A life of a replica that gets ready to lead a sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessorView {
    /// The replica.
    pub node: NodeId,
    /// Its life.
    pub boot: BootId,
    /// Log index at which the hand-over began.
    pub since: u64,
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendView {
    /// Its name.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs.
    pub gpus: Vec<GpuView>,
    /// What it is there for.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// Its way to another sub-cluster.
    pub moving: Option<BackendMoveView>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuView {
    /// Its id.
    pub id: GpuId,
    /// Its kind; profiles are per kind.
    pub kind: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Log index of its binding to the sub-cluster.
    pub binding: Token,
}

/// A frontend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontendView {
    /// Its name.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
    /// What it is there for.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// This life has said that it ends.
    pub leaving: bool,
    /// How long the Raft leader has seen no sign of this life, zero while it does; none if who made the view does not know.
    pub silent: Option<Nanos>,
}

impl FrontendView {
    /// It has said that it ends, and has nothing left to finish.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.leaving && self.drained
    }
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// What was asked for.
    pub spec: ModelSpec,
    /// Where new requests for it go.
    pub subcluster: SubclusterId,
    /// Its way to another sub-cluster.
    pub moving: Option<ModelMoveView>,
    /// Which backends hold it, or why not.
    pub replicas: BTreeMap<BackendId, ReplicaView>,
}

/// One backend's word on one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// The backend's life.
    pub boot: BootId,
    /// Loaded, or why not.
    pub state: Result<(), String>,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// An ONNX file at a path that the backends can read.
    Onnx(String),
    /// The profile alone.
    Emulated,
}

/// A model as an operator asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its name.
    pub name: String,
    /// Name of its sub-cluster; empty for the only one.
    pub subcluster: String,
    /// Latency objective from arrival to answer.
    pub slo: Nanos,
    /// Where it comes from.
    pub source: ModelSource,
    /// Inputs and outputs.
    pub signature: Signature,
    /// What frontends do with them for clients.
    pub transforms: Transforms,
    /// Profile per GPU kind.
    pub profiles: BTreeMap<String, KindProfile>,
    /// How it is scheduled.
    pub policy: ModelPolicy,
    /// What a request of it is worth against those of other models.
    pub value: RequestValue,
}

/// A model on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct KindProfile {
    /// ℓ(b).
    pub latency: LatencyProfile,
    /// Memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// Further memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

/// Why a protobuf message is no view or no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ViewError {
    /// A part that must be there is not.
    #[error("{what} has no {field}")]
    Missing {
        /// The message.
        what: String,
        /// Its field.
        field: &'static str,
    },
    /// A profile is not acceptable.
    #[error("model `{model}`, GPU kind `{kind}`: {source}")]
    Profile {
        /// The model.
        model: String,
        /// The GPU kind.
        kind: String,
        /// What is wrong.
        source: ProfileError,
    },
    /// What frontends are to do with its inputs and outputs has no meaning.
    #[error("model `{model}`: transforms.{key}: {reason}")]
    Transforms {
        /// The model.
        model: String,
        /// What has none.
        key: &'static str,
        /// What was expected.
        reason: String,
    },
    /// Its policy is none that a cluster takes.
    #[error("model `{model}`: policy: {source}")]
    Policy {
        /// The model.
        model: String,
        /// What is wrong.
        source: PolicyError,
    },
    /// What its requests are worth is out of bounds.
    #[error(
        "model `{model}`: value_thousandths is {got}; expected 0, or {} to {}",
        RequestValue::MIN.thousandths(),
        RequestValue::MAX.thousandths()
    )]
    Value {
        /// The model.
        model: String,
        /// In thousandths.
        got: u32,
    },
    /// An operation's id is none.
    #[error("operation at {index}: {source}")]
    Operation {
        /// Its place in the log.
        index: u64,
        /// What is wrong.
        source: NoOperationId,
    },
    /// A tensor's type is not known.
    #[error("model `{model}`, tensor `{tensor}`: {source}")]
    Tensor {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        source: UnknownDataType,
    },
}

impl View {
    /// The token that fences a GPU: the larger of its leader's assignment and its own binding (DESIGN section 8).
    #[must_use]
    pub fn gpu_token(&self, backend: &BackendView, gpu: &GpuView) -> Token {
        let assigned = self.subclusters.get(&backend.subcluster).map_or(Token::default(), |s| s.token);
        assigned.max(gpu.binding)
    }

    /// The model of that name.
    #[must_use]
    pub fn model_named(&self, name: &str) -> Option<(ModelId, &ModelView)> {
        self.models.iter().find(|(_, m)| m.spec.name == name).map(|(&id, m)| (id, m))
    }
}

impl BackendView {
    /// Whether it shall hold the model.
    #[must_use]
    pub fn is_to_hold(&self, model: &ModelView) -> bool {
        let there = self.moving.filter(|moving| moving.preloads).map(|moving| moving.to);
        [Some(self.subcluster), there].into_iter().flatten().any(|home| model.is_held_by(home))
    }
}

impl ModelView {
    /// Whether at least one living backend has loaded it where it is served.
    #[must_use]
    pub fn is_ready(&self, view: &View) -> bool {
        self.replicas.iter().any(|(backend, replica)| {
            let host = view.backends.get(backend);
            replica.state.is_ok()
                && host.is_some_and(|b| b.up && b.boot == replica.boot && b.subcluster == self.subcluster)
        })
    }

    /// Whether the sub-cluster serves requests for it: all new ones, or those that came before it moved away.
    #[must_use]
    pub fn is_served_by(&self, subcluster: SubclusterId) -> bool {
        self.subcluster == subcluster
            || self.moving.is_some_and(|moving| moving.switched.is_some() && moving.from == subcluster)
    }

    /// Whether the backends of the sub-cluster hold it, or are to load it.
    #[must_use]
    pub fn is_held_by(&self, subcluster: SubclusterId) -> bool {
        self.is_served_by(subcluster) || self.moving.is_some_and(|moving| moving.to == subcluster)
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{DataType, TensorSpec};

    use super::*;
    use crate::control as pb;
    use crate::plan::{MoveCostView, PlanStatus};

    fn model() -> ModelSpec {
        let latency = LatencyProfile::from_line(1.0, 5.0, 8).unwrap();
        let tensor = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![64] };
        ModelSpec {
            name: "digits".into(),
            subcluster: "cpu".into(),
            slo: Nanos::from_millis(50),
            source: ModelSource::Onnx("digits.onnx".into()),
            signature: Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] },
            transforms: Default::default(),
            profiles: [("cpu".to_owned(), KindProfile { latency, static_memory_bytes: 1, dynamic_memory_bytes: 2 })]
                .into(),
            policy: Default::default(),
            value: RequestValue::from_number(2.5).unwrap(),
        }
    }

    fn operation(index: u64, refusal: Option<String>) -> OperationView {
        let (id, actor) = (OperationId::new(u128::from(index) << 64), "operator/admin".to_owned());
        OperationView { index, id, actor, at_unix_ms: 1_700_000_000_000, what: "unload model digits".into(), refusal }
    }

    #[test]
    fn a_view_survives_the_wire() {
        let boot = BootId::new(77);
        let gpu = GpuView { id: GpuId::new(4), kind: "cpu".into(), memory_bytes: 9, binding: Token::new(12) };
        let view = View {
            cluster: "test".into(),
            applied_index: 31,
            epoch: Epoch::new(3),
            replica: NodeId::new(2),
            control_leader: Some(NodeId::new(1)),
            nodes: [(
                NodeId::new(1),
                NodeView {
                    boot: Some(boot),
                    up: true,
                    control_addr: "c".into(),
                    dispatch_addr: "d".into(),
                    beat_addr: "e".into(),
                    duty: Duty::Cordoned,
                },
            )]
            .into(),
            subclusters: [(
                SubclusterId::new(1),
                SubclusterView {
                    name: "cpu".into(),
                    leader: Some((NodeId::new(1), boot)),
                    token: Token::new(10),
                    standbys: vec![NodeId::new(2)],
                    successor: Some(SuccessorView { node: NodeId::new(2), boot, since: 29 }),
                    advice: Some(AdviceView {
                        reason: "idle".into(),
                        bad_rate: 0.0,
                        idle_fraction: 0.5,
                        kinds: vec![KindAdviceView { kind: "cpu".into(), target: 2, release: vec![GpuId::new(7)] }],
                        slow: vec![SlowGpuView { gpu: GpuId::new(4), slowdown: 2.0, quarantined_ms: 900 }],
                        drifts: vec![DriftView { model: ModelId::new(3), kind: "cpu".into(), factor: 1.5 }],
                    }),
                    load: Some(LoadView {
                        token: Token::new(10),
                        age: Nanos::from_millis(300),
                        models: [(
                            ModelId::new(1),
                            ModelLoadView { arrived_items: 9, dropped: 1, executed: 6, queued: 2 },
                        )]
                        .into(),
                        gpus: [(GpuId::new(4), GpuLoadView { busy: Nanos::from_millis(80), plans: 3 })].into(),
                    }),
                },
            )]
            .into(),
            backends: [(
                BackendId::new(1),
                BackendView {
                    name: "b".into(),
                    boot,
                    up: true,
                    exec_addr: "e".into(),
                    subcluster: SubclusterId::new(1),
                    executor: "ort".into(),
                    gpus: vec![gpu],
                    duty: Duty::Draining,
                    drained: true,
                    moving: Some(BackendMoveView {
                        to: SubclusterId::new(2),
                        since: 28,
                        preloads: true,
                        retiring: None,
                    }),
                },
            )]
            .into(),
            frontends: [(
                FrontendId::new(1),
                FrontendView {
                    name: "f".into(),
                    boot,
                    data_addr: "a".into(),
                    console_addr: "b".into(),
                    duty: Duty::Draining,
                    drained: true,
                    leaving: true,
                    silent: Some(Nanos::from_millis(1500)),
                },
            )]
            .into(),
            models: [(
                ModelId::new(1),
                ModelView {
                    spec: model(),
                    subcluster: SubclusterId::new(1),
                    moving: Some(ModelMoveView {
                        from: SubclusterId::new(2),
                        to: SubclusterId::new(1),
                        since: 27,
                        switched: Some(29),
                    }),
                    replicas: [(BackendId::new(1), ReplicaView { boot, state: Err("no such file".into()) })].into(),
                },
            )]
            .into(),
            events: vec![(31, "model digits loaded".into())],
            operations: vec![operation(30, None), operation(31, Some("no model is named `digits`".into()))],
            group: [(
                NodeId::new(1),
                GroupMemberView { control_addr: "c".into(), role: GroupRole::Learner, applied_index: 30, lag: 1 },
            )]
            .into(),
            removed_nodes: [NodeId::new(7)].into(),
            plans: vec![PlanView {
                id: 27,
                status: PlanStatus::Proposed,
                cause: "rates changed".into(),
                summary: "imbalance 0.4 to 0.1".into(),
                moves: Vec::new(),
                cost: MoveCostView::default(),
                left_alone: Vec::new(),
                dropped: String::new(),
            }],
        };
        assert_eq!(View::try_from(pb::ClusterView::from(&view)), Ok(view.clone()));
        let backend = &view.backends[&BackendId::new(1)];
        assert_eq!(view.gpu_token(backend, &backend.gpus[0]), Token::new(12), "the binding is younger than the leader");
        assert!(!view.models[&ModelId::new(1)].is_ready(&view));
    }

    #[test]
    fn a_profile_that_is_not_monotone_is_refused_by_name() {
        let mut spec = pb::ModelSpec::from(&model());
        spec.profiles[0].latency_ns[3] = 1;
        let error = ModelSpec::try_from(spec).unwrap_err().to_string();
        assert!(error.contains("model `digits`, GPU kind `cpu`") && error.contains("not monotone"), "{error}");
    }

    #[test]
    fn a_backend_holds_what_its_sub_clusters_hold_and_a_model_is_ready_where_it_is_served() {
        let (here, there, elsewhere) = (SubclusterId::new(1), SubclusterId::new(2), SubclusterId::new(3));
        let boot = BootId::new(5);
        let backend = |subcluster| BackendView { boot, up: true, subcluster, ..BackendView::default() };
        let moving = |switched| Some(ModelMoveView { from: here, to: there, since: 7, switched });
        let ready = |backend| (BackendId::new(backend), ReplicaView { boot, state: Ok(()) });
        let spec = model();
        let model =
            |subcluster, moving| ModelView { spec: spec.clone(), subcluster, moving, replicas: [ready(2)].into() };
        let (loading, switched) = (model(here, moving(None)), model(there, moving(Some(9))));
        assert!(backend(here).is_to_hold(&loading) && backend(there).is_to_hold(&loading));
        assert!(backend(here).is_to_hold(&switched) && switched.is_served_by(here), "for what came before");
        assert!(!loading.is_served_by(there) && !backend(elsewhere).is_to_hold(&loading));
        let to = BackendMoveView { to: there, since: 8, preloads: true, retiring: None };
        let comes = BackendView { moving: Some(to), ..backend(elsewhere) };
        assert!(comes.is_to_hold(&loading));
        let loads_there = BackendView { moving: Some(BackendMoveView { preloads: false, ..to }), ..backend(elsewhere) };
        assert!(!loads_there.is_to_hold(&loading));

        let backends = [(BackendId::new(1), backend(here)), (BackendId::new(2), backend(there))].into();
        let view = View { backends, ..View::default() };
        assert!(!loading.is_ready(&view), "ready where it is not served yet");
        assert!(switched.is_ready(&view));
    }
}
