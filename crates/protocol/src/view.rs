//! The cluster as everybody sees it: the protobuf [`ClusterView`](crate::control::ClusterView), checked and typed.

use std::collections::{BTreeMap, BTreeSet};

use symphony_types::{
    BackendId, BootId, Duty, Epoch, FrontendId, GpuId, LatencyProfile, Member, ModelId, Nanos, NoOperationId, NodeId,
    OperationId, ProfileError, RequestValue, Signature, SubclusterId, TensorSpec, Token, UnknownDataType,
};

use crate::control as pb;
use crate::plan::{BackendMoveView, ModelMoveView, PlanView};

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
    /// The last plans, newest last; empty but in linearizable answers.
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
    /// Profile per GPU kind.
    pub profiles: BTreeMap<String, KindProfile>,
    /// Name of its policy; empty for the default.
    pub policy: String,
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

impl From<pb::Duty> for Duty {
    fn from(duty: pb::Duty) -> Self {
        match duty {
            pb::Duty::Serving => Self::Serving,
            pb::Duty::Cordoned => Self::Cordoned,
            pb::Duty::Draining => Self::Draining,
        }
    }
}

impl From<Duty> for pb::Duty {
    fn from(duty: Duty) -> Self {
        match duty {
            Duty::Serving => Self::Serving,
            Duty::Cordoned => Self::Cordoned,
            Duty::Draining => Self::Draining,
        }
    }
}

impl From<Member> for pb::Member {
    fn from(member: Member) -> Self {
        let id = match member {
            Member::Scheduler(id) => pb::member::Id::Scheduler(id.get()),
            Member::Backend(id) => pb::member::Id::Backend(id.get()),
            Member::Frontend(id) => pb::member::Id::Frontend(id.get()),
        };
        Self { id: Some(id) }
    }
}

impl TryFrom<pb::Member> for Member {
    type Error = ViewError;
    fn try_from(member: pb::Member) -> Result<Self, ViewError> {
        match member.id {
            Some(pb::member::Id::Scheduler(id)) => Ok(Self::Scheduler(NodeId::new(id))),
            Some(pb::member::Id::Backend(id)) => Ok(Self::Backend(BackendId::new(id))),
            Some(pb::member::Id::Frontend(id)) => Ok(Self::Frontend(FrontendId::new(id))),
            None => Err(ViewError::Missing { what: "member".into(), field: "id" }),
        }
    }
}

fn tensors(specs: Vec<pb::TensorSpec>, model: &str) -> Result<Vec<TensorSpec>, ViewError> {
    specs
        .into_iter()
        .map(|spec| {
            let data_type = spec.data_type.parse().map_err(|source| ViewError::Tensor {
                model: model.to_owned(),
                tensor: spec.name.clone(),
                source,
            })?;
            Ok(TensorSpec { name: spec.name, data_type, item_shape: spec.item_shape })
        })
        .collect()
}

fn tensors_to_pb(specs: &[TensorSpec]) -> Vec<pb::TensorSpec> {
    specs
        .iter()
        .map(|spec| pb::TensorSpec {
            name: spec.name.clone(),
            data_type: spec.data_type.name().to_owned(),
            item_shape: spec.item_shape.clone(),
        })
        .collect()
}

impl TryFrom<pb::ModelSpec> for ModelSpec {
    type Error = ViewError;
    fn try_from(spec: pb::ModelSpec) -> Result<Self, ViewError> {
        let missing = |field| ViewError::Missing { what: format!("model `{}`", spec.name), field };
        let source = match &spec.source {
            Some(pb::model_spec::Source::OnnxPath(path)) => ModelSource::Onnx(path.clone()),
            Some(pb::model_spec::Source::Emulated(_)) => ModelSource::Emulated,
            None => return Err(missing("source")),
        };
        let mut profiles = BTreeMap::new();
        for profile in &spec.profiles {
            let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
            let latency = LatencyProfile::from_table(&table).map_err(|source| ViewError::Profile {
                model: spec.name.clone(),
                kind: profile.gpu_kind.clone(),
                source,
            })?;
            let kind = KindProfile {
                latency,
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            };
            profiles.insert(profile.gpu_kind.clone(), kind);
        }
        let signature =
            Signature { inputs: tensors(spec.inputs, &spec.name)?, outputs: tensors(spec.outputs, &spec.name)? };
        let value = match spec.value_thousandths {
            0 => RequestValue::ONE,
            got => {
                RequestValue::from_thousandths(got).ok_or_else(|| ViewError::Value { model: spec.name.clone(), got })?
            }
        };
        Ok(Self {
            name: spec.name,
            subcluster: spec.subcluster,
            slo: Nanos::new(spec.slo_ns),
            source,
            signature,
            profiles,
            policy: spec.policy,
            value,
        })
    }
}

impl From<&ModelSpec> for pb::ModelSpec {
    fn from(spec: &ModelSpec) -> Self {
        let source = match &spec.source {
            ModelSource::Onnx(path) => pb::model_spec::Source::OnnxPath(path.clone()),
            ModelSource::Emulated => pb::model_spec::Source::Emulated(true),
        };
        let profiles = spec
            .profiles
            .iter()
            .map(|(kind, profile)| pb::Profile {
                gpu_kind: kind.clone(),
                latency_ns: profile.latency.table().iter().map(|l| l.get()).collect(),
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            })
            .collect();
        Self {
            name: spec.name.clone(),
            subcluster: spec.subcluster.clone(),
            slo_ns: spec.slo.get(),
            source: Some(source),
            inputs: tensors_to_pb(&spec.signature.inputs),
            outputs: tensors_to_pb(&spec.signature.outputs),
            profiles,
            policy: spec.policy.clone(),
            value_thousandths: spec.value.thousandths(),
        }
    }
}

impl From<pb::ScaleAdvice> for AdviceView {
    fn from(advice: pb::ScaleAdvice) -> Self {
        let kinds = advice.kinds.into_iter().map(|kind| KindAdviceView {
            kind: kind.gpu_kind,
            target: kind.target,
            release: kind.release.into_iter().map(GpuId::new).collect(),
        });
        let pb::ScaleAdvice { reason, bad_rate, idle_fraction, .. } = advice;
        Self { reason, bad_rate, idle_fraction, kinds: kinds.collect() }
    }
}

impl From<&AdviceView> for pb::ScaleAdvice {
    fn from(advice: &AdviceView) -> Self {
        let kinds = advice.kinds.iter().map(|kind| pb::KindAdvice {
            gpu_kind: kind.kind.clone(),
            target: kind.target,
            release: kind.release.iter().map(|gpu| gpu.get()).collect(),
        });
        let AdviceView { reason, bad_rate, idle_fraction, .. } = advice;
        Self { reason: reason.clone(), bad_rate: *bad_rate, idle_fraction: *idle_fraction, kinds: kinds.collect() }
    }
}

impl TryFrom<pb::ClusterView> for View {
    type Error = ViewError;
    fn try_from(view: pb::ClusterView) -> Result<Self, ViewError> {
        let some_node = |id: u64| (id != 0).then(|| NodeId::new(id));
        let mut models = BTreeMap::new();
        for model in view.models {
            let spec = model.spec.ok_or(ViewError::Missing { what: format!("model {}", model.id), field: "spec" })?;
            let replicas = model.replicas.into_iter().map(|r| {
                let failed = r.state() != pb::ModelState::Ready;
                let state = if failed { Err(r.error) } else { Ok(()) };
                (BackendId::new(r.backend), ReplicaView { boot: BootId::new(r.boot_id), state })
            });
            let view = ModelView {
                spec: spec.try_into()?,
                subcluster: SubclusterId::new(model.subcluster),
                moving: model.moving.map(ModelMoveView::from),
                replicas: replicas.collect(),
            };
            models.insert(ModelId::new(model.id), view);
        }
        let nodes = view.nodes.into_iter().map(|n| {
            let boot = (n.boot_id != 0).then(|| BootId::new(n.boot_id));
            let duty = n.duty().into();
            let pb::Node { up, control_addr, dispatch_addr, beat_addr, .. } = n;
            let node = NodeView { boot, up, control_addr, dispatch_addr, beat_addr, duty };
            (NodeId::new(n.id), node)
        });
        let subclusters = view.subclusters.into_iter().map(|s| {
            let leader = some_node(s.leader).map(|node| (node, BootId::new(s.leader_boot_id)));
            let standbys = s.standbys.into_iter().map(NodeId::new).collect();
            let (boot, since) = (BootId::new(s.successor_boot_id), s.handover_since);
            let successor = some_node(s.successor).map(|node| SuccessorView { node, boot, since });
            let token = Token::new(s.token);
            let advice = s.advice.map(AdviceView::from);
            (SubclusterId::new(s.id), SubclusterView { name: s.name, leader, token, standbys, successor, advice })
        });
        let backends = view.backends.into_iter().map(|b| {
            let duty = b.duty().into();
            let gpus = b.gpus.into_iter().map(|g| GpuView {
                id: GpuId::new(g.id),
                kind: g.kind,
                memory_bytes: g.memory_bytes,
                binding: Token::new(g.binding),
            });
            let backend = BackendView {
                name: b.name,
                boot: BootId::new(b.boot_id),
                up: b.up,
                exec_addr: b.exec_addr,
                subcluster: SubclusterId::new(b.subcluster),
                executor: b.executor,
                gpus: gpus.collect(),
                duty,
                drained: b.drained,
                moving: b.moving.map(BackendMoveView::from),
            };
            (BackendId::new(b.id), backend)
        });
        let frontends = view.frontends.into_iter().map(|f| {
            let duty = f.duty().into();
            let pb::Frontend { id, name, boot_id, data_addr, console_addr, drained, .. } = f;
            let boot = BootId::new(boot_id);
            (FrontendId::new(id), FrontendView { name, boot, data_addr, console_addr, duty, drained })
        });
        let group = view.group.into_iter().map(|m| {
            let role = match m.role() {
                pb::GroupRole::Leader => GroupRole::Leader,
                pb::GroupRole::Voter => GroupRole::Voter,
                pb::GroupRole::Learner | pb::GroupRole::Unspecified => GroupRole::Learner,
            };
            let pb::GroupMember { node, control_addr, applied_index, lag, .. } = m;
            (NodeId::new(node), GroupMemberView { control_addr, role, applied_index, lag })
        });
        let operations = view.operations.into_iter().map(|operation| {
            let pb::Operation { index, id, actor, at_unix_ms, what, refusal } = operation;
            let id = id.parse().map_err(|source| ViewError::Operation { index, source })?;
            let refusal = Some(refusal).filter(|refusal| !refusal.is_empty());
            Ok(OperationView { index, id, actor, at_unix_ms, what, refusal })
        });
        Ok(Self {
            cluster: view.cluster,
            applied_index: view.applied_index,
            epoch: Epoch::new(view.epoch),
            replica: NodeId::new(view.replica),
            control_leader: some_node(view.control_leader),
            nodes: nodes.collect(),
            subclusters: subclusters.collect(),
            backends: backends.collect(),
            frontends: frontends.collect(),
            models,
            events: view.events.into_iter().map(|e| (e.index, e.what)).collect(),
            operations: operations.collect::<Result<_, ViewError>>()?,
            group: group.collect(),
            removed_nodes: view.removed_nodes.into_iter().map(NodeId::new).collect(),
            plans: view.plans.into_iter().map(PlanView::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&View> for pb::ClusterView {
    fn from(view: &View) -> Self {
        let nodes = view.nodes.iter().map(|(id, n)| pb::Node {
            id: id.get(),
            boot_id: n.boot.map_or(0, BootId::get),
            up: n.up,
            control_addr: n.control_addr.clone(),
            dispatch_addr: n.dispatch_addr.clone(),
            beat_addr: n.beat_addr.clone(),
            duty: pb::Duty::from(n.duty).into(),
        });
        let subclusters = view.subclusters.iter().map(|(id, s)| pb::Subcluster {
            id: id.get(),
            name: s.name.clone(),
            leader: s.leader.map_or(0, |(node, _)| node.get()),
            leader_boot_id: s.leader.map_or(0, |(_, boot)| boot.get()),
            token: s.token.get(),
            standbys: s.standbys.iter().map(|n| n.get()).collect(),
            successor: s.successor.map_or(0, |next| next.node.get()),
            successor_boot_id: s.successor.map_or(0, |next| next.boot.get()),
            handover_since: s.successor.map_or(0, |next| next.since),
            advice: s.advice.as_ref().map(Into::into),
        });
        let backends = view.backends.iter().map(|(id, b)| {
            let gpus = b.gpus.iter().map(|g| pb::Gpu {
                id: g.id.get(),
                kind: g.kind.clone(),
                memory_bytes: g.memory_bytes,
                binding: g.binding.get(),
            });
            pb::Backend {
                id: id.get(),
                name: b.name.clone(),
                boot_id: b.boot.get(),
                up: b.up,
                exec_addr: b.exec_addr.clone(),
                subcluster: b.subcluster.get(),
                executor: b.executor.clone(),
                gpus: gpus.collect(),
                duty: pb::Duty::from(b.duty).into(),
                drained: b.drained,
                moving: b.moving.map(Into::into),
            }
        });
        let frontends = view.frontends.iter().map(|(id, f)| pb::Frontend {
            id: id.get(),
            name: f.name.clone(),
            boot_id: f.boot.get(),
            data_addr: f.data_addr.clone(),
            console_addr: f.console_addr.clone(),
            duty: pb::Duty::from(f.duty).into(),
            drained: f.drained,
        });
        let group = view.group.iter().map(|(id, m)| {
            let role = match m.role {
                GroupRole::Leader => pb::GroupRole::Leader,
                GroupRole::Voter => pb::GroupRole::Voter,
                GroupRole::Learner => pb::GroupRole::Learner,
            };
            let (control_addr, role) = (m.control_addr.clone(), role.into());
            pb::GroupMember { node: id.get(), control_addr, role, applied_index: m.applied_index, lag: m.lag }
        });
        let models = view.models.iter().map(|(id, m)| {
            let replicas = m.replicas.iter().map(|(backend, r)| {
                let (state, error) = match &r.state {
                    Ok(()) => (pb::ModelState::Ready, String::new()),
                    Err(error) => (pb::ModelState::Failed, error.clone()),
                };
                pb::ModelReplica { backend: backend.get(), boot_id: r.boot.get(), state: state.into(), error }
            });
            pb::Model {
                id: id.get(),
                spec: Some((&m.spec).into()),
                subcluster: m.subcluster.get(),
                replicas: replicas.collect(),
                moving: m.moving.map(Into::into),
            }
        });
        let operations = view.operations.iter().map(|operation| pb::Operation {
            index: operation.index,
            id: operation.id.to_string(),
            actor: operation.actor.clone(),
            at_unix_ms: operation.at_unix_ms,
            what: operation.what.clone(),
            refusal: operation.refusal.clone().unwrap_or_default(),
        });
        Self {
            cluster: view.cluster.clone(),
            applied_index: view.applied_index,
            epoch: view.epoch.get(),
            replica: view.replica.get(),
            control_leader: view.control_leader.map_or(0, NodeId::get),
            nodes: nodes.collect(),
            subclusters: subclusters.collect(),
            backends: backends.collect(),
            frontends: frontends.collect(),
            models: models.collect(),
            events: view.events.iter().map(|(index, what)| pb::Event { index: *index, what: what.clone() }).collect(),
            operations: operations.collect(),
            group: group.collect(),
            removed_nodes: view.removed_nodes.iter().map(|node| node.get()).collect(),
            plans: view.plans.iter().map(Into::into).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::DataType;

    use super::*;
    use crate::plan::PlanStatus;

    fn model() -> ModelSpec {
        let latency = LatencyProfile::from_line(1.0, 5.0, 8).unwrap();
        let tensor = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![64] };
        ModelSpec {
            name: "digits".into(),
            subcluster: "cpu".into(),
            slo: Nanos::from_millis(50),
            source: ModelSource::Onnx("digits.onnx".into()),
            signature: Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] },
            profiles: [("cpu".to_owned(), KindProfile { latency, static_memory_bytes: 1, dynamic_memory_bytes: 2 })]
                .into(),
            policy: String::new(),
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
