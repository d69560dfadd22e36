//! Converts the protobuf messages of a view from and to its types.

use std::collections::BTreeMap;

use symphony_policy::ModelPolicy;
use symphony_types::{
    BackendId, BootId, Duty, Epoch, FrontendId, GpuId, LatencyProfile, Member, ModelId, Nanos, NodeId, RequestValue,
    Signature, SubclusterId, TensorSpec, Token,
};

use super::{
    AdviceView, BackendView, DriftView, FrontendView, GpuLoadView, GpuView, GroupMemberView, GroupRole, KindAdviceView,
    KindProfile, LoadView, ModelLoadView, ModelSource, ModelSpec, ModelView, NodeView, OperationView, ReplicaView,
    SlowGpuView, SubclusterView, SuccessorView, View, ViewError,
};
use crate::control as pb;
use crate::plan_view::{BackendMoveView, ModelMoveView, PlanView};

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

pub(crate) fn tensors_to_pb(specs: &[TensorSpec]) -> Vec<pb::TensorSpec> {
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
        let policy = match spec.policy.as_str() {
            "" => ModelPolicy::default(),
            text => {
                let refuse = |source| ViewError::Policy { model: spec.name.clone(), source };
                text.parse().map_err(refuse)?
            }
        };
        let transforms = crate::transforms::from_pb(spec.transforms, &spec.name)?;
        Ok(Self {
            name: spec.name,
            subcluster: spec.subcluster,
            slo: Nanos::new(spec.slo_ns),
            source,
            signature,
            transforms,
            profiles,
            policy,
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
            policy: spec.policy.to_string(),
            value_thousandths: spec.value.thousandths(),
            transforms: crate::transforms::to_pb(&spec.transforms),
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
        let slow = advice.slow.into_iter().map(|slow| SlowGpuView {
            gpu: GpuId::new(slow.gpu),
            slowdown: slow.slowdown,
            failed: slow.failed,
            quarantined_ms: (!slow.lost).then_some(slow.quarantined_ms),
        });
        let drifts = advice.drifts.into_iter().map(|drift| DriftView {
            model: ModelId::new(drift.model),
            kind: drift.gpu_kind,
            factor: drift.factor,
        });
        let pb::ScaleAdvice { reason, bad_rate, idle_fraction, busy_gpus, demand_gpus, .. } = advice;
        let (kinds, slow, drifts) = (kinds.collect(), slow.collect(), drifts.collect());
        Self { reason, bad_rate, idle_fraction, busy_gpus, demand_gpus, kinds, slow, drifts }
    }
}

impl From<&AdviceView> for pb::ScaleAdvice {
    fn from(advice: &AdviceView) -> Self {
        let kinds = advice.kinds.iter().map(|kind| pb::KindAdvice {
            gpu_kind: kind.kind.clone(),
            target: kind.target,
            release: kind.release.iter().map(|gpu| gpu.get()).collect(),
        });
        let slow = advice.slow.iter().map(|slow| pb::SlowGpu {
            gpu: slow.gpu.get(),
            slowdown: slow.slowdown,
            quarantined_ms: slow.quarantined_ms.unwrap_or_default(),
            failed: slow.failed,
            lost: slow.quarantined_ms.is_none(),
        });
        let drifts = advice.drifts.iter().map(|drift| pb::Drift {
            model: drift.model.get(),
            gpu_kind: drift.kind.clone(),
            factor: drift.factor,
        });
        Self {
            reason: advice.reason.clone(),
            bad_rate: advice.bad_rate,
            idle_fraction: advice.idle_fraction,
            busy_gpus: advice.busy_gpus,
            demand_gpus: advice.demand_gpus,
            kinds: kinds.collect(),
            slow: slow.collect(),
            drifts: drifts.collect(),
        }
    }
}

impl TryFrom<pb::Operation> for OperationView {
    type Error = ViewError;
    fn try_from(operation: pb::Operation) -> Result<Self, ViewError> {
        let pb::Operation { index, id, actor, at_unix_ms, what, refusal } = operation;
        let id = id.parse().map_err(|source| ViewError::Operation { index, source })?;
        let refusal = Some(refusal).filter(|refusal| !refusal.is_empty());
        Ok(Self { index, id, actor, at_unix_ms, what, refusal })
    }
}

impl From<&pb::SubclusterLoad> for LoadView {
    /// From a lead's report.
    fn from(load: &pb::SubclusterLoad) -> Self {
        let models = load.models.iter().map(|m| {
            let pb::ModelLoad { model, arrived_items, dropped, executed, failed, queued } = *m;
            (ModelId::new(model), ModelLoadView { arrived_items, dropped, executed, failed, queued })
        });
        let gpus = load.gpus.iter().map(|g| {
            let counted = GpuLoadView { busy: Nanos::new(g.busy_ns), plans: g.plans };
            (GpuId::new(g.gpu), counted)
        });
        Self {
            token: Token::new(load.token),
            age: Nanos::ZERO,
            models: models.collect(),
            gpus: gpus.collect(),
            demand: load.demand_ns.map(Nanos::new),
        }
    }
}

fn load_message(subcluster: SubclusterId, load: &LoadView) -> pb::SubclusterLoad {
    let models = load.models.iter().map(|(id, m)| {
        let ModelLoadView { arrived_items, dropped, executed, failed, queued } = *m;
        pb::ModelLoad { model: id.get(), arrived_items, dropped, executed, failed, queued }
    });
    let gpus = load.gpus.iter().map(|(id, g)| pb::GpuLoad {
        gpu: id.get(),
        busy_ns: g.busy.get(),
        plans: g.plans,
        ..pb::GpuLoad::default()
    });
    pb::SubclusterLoad {
        subcluster: subcluster.get(),
        token: load.token.get(),
        models: models.collect(),
        gpus: gpus.collect(),
        demand_ns: load.demand.map(Nanos::get),
        ..pb::SubclusterLoad::default()
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
            let age = Nanos::new(s.load_age_ns);
            let load = s.load.map(|load| LoadView { age, ..LoadView::from(&load) });
            let view = SubclusterView { name: s.name, leader, token, standbys, successor, advice, load };
            (SubclusterId::new(s.id), view)
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
            let pb::Frontend { id, name, boot_id, data_addr, console_addr, drained, silent_ns, leaving, .. } = f;
            let (boot, silent) = (BootId::new(boot_id), silent_ns.map(Nanos::new));
            (FrontendId::new(id), FrontendView { name, boot, data_addr, console_addr, duty, drained, leaving, silent })
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
            traffic: view.traffic.into_iter().map(|traffic| (traffic.model.clone(), traffic.into())).collect(),
            events: view.events.into_iter().map(Into::into).collect(),
            operations: view.operations.into_iter().map(OperationView::try_from).collect::<Result<_, _>>()?,
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
            load: s.load.as_ref().map(|load| load_message(*id, load)),
            load_age_ns: s.load.as_ref().map_or(0, |load| load.age.get()),
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
            silent_ns: f.silent.map(Nanos::get),
            leaving: f.leaving,
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
            events: view.events.iter().map(Into::into).collect(),
            operations: operations.collect(),
            group: group.collect(),
            removed_nodes: view.removed_nodes.iter().map(|node| node.get()).collect(),
            plans: view.plans.iter().map(Into::into).collect(),
            log_entries: 0,
            traffic: view.traffic.iter().map(Into::into).collect(),
        }
    }
}
