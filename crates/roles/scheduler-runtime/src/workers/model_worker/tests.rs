//! One worker with one model and one GPU: its requests, grants and messages of the rank worker, turn by turn.

use std::sync::atomic::Ordering;

use crossbeam::channel::bounded;
use symphony_explain::{FlightRecorder, RecorderLimits};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend};
use symphony_protocol::execute::ToBackend;
use symphony_scheduler::{
    Candidate, DataDelay, DelaySource, Delays, GrantWhy, ModelQueueConfig, POOL_TICK, Policy, Pressure, ReadyOrder,
};
use symphony_tape::{Tape, TapeHeader, TapeOrigin, replay};
use symphony_telemetry::ErrorHistogram;
use symphony_transport::{LocalReceiver, local_link};
use symphony_types::{
    BackendId, BootId, DropReason, FailReason, FamilyProfile, GPU_CLASSES_MAX, GpuId, Invariant, LatencyProfile, Token,
};

use super::*;
use crate::records::tape_writer::{CHUNKS_WAITING_MAX, WriterEnd};
use crate::threads::waker::GroupWaker;
use crate::workers::messages::{GpuRoute, Peer};
use crate::workers::worker_metrics::WorkerKind;

const SEAL: SealNumber = 7;
const PEER: Peer = Peer { frontend: FrontendId::new(1), boot: BootId::new(1), link: 1 };

fn config(policy: Policy) -> ModelQueueConfig {
    ModelQueueConfig {
        profiles: LatencyProfile::from_line(0.1, 1.0, 8).unwrap().into(),
        slo: Nanos::from_millis(60_000),
        policy,
        delays: Delays::default(),
        requests_max: 1000,
    }
}

/// One worker with one model and one GPU; the test runs its turns.
struct Scene {
    worker: ModelWorker,
    inbox: Arc<Inbox<ModelMessage>>,
    rank: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    /// None if the link has ended.
    backend: Option<LocalReceiver<ToBackend>>,
    frontend: LocalReceiver<ToFrontend>,
    clock: Clock,
    turns: u64,
}

impl Scene {
    fn new() -> Self {
        Self::with_policy(Policy::EAGER)
    }

    fn with_policy(policy: Policy) -> Self {
        Self::recorded(policy, TapeRecorder::default())
    }

    fn recorded(policy: Policy, tape: TapeRecorder) -> Self {
        let (waker, clock) = (Arc::<GroupWaker>::default(), Clock::start());
        let inbox = Arc::new(Inbox::new(Arc::clone(&waker)));
        let rank = Arc::new(Inbox::new(waker));
        let offers = Arc::new(OfferBoard::new(1));
        let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Model));
        let (route, backend) = local_link();
        let (sender, frontend) = local_link();
        let recorder = Arc::new(std::sync::Mutex::new(FlightRecorder::new(RecorderLimits::WORKER)));
        let log = RecorderQueue::new(Some(recorder));
        let worker = ModelWorker::new(clock, Arc::clone(&inbox), Arc::clone(&rank), Arc::clone(&offers), metrics, log);
        let worker = worker.with_tape(tape);
        let route = GpuRoute {
            gpu: GpuId::new(0),
            class: GpuClass::FIRST,
            seal: SEAL,
            token: Token::new(1),
            backend: BackendId::new(1),
            backend_boot: BootId::new(1),
            sender: route,
        };
        inbox.push(ModelMessage::AllSealed);
        inbox.push(ModelMessage::Add {
            model: ModelId::new(0),
            name: "m".into(),
            ordinal: 0,
            config: Box::new(config(policy)),
            counts: Arc::default(),
        });
        inbox.push(ModelMessage::Frontend { peer: PEER, sender });
        inbox.push(ModelMessage::Route { gpu: 0, route });
        let mut scene = Self { worker, inbox, rank, offers, backend: Some(backend), frontend, clock, turns: 0 };
        scene.turn();
        scene.send_outputs();
        scene
    }

    fn turn(&mut self) -> TurnEnd {
        self.turns += 1;
        let now = self.clock.now();
        self.worker.run_turn(TurnStart { number: self.turns, now, last_ended: now })
    }

    fn send_outputs(&mut self) {
        self.worker.send_outputs(self.clock.now());
    }

    fn announce_new(&self, sequences: std::ops::Range<u64>) {
        self.announce(PEER, sequences, 1, false);
    }

    fn announce(&self, peer: Peer, sequences: std::ops::Range<u64>, attempt: u32, redriven: bool) {
        let budget = Nanos::from_millis(60_000).get();
        let header = |sequence| RequestHeader { sequence, model: 0, items: 1, budget, attempt, weight: 1000 };
        let requests = sequences.map(header).collect();
        self.inbox.push(ModelMessage::Announce { peer, received: self.clock.now(), requests, redriven });
    }

    fn grant(&self, sequence: u64) -> PlanId {
        let plan = PlanId { gpu: 0, seal: SEAL, sequence };
        let why = GrantWhy::default();
        self.inbox.push(ModelMessage::Grant {
            ordinal: 0,
            class: GpuClass::FIRST,
            free_at: self.clock.now(),
            plan,
            why,
        });
        plan
    }

    /// Whether the rank worker could read an offer now.
    fn offers(&self) -> bool {
        self.offered().is_some()
    }

    /// What the rank worker would read from the offer board, if there is something new.
    fn offered(&self) -> Option<Option<Candidate>> {
        let (mut offer, mut last_word) = (None, [63; GPU_CLASSES_MAX]);
        self.offers.take(&mut last_word, 1, |_, _, (_, candidate)| offer = Some(candidate));
        offer
    }

    /// The next message to the rank worker that is not an account.
    fn answer(&mut self) -> Option<RankMessage> {
        std::iter::from_fn(|| self.rank.pop()).find(|message| !matches!(message, RankMessage::Account(_)))
    }

    fn plans(&mut self) -> usize {
        let Some(backend) = &mut self.backend else { return 0 };
        std::iter::from_fn(|| backend.try_receive()).count()
    }
}

#[test]
fn a_gpu_is_answered_for_only_when_its_plan_is_on_the_link() {
    let mut scene = Scene::new();
    scene.announce_new(0..4);
    scene.turn();
    assert!(scene.offers(), "nothing to wait for: ranked in the same turn");
    scene.send_outputs();
    let plan = scene.grant(1);
    scene.turn();
    // Otherwise another worker's plan for the GPU could overtake this one.
    assert!(scene.answer().is_none(), "answered before the plan is sent");
    assert!(!scene.offers(), "an offer that speaks of an answer comes after the answer");
    assert_eq!(scene.plans(), 0);
    scene.send_outputs();
    assert_eq!(scene.plans(), 1);
    let answer = scene.answer();
    assert!(
        matches!(answer, Some(RankMessage::Release { plan: of, used: true, .. }) if of == plan),
        "answered with {answer:?}"
    );
    assert!(scene.offers());
    assert!(scene.frontend.try_receive().is_none());
}

#[test]
fn a_gpu_whose_link_has_ended_is_lost_and_its_batch_is_no_new_load() {
    let mut scene = Scene::new();
    scene.announce_new(0..4);
    scene.turn();
    scene.send_outputs();
    scene.backend = None;
    let rate = |scene: &Scene| scene.worker.slots[0].as_ref().unwrap().queue.rate_per_second();
    let before = rate(&scene);
    let plan = scene.grant(1);
    scene.turn();
    scene.send_outputs();
    let answer = scene.answer();
    assert!(
        matches!(answer, Some(RankMessage::Lost { gpu, seal }) if (gpu, seal) == (plan.gpu, plan.seal)),
        "granted again and again: {answer:?}"
    );
    assert!(scene.answer().is_none());
    let queue = &scene.worker.slots[0].as_ref().unwrap().queue;
    assert_eq!((queue.len(), rate(&scene)), (4, before));
    assert!(scene.frontend.try_receive().is_none(), "none of them has ended");
}

#[test]
fn a_frame_of_cancels_takes_as_many_turns_as_a_frame_of_requests() {
    let mut scene = Scene::new();
    scene.announce_new(0..900);
    while scene.turn().wake_at == Time::ZERO {}
    scene.send_outputs();
    assert!(scene.offers());
    let waiting = |scene: &Scene| scene.worker.slots[0].as_ref().unwrap().queue.len();
    assert_eq!(waiting(&scene), 900);
    // Most of them are unknown; every other one names an unknown model.
    let requests = (0..4096).rev().map(|n| (n / 2, n as u32 % 2)).collect();
    scene.inbox.push(ModelMessage::Cancel { frontend: PEER.frontend, boot: PEER.boot, requests });
    scene.inbox.push(ModelMessage::Cancel { frontend: PEER.frontend, boot: BootId::new(9), requests: vec![(0, 0)] });
    scene.announce_new(5_000..5_001);
    let mut turns = 0;
    loop {
        turns += 1;
        let end = scene.turn();
        assert!(end.handled <= TURN_EVENTS_MAX, "{} events in one turn", end.handled);
        if end.wake_at != Time::ZERO {
            break;
        }
    }
    assert_eq!((turns, waiting(&scene)), (4096 / TURN_EVENTS_MAX + 1, 1));
    assert!(scene.frontend.try_receive().is_none(), "who has gone is told nothing");
}

/// A lead that serves a model differently than before, while a queue as long as it may be waits for it.
#[test]
fn a_changed_model_keeps_what_waits_over_several_turns_and_its_tape_decides_the_same() {
    let ((full, chunks), (_, empty)) = (bounded(CHUNKS_WAITING_MAX), bounded(1));
    let writer = WriterEnd { full, empty, end: Arc::default(), written: 0 };
    let tape = TapeRecorder::new(writer, 64 << 20, Arc::new(WorkerMetrics::new(WorkerKind::Model)));
    let mut scene = Scene::recorded(Policy::EAGER, tape);
    scene.announce_new(0..900);
    while scene.turn().wake_at == Time::ZERO {}
    scene.send_outputs();
    assert!(scene.offers());
    // The waiting requests are of the new queue before any message about them is handled.
    let changed = Policy { ready_order: ReadyOrder::Deadline, ..Policy::EAGER };
    let (model, slo) = (ModelId::new(0), Nanos::from_millis(30_000));
    let other = ModelQueueConfig { slo, ..config(changed) };
    scene.inbox.push(ModelMessage::Change { model, ordinal: 1, config: Box::new(other) });
    let requests = (0..10).map(|sequence| (sequence, 0)).collect();
    scene.inbox.push(ModelMessage::Cancel { frontend: PEER.frontend, boot: PEER.boot, requests });
    scene.announce_new(900..901);
    let (mut turns, mut offered) = (0, Vec::new());
    loop {
        let end = scene.turn();
        turns += 1;
        assert!(end.handled <= TURN_EVENTS_MAX, "{} inputs in one turn", end.handled);
        scene.send_outputs();
        let mut last_word = [63; GPU_CLASSES_MAX];
        scene.offers.take(&mut last_word, 1, |ordinal, _, (_, candidate)| offered.push((turns, ordinal, candidate)));
        if end.wake_at != Time::ZERO {
            break;
        }
    }
    assert_eq!(turns, (1 + 900_usize).div_ceil(TURN_EVENTS_MAX));
    let [(1, 0, None), (last, 1, Some(candidate))] = offered[..] else { panic!("{offered:?}") };
    assert_eq!((last, candidate.batch, candidate.ready_order), (turns, 8, ReadyOrder::Deadline));
    assert!(matches!(scene.answer(), Some(RankMessage::Forget { ordinal: 0 })));
    let waiting = |scene: &Scene| scene.worker.slots.iter().flatten().map(|slot| slot.queue.len()).collect::<Vec<_>>();
    assert_eq!(waiting(&scene), [891]);
    assert!(scene.frontend.try_receive().is_none(), "none of them has ended");
    // A grant for the former queue comes back, one for the new one is used.
    scene.grant(1);
    scene.turn();
    scene.send_outputs();
    assert!(matches!(scene.answer(), Some(RankMessage::Release { ordinal: 0, used: false, .. })));
    let plan = PlanId { gpu: 0, seal: SEAL, sequence: 1 };
    let (free_at, why) = (scene.clock.now(), GrantWhy::default());
    scene.inbox.push(ModelMessage::Grant { ordinal: 1, class: GpuClass::FIRST, free_at, plan, why });
    scene.turn();
    scene.send_outputs();
    let Some(ToBackend::Execute(order)) = scene.backend.as_mut().unwrap().try_receive() else { panic!("no plan") };
    let planned: Vec<_> = order.requests.iter().map(|request| request.id.sequence).collect();
    assert_eq!(planned, (10..18).collect::<Vec<_>>(), "in their order");
    assert_eq!(waiting(&scene), [883]);
    drop(scene);
    let mut bytes = TapeHeader { origin: TapeOrigin::default(), worker: "model-0".to_owned() }.to_bytes();
    for mut chunk in chunks {
        bytes.extend_from_slice(chunk.seal());
    }
    let replayed = replay(&Tape::open(&bytes).unwrap()).unwrap();
    assert_eq!(replayed.difference, None);
    let summary = replayed.summary;
    assert_eq!((summary.models, summary.arrivals, summary.batches), (2, 901, 1), "what waited has not arrived again");
    assert!(summary.steps > 1801, "{} decisions", summary.steps);
}

#[test]
fn a_plan_by_the_profile_of_another_kind_than_its_gpus_is_counted() {
    let mut scene = Scene::new();
    let violations = |scene: &Scene| scene.worker.metrics.counters.violations.load(Ordering::Relaxed);
    scene.announce_new(0..2);
    scene.grant(1);
    scene.turn();
    scene.send_outputs();
    assert_eq!((scene.plans(), violations(&scene)), (1, 0));
    // A planted fault: the rank worker grants the GPU under a class that appeared later.
    let (model, class, slow) = (ModelId::new(0), GpuClass::new(3).unwrap(), LatencyProfile::from_line(1.0, 9.0, 8));
    scene.inbox.push(ModelMessage::Profile { model, class, profile: Box::new(slow.unwrap()) });
    scene.inbox.push(ModelMessage::Classes { classes: [GpuClass::FIRST, class].into_iter().collect() });
    scene.announce_new(2..4);
    let plan = PlanId { gpu: 0, seal: SEAL, sequence: 2 };
    let (free_at, why) = (scene.clock.now(), GrantWhy::default());
    scene.inbox.push(ModelMessage::Grant { ordinal: 0, class, free_at, plan, why });
    scene.turn();
    scene.send_outputs();
    assert_eq!((scene.plans(), violations(&scene)), (1, 1));
    assert!(symphony_telemetry::violations(Invariant::S2) > 0);
}

#[test]
fn what_models_saw_is_told_once_a_tick() {
    // Four requests in each of eight turns, four turns in a tick.
    let accounts = |policy: Policy| {
        let mut scene = Scene::with_policy(policy);
        let begun = scene.clock.now() + POOL_TICK;
        let mut reported = Vec::new();
        while scene.rank.pop().is_some() {}
        for turn in 0..8 {
            scene.announce_new(4 * turn..4 * turn + 4);
            let now = begun + Nanos::new(POOL_TICK.get() / 4 * turn);
            scene.worker.run_turn(TurnStart { number: 10 + turn, now, last_ended: begun });
            scene.worker.send_outputs(now);
            while let Some(message) = scene.rank.pop() {
                if let RankMessage::Account(account) = message {
                    reported.push((account.asked, account.demand.busy[0][8]));
                }
            }
        }
        reported
    };
    // An item alone takes 1.1 ms, and less in a batch once the model aims at larger ones.
    let reported = accounts(Policy::AUTO);
    assert_eq!((reported.len(), reported[0].0), (2, Nanos::from_micros(4 * 1_100)));
    assert!(reported[1].0 > reported[0].0.saturating_mul(2), "{reported:?}");
    // One by one, as in batches that start at once; a model that does not shed reports its demand too.
    let demand = [4, 16].map(|items| Nanos::from_micros(items * 1_100));
    assert_eq!(reported.iter().map(|reported| reported.1).collect::<Vec<_>>(), demand);
    assert_eq!(accounts(Policy::SYMPHONY), demand.map(|demand| (Nanos::ZERO, demand)));
}

#[test]
fn a_worker_that_falls_quiet_wakes_once_to_tell_what_it_saw() {
    let mut scene = Scene::with_policy(Policy::AUTO);
    let begun = scene.clock.now() + POOL_TICK;
    let turn = |scene: &mut Scene, now: Time| {
        let end = scene.worker.run_turn(TurnStart { number: 10, now, last_ended: begun });
        scene.worker.send_outputs(now);
        let reported =
            std::iter::from_fn(|| scene.rank.pop()).filter(|message| matches!(message, RankMessage::Account(_)));
        (end, reported.count())
    };
    scene.announce_new(0..4);
    let (end, reported) = turn(&mut scene, begun);
    assert_eq!(reported, 1);
    let tick = begun + POOL_TICK;
    assert!(end.wake_at > tick, "nothing is left to tell");
    // What arrives within the tick is reported at its end, with or without another event.
    scene.announce_new(4..8);
    let (end, reported) = turn(&mut scene, begun + Nanos::from_millis(1));
    assert_eq!((end.wake_at, reported), (tick, 0));
    let (end, reported) = turn(&mut scene, tick);
    assert_eq!((end.handled, reported), (1, 1));
    assert!(end.wake_at > tick + POOL_TICK, "woken for nothing");
    let (end, reported) = turn(&mut scene, tick + POOL_TICK);
    assert_eq!((end.handled, reported), (0, 0));
}

#[test]
fn a_model_sheds_as_the_pressure_says_and_is_counted() {
    let mut scene = Scene::with_policy(Policy::AUTO);
    scene.inbox.push(ModelMessage::Pool(Pressure::from_share(0.5).into()));
    scene.announce_new(0..10);
    scene.turn();
    scene.send_outputs();
    let Some(ToFrontend::Ended { requests }) = scene.frontend.try_receive() else { panic!("nothing has ended") };
    let shed = EndReason::Dropped(DropReason::Shed);
    assert_eq!(requests, [1, 3, 5, 7, 9].map(|sequence| (sequence, shed)));
    let counters = scene.worker.metrics.counters.read();
    let count = |name: &str| counters.iter().find(|(counter, _)| *counter == name).map(|&(_, count)| count);
    assert_eq!((count("dropped_requests"), count("shed_requests")), (Some(5), Some(5)));
}

#[test]
fn what_is_given_up_where_no_gpu_serves_says_so_and_elsewhere_that_it_was_overload() {
    for (linked, silent, drained, served) in [
        (true, false, false, true),
        (true, true, false, false),
        (false, false, false, false),
        (true, false, true, false),
    ] {
        let mut scene = Scene::new();
        let begun = scene.clock.now();
        let mut turns = 10;
        let mut turn = |scene: &mut Scene, ms| {
            turns += 1;
            let now = begun + Nanos::from_millis(ms);
            scene.worker.run_turn(TurnStart { number: turns, now, last_ended: now });
            scene.worker.send_outputs(now);
        };
        if silent {
            scene.announce_new(0..1);
            scene.grant(1);
            turn(&mut scene, 1);
            assert_eq!(scene.plans(), 1, "nothing is heard of it");
        }
        if !linked {
            scene.inbox.push(ModelMessage::Unroute { gpu: 0, seal: SEAL });
        }
        scene.inbox.push(ModelMessage::AllDrained(drained));
        let budget = Nanos::from_millis(500).get();
        let requests = vec![RequestHeader { sequence: 7, model: 0, items: 1, budget, attempt: 1, weight: 1000 }];
        scene.inbox.push(ModelMessage::Announce { peer: PEER, received: begun, requests, redriven: false });
        turn(&mut scene, 2);
        turn(&mut scene, 600);
        let Some(ToFrontend::Ended { requests }) = scene.frontend.try_receive() else { panic!("nothing has ended") };
        let [(7, reason)] = requests[..] else { panic!("{requests:?}") };
        let lost = reason == EndReason::Failed(FailReason::NoGpu);
        assert_eq!(lost, !served, "linked {linked}, silent {silent}, drained {drained}: {reason:?}");
    }
}

#[test]
fn what_is_announced_again_is_neither_shed_nor_counted_again() {
    let mut scene = Scene::with_policy(Policy::AUTO);
    scene.announce_new(0..10);
    scene.turn();
    let requested_time = |scene: &mut Scene| scene.worker.slots[0].as_mut().unwrap().queue.take_account().asked;
    requested_time(&mut scene);
    // The frontend's link flaps repeatedly under pressure; then new requests arrive, too.
    scene.inbox.push(ModelMessage::Pool(Pressure::from_share(0.5).into()));
    for link in 2..5 {
        let (sender, receiver) = local_link();
        let peer = Peer { link, ..PEER };
        scene.inbox.push(ModelMessage::Frontend { peer, sender });
        scene.announce(peer, 0..10, link as u32, true);
        scene.frontend = receiver;
        scene.turn();
        scene.send_outputs();
        assert_eq!(scene.worker.slots[0].as_ref().unwrap().queue.len(), 10);
        assert_eq!(requested_time(&mut scene), Nanos::ZERO);
        assert!(scene.frontend.try_receive().is_none());
    }
    scene.announce(Peer { link: 4, ..PEER }, 10..14, 1, true);
    scene.turn();
    scene.send_outputs();
    assert_eq!(scene.worker.slots[0].as_ref().unwrap().queue.len(), 12);
    assert!(requested_time(&mut scene) > Nanos::ZERO);
}

/// No further arrival makes a new offer.
#[test]
fn a_request_that_waits_alone_is_offered_anew_when_inputs_take_longer() {
    let mut scene = Scene::with_policy(Policy::SYMPHONY);
    scene.announce_new(0..1);
    scene.turn();
    scene.send_outputs();
    let before = scene.offered().flatten().expect("an offer");
    let longer = Nanos::from_millis(5_000);
    let data = DataDelay { fixed: longer, source: DelaySource::Measured, ..DataDelay::default() };
    scene.inbox.push(ModelMessage::DataDelay { model: ModelId::new(0), data });
    scene.turn();
    scene.send_outputs();
    let after = scene.offered().flatten().expect("another offer");
    // It starts as late as before, so it asks for a GPU that much earlier.
    assert_eq!((after.latest, after.lead), (before.latest, before.lead + longer));
}

/// The latency of a batch that failed at once, or ran without some of its requests, teaches nothing.
#[test]
fn what_did_not_run_as_planned_is_not_taken_for_a_fast_batch() {
    let runs = Arc::new(ArrayQueue::new(8));
    let mut scene = Scene::new();
    scene.worker.delivery.runs = Some(Arc::clone(&runs));
    let id = |sequence| RequestId { frontend: PEER.frontend, boot: PEER.boot, sequence };
    let ends = [
        (Vec::new(), Some((1, Some(Nanos::from_micros(9))))),
        (vec![(id(2), FailReason::ExecutionFailed)], Some((1, None))),
        (vec![(id(3), FailReason::PayloadLost)], None),
    ];
    for (sequence, (failed, learnt)) in (1..).zip(ends) {
        scene.announce_new(sequence..sequence + 1);
        let plan = scene.grant(sequence);
        scene.turn();
        scene.send_outputs();
        let (start_late, latency) = (Nanos::ZERO, Nanos::from_micros(9));
        scene.inbox.push(ModelMessage::Done { plan, start_late, latency, failed });
        scene.turn();
        assert_eq!(runs.pop().map(|run| (run.items, run.took)), learnt, "plan {sequence}");
    }
    let recorded = format!("{:?}", scene.worker.metrics.execution_errors.read());
    let once = ErrorHistogram::default();
    once.record(Nanos::from_micros(1100), Nanos::from_micros(9));
    assert_eq!(recorded, format!("{:?}", once.read()), "errors of predictions are those of whole batches");
}

#[test]
fn rows_of_several_models_count_for_their_own_also_when_their_queue_has_gone() {
    let mut scene = Scene::new();
    let members = [1, 2].map(|id| Member { id: ModelId::new(id), name: "m".into(), counts: Arc::default() });
    let line = |alpha, beta| LatencyProfile::from_line(alpha, beta, 8).unwrap();
    let family = FamilyProfile::alike(line(0.1, 1.0), line(0.1, 0.1), 2).unwrap();
    let queue = |members: &[Member], ordinal, families| NewQueue {
        members: members.to_vec(),
        ordinal,
        config: Box::new(config(Policy::EAGER)),
        families,
    };
    let shared = queue(&members, 1, vec![(GpuClass::FIRST, family)]);
    scene.inbox.push(ModelMessage::Regroup { queues: vec![shared] });
    let budget = Nanos::from_millis(60_000).get();
    let header = |(sequence, model)| RequestHeader { sequence, model, items: 1, budget, attempt: 1, weight: 1000 };
    let requests = [(1, 1), (2, 2), (3, 2)].map(header).to_vec();
    scene.inbox.push(ModelMessage::Announce { peer: PEER, received: scene.clock.now(), requests, redriven: false });
    scene.turn();
    scene.send_outputs();
    let plan = PlanId { gpu: 0, seal: SEAL, sequence: 1 };
    let (free_at, why) = (scene.clock.now(), GrantWhy::default());
    scene.inbox.push(ModelMessage::Grant { ordinal: 1, class: GpuClass::FIRST, free_at, plan, why });
    scene.turn();
    scene.send_outputs();
    assert_eq!(scene.plans(), 1);

    let own = vec![queue(&members[..1], 2, Vec::new()), queue(&members[1..], 3, Vec::new())];
    scene.inbox.push(ModelMessage::Regroup { queues: own });
    let (start_late, latency) = (Nanos::ZERO, Nanos::from_millis(2));
    scene.inbox.push(ModelMessage::Done { plan, start_late, latency, failed: Vec::new() });
    scene.turn();
    let executed = members.each_ref().map(|member| member.counts.executed.load(Ordering::Relaxed));
    assert_eq!(executed, [1, 2]);
}
