//! What was recorded comes out again, and whatever else does not is found.

use std::sync::Arc;

use proptest::prelude::*;
use symphony_scheduler::rivals::{Clockwork, ClockworkSettings};
use symphony_scheduler::{
    ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterPolicy, Delays, DropRule, EarlyStart, GpuChoice,
    GpuRanker, GrantWhy, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Policy, PolicyRegistry,
    PoolControl, PoolInput, PoolSignal, RankAction, RankInput, ReadyOrder, Request, TargetShare, Trigger,
};
use symphony_tape::{Chunk, Ending, Replay, Tape, TapeEnd, TapeError, TapeHeader, TapeOrigin, replay, replay_among};
use symphony_types::{
    BootId, DropReason, FamilyProfile, FrontendId, GpuClass, GpuId, Invariant, LatencyProfile, ModelId, Nanos,
    RequestId, RequestValue, Time,
};

/// A model and a ranker that exchange messages at once, and are recorded on one tape.
struct Scene {
    queue: ModelQueue,
    ranker: GpuRanker,
    pressure: PoolControl,
    chunks: Vec<Chunk>,
    now: Time,
    sequence: u64,
}

const MODEL: u32 = 3;
const RANKER: u32 = 0;
const POOL: u32 = 1;
const GPUS: u32 = 2;
const CHUNK_BYTES: usize = 400;
/// Names, and one with no default kept.
const POLICIES: [Policy; 6] = [
    Policy::SYMPHONY,
    Policy::AUTO,
    Policy::EAGER,
    Policy::CLIPPER,
    Policy::timeout(Nanos::new(9)),
    Policy {
        trigger: Trigger::BetaLambda,
        drop: DropRule::Window(TargetShare::THREE_QUARTERS),
        ready_order: ReadyOrder::Deadline,
        gpu_choice: GpuChoice::EarliestFree,
        ..Policy::AUTO
    },
];

fn config(policy: Policy) -> ModelQueueConfig {
    ModelQueueConfig {
        profiles: LatencyProfile::from_line(1.0, 5.0, 16).unwrap().into(),
        slo: Nanos::from_millis(30),
        policy,
        delays: Delays { control: Nanos::from_micros(100), guard: Nanos::from_micros(20), ..Delays::default() },
        requests_max: 8,
    }
}

/// The objects of a scene, in a chunk of their own.
fn introduction(config: &ModelQueueConfig) -> Chunk {
    let mut chunk = Chunk::with_capacity(CHUNK_BYTES);
    chunk.model(MODEL, ModelId::new(7), "m", 0, config);
    chunk.ranker(RANKER, 1, GPUS);
    chunk.pool(POOL);
    chunk
}

fn header() -> TapeHeader {
    TapeHeader { origin: TapeOrigin { boot: BootId::new(u64::MAX), ..TapeOrigin::default() }, worker: "decide".into() }
}

fn id(sequence: u64) -> RequestId {
    RequestId { frontend: FrontendId::new(1), boot: BootId::new(0xfeed_5eed_dead_beef), sequence }
}

impl Scene {
    fn new(policy: Policy) -> Self {
        let queue = ModelQueue::new(config(policy));
        let ranker = GpuRanker::new(1, GPUS);
        let mut scene = Self {
            queue,
            ranker,
            pressure: PoolControl::default(),
            chunks: vec![introduction(&config(policy)), Chunk::with_capacity(0)],
            now: Time::from_nanos(1_000),
            sequence: 0,
        };
        for gpu in 0..GPUS {
            scene.rank(RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at: Time::ZERO, report_due: false });
        }
        scene
    }

    fn chunk(&mut self) -> &mut Chunk {
        if self.chunks.last().is_none_or(|chunk| chunk.len() > CHUNK_BYTES) {
            self.chunks.push(Chunk::with_capacity(CHUNK_BYTES));
        }
        self.chunks.last_mut().unwrap()
    }

    fn model(&mut self, input: ModelInput) {
        let (mut actions, now) = (ModelActions::default(), self.now);
        self.queue.step(now, input, &mut actions);
        self.chunk().model_step(MODEL, now, &input, &actions);
        for action in actions.list {
            match action {
                ModelAction::Offer { answered, class, candidate } => {
                    self.rank(RankInput::Offer { model: 0, answered, class, candidate });
                }
                ModelAction::Release { gpu, free_at } => {
                    self.rank(RankInput::Release { model: 0, gpu, free_at, report_due: false })
                }
                _ => {}
            }
        }
    }

    fn rank(&mut self, input: RankInput) {
        let (mut actions, now) = (Vec::new(), self.now);
        self.ranker.step(now, input, &mut actions);
        self.chunk().rank_step(RANKER, now, &input, &actions);
        for action in actions {
            if let RankAction::Grant { gpu, class, free_at, why, .. } = action {
                self.model(ModelInput::Grant { gpu, class, free_at, why });
            }
        }
    }

    /// Passes the queue's account on, and the signal that comes of it back.
    fn account(&mut self) {
        let (gpus_idle, gpus) = (self.ranker.gpus_idle(), self.ranker.gpus());
        let input = PoolInput { account: self.queue.take_account(), gpus_idle, gpus, consolidate: true };
        let (now, signal) = (self.now, self.pressure.step(self.now, input));
        self.chunk().pool_step(POOL, now, &input, signal);
        if let Some(word) = signal {
            self.model(ModelInput::Pool(word));
        }
    }

    /// One random event, `after_us` later.
    fn happen(&mut self, what: u8, after_us: u64) {
        self.now += Nanos::from_micros(after_us);
        match what % 8 {
            0 => {
                self.model(ModelInput::CancelWithNext(id(self.sequence.saturating_sub(3))));
                self.model(ModelInput::Cancel(id(self.sequence)));
            }
            1 => {
                let (start_late, predicted) = (Nanos::from_micros(after_us), Nanos::from_millis(6));
                self.model(ModelInput::Done { start_late, latency: predicted + start_late, predicted });
            }
            3 if what > 200 => self.account(),
            3 if what > 150 => {
                let early_start = EarlyStart::from_millionths(if what % 16 == 3 { 0 } else { after_us as u32 });
                self.model(ModelInput::Pool(PoolSignal { early_start, ..PoolSignal::NONE }));
            }
            3 => self.rank(RankInput::Wake),
            2 if what > 200 => {
                let deadline = self.now + Nanos::from_millis(20);
                let weight = symphony_types::RequestValue::ONE;
                let back = Request { id: id(self.sequence), deadline, items: 1, weight, variant: 0 };
                self.model(ModelInput::ReturnWithNext(back));
                self.model(ModelInput::Return(back));
            }
            2 => self.model(ModelInput::Wake),
            _ => {
                self.sequence += 1;
                let deadline = self.now + Nanos::from_millis(10 + u64::from(what) % 30);
                let request = Request {
                    id: id(self.sequence),
                    deadline,
                    items: 1 + u32::from(what) / 100,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                };
                self.model(ModelInput::Arrive(request));
            }
        }
    }

    fn busy(policy: Policy) -> Self {
        let mut scene = Self::new(policy);
        for step in 0..2_000_u64 {
            scene.happen((step * 7919 % 251) as u8, step * 31 % 2_000);
        }
        scene.now += Nanos::from_millis(1_000);
        scene.model(ModelInput::Wake);
        scene
    }

    fn tape(mut self, end: Option<TapeEnd>) -> Vec<u8> {
        if let Some(end) = end {
            self.chunk().end(end);
        }
        let mut bytes = header().to_bytes();
        for chunk in &mut self.chunks {
            bytes.extend_from_slice(chunk.seal());
        }
        bytes
    }
}

fn replayed(bytes: &[u8]) -> Result<Replay, TapeError> {
    replay(&Tape::open(bytes)?)
}

#[test]
fn every_policy_decides_the_same_again_and_the_summary_says_what() {
    for policy in POLICIES {
        let bytes = Scene::busy(policy).tape(Some(TapeEnd::Stopped));
        let tape = Tape::open(&bytes).unwrap();
        assert_eq!(tape.header(), &header());
        let Replay { summary, difference } = replay(&tape).unwrap();
        assert_eq!(difference, None, "{policy:?}");
        assert_eq!(summary.ending, Ending::Recorded(TapeEnd::Stopped));
        assert!(summary.batches > 100 && summary.grants >= summary.batches, "{policy:?}: {summary:?}");
        assert!(summary.batched_items >= summary.batches && summary.arrivals > 900, "{policy:?}: {summary:?}");
        assert_eq!((summary.models, summary.steps + 4), (1, summary.records));
        assert!(summary.duration() > Nanos::from_millis(1_000));
    }
}

#[test]
fn drops_are_counted_by_reason() {
    let mut scene = Scene::new(Policy::SYMPHONY);
    for sequence in 0..3 {
        let request = Request {
            id: id(sequence),
            deadline: scene.now + Nanos::from_millis(1),
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            variant: 0,
        };
        scene.model(ModelInput::Arrive(request));
    }
    let summary = replayed(&scene.tape(None)).unwrap().summary;
    assert_eq!(summary.drops, [(DropReason::SloUnreachable, 3)].into());
    assert_eq!((summary.dropped(), summary.ending), (3, Ending::Cut));
}

#[test]
fn a_byte_that_changed_on_the_way_is_damage_wherever_it_is() {
    let bytes = Scene::busy(Policy::AUTO).tape(Some(TapeEnd::Stopped));
    let whole = replayed(&bytes).unwrap();
    for at in (0..bytes.len()).step_by(4_099).chain(0..40) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        // A changed length may exceed the tape: then the tape seems cut there, never whole. Bytes 6 and 7 are reserved.
        let seems_fine = replayed(&changed).is_ok_and(|replay| replay == whole);
        assert_eq!(seems_fine, (6..8).contains(&at), "byte {at}");
    }
}

#[test]
fn another_action_than_the_recorded_one_is_the_first_difference() {
    let mut scene = Scene::new(Policy::EAGER);
    let now = scene.now;
    let recorded = ModelActions { list: vec![ModelAction::WakeAt(Time::from_nanos(77))], planned: vec![] };
    scene.chunk().model_step(MODEL, now, &ModelInput::Wake, &recorded);
    scene.happen(9, 9);
    let Replay { summary, difference } = replayed(&scene.tape(None)).unwrap();
    let difference = difference.expect("nothing waits, so nobody is woken");
    assert_eq!((difference.record, summary.records, difference.now), (5, 5, now));
    assert_eq!(difference.object, "the queue of model m7 (object 3)");
    assert_eq!(difference.input, "Wake");
    assert!(difference.expected.contains("WakeAt(Time(77))"), "{difference}");
    assert!(difference.got.contains("Offer { answered: 0, class: GpuClass(0), candidate: None }"), "{difference}");
}

#[test]
fn a_model_introduced_with_another_delay_decides_differently() {
    let other = |change: fn(&mut ModelQueueConfig)| {
        let (mut scene, mut config) = (Scene::busy(Policy::SYMPHONY), config(Policy::SYMPHONY));
        change(&mut config);
        scene.chunks[0] = introduction(&config);
        replayed(&scene.tape(None)).unwrap().difference
    };
    assert_eq!(other(|_| {}), None);
    assert!(other(|config| config.delays.control += Nanos::new(1)).is_some());
    assert!(other(|config| config.delays.guard += Nanos::new(1)).is_some());
    assert!(other(|config| config.slo += Nanos::from_millis(50)).is_some());
    assert!(other(|config| config.policy = Policy::EAGER).is_some());
    assert!(other(|config| config.policy.ready_order = ReadyOrder::Start).is_some());
    assert!(other(|config| config.policy.gpu_choice = GpuChoice::EarliestFree).is_some());
}

#[test]
fn a_tape_that_breaks_off_is_replayed_as_far_as_it_goes() {
    let bytes = Scene::busy(Policy::SYMPHONY).tape(Some(TapeEnd::Full));
    let whole = replayed(&bytes).unwrap().summary;
    assert_eq!(whole.ending, Ending::Recorded(TapeEnd::Full));
    let cut = replayed(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((cut.difference, cut.summary.ending), (None, Ending::Cut));
    assert!(cut.summary.records < whole.records && cut.summary.records > 0);
    let begin = header().to_bytes().len();
    assert_eq!(replayed(&bytes[..begin]).unwrap().summary.records, 0);
    assert!(matches!(replayed(&bytes[..begin - 1]), Err(TapeError::NoHeader { .. })));
}

#[test]
fn what_is_no_tape_of_this_release_is_refused() {
    assert!(matches!(replayed(b""), Err(TapeError::NoTape { bytes: 0 })));
    assert!(matches!(replayed(b"a log file, perhaps"), Err(TapeError::NoTape { .. })));
    let mut newer = header().to_bytes();
    newer[4] += 1;
    assert!(replayed(&newer).unwrap_err().to_string().contains("replay it with the release that recorded it"));
}

#[test]
fn steps_of_objects_that_nobody_introduced_are_refused() {
    let tape = |records: fn(&mut Chunk)| {
        let (mut bytes, mut chunk) = (header().to_bytes(), Chunk::with_capacity(0));
        records(&mut chunk);
        bytes.extend_from_slice(chunk.seal());
        replayed(&bytes).unwrap_err()
    };
    let none = tape(|chunk| chunk.model_step(0, Time::ZERO, &ModelInput::Wake, &ModelActions::default()));
    assert!(matches!(none, TapeError::UnknownObject { object: 0, .. }));
    let gone = tape(|chunk| {
        chunk.model(0, ModelId::new(7), "m", 0, &config(Policy::EAGER));
        chunk.gone(0);
        chunk.model_step(0, Time::ZERO, &ModelInput::Wake, &ModelActions::default());
    });
    assert!(matches!(gone, TapeError::UnknownObject { object: 0, .. }));
    let other = tape(|chunk| {
        chunk.model(0, ModelId::new(7), "m", 0, &config(Policy::EAGER));
        chunk.rank_step(0, Time::ZERO, &RankInput::Wake, &[]);
    });
    assert!(matches!(other, TapeError::UnknownObject { object: 0, .. }));
    let after = tape(|chunk| {
        chunk.end(TapeEnd::Stopped);
        chunk.gone(0);
    });
    assert!(matches!(after, TapeError::AfterEnd { .. }));
    let second = tape(|chunk| {
        chunk.ranker(0, 1, 1);
        chunk.ranker(1, 1, 1);
    });
    assert!(matches!(second, TapeError::SecondRanker { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_is_replayed(happens: Vec<(u8, u16)>, policy in 0..POLICIES.len()) {
        let mut scene = Scene::new(POLICIES[policy]);
        for (what, after_us) in happens {
            scene.happen(what, after_us.into());
        }
        let replay = replayed(&scene.tape(Some(TapeEnd::Overflow))).unwrap();
        prop_assert_eq!(replay.difference, None);
        prop_assert_eq!(replay.summary.ending, Ending::Recorded(TapeEnd::Overflow));
    }

    #[test]
    fn no_bytes_bring_the_reader_down(records: Vec<u8>) {
        let mut bytes = header().to_bytes();
        bytes.extend_from_slice(&(records.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&records).to_le_bytes());
        bytes.extend_from_slice(&records);
        let _ = replayed(&bytes);
        let _ = replayed(&records);
    }
}

/// Plans each request as it comes, whether its GPU is busy or not.
struct Overlapping(Option<Arc<ClusterModel>>);

impl ClusterPolicy for Overlapping {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { known, .. } => self.0 = Some(known),
            ClusterInput::Arrive { model, request } => {
                let known = self.0.as_ref().unwrap();
                let start = known.start(now, Time::ZERO, request.items);
                let planned = out.plan(model, known, (GpuId::new(0), GpuClass::FIRST), start, [request]);
                assert!(planned.is_some());
            }
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        0
    }
}

/// Records a policy of the program's own through a few steps.
fn of_a_cluster(policy: &str) -> (Vec<u8>, PolicyRegistry) {
    let policies = PolicyRegistry::new().with("copy", |facts, options| {
        options.only(&[])?;
        let early = Nanos::from_millis(5);
        Ok(Box::new(Clockwork::new(facts, ClockworkSettings { commit: early, early })))
    });
    let policies = policies.with("overlapping", |_, _| Ok(Box::new(Overlapping(None))));
    let facts = ClusterFacts::default();
    let mut live = policies.build(&policies.parse(policy).unwrap(), &facts).unwrap();
    let mut chunk = Chunk::with_capacity(CHUNK_BYTES);
    chunk.cluster(0, policy, &facts);
    let known = ClusterModel::new(LatencyProfile::from_line(1.0, 5.0, 16).unwrap(), Nanos::from_millis(30));
    let delays = Delays { control: Nanos::from_micros(100), ..Delays::default() };
    let known = Arc::new(known.with_rate(12.5).with_delays(delays));
    let (gpu, model, start) = (GpuId::new(0), 0, Time::from_nanos(100_000));
    let request = |sequence| Request {
        id: id(sequence),
        deadline: Time::from_nanos(40_000_000 + sequence),
        items: 1,
        weight: symphony_types::RequestValue::ONE,
        variant: 0,
    };
    let inputs = [
        ClusterInput::Model { model, known },
        ClusterInput::GpuUp { gpu, class: symphony_types::GpuClass::FIRST, free_at: Time::ZERO },
        ClusterInput::Arrive { model, request: request(1) },
        ClusterInput::Arrive { model, request: request(2) },
        ClusterInput::Arrive { model, request: request(3) },
        ClusterInput::Cancel { model, request: request(2) },
        ClusterInput::Wake,
        ClusterInput::Done { gpu, model, start, start_late: Nanos::ZERO, latency: Nanos::from_millis(6) },
        ClusterInput::Refused { gpu, model, start },
        ClusterInput::Return { model, request: request(3) },
        ClusterInput::GpuDown(gpu),
        ClusterInput::ModelGone(model),
    ];
    let mut orders = ClusterActions::default();
    for (at, input) in (0..).zip(inputs) {
        let now = Time::from_nanos(1_000_000 * at);
        orders.clear();
        live.step(now, input.clone(), &mut orders).unwrap();
        chunk.cluster_step(0, now, &input, &orders);
    }
    chunk.end(TapeEnd::Stopped);
    let mut bytes = header().to_bytes();
    bytes.extend_from_slice(chunk.seal());
    (bytes, policies)
}

#[test]
fn a_policy_of_a_cluster_decides_again_what_it_decided_and_is_refused_where_it_is_unknown() {
    for policy in ["copy", "nexus", "shepherd", "{ name = \"clockwork\", commit_ms = 9 }"] {
        let (bytes, policies) = of_a_cluster(policy);
        let Replay { summary, difference } = replay_among(&Tape::open(&bytes).unwrap(), &policies).unwrap();
        assert_eq!(difference, None, "{policy}");
        assert_eq!((summary.steps, summary.arrivals, summary.ending), (12, 3, Ending::Recorded(TapeEnd::Stopped)));
        assert!(summary.batches > 0, "{policy}");
    }
    let (bytes, _) = of_a_cluster("copy");
    let error = replay(&Tape::open(&bytes).unwrap()).unwrap_err();
    assert!(matches!(&error, TapeError::Policy { problem, .. } if problem.contains("got \"copy\"")), "{error}");
    let other = PolicyRegistry::new().with("copy", |facts, _| {
        Ok(Box::new(symphony_scheduler::rivals::Nexus::new(
            facts,
            symphony_scheduler::rivals::NexusSettings::default(),
        )))
    });
    let replayed = replay_among(&Tape::open(&bytes).unwrap(), &other).unwrap();
    let difference = replayed.difference.expect("another policy decides otherwise");
    assert!(difference.object.contains("policy copy"), "{difference}");
}

#[test]
fn a_rule_that_a_policy_broke_is_broken_again() {
    let (bytes, policies) = of_a_cluster("overlapping");
    let Replay { summary, difference } = replay_among(&Tape::open(&bytes).unwrap(), &policies).unwrap();
    assert_eq!((difference, summary.batches), (None, 3));
    let violation = summary.violation.expect("the second plan begins while the first one runs");
    assert_eq!(violation.invariant, Invariant::S1, "{violation}");
}

/// A tape with a plan of three requests of two models on one trunk, recorded with the first family and introduced with
/// the second.
fn family_tape(recorded: &FamilyProfile, introduced: &FamilyProfile) -> Vec<u8> {
    let config = ModelQueueConfig { profiles: recorded.worst().clone().into(), ..config(Policy::EAGER) };
    let mut chunk = Chunk::with_capacity(CHUNK_BYTES);
    let models = [(ModelId::new(7), "cat"), (ModelId::new(9), "dog")];
    chunk.family(MODEL, &models, 0, &config, &[(GpuClass::FIRST, introduced.clone())]);
    let mut queue = ModelQueue::new(config);
    queue.name_variants(&[7, 9]);
    queue.share_trunk(GpuClass::FIRST, recorded.clone());
    let (now, mut actions) = (Time::from_nanos(1_000), ModelActions::default());
    let deadline = now + Nanos::from_millis(30);
    let arrive = |(sequence, variant)| {
        let (id, weight) = (id(sequence), RequestValue::ONE);
        ModelInput::Arrive(Request { id, deadline, items: 1, weight, variant })
    };
    let grant =
        ModelInput::Grant { gpu: GpuId::new(0), class: GpuClass::FIRST, free_at: now, why: GrantWhy::default() };
    for input in [(1, 7), (2, 9), (3, 9)].map(arrive).into_iter().chain([grant]) {
        actions.clear();
        queue.step(now, input, &mut actions);
        chunk.model_step(MODEL, now, &input, &actions);
    }
    let plan = actions.list.iter().find_map(|action| match action {
        ModelAction::Execute(plan) => Some(plan.end.since(plan.start)),
        _ => None,
    });
    let exact = Nanos::from_millis_f64(7.0 + 1.5 + 2.5);
    assert_eq!(plan, Some(exact), "a row of the first and two of the second");
    let mut bytes = header().to_bytes();
    bytes.extend_from_slice(chunk.seal());
    bytes
}

#[test]
fn a_queue_of_models_that_share_a_trunk_is_replayed_with_what_their_rows_take() {
    let line = |alpha_ms, beta_ms| LatencyProfile::from_line(alpha_ms, beta_ms, 16).unwrap();
    let family = FamilyProfile::new(line(1.0, 4.0), &[line(0.5, 1.0), line(0.25, 2.0)]).unwrap();
    let bytes = family_tape(&family, &family);
    let replayed = replay(&Tape::open(&bytes).unwrap()).unwrap();
    assert_eq!((replayed.difference, replayed.summary.models), (None, 2));
    // Of the same worst composition, but not of the same parts.
    let other = FamilyProfile::new(line(1.0, 4.0), &[line(0.25, 2.0), line(0.5, 1.0)]).unwrap();
    let bytes = family_tape(&family, &other);
    let replayed = replay(&Tape::open(&bytes).unwrap()).unwrap();
    assert!(replayed.difference.is_some_and(|found| found.record == 4), "the plan takes another time");
}
