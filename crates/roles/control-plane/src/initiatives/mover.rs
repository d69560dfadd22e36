//! Ends the moves of models and backends when their time has come. A pure value beside the Raft leader, like the
//! [`LeadBalancer`](crate::initiatives::lead_balancer): the state holds the finished steps, and this value how long
//! ago they finished.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_cluster_state::{ClusterState, Command, Moved};
use symphony_protocol::view::VIEWS_FOLLOW_WITHIN;
use symphony_types::NodeId;

use crate::initiatives::initiative::Initiative;

/// How long the old sub-cluster of a moved model still serves it, in addition to the model's SLO: by then requests from
/// before the move have their outcomes.
const LEFT_AFTER: Duration = VIEWS_FOLLOW_WITHIN;

/// Upper bound for the SLO in that sum; frontends hold no request longer.
const SLO_COUNTED_MAX: Duration = Duration::from_hours(1);

/// How long models may take to load at their destination. A file of tens of gigabytes over a slow link takes minutes.
const LOADED_WITHIN: Duration = Duration::from_mins(10);

/// How long a retired backend may take to finish its plans.
const RETIRED_WITHIN: Duration = Duration::from_mins(1);

/// The phase of a move, as far as time limits depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Loading,
    Retiring,
    Switched,
}

/// Decides which move to end, and how.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    /// Moves in progress with their phases, and since when each is known here.
    known: BTreeMap<(Moved, u64, Phase), Instant>,
}

impl Initiative for Mover {
    /// A new leader of the control group counts from its own start: an election prolongs moves, which is harmless.
    fn step(&mut self, now: Instant, state: &ClusterState, me: Option<NodeId>) -> Option<Command> {
        let before = std::mem::take(&mut self.known);
        me?;
        self.known = under_way(state).map(|key| (key, before.get(&key).copied().unwrap_or(now))).collect();
        self.known.iter().find_map(|(&(what, since, phase), &begun)| {
            let waited = now.saturating_duration_since(begun);
            match (phase, what) {
                (Phase::Switched, Moved::Model(model)) => {
                    let slo = state.models().get(&model).map_or(Duration::ZERO, |model| model.spec.slo().into());
                    (waited >= LEFT_AFTER + slo.min(SLO_COUNTED_MAX)).then_some(Command::FinishMove { model, since })
                }
                (Phase::Loading, _) if waited >= LOADED_WITHIN => {
                    Some(cancel(what, since, format!("not loaded within {} s", LOADED_WITHIN.as_secs())))
                }
                (Phase::Retiring, _) if waited >= RETIRED_WITHIN => {
                    Some(cancel(what, since, format!("plans not finished within {} s", RETIRED_WITHIN.as_secs())))
                }
                _ => None,
            }
        })
    }
}

fn cancel(what: Moved, since: u64, reason: String) -> Command {
    Command::CancelMove { what, since, reason }
}

fn under_way(state: &ClusterState) -> impl Iterator<Item = (Moved, u64, Phase)> {
    let models = state.models().iter().filter_map(|(&id, model)| {
        let moving = model.moving?;
        let phase = if moving.switched.is_some() { Phase::Switched } else { Phase::Loading };
        Some((Moved::Model(id), moving.since, phase))
    });
    let backends = state.backends().iter().filter_map(|(&id, backend)| {
        let moving = backend.moving?;
        let phase = if moving.retiring.is_some() { Phase::Retiring } else { Phase::Loading };
        Some((Moved::Backend(id), moving.since, phase))
    });
    models.chain(backends)
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::{
        Action, BackendRegistration, GpuOffer, HolderState, KindProfile, ModelSource, ModelSpec, NodeRegistration,
        Operation, PlanProposal, WantedMove,
    };
    use symphony_types::{BackendId, BootId, Member, ModelId, OperationId, RequestValue, Signature, SubclusterId};

    use super::*;

    const ME: Option<NodeId> = Some(NodeId::new(1));

    struct Scene {
        state: ClusterState,
        mover: Mover,
        start: Instant,
        index: u64,
    }

    impl Scene {
        /// A model with an SLO of 100 ms on the left, a backend on either side.
        fn new() -> Self {
            let (state, mover) = (ClusterState::default(), Mover::default());
            let mut scene = Self { state, mover, start: Instant::now(), index: 0 };
            scene.apply(Command::RegisterNode(NodeRegistration {
                node: NodeId::new(1),
                boot: BootId::new(1),
                control_addr: "n:1".into(),
                dispatch_addr: "n:2".into(),
                beat_addr: "n:3".into(),
                disk: 1,
                avoid: None,
            }));
            for (name, subcluster) in [("b1", "left"), ("b2", "right"), ("b3", "left")] {
                scene.apply(Command::RegisterBackend(BackendRegistration {
                    name: name.into(),
                    boot: BootId::new(1),
                    exec_addr: "b:1".into(),
                    subcluster: subcluster.into(),
                    executor: "emulated".into(),
                    gpus: vec![GpuOffer { kind: "gpu".into(), memory_bytes: 0 }],
                    avoid: None,
                }));
            }
            let profile = KindProfile { latency_ns: vec![1000], ..KindProfile::default() };
            let spec = ModelSpec {
                name: "m".into(),
                subcluster: "left".into(),
                slo_ns: 100_000_000,
                source: ModelSource::Emulated,
                signature: Signature { inputs: vec![], outputs: vec![] },
                transforms: Default::default(),
                profiles: BTreeMap::from([("gpu".to_owned(), profile)]),
                policy: Default::default(),
                value: RequestValue::ONE,
            };
            let (id, actor) = (OperationId::new(1), "operator/ann".to_owned());
            let action = Action::LoadModel(spec);
            scene.apply(Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action }));
            scene
        }

        fn apply(&mut self, command: Command) {
            self.index += 1;
            let outcome = self.state.apply(self.index, &command).outcome;
            assert!(outcome.is_ok(), "{command:?}: {outcome:?}");
        }

        fn plan(&mut self, what: Moved) -> u64 {
            let wanted = WantedMove { what, from: SubclusterId::new(1), to: SubclusterId::new(2) };
            let proposal = PlanProposal { moves: vec![wanted], adopt: true, ..PlanProposal::default() };
            self.apply(Command::ProposePlan(proposal));
            self.index
        }

        fn step(&mut self, seconds: f64) -> Option<Command> {
            self.mover.step(self.start + Duration::from_secs_f64(seconds), &self.state, ME)
        }
    }

    const MODEL: ModelId = ModelId::new(1);

    #[test]
    fn a_moved_model_leaves_its_old_place_once_what_came_before_has_its_outcome() {
        let mut scene = Scene::new();
        let since = scene.plan(Moved::Model(MODEL));
        assert_eq!(scene.step(0.0), None);
        let (backend, boot) = (BackendId::new(2), BootId::new(1));
        scene.apply(Command::ReportModel { model: MODEL, backend, boot, state: HolderState::Ready, load_ns: 0 });
        assert_eq!(scene.step(300.0), None, "the loading took long; the leaving begins now");
        assert_eq!(scene.step(302.05), None, "the SLO comes on top");
        assert_eq!(scene.step(302.1), Some(Command::FinishMove { model: MODEL, since }));
        assert_eq!(scene.mover.step(scene.start, &scene.state, None), None);
        assert_eq!(scene.step(303.0), None, "a new leader counts anew");
    }

    #[test]
    fn what_does_not_come_to_its_end_is_called_off() {
        let mut scene = Scene::new();
        let since = scene.plan(Moved::Model(MODEL));
        assert_eq!(scene.step(0.0), None);
        assert_eq!(scene.step(599.0), None);
        let what = Moved::Model(MODEL);
        let Some(Command::CancelMove { what: named, since: at, reason }) = scene.step(600.0) else { panic!() };
        assert_eq!((named, at), (what, since));
        assert!(reason.contains("600 s"));
        scene.apply(Command::CancelMove { what, since, reason });

        // Backend 1 stays and serves alone.
        let (backend, boot) = (BackendId::new(1), BootId::new(1));
        scene.apply(Command::ReportModel { model: MODEL, backend, boot, state: HolderState::Ready, load_ns: 0 });
        let what = Moved::Backend(BackendId::new(3));
        let since = scene.plan(what);
        assert_eq!(scene.step(700.0), None, "there is nothing to load: it finishes its plans");
        let Some(cancel) = scene.step(760.0) else { panic!() };
        assert!(
            matches!(&cancel, Command::CancelMove { what: named, since: at, .. } if (*named, *at) == (what, since))
        );
        let member = Member::Backend(BackendId::new(3));
        scene.apply(Command::ReportDrained { member, boot: BootId::new(1) });
        assert_eq!(scene.step(761.0), None, "it has arrived");
    }
}
