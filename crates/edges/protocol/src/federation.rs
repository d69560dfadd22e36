//! The federation as frontends and tools see it: the protobuf [`FederationView`](crate::control::FederationView),
//! typed.

use std::collections::BTreeMap;

use symphony_types::{Nanos, RequestValue};

use crate::control as pb;
use crate::epoch_plan_view::MoveProgressView;
use crate::view::{EventView, NoGpu, OperationView, ViewError};

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
    /// The leader, as far as that replica knows.
    pub leader: Option<u64>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, FederatedClusterView>,
    /// Models by name.
    pub models: BTreeMap<String, FederatedModelView>,
    /// What changed lately: log index and sentence, newest last.
    pub events: Vec<EventView>,
    /// What operators asked for last, newest last; in linearizable answers only.
    pub operations: Vec<OperationView>,
    /// The last plans, newest last; in linearizable answers only.
    pub plans: Vec<FederatedPlanView>,
}

/// Moves of models that began together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederatedPlanView {
    /// Log index at which they began.
    pub id: u64,
    /// Why: a stable label.
    pub cause: String,
    /// The moves of the plan, with their states.
    pub moves: Vec<FederatedMoveView>,
}

impl FederatedPlanView {
    /// Its outcome, in the form of a cluster's partition plans.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let progress = self.moves.iter().map(|planned| &planned.progress);
        let ended =
            |progress: &MoveProgressView| matches!(progress, MoveProgressView::Done(_) | MoveProgressView::GivenUp(_));
        if progress.clone().all(ended) { MoveProgressView::outcome(progress) } else { "running" }
    }
}

/// A model that was to be elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct FederatedMoveView {
    /// Its name.
    pub model: String,
    /// Where it was at home.
    pub from: Option<String>,
    /// Where it was to go.
    pub to: String,
    /// What became of it.
    pub progress: MoveProgressView,
}

/// A cluster of the federation, as its group last saw it.
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

/// A model of the federation: where it is served, and where it should be.
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
    /// The declared rate in requests per second.
    pub wanted_rps: f64,
    /// Requests per second that its clients ask for; known to the leader only.
    pub measured_rps: f64,
    /// Of its home and the cluster where it is going, those in which no GPU takes it, and why; known to the leader
    /// only.
    pub no_gpu: BTreeMap<String, NoGpu>,
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn no_gpu_view(model: &str, no_gpu: &pb::FederatedNoGpu) -> Result<NoGpu, ViewError> {
    match no_gpu.why() {
        pb::NoGpu::NoBackend => Ok(NoGpu::NoBackend),
        pb::NoGpu::AllDown => Ok(NoGpu::AllDown),
        pb::NoGpu::AllDraining => Ok(NoGpu::AllDraining),
        pb::NoGpu::Unspecified => Err(ViewError::Missing { what: format!("model {model}"), field: "no_gpu.why" }),
    }
}

impl From<NoGpu> for pb::NoGpu {
    fn from(why: NoGpu) -> Self {
        match why {
            NoGpu::NoBackend => Self::NoBackend,
            NoGpu::AllDown => Self::AllDown,
            NoGpu::AllDraining => Self::AllDraining,
        }
    }
}

impl TryFrom<pb::FederatedPlan> for FederatedPlanView {
    type Error = ViewError;
    fn try_from(plan: pb::FederatedPlan) -> Result<Self, ViewError> {
        let missing = || ViewError::Missing { what: format!("plan {}", plan.id), field: "moves.progress" };
        let moves = plan.moves.iter().map(|planned| {
            let progress = MoveProgressView::from_message(planned.progress(), planned.index, &planned.reason);
            let (model, from, to) = (planned.model.clone(), some(planned.from.clone()), planned.to.clone());
            Ok(FederatedMoveView { model, from, to, progress: progress.ok_or_else(missing)? })
        });
        let moves = moves.collect::<Result<_, _>>()?;
        Ok(Self { id: plan.id, cause: plan.cause, moves })
    }
}

impl TryFrom<pb::FederationView> for FederationView {
    type Error = ViewError;
    fn try_from(view: pb::FederationView) -> Result<Self, ViewError> {
        let clusters = view.clusters.into_iter().map(|cluster| {
            let kinds = cluster.kinds.into_iter().map(|kind| (kind.gpu_kind, (kind.gpus, kind.memory_bytes)));
            let (control, reachable, since) = (cluster.control, cluster.reachable, cluster.since);
            (cluster.name, FederatedClusterView { control, reachable, since, kinds: kinds.collect() })
        });
        let models = view.models.into_iter().map(|model| {
            let no_gpu =
                model.no_gpu.iter().map(|no_gpu| Ok((no_gpu.cluster.clone(), no_gpu_view(&model.name, no_gpu)?)));
            let no_gpu = no_gpu.collect::<Result<_, ViewError>>()?;
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
                no_gpu,
            };
            Ok((model.name, typed))
        });
        Ok(Self {
            federation: view.federation,
            applied_index: view.applied_index,
            plan: view.plan,
            replica: view.replica,
            leader: (view.leader != 0).then_some(view.leader),
            clusters: clusters.collect(),
            models: models.collect::<Result<_, ViewError>>()?,
            events: view.events.into_iter().map(Into::into).collect(),
            operations: view.operations.into_iter().map(OperationView::try_from).collect::<Result<_, _>>()?,
            plans: view.plans.into_iter().map(FederatedPlanView::try_from).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_no_gpu_takes_a_model_travels_and_a_reason_without_meaning_is_refused() {
        let view = |why: &[i32]| {
            let no_gpu = |(at, &why): (usize, &i32)| pb::FederatedNoGpu { cluster: at.to_string(), why };
            let no_gpu = why.iter().enumerate().map(no_gpu).collect();
            let model = pb::FederatedModel { name: "m".into(), no_gpu, ..Default::default() };
            FederationView::try_from(pb::FederationView { models: vec![model], ..Default::default() })
        };
        let all = [NoGpu::NoBackend, NoGpu::AllDown, NoGpu::AllDraining];
        let read = view(&all.map(|why| pb::NoGpu::from(why).into())).unwrap();
        assert!(read.models["m"].no_gpu.values().eq(&all), "{read:?}");
        for unknown in [0, 99] {
            let error = view(&[unknown]).unwrap_err().to_string();
            assert_eq!(error, "model m has no no_gpu.why");
        }
    }
}
