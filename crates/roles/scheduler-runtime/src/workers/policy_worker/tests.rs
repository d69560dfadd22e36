//! One worker with a plain policy, one model and two GPUs, turn by turn.

use std::collections::{BTreeMap, VecDeque};

use symphony_explain::{FlightRecorder, RecorderLimits};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend};
use symphony_protocol::execute::{Execute, ToBackend};
use symphony_scheduler::{ClusterModel, ClusterPolicy, Delays, ModelQueueConfig, Policy, Request};
use symphony_transport::{LocalReceiver, local_link};
use symphony_types::{
    BackendId, BootId, DropReason, FailReason, FrontendId, GpuClass, GpuId, LatencyProfile, RequestId, Token,
};
use tokio::sync::mpsc;

use super::*;
use crate::threads::waker::GroupWaker;
use crate::workers::messages::{GpuRoute, Peer, PlanId, SealNumber};
use crate::workers::worker_metrics::WorkerKind;

const PEER: Peer = Peer { frontend: FrontendId::new(1), boot: BootId::new(1), link: 1 };
const MODEL: ModelId = ModelId::new(7);

/// One request after the other, each alone on a GPU that has nothing to do.
#[derive(Default)]
struct Plain {
    models: BTreeMap<u32, Arc<ClusterModel>>,
    /// Class, when it is free, and whether a plan is out.
    gpus: BTreeMap<GpuId, (GpuClass, Time, bool)>,
    queue: VecDeque<(u32, Request)>,
    /// Panics at a request of this many items.
    panics_at: u32,
    /// Starts plans this much before they can reach their GPU.
    too_early: Nanos,
    /// Drops all that waits when one is cancelled.
    drops_at_cancel: bool,
    /// The rates that it got.
    rates: Arc<std::sync::Mutex<Vec<f64>>>,
}

impl ClusterPolicy for Plain {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { model, known } => {
                self.rates.lock().unwrap().push(known.rate_per_second);
                self.models.insert(model, known);
            }
            ClusterInput::ModelGone(model) => self.queue.retain(|(of, _)| *of != model),
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                assert!(request.items != self.panics_at, "planted");
                self.queue.push_back((model, request));
            }
            ClusterInput::Cancel { request, .. } => {
                let before = self.queue.len();
                self.queue.retain(|(_, other)| other.id != request.id);
                assert!(self.queue.len() < before, "it is not this policy's");
                if self.drops_at_cancel {
                    self.queue.drain(..).for_each(|(model, request)| out.give_up(model, request, DropReason::Shed));
                }
            }
            ClusterInput::GpuUp { gpu, class, free_at } => {
                self.gpus.insert(gpu, (class, free_at, false));
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.remove(&gpu);
            }
            ClusterInput::Done { gpu, .. } | ClusterInput::Refused { gpu, .. } => {
                if let Some(known) = self.gpus.get_mut(&gpu) {
                    known.2 = false;
                }
            }
            _ => {}
        }
        for (&gpu, (class, free_at, busy)) in self.gpus.iter_mut().filter(|(_, (.., busy))| !busy) {
            let Some((model, request)) = self.queue.pop_front() else { break };
            let known = &self.models[&model];
            let start = known.start(now, *free_at, request.items) - self.too_early;
            let plan = out.plan(model, known, (gpu, *class), start, [request]).unwrap();
            (*free_at, *busy) = (plan.end, true);
        }
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

struct Scene {
    worker: PolicyWorker,
    inbox: Arc<Inbox<ModelMessage>>,
    rank: Arc<Inbox<RankMessage>>,
    route: symphony_transport::LinkSender<ToBackend>,
    /// None if the link has ended.
    backend: Option<LocalReceiver<ToBackend>>,
    frontend: LocalReceiver<ToFrontend>,
    fault: watch::Receiver<Option<PolicyFault>>,
    now: Time,
    turns: u64,
}

impl Scene {
    /// With one GPU that is in use.
    fn new(policy: Plain) -> Self {
        let mut scene = Self::without_gpus(policy);
        scene.link_gpu(0, 1);
        scene.turn();
        scene
    }

    fn without_gpus(policy: Plain) -> Self {
        Self::hosting(policy, true)
    }

    fn hosting(policy: Plain, merges: bool) -> Self {
        let waker = Arc::<GroupWaker>::default();
        let inbox = Arc::new(Inbox::new(Arc::clone(&waker)));
        let rank = Arc::new(Inbox::new(waker));
        let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Policy));
        let recorder = Arc::new(std::sync::Mutex::new(FlightRecorder::new(RecorderLimits::WORKER)));
        let (fault, faults) = watch::channel(None);
        let policy = GuardedPolicy::new("plain", Box::new(policy));
        let (facts, tape) = (ClusterFacts::default(), TapeRecorder::default());
        let host = PolicyHost { policy, merges, facts, tape, fault };
        let now = Time::from_nanos(1_000_000_000);
        let (log, by) = (RecorderQueue::new(Some(recorder)), now + Nanos::from_millis(20));
        let worker = PolicyWorker::new(host, Arc::clone(&inbox), Arc::clone(&rank), metrics, log, by);
        let ((route, backend), (sender, frontend)) = (local_link(), local_link());
        let config = ModelQueueConfig {
            profiles: LatencyProfile::from_line(1.0, 1.0, 8).unwrap().into(),
            slo: Nanos::from_millis(1_000),
            policy: Policy::EAGER,
            delays: Delays::default(),
            requests_max: 100,
        };
        inbox.push(ModelMessage::Add {
            model: MODEL,
            name: "m".into(),
            ordinal: 0,
            config: Box::new(config),
            counts: Arc::default(),
        });
        inbox.push(ModelMessage::Frontend { peer: PEER, sender });
        let mut scene =
            Self { worker, inbox, rank, route, backend: Some(backend), frontend, fault: faults, now, turns: 0 };
        scene.turn();
        scene
    }

    fn turn(&mut self) -> TurnEnd {
        self.turns += 1;
        let end = self.worker.run_turn(TurnStart { number: self.turns, now: self.now, last_ended: self.now });
        self.worker.send_outputs(self.now);
        end
    }

    fn pass(&mut self, millis: u64) {
        self.now += Nanos::from_millis(millis);
    }

    fn route(&self, gpu: u32, seal: SealNumber) {
        let route = GpuRoute {
            gpu: GpuId::new(gpu),
            class: GpuClass::FIRST,
            seal,
            token: Token::new(1),
            backend: BackendId::new(1),
            backend_boot: BootId::new(1),
            sender: self.route.clone(),
        };
        self.inbox.push(ModelMessage::Route { gpu, route });
    }

    fn ready(&self, gpu: u32, seal: SealNumber) {
        self.rank.push(RankMessage::GpuReady { gpu, class: GpuClass::FIRST, seal, free_at: self.now });
    }

    fn link_gpu(&self, gpu: u32, seal: SealNumber) {
        self.route(gpu, seal);
        self.ready(gpu, seal);
    }

    fn lose_gpu(&self, gpu: u32, seal: SealNumber) {
        self.rank.push(RankMessage::Lost { gpu, seal });
        self.inbox.push(ModelMessage::Unroute { gpu, seal });
    }

    fn header(sequence: u64, items: u32, attempt: u32) -> RequestHeader {
        let budget = Nanos::from_millis(1_000).get();
        RequestHeader { sequence, model: MODEL.get(), items, budget, attempt, weight: 1000 }
    }

    fn announce(&self, sequences: std::ops::Range<u64>) {
        let requests = sequences.map(|sequence| Self::header(sequence, 1, 1)).collect();
        self.inbox.push(ModelMessage::Announce { peer: PEER, received: self.now, requests, redriven: false });
    }

    fn done(&self, plan: &Execute, seal: SealNumber) {
        self.done_late(plan, seal, Nanos::ZERO);
    }

    fn done_late(&self, plan: &Execute, seal: SealNumber, start_late: Nanos) {
        let plan = PlanId { gpu: plan.gpu.get(), seal, sequence: plan.sequence };
        self.rank.push(RankMessage::Done { plan, free_at: self.now, more: false });
        let latency = Nanos::from_millis(2);
        self.inbox.push(ModelMessage::Done { plan, start_late, latency, failed: Vec::new() });
    }

    /// The plans that were sent: GPU, number, and requests.
    fn plans(&mut self) -> Vec<Execute> {
        let sent = std::iter::from_fn(|| self.backend.as_mut()?.try_receive());
        sent.map(|message| match message {
            ToBackend::Execute(plan) => plan,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn planned(&mut self) -> Vec<(u32, u64, u64)> {
        let plans = self.plans();
        plans.iter().map(|plan| (plan.gpu.get(), plan.sequence, plan.requests[0].id.sequence)).collect()
    }

    fn ended(&mut self) -> Vec<(u64, EndReason)> {
        let messages = std::iter::from_fn(|| self.frontend.try_receive());
        let ended = messages
            .filter_map(|message| if let ToFrontend::Ended { requests } = message { Some(requests) } else { None });
        ended.flatten().collect()
    }

    fn waiting(&self) -> usize {
        self.worker.referee.waiting()
    }
}

#[test]
fn the_policys_plans_are_sent_and_their_ends_are_told_to_it() {
    let mut scene = Scene::new(Plain::default());
    scene.announce(0..3);
    scene.turn();
    let first = scene.plans();
    assert_eq!(first.iter().map(|plan| (plan.sequence, plan.model)).collect::<Vec<_>>(), [(1, MODEL)]);
    assert_eq!(scene.waiting(), 2);
    scene.pass(2);
    scene.done(&first[0], 1);
    scene.turn();
    assert_eq!(scene.planned(), [(0, 2, 1)]);
    scene.link_gpu(1, 2);
    scene.turn();
    assert_eq!(scene.planned(), [(1, 1, 2)], "a GPU that comes is used");
    assert_eq!((scene.waiting(), scene.ended()), (0, vec![]));
}

#[test]
fn a_gpu_is_up_once_it_is_sealed_and_plans_reach_it_in_whatever_order_that_is_heard() {
    let mut scene = Scene::without_gpus(Plain::default());
    scene.announce(0..1);
    scene.ready(0, 1);
    scene.turn();
    assert_eq!(scene.planned(), []);
    scene.route(0, 1);
    scene.turn();
    assert_eq!(scene.planned(), [(0, 1, 0)]);
}

#[test]
fn what_a_lost_gpu_had_waits_again_and_its_next_seal_counts_from_one() {
    let mut scene = Scene::new(Plain::default());
    scene.announce(0..2);
    scene.turn();
    let lost = scene.plans();
    scene.lose_gpu(0, 1);
    scene.turn();
    assert_eq!(scene.waiting(), 2);
    // A report of the former seal changes nothing.
    scene.done(&lost[0], 1);
    scene.link_gpu(0, 5);
    scene.turn();
    assert_eq!(scene.planned(), [(0, 1, 1)], "the one that waited was first");
    let again = scene.worker.metrics.counters.requeued_requests.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((again, scene.ended()), (1, vec![]));
}

#[test]
fn a_plan_that_finds_no_link_is_taken_back_before_the_loss_is_told() {
    let mut scene = Scene::new(Plain::default());
    scene.backend = None;
    scene.announce(0..1);
    scene.turn();
    assert_eq!((scene.planned(), scene.waiting()), (vec![], 1));
    scene.lose_gpu(0, 1);
    scene.turn();
    assert_eq!((scene.waiting(), scene.ended()), (1, vec![]));
    assert!(scene.fault.borrow().is_none());
}

#[test]
fn a_refused_plan_is_told_and_its_requests_come_back() {
    let mut scene = Scene::new(Plain::default());
    scene.announce(0..1);
    scene.turn();
    let refused = scene.plans();
    let plan = PlanId { gpu: 0, seal: 1, sequence: refused[0].sequence };
    scene.rank.push(RankMessage::Refused { plan });
    scene.inbox.push(ModelMessage::Refused { plan });
    scene.turn();
    assert_eq!(scene.planned(), [(0, 2, 0)]);
}

#[test]
fn a_panic_of_the_policy_is_told_and_ends_no_request() {
    let mut scene = Scene::new(Plain { panics_at: 3, ..Plain::default() });
    scene.announce(0..2);
    let requests = vec![Scene::header(2, 3, 1)];
    scene.inbox.push(ModelMessage::Announce { peer: PEER, received: scene.now, requests, redriven: false });
    scene.announce(3..4);
    let end = scene.turn();
    let fault = scene.fault.borrow().clone().expect("a fault");
    assert_eq!(fault.to_string(), "policy `plain` panicked at input `arrive`: planted");
    assert_eq!(end.wake_at, Time::NEVER);
    assert_eq!(scene.planned(), [(0, 1, 0)], "what was decided before is sent");
    scene.announce(4..5);
    scene.turn();
    assert_eq!((scene.planned(), scene.ended()), (vec![], vec![]), "the frontend announces them to the next lead");
}

#[test]
fn an_order_that_breaks_a_rule_is_not_sent() {
    let mut scene = Scene::new(Plain { too_early: Nanos::new(1), ..Plain::default() });
    scene.announce(0..1);
    scene.turn();
    let fault = scene.fault.borrow().clone().expect("a fault").to_string();
    assert!(fault.contains("policy `plain` broke S"), "{fault}");
    assert_eq!((scene.planned(), scene.ended()), (vec![], vec![]));
    let violations = scene.worker.metrics.counters.violations.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(violations, 0, "this host has broken nothing");
}

#[test]
fn who_has_gone_and_what_is_not_served_leaves_the_policy() {
    let mut scene = Scene::without_gpus(Plain::default());
    scene.announce(0..5);
    let (frontend, boot) = (PEER.frontend, PEER.boot);
    scene.inbox.push(ModelMessage::Cancel { frontend, boot, requests: vec![(1, 7), (9, 7), (2, 8)] });
    scene.turn();
    assert_eq!((scene.waiting(), scene.ended()), (4, vec![]));
    scene.inbox.push(ModelMessage::Remove { model: MODEL });
    scene.turn();
    let not_ready = EndReason::Failed(FailReason::ModelNotReady);
    assert_eq!(scene.ended(), [0, 2, 3, 4].map(|sequence| (sequence, not_ready)));
    assert_eq!(scene.waiting(), 0);
    // A link that is replaced takes its requests along.
    let mut scene = Scene::without_gpus(Plain::default());
    scene.announce(0..5);
    let (sender, _next) = local_link();
    scene.inbox.push(ModelMessage::Frontend { peer: Peer { link: 2, ..PEER }, sender });
    scene.turn();
    assert_eq!(scene.waiting(), 0);
}

#[test]
fn what_the_policy_decides_while_a_frontend_leaves_is_not_cancelled_as_well() {
    let mut scene = Scene::without_gpus(Plain { drops_at_cancel: true, ..Plain::default() });
    scene.announce(0..5);
    scene.inbox.push(ModelMessage::FrontendGone { peer: PEER });
    scene.turn();
    assert_eq!((scene.fault.borrow().clone(), scene.waiting()), (None, 0));
    let counts = &scene.worker.slots[0].as_ref().unwrap().counts;
    assert_eq!(counts.dropped.load(std::sync::atomic::Ordering::Relaxed), 4);
}

#[test]
fn more_than_may_wait_is_dropped_before_the_policy_hears_of_it() {
    let mut scene = Scene::without_gpus(Plain::default());
    scene.announce(0..103);
    scene.turn();
    let full = EndReason::Dropped(DropReason::QueueFull);
    assert_eq!(scene.ended(), [100, 101, 102].map(|sequence| (sequence, full)));
    assert_eq!(scene.waiting(), 100);
}

#[test]
fn a_retired_gpu_gets_nothing_and_one_that_comes_back_waits_for_what_it_runs() {
    let mut scene = Scene::new(Plain::default());
    scene.announce(0..2);
    scene.turn();
    let running = scene.plans();
    let (done, mut retired) = mpsc::unbounded_channel();
    scene.rank.push(RankMessage::Retire { gpu: 0, seal: 1, round: 4, done });
    scene.turn();
    assert_eq!(retired.try_recv(), Ok(4));
    scene.rank.push(RankMessage::Resume { gpu: 0, seal: 1 });
    scene.turn();
    assert_eq!(scene.planned(), [], "its plan is of the time before");
    scene.pass(2);
    scene.done(&running[0], 1);
    scene.turn();
    assert_eq!(scene.planned(), [(0, 2, 1)]);
    scene.rank.push(RankMessage::Quarantine { gpu: 0, out: true });
    scene.announce(2..3);
    scene.turn();
    scene.link_gpu(0, 9);
    scene.turn();
    assert_eq!(scene.planned(), [], "the same GPU, too slow");
    scene.rank.push(RankMessage::Quarantine { gpu: 0, out: false });
    scene.turn();
    assert_eq!(scene.planned().len(), 1);
}

#[test]
fn demand_counts_requests_by_themselves_where_none_are_merged() {
    // Eight of 9 ms in one batch, of 2 ms each alone.
    for (merges, demand_ms) in [(true, 9.0), (false, 16.0)] {
        let mut scene = Scene::hosting(Plain::default(), merges);
        scene.link_gpu(0, 1);
        scene.link_gpu(1, 1);
        scene.turn();
        assert_eq!(scene.worker.gpus_by_class[GpuClass::FIRST.index()], 2);
        scene.announce(0..8);
        scene.turn();
        let demand_ns = scene.worker.metrics.demand_ns.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(Nanos::new(demand_ns), Nanos::from_millis_f64(demand_ms), "merges: {merges}");
        scene.lose_gpu(1, 1);
        scene.rank.push(RankMessage::Quarantine { gpu: 0, out: true });
        scene.turn();
        assert_eq!(scene.worker.gpus_by_class, [0; 8]);
    }
}

#[test]
fn measured_rates_are_told_as_they_change() {
    let policy = Plain::default();
    let rates = Arc::clone(&policy.rates);
    let mut scene = Scene::new(policy);
    for sequence in 0..200 {
        scene.announce(sequence..sequence + 1);
        scene.pass(10);
        scene.turn();
    }
    let reported = rates.lock().unwrap().clone();
    assert!((reported.last().unwrap() - 100.0).abs() < 10.0, "{reported:?}");
    assert!(reported.len() < 6, "a rate that stays is not told again: {reported:?}");
    let due = scene.turn().wake_at;
    assert!(due <= scene.now + MEASURED_EVERY, "{due}");
}

#[test]
fn with_another_lateness_the_policy_gets_the_rate_that_it_had() {
    let policy = Plain::default();
    let rates = Arc::clone(&policy.rates);
    let mut scene = Scene::new(policy);
    for sequence in 0..400_u64 {
        scene.announce(sequence..sequence + 1);
        scene.turn();
        // Later and later, while requests come at a rate that is never quite the same.
        for plan in scene.plans() {
            scene.done_late(&plan, 1, Nanos::from_millis(sequence / 40));
        }
        scene.pass(if sequence % 7 == 0 { 11 } else { 10 });
        scene.turn();
    }
    let mut reported = rates.lock().unwrap().clone();
    assert!(reported.len() > 5, "each lateness is told: {reported:?}");
    reported.dedup();
    assert_eq!(reported.len(), 2, "none, and the first one measured: {reported:?}");
}

#[test]
fn requests_are_counted_by_their_items_once() {
    let mut scene = Scene::without_gpus(Plain::default());
    let requests = vec![Scene::header(0, 1, 1), Scene::header(1, 3, 1), Scene::header(2, 1, 1)];
    scene.inbox.push(ModelMessage::Announce { peer: PEER, received: scene.now, requests, redriven: false });
    // The lead before has counted this one.
    let requests = vec![Scene::header(3, 3, 2)];
    scene.inbox.push(ModelMessage::Announce { peer: PEER, received: scene.now, requests, redriven: true });
    scene.inbox.push(ModelMessage::AllSealed);
    scene.turn();
    assert_eq!(scene.waiting(), 4);
    let counted = scene.worker.slots[0].as_ref().unwrap().counts.request_items.read();
    assert_eq!(counted.classic()[..4], [2, 0, 1, 0]);
}

#[test]
fn a_request_that_a_backend_has_is_not_the_policys_until_that_backend_is_lost() {
    let mut scene = Scene::new(Plain::default());
    let id = |sequence| RequestId { frontend: PEER.frontend, boot: PEER.boot, sequence };
    scene.inbox.push(ModelMessage::Known { seal: 8, requests: Arc::new([id(0)].into()) });
    let requests = vec![Scene::header(0, 1, 2), Scene::header(1, 1, 2)];
    scene.inbox.push(ModelMessage::Announce { peer: PEER, received: scene.now, requests, redriven: true });
    scene.turn();
    assert_eq!(scene.planned(), [], "redriven requests wait for the seals");
    scene.inbox.push(ModelMessage::AllSealed);
    scene.turn();
    assert_eq!(scene.planned(), [(0, 1, 1)]);
    scene.lose_gpu(3, 8);
    scene.turn();
    assert_eq!(scene.waiting(), 1, "now it is");
}
