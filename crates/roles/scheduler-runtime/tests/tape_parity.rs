//! The guard against drift (docs/adr/0009-tapes.md): the decisions of live decision threads under load, with models and
//! GPUs that come and go, are repeated byte for byte by fresh objects with the same inputs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::RequestHeader;
use symphony_protocol::execute::Execute;
use symphony_scheduler::{
    ClusterFacts, DataDelay, DelaySource, Delays, DropRule, GpuChoice, ModelInput, ModelQueueConfig, Policy,
    PolicyRegistry, Pressure, ReadyOrder, Shed, TargetShare,
};
use symphony_scheduler_runtime::{DecisionConfig, DecisionThreads, InProcess, Orders, Tapes};
use symphony_tape::{Ending, Record, RecordedLoad, Replay, Tape, TapeEnd, TapeOrigin, replay};
use symphony_types::{DropReason, GpuClass, LatencyProfile, Nanos, Time};

/// Each part of a load lasts until this many requests were taken in and this many plans made, however busy the machine
/// is.
const REQUESTS: u64 = 400;
const PLANS: u64 = 20;
/// Where models shed, a load lasts until this many requests were shed: the pressure is computed once in 50 ms.
const SHED_REQUESTS: u64 = 20;
/// Time limit for that.
const SOON: Duration = Duration::from_secs(30);
/// Requests that arrive together, for each model, every [`EVERY`].
const TOGETHER: u64 = 4;
const EVERY: Duration = Duration::from_micros(500);
/// The models at the beginning; one more joins, and one of these leaves.
const MODELS: u32 = 3;
const GPUS: u32 = 4;
const TAPE_BYTES: u64 = 64 << 20;

fn config(policy: Policy) -> ModelQueueConfig {
    ModelQueueConfig {
        profiles: LatencyProfile::from_line(0.2, 1.0, 32).unwrap().into(),
        slo: Nanos::from_millis(25),
        policy,
        delays: Delays {
            control: Nanos::from_micros(200),
            reply: Nanos::from_micros(100),
            guard: Nanos::from_micros(300),
            ..Delays::default()
        },
        requests_max: 256,
    }
}

/// The sub-cluster, and the GPUs that the test plays.
struct Load {
    subcluster: InProcess,
    orders: Orders,
    running: Vec<(Time, Time, Execute)>,
    /// When each GPU has finished all of its plans.
    free_at: BTreeMap<u32, Time>,
    sequence: u64,
}

impl Load {
    fn announce(&mut self, models: std::ops::Range<u32>) {
        let threads = self.subcluster.model_threads();
        let received = self.subcluster.clock().now();
        for model in models {
            let header = |sequence| RequestHeader {
                sequence,
                model,
                items: 1 + u32::from(sequence.is_multiple_of(16)),
                budget: Nanos::from_millis(25).get(),
                attempt: 1,
                weight: 1000,
            };
            let requests = (self.sequence..self.sequence + TOGETHER).map(header).collect();
            self.sequence += TOGETHER;
            // A full inbox is part of a load, too.
            let _ = self.subcluster.announce(model as usize % threads, received, requests);
        }
    }

    /// GPUs take the time of the profile and a little more, one plan after the other.
    fn run(&mut self) {
        let now = self.subcluster.clock().now();
        while let Some(plan) = self.orders.plan() {
            let free_at = self.free_at.entry(plan.gpu.get()).or_insert(Time::ZERO);
            let planned = now + Nanos::new(plan.start_in);
            let (start, latency) = (planned.max(*free_at), Nanos::new(plan.latency + plan.latency / 50));
            *free_at = start + latency;
            self.running.push((start, planned, plan));
        }
        let done = |(start, _, plan): &(Time, Time, Execute)| *start + Nanos::new(plan.latency) <= now;
        for (start, planned, plan) in self.running.extract_if(.., |running| done(running)) {
            let free_at = self.free_at[&plan.gpu.get()];
            self.subcluster.done(&plan, start.since(planned), Nanos::new(plan.latency + plan.latency / 50), free_at);
        }
        self.orders.ended();
    }

    fn count(&self, name: &str) -> u64 {
        self.subcluster.counters().into_iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    fn go_on(&mut self, models: std::ops::Range<u32>) {
        let (requests, plans) = (self.count("requests") + REQUESTS, self.count("plans") + PLANS);
        self.go_on_until(models, |load| load.count("requests") >= requests && load.count("plans") >= plans);
    }

    fn go_on_until(&mut self, models: std::ops::Range<u32>, enough: impl Fn(&Self) -> bool) {
        let (begun, mut next) = (Instant::now(), Instant::now());
        while !enough(self) {
            assert_eq!(self.subcluster.policy_fault(), None);
            assert!(begun.elapsed() < SOON, "{:?}", self.subcluster.counters());
            if Instant::now() >= next {
                next += EVERY;
                self.announce(models.clone());
            }
            self.run();
            std::thread::yield_now();
        }
    }
}

/// A load in six parts, each more than the GPUs can do; where models shed, the first goes on until they do. Between
/// them a model joins, a GPU is lost, a model leaves while another GPU joins, and GPUs of another kind join while the
/// last of the first kind goes.
fn load(policy: Policy, threads: &Arc<DecisionThreads>, tapes: &Tapes) {
    load_on(policy, InProcess::on(threads, Some((tapes, TapeOrigin::default()))).unwrap());
}

fn load_on(policy: Policy, (mut subcluster, orders): (InProcess, Orders)) {
    for model in 0..MODELS {
        subcluster.add_model(model, config(policy));
    }
    for _ in 0..GPUS {
        subcluster.add_gpu(GpuClass::FIRST);
    }
    let mut load = Load { subcluster, orders, running: Vec::new(), free_at: BTreeMap::new(), sequence: 0 };
    load.go_on(0..MODELS);
    if policy.shed != Shed::None {
        load.go_on_until(0..MODELS, |load| load.count("shed_requests") >= SHED_REQUESTS);
    }
    load.subcluster.add_model(MODELS, config(policy));
    load.go_on(0..MODELS + 1);
    load.subcluster.remove_gpu(1);
    load.running.retain(|(_, _, plan)| plan.gpu.get() != 1);
    load.go_on(0..MODELS + 1);
    load.subcluster.remove_model(0);
    load.subcluster.add_gpu(GpuClass::FIRST);
    load.go_on(1..MODELS + 1);
    let slow = GpuClass::new(1).unwrap();
    for model in 1..=MODELS {
        load.subcluster.set_profile(model, slow, LatencyProfile::from_line(0.3, 2.0, 16).unwrap());
    }
    let data = DataDelay { fixed: Nanos::from_micros(700), source: DelaySource::Measured, ..DataDelay::default() };
    load.subcluster.set_data_delay(MODELS, data);
    load.subcluster.set_classes([GpuClass::FIRST, slow].into_iter().collect());
    let mut of_the_first = u32::MAX;
    for _ in 0..GPUS {
        of_the_first = of_the_first.min(load.subcluster.add_gpu(slow));
    }
    load.go_on(1..MODELS + 1);
    for gpu in 0..of_the_first {
        load.subcluster.remove_gpu(gpu);
        load.running.retain(|(_, _, plan)| plan.gpu.get() != gpu);
    }
    load.subcluster.set_classes([slow].into_iter().collect());
    load.go_on(1..MODELS + 1);
}

/// The tapes of a folder, by worker.
fn tapes_in(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| {
        let bytes = std::fs::read(path).unwrap();
        (Tape::open(&bytes).unwrap().header().worker.clone(), bytes)
    });
    named.collect()
}

fn replayed(bytes: &[u8]) -> Replay {
    replay(&Tape::open(bytes).unwrap()).unwrap()
}

/// How often a queue got a pressure.
fn pressures(bytes: &[u8]) -> usize {
    let tape = Tape::open(bytes).unwrap();
    let signals = tape.records().map(|record| record.unwrap().1).filter(|record| {
        matches!(record, Record::ModelStep { input: ModelInput::Pool(word), .. } if word.pressure != Pressure::NONE)
    });
    signals.count()
}

fn threads(model_threads: u32) -> Arc<DecisionThreads> {
    Arc::new(DecisionThreads::new(DecisionConfig { model_threads, shared_threads: 1, ..DecisionConfig::default() }))
}

/// Records a load and returns its tapes.
async fn recorded(policy: Policy, threads: Arc<DecisionThreads>, bytes_max: u64) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let tapes = Tapes::in_dir(&dir.path().join("made/for/it"), bytes_max).unwrap();
    load(policy, &threads, &tapes);
    drop(threads);
    tapes.written().await;
    tapes_in(&dir.path().join("made/for/it"))
}

async fn decides_the_same_again(policy: Policy) {
    for (model_threads, workers) in [(0, &["model-0", "rank"][..]), (2, &["model-0", "model-1", "rank"])] {
        let tapes = recorded(policy, threads(model_threads), TAPE_BYTES).await;
        check(policy, workers, &tapes);
    }
}

/// The tapes are of these workers, whole, and say what a load is made of; every decision on them is made again.
fn check(policy: Policy, workers: &[&str], tapes: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(tapes.keys().map(String::as_str).collect::<Vec<_>>(), workers);
    let (mut models, mut arrivals, mut batches, mut grants) = (0, 0, 0, 0);
    let (mut pressed, mut shed) = (0, 0);
    for (worker, bytes) in tapes {
        let Replay { summary, difference } = replayed(bytes);
        assert_eq!(difference, None, "{worker}");
        assert_eq!(summary.ending, Ending::Recorded(TapeEnd::Stopped), "{worker}: {summary:?}");
        (models, arrivals) = (models + summary.models, arrivals + summary.arrivals);
        (batches, grants) = (batches + summary.batches, grants + summary.grants);
        pressed += pressures(bytes);
        shed += summary.drops.get(&DropReason::Shed).copied().unwrap_or_default();
    }
    assert_eq!(models, u64::from(MODELS) + 1);
    // A model that left failed what it had not decided about.
    assert!(arrivals >= 3 * REQUESTS && batches >= 6 * PLANS && grants >= batches, "{arrivals} {batches} {grants}");
    if policy.shed == Shed::None {
        assert_eq!((pressed, shed), (0, 0));
    } else {
        assert!(pressed > 0 && shed >= SHED_REQUESTS, "{pressed} pressures, {shed} requests shed");
    }
}

/// Policies that decide for the whole sub-cluster keep every rule under load, and decide the same again.
#[tokio::test]
async fn policies_for_the_whole_sub_cluster_decide_the_same_again() {
    let learns = "{ name = 'kairos', learn = true }";
    for text in ["clockwork", "nexus", "shepherd", "kairos", learns, "ribbon", "drs", "clkwrk"] {
        let dir = tempfile::tempdir().unwrap();
        let tapes = Tapes::in_dir(dir.path(), TAPE_BYTES).unwrap();
        let registry = PolicyRegistry::new();
        let policy = registry.build(&registry.parse(text).unwrap(), &ClusterFacts::default()).unwrap();
        let config = DecisionConfig { shared_threads: 1, ..DecisionConfig::default() };
        load_on(Policy::EAGER, InProcess::with_policy(&config, text, policy, Some(&tapes)).unwrap());
        tapes.written().await;
        let tapes = tapes_in(dir.path());
        assert_eq!(tapes.keys().map(String::as_str).collect::<Vec<_>>(), ["policy"]);
        let Replay { summary, difference } = replayed(&tapes["policy"]);
        assert_eq!((difference, &summary.violation), (None, &None), "{text}");
        assert_eq!(summary.ending, Ending::Recorded(TapeEnd::Stopped), "{text}: {summary:?}");
        assert!(summary.arrivals >= 3 * REQUESTS && summary.batches >= 6 * PLANS, "{text}: {summary:?}");
        assert_eq!(summary.models, u64::from(MODELS) + 1);

        // Other policies can be tried on its load.
        let mut load = RecordedLoad::default();
        load.add(&Tape::open(&tapes["policy"]).unwrap()).unwrap();
        let arrived: usize = load.models().values().map(|model| model.requests.len()).sum();
        assert_eq!(arrived as u64, summary.arrivals, "{text}");
        assert_eq!(load.models().values().next().unwrap().name, "model-0");
        assert!(load.gpus().map(|(_, gpus)| gpus).sum::<u32>() > GPUS, "{text}");
    }
}

/// Leads that come to these threads, stay a moment under load, and go: two at least, and more until `stop`.
fn come_and_go(threads: &Arc<DecisionThreads>, stop: &AtomicBool) {
    let mut led = 0;
    while led < 2 || !stop.load(Ordering::Relaxed) {
        let (mut subcluster, orders) = InProcess::on(threads, None).unwrap();
        subcluster.add_model(0, config(Policy::EAGER));
        subcluster.add_gpu(GpuClass::FIRST);
        let mut load = Load { subcluster, orders, running: Vec::new(), free_at: BTreeMap::new(), sequence: 0 };
        load.go_on(0..1);
        led += 1;
    }
}

#[tokio::test]
async fn a_lead_beside_others_that_come_and_go_decides_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let tapes = Tapes::in_dir(dir.path(), TAPE_BYTES).unwrap();
    let (threads, stop) = (threads(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| come_and_go(&threads, &stop));
        load(Policy::EAGER, &threads, &tapes);
        stop.store(true, Ordering::Relaxed);
    });
    drop(threads);
    tapes.written().await;
    check(Policy::EAGER, &["model-0", "rank"], &tapes_in(dir.path()));
}

#[tokio::test]
async fn symphony_decides_the_same_again() {
    decides_the_same_again(Policy::SYMPHONY).await;
}

#[tokio::test]
async fn auto_decides_the_same_again() {
    decides_the_same_again(Policy::AUTO).await;
}

#[tokio::test]
async fn eager_decides_the_same_again() {
    decides_the_same_again(Policy::EAGER).await;
}

#[tokio::test]
async fn a_policy_with_options_decides_the_same_again() {
    let drop = DropRule::Window(TargetShare::from_percent(50).unwrap());
    let (ready_order, gpu_choice) = (ReadyOrder::Deadline, GpuChoice::EarliestFree);
    decides_the_same_again(Policy { drop, ready_order, gpu_choice, ..Policy::EAGER }).await;
}

/// Offset of the first chunk of records, and the length of its payload.
fn first_chunk(bytes: &[u8]) -> (usize, usize) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let begin = 8 + 8 + word(8);
    (begin, word(begin))
}

/// Writes the right checksum over the first chunk of records.
fn mend(bytes: &mut [u8]) {
    let (begin, length) = first_chunk(bytes);
    let checksum = crc32c::crc32c(&bytes[begin + 8..begin + 8 + length]).to_le_bytes();
    bytes[begin + 4..begin + 8].copy_from_slice(&checksum);
}

#[tokio::test]
async fn a_changed_delay_or_action_is_found() {
    let tapes = recorded(Policy::SYMPHONY, threads(0), TAPE_BYTES).await;
    let tape = &tapes["model-0"];
    let (begin, length) = first_chunk(tape);
    let records = &tape[begin + 8..begin + 8 + length];

    // The first model is introduced with another control delay: these are 200 µs.
    let control = [0xc1, 0x9a, 0x0c];
    let at = records.windows(3).position(|bytes| bytes == control).unwrap();
    let mut delayed = tape.clone();
    delayed[begin + 8 + at] ^= 1;
    let damaged = replay(&Tape::open(&delayed).unwrap()).unwrap_err();
    assert!(damaged.to_string().contains("the tape was damaged"), "{damaged}");
    mend(&mut delayed);
    let difference = replayed(&delayed).difference.expect("1 ns of control delay moves every candidate");
    assert!(difference.object.contains("the queue of model"), "{difference}");
    assert_ne!(difference.expected, difference.got);

    // The last action of the first chunk is another one.
    let mut changed = tape.clone();
    changed[begin + 8 + length - 1] ^= 1;
    mend(&mut changed);
    let difference = replayed(&changed).difference.expect("an action that was never ordered");
    assert!(difference.offset < begin + 8 + length, "{difference}");
}

#[tokio::test]
async fn a_full_tape_ends_with_a_word_and_the_lead_goes_on() {
    let small = 20_000;
    let tapes = recorded(Policy::SYMPHONY, threads(0), small).await;
    let bytes = &tapes["model-0"];
    let Replay { summary, difference } = replayed(bytes);
    assert_eq!((difference, summary.ending), (None, Ending::Recorded(TapeEnd::Full)));
    // The word itself is the one record beyond the limit.
    assert!(bytes.len() as u64 <= small + 10 && summary.arrivals > 100, "{} {summary:?}", bytes.len());
}

#[tokio::test]
async fn a_tape_that_cannot_begin_is_counted_and_the_lead_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let tapes = Tapes::in_dir(&gone, TAPE_BYTES).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    let (subcluster, _orders) = InProcess::recorded(&DecisionConfig::default(), &tapes).unwrap();
    let cut = subcluster.counters().into_iter().find(|(name, _)| *name == "tapes_cut").unwrap().1;
    assert_eq!(cut, 2);
    tapes.written().await;
}
