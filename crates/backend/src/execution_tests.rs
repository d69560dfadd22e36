//! A backend's execution between a leader and owners that the test plays.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{
    BatchInputs, EmulatedExecutor, ExecuteError, ModelExecutor, OnnxExecutor, OnnxOptions, StagedExecutor,
    default_signature, item_checksum, load_runtime,
};
use symphony_executor_gpu::overlap::{DeviceError, FakeDevice, FakeFault, FakePace};
use symphony_executor_gpu::{Answers, StagedModel};
use symphony_net::{Net, Role};
use symphony_protocol::data::ResultBytes;
use symphony_protocol::execute::{Done, Execute, FromBackend, PlannedRequest, Refusal, SealedGpu, ToBackend};
use symphony_protocol::journal::Record;
use symphony_testkit::needed;
use symphony_transport::{
    LinkReceiver, PayloadDelay, PayloadTransport, Payloads, ResultToOwner, connect_link, link_over,
};
use symphony_types::{
    BackendId, BootId, FailReason, FrontendId, GpuId, LatencyProfile, ModelId, Nanos, NodeId, RequestId, Signature,
    SubclusterId, Token,
};
use symphony_zoo::Fault;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::execution::{DELAY_TOLD_EVERY, Execution, Identity, Input};
use crate::journal::Journal;
use crate::plan::LetGo;

const BOOT: BootId = BootId::new(5);
const GPU: GpuId = GpuId::new(9);
const TOKEN: Token = Token::new(11);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const MODEL: ModelId = ModelId::new(1);
/// Owners: one that answers, and one that never does.
const OWNER: FrontendId = FrontendId::new(1);
const SILENT: FrontendId = FrontendId::new(2);
/// Bytes of one item's input in the default signature.
const ITEM_BYTES: usize = 64;

/// Inputs by sequence number, and the results that came back.
struct Owners {
    inputs: Mutex<HashMap<u64, Bytes>>,
    results: mpsc::UnboundedSender<(FrontendId, ResultToOwner)>,
    delay: Mutex<Option<PayloadDelay>>,
}

impl PayloadTransport for Owners {
    async fn read(&self, frontend: FrontendId, _: BootId, sequences: Vec<u64>) -> Payloads {
        if frontend == SILENT {
            std::future::pending::<()>().await;
        }
        let inputs = self.inputs.lock().unwrap();
        sequences.iter().map(|sequence| inputs.get(sequence).cloned()).collect()
    }

    fn deliver(&self, frontend: FrontendId, _: BootId, results: Vec<ResultToOwner>) {
        for result in results {
            let _ = self.results.send((frontend, result));
        }
    }

    async fn finish(&self) {}

    fn delay(&self) -> Option<PayloadDelay> {
        *self.delay.lock().unwrap()
    }

    fn name(&self) -> &'static str {
        "in memory"
    }
}

struct Scene {
    inputs: mpsc::UnboundedSender<Input>,
    owners: Arc<Owners>,
    results: mpsc::UnboundedReceiver<(FrontendId, ResultToOwner)>,
    idle: watch::Receiver<bool>,
    connections: u64,
}

struct Leader {
    connection: u64,
    receiver: LinkReceiver<FromBackend>,
}

fn emulated() -> Box<dyn ModelExecutor> {
    let profile = LatencyProfile::from_line(1.0, 4.0, 8).unwrap();
    Box::new(EmulatedExecutor::new(profile, default_signature()))
}

fn request(frontend: FrontendId, sequence: u64, items: u32) -> PlannedRequest {
    PlannedRequest { id: RequestId { frontend, boot: BootId::new(1), sequence }, items }
}

fn plan(sequence: u64, start_in: Duration, requests: &[PlannedRequest]) -> Execute {
    Execute {
        gpu: GPU,
        token: TOKEN,
        backend_boot: BOOT,
        sequence,
        start_in: start_in.as_nanos() as u64,
        latency: 5_000_000,
        model: MODEL,
        requests: requests.to_vec(),
    }
}

impl Scene {
    fn new(executor: Box<dyn ModelExecutor>) -> Self {
        Self::with_journal(executor, None)
    }

    fn with_journal(executor: Box<dyn ModelExecutor>, journal: Option<Journal>) -> Self {
        let (inputs, inputs_out) = mpsc::unbounded_channel();
        let (results_in, results) = mpsc::unbounded_channel();
        let owners = Arc::new(Owners { inputs: Mutex::default(), results: results_in, delay: Mutex::default() });
        let identity = Identity {
            backend: BackendId::new(3),
            boot: BOOT,
            subcluster: SUBCLUSTER,
            gpus: vec![GPU],
            token: Token::new(10),
        };
        let links = Arc::clone(&owners);
        let execution =
            Execution::new(identity, 2, links, inputs_out, Arc::default(), Arc::default(), journal).unwrap();
        let idle = execution.idle();
        tokio::spawn(execution.run());
        inputs.send(Input::Loaded(MODEL, vec![executor])).ok().unwrap();
        Self { inputs, owners, results, idle, connections: 0 }
    }

    fn own(&self, sequence: u64, input: Bytes) {
        self.owners.inputs.lock().unwrap().insert(sequence, input);
    }

    /// A leader that has linked.
    async fn linked(&mut self) -> Leader {
        self.connections += 1;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (net, backend) = (Net::plaintext(), Role::Backend.into());
        let (link, accepted) =
            tokio::join!(connect_link::<ToBackend, FromBackend>(&net, &addr, &backend), listener.accept());
        let accepted = net.accept(accepted.unwrap().0, &[]).await.unwrap();
        let (sender, _) = link_over::<FromBackend, ToBackend>(accepted);
        self.inputs.send(Input::Connected(self.connections, sender)).ok().unwrap();
        let mut leader = Leader { connection: self.connections, receiver: link.unwrap().1 };
        assert!(matches!(leader.next().await, FromBackend::Welcome { boot: BOOT, .. }));
        leader
    }

    /// A leader that has sealed the GPU, and what it was told.
    async fn sealed(&mut self) -> (Leader, SealedGpu) {
        let mut leader = self.linked().await;
        self.say(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
        let FromBackend::Sealed { boot: BOOT, mut gpus, .. } = leader.next().await else { panic!("no seal") };
        assert_eq!((gpus.len(), gpus[0].promised), (1, TOKEN));
        (leader, gpus.remove(0))
    }

    fn say(&self, leader: &Leader, message: ToBackend) {
        self.inputs.send(Input::FromLeader(leader.connection, message)).ok().unwrap();
    }

    fn execute(&self, leader: &Leader, plan: Execute) {
        self.say(leader, ToBackend::Execute(plan));
    }

    async fn result(&mut self) -> (u64, Result<Bytes, FailReason>) {
        let (_, ResultToOwner { result, bytes }) = soon(self.results.recv()).await.unwrap();
        match result.outcome {
            ResultBytes::Answer(length) => {
                assert_eq!(length as usize, bytes.len());
                (result.sequence, Ok(bytes))
            }
            ResultBytes::Failed(reason) => (result.sequence, Err(reason)),
            ResultBytes::Shared => panic!("only a transport says so"),
        }
    }
}

impl Leader {
    async fn next(&mut self) -> FromBackend {
        soon(self.receiver.receive()).await.unwrap().message
    }

    async fn done(&mut self) -> Done {
        match self.next().await {
            FromBackend::Done(done) => done,
            other => panic!("{other:?} instead of a report"),
        }
    }

    async fn refusal(&mut self) -> (u64, Refusal) {
        match self.next().await {
            FromBackend::Refused { sequence, refusal, .. } => (sequence, refusal),
            other => panic!("{other:?} instead of a refusal"),
        }
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("what is waited for comes within a minute")
}

fn input(fill: u8, items: usize) -> Bytes {
    Bytes::from(vec![fill; ITEM_BYTES * items])
}

fn answer(fill: u8) -> Bytes {
    Bytes::copy_from_slice(&item_checksum([&[fill; ITEM_BYTES][..]]).to_le_bytes())
}

#[tokio::test]
async fn a_plan_runs_at_its_start_and_its_end_is_reported() {
    let mut scene = Scene::new(emulated());
    let (mut leader, sealed) = scene.sealed().await;
    assert_eq!((sealed.free_in, sealed.in_flight), (0, vec![]));
    scene.own(7, input(1, 1));
    let begin = Instant::now();
    scene.execute(&leader, plan(1, Duration::from_millis(30), &[request(OWNER, 7, 1)]));
    assert_eq!(scene.result().await, (7, Ok(answer(1))));
    // Start in 30 ms, ℓ(1) is 5 ms.
    assert!(begin.elapsed() >= Duration::from_millis(35), "{:?}", begin.elapsed());
    let done = leader.done().await;
    assert_eq!((done.sequence, done.token, done.free_in, done.failed), (1, TOKEN, 0, vec![]));
}

#[tokio::test]
async fn a_leader_hears_how_long_inputs_take_with_its_seal_and_when_that_has_changed() {
    let mut scene = Scene::new(emulated());
    let take = |scene: &Scene, micros| {
        let delay = PayloadDelay { fixed: Nanos::from_micros(micros), per_mib: Nanos::from_micros(900) };
        *scene.owners.delay.lock().unwrap() = Some(delay);
    };
    let told = |micros: u64| FromBackend::PayloadDelay { fixed: micros * 1000, per_mib: 900_000 };
    take(&scene, 200);
    let (mut leader, _) = scene.sealed().await;
    assert_eq!(leader.next().await, told(200));
    scene.own(7, input(1, 1));
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 7, 1)]));
    leader.done().await;
    // It was told just now, and hears of the change in a moment, although no other plan comes.
    take(&scene, 300);
    scene.execute(&leader, plan(2, Duration::ZERO, &[request(OWNER, 7, 1)]));
    assert_eq!(leader.done().await.sequence, 2);
    assert_eq!(leader.next().await, told(300));
    // Of what has not changed it never hears again.
    for sequence in 3..=12 {
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(OWNER, 7, 1)]));
        leader.done().await;
        tokio::time::sleep(DELAY_TOLD_EVERY / 8).await;
    }
    // A new leader knows at once.
    let (mut next, _) = scene.sealed().await;
    assert_eq!(next.next().await, told(300));
}

/// Takes its time to give its memory back.
#[derive(Debug)]
struct SlowToGo {
    executor: Box<dyn ModelExecutor>,
    freed: Arc<AtomicBool>,
}

impl ModelExecutor for SlowToGo {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.executor.run(batch, outputs)
    }

    fn signature(&self) -> &Signature {
        self.executor.signature()
    }

    fn batch_max(&self) -> u32 {
        self.executor.batch_max()
    }

    fn kind(&self) -> &'static str {
        self.executor.kind()
    }
}

impl Drop for SlowToGo {
    fn drop(&mut self) {
        // Time enough for a word that does not wait to arrive.
        std::thread::sleep(Duration::from_millis(50));
        self.freed.store(true, Ordering::Release);
    }
}

#[tokio::test]
async fn a_model_has_gone_when_its_plans_have_run_and_its_memory_is_free() {
    let freed = Arc::new(AtomicBool::new(false));
    let mut scene = Scene::new(Box::new(SlowToGo { executor: emulated(), freed: Arc::clone(&freed) }));
    let (leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.execute(&leader, plan(1, Duration::from_millis(30), &[request(OWNER, 7, 1)]));
    let (gone, mut has_gone) = mpsc::unbounded_channel();
    scene.inputs.send(Input::Unloaded(Arc::new(LetGo { model: MODEL, gone }))).ok().unwrap();
    assert_eq!(soon(has_gone.recv()).await, Some(MODEL));
    assert!(freed.load(Ordering::Acquire), "not before its memory is free");
    assert_eq!(scene.results.try_recv().unwrap().1.result.sequence, 7, "not before its plan has run");
}

#[tokio::test]
async fn a_request_without_a_whole_input_fails_alone() {
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    scene.own(1, input(1, 1));
    scene.own(3, input(3, 2));
    scene.own(4, Bytes::new());
    let requests = [
        request(OWNER, 1, 1),
        request(OWNER, 2, 1),        // has its outcome already
        request(OWNER, 3, 1),        // longer than one item
        request(OWNER, 4, 0),        // no item at all
        request(OWNER, 1, u32::MAX), // more items than there can be
        request(SILENT, 5, 1),       // its owner hangs
    ];
    scene.execute(&leader, plan(1, Duration::ZERO, &requests));
    let mut results = Vec::new();
    for _ in &requests {
        results.push(scene.result().await);
    }
    results.sort_by_key(|(sequence, result)| (*sequence, result.is_err()));
    let lost = Err(FailReason::PayloadLost);
    let expected = [(1, Ok(answer(1)))]
        .into_iter()
        .chain([1, 2, 3, 4, 5].map(|sequence| (sequence, lost.clone())))
        .collect::<Vec<_>>();
    assert_eq!(results, expected);
    assert_eq!(leader.done().await.failed.len(), 5);
}

#[tokio::test]
async fn what_does_not_match_the_promise_is_refused_with_the_reason() {
    let mut scene = Scene::new(emulated());
    let mut stranger = scene.linked().await;
    let now = |sequence| plan(sequence, Duration::ZERO, &[request(OWNER, 1, 1)]);
    scene.execute(&stranger, now(1));
    assert_eq!(stranger.refusal().await, (1, Refusal::NeedSeal { promised: Token::new(10) }));

    let (mut leader, _) = scene.sealed().await;
    scene.execute(&leader, Execute { gpu: GpuId::new(8), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::UnknownGpu));
    scene.execute(&leader, Execute { token: Token::new(10), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::Fenced { promised: TOKEN }));
    scene.execute(&leader, Execute { backend_boot: BootId::new(4), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::WrongBoot { boot: BOOT }));
    scene.execute(&leader, now(2));
    assert_eq!(leader.refusal().await, (2, Refusal::OutOfSequence { expected: 1 }));
    // A model that is not there takes its turn: the next plan is the second.
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::ModelNotReady));
    // Two may wait, the third may not.
    let later = |sequence| plan(sequence, Duration::from_millis(100), &[request(OWNER, 1, 1)]);
    for sequence in 2..5 {
        scene.execute(&leader, later(sequence));
    }
    assert_eq!(leader.refusal().await, (4, Refusal::QueueFull));
    assert_eq!((leader.done().await.sequence, leader.done().await.sequence), (2, 3));
    // A seal for another sub-cluster promises nothing.
    let other = SubclusterId::new(2);
    let seal = ToBackend::Seal { subcluster: other, gpus: vec![(GPU, Token::new(99))] };
    scene.say(&stranger, seal.clone());
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(4) });
    assert_eq!(leader.refusal().await, (4, Refusal::ModelNotReady), "the promise stands");
    // Once the backend is on its way there, its leader's token is the younger one.
    scene.inputs.send(Input::Homes(vec![SUBCLUSTER, other])).ok().unwrap();
    let successor = scene.linked().await;
    scene.say(&successor, seal);
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(5) });
    assert_eq!(leader.refusal().await, (5, Refusal::Fenced { promised: Token::new(99) }));
}

#[tokio::test]
async fn a_leader_that_links_again_is_told_of_plans_in_flight_and_not_of_their_ends() {
    let mut scene = Scene::new(emulated());
    let (former, _) = scene.sealed().await;
    // Its owner hangs, so it is in flight until well after its start, however slow this machine is.
    scene.execute(&former, plan(1, Duration::from_secs(1), &[request(SILENT, 7, 1)]));
    let (mut leader, sealed) = scene.sealed().await;
    assert_eq!(sealed.in_flight, [request(SILENT, 7, 1).id]);
    assert!(sealed.free_in > 0);
    // Both are number one, and only the second is this link's.
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 8, 1)]));
    assert_eq!((scene.result().await.0, scene.result().await.0), (7, 8));
    assert_eq!(leader.done().await.failed, [(request(OWNER, 8, 1).id, FailReason::PayloadLost)]);
}

#[tokio::test]
async fn the_end_of_a_plan_behind_a_late_one_is_told_from_now() {
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    // The first waits 100 ms for an owner that hangs; the second was planned for 5 ms from now, and will take 5.
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(SILENT, 1, 1)]));
    scene.execute(&leader, plan(2, Duration::from_millis(5), &[request(SILENT, 2, 1)]));
    let done = leader.done().await;
    assert_eq!((done.sequence, done.free_in), (1, 5_000_000));
}

/// Breaks on its first batch: panics, or answers with too little.
#[derive(Debug)]
struct Breaks {
    panics: bool,
    broken: bool,
    works: Box<dyn ModelExecutor>,
}

impl ModelExecutor for Breaks {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        if std::mem::replace(&mut self.broken, true) {
            return self.works.run(batch, outputs);
        }
        assert!(!self.panics, "planted");
        *outputs = vec![vec![1]];
        Ok(())
    }

    fn signature(&self) -> &Signature {
        self.works.signature()
    }

    fn batch_max(&self) -> u32 {
        self.works.batch_max()
    }

    fn kind(&self) -> &'static str {
        "breaks"
    }
}

#[tokio::test]
async fn an_executor_that_breaks_fails_its_batch_and_the_gpu_goes_on() {
    for panics in [true, false] {
        let mut scene = Scene::new(Box::new(Breaks { panics, broken: false, works: emulated() }));
        let (mut leader, _) = scene.sealed().await;
        scene.own(1, input(1, 1));
        scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 1, 1)]));
        assert_eq!(scene.result().await, (1, Err(FailReason::ExecutionFailed)));
        assert_eq!(leader.done().await.sequence, 1);
        scene.execute(&leader, plan(2, Duration::ZERO, &[request(OWNER, 1, 1)]));
        assert_eq!(scene.result().await, (1, Ok(answer(1))));
    }
}

#[tokio::test]
async fn it_is_idle_once_no_more_plans_come_and_the_last_one_has_run() {
    let mut scene = Scene::new(emulated());
    scene.own(1, Bytes::from(vec![1; ITEM_BYTES]));
    let (leader, _) = scene.sealed().await;
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.execute(&leader, plan(1, Duration::from_millis(50), &[request(OWNER, 1, 1)]));
    scene.say(&leader, ToBackend::Retired { gpus: vec![GPU] });
    assert!(scene.result().await.1.is_ok(), "what was sent before runs");
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();
    // It is used again, and no plan has come yet.
    scene.say(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.say(&leader, ToBackend::Retired { gpus: vec![GPU] });
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();

    // Another leader, which has not said so: it may send plans.
    let (next, _) = scene.sealed().await;
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.say(&leader, ToBackend::Retired { gpus: vec![GPU] });
    scene.say(&next, ToBackend::Retired { gpus: vec![GpuId::new(77)] });
    scene.say(&next, ToBackend::Retired { gpus: vec![GPU] });
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();
    scene.inputs.send(Input::Disconnected(next.connection)).ok().unwrap();
    assert!(*scene.idle.borrow(), "nor does anybody who has gone");
}

#[tokio::test]
async fn the_journal_has_every_promise_plan_and_execution_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Journal::open(&path, 1 << 20).unwrap();
    let mut scene = Scene::with_journal(emulated(), Some(journal));
    let mut leader = scene.linked().await;
    scene.say(&leader, ToBackend::Hello { node: NodeId::new(2), boot: BootId::new(20) });
    // One below the registration's token: asked for, not promised.
    scene.say(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, Token::new(9))] });
    scene.say(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
    scene.own(7, input(1, 1));
    scene.execute(&leader, Execute { token: Token::new(10), ..plan(1, Duration::ZERO, &[request(OWNER, 7, 1)]) });
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 7, 1), request(OWNER, 8, 1)]));
    while !matches!(leader.next().await, FromBackend::Done(_)) {}
    let give_up = Instant::now() + Duration::from_secs(30);
    let records: Vec<Record> = loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("\"ran\"") && text.ends_with('\n') {
            break text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        assert!(Instant::now() < give_up, "{text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let [
        Record::Registered { boot: 5, token: 10, .. },
        Record::Sealed { node: 2, token: 9, promised: 10, .. },
        Record::Sealed { token: 11, promised: 11, .. },
        Record::Accepted { at_ns, gpu: 9, node: 2, token: 11, sequence: 1 },
        Record::Ran { gpu: 9, token: 11, sequence: 1, start_ns, end_ns, requests },
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    // ℓ(1) is 5 ms, counted from a planned start that the clock may have missed by some microseconds.
    assert!(at_ns <= start_ns && *end_ns >= start_ns + 4_000_000, "the batch took its profile's time: {records:?}");
    assert_eq!(*requests, [(OWNER.get(), 1, 7)], "the request without an input was not executed");
}

/// Writes down what is done with it, and says that a batch has ended only when the next one is staged.
#[derive(Debug)]
struct Steps {
    executor: Box<dyn ModelExecutor>,
    done: Arc<Mutex<Vec<String>>>,
    staged: Vec<(u32, Vec<u8>)>,
    launched: Option<(u32, Vec<u8>)>,
    stages: u32,
    /// Whether staging the second batch fails the first time.
    refuses: bool,
}

impl Steps {
    fn new(refuses: bool) -> (Self, Arc<Mutex<Vec<String>>>) {
        let done = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&done);
        (Self { executor: emulated(), done, staged: Vec::new(), launched: None, stages: 0, refuses }, kept)
    }

    fn note(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }
}

impl ModelExecutor for Steps {
    fn run(&mut self, _: &BatchInputs<'_>, _: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        unreachable!("it is run in steps")
    }

    fn signature(&self) -> &Signature {
        self.executor.signature()
    }

    fn batch_max(&self) -> u32 {
        self.executor.batch_max()
    }

    fn kind(&self) -> &'static str {
        "steps"
    }

    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        Some(self)
    }
}

impl StagedExecutor for Steps {
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        self.stages += 1;
        if self.stages == 2 && self.refuses {
            self.note("refuse".into());
            return Err(ExecuteError::Failed { items: batch.items, reason: "no room".into() });
        }
        self.note(format!("stage {}", batch.items));
        self.staged.push((batch.items, batch.tensors[0].to_vec()));
        Ok(())
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    fn launch(&mut self) -> Result<(), ExecuteError> {
        let batch = self.staged.remove(0);
        self.note(format!("launch {}", batch.0));
        self.launched = Some(batch);
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool, ExecuteError> {
        Ok(self.stages >= 2)
    }

    fn reset(&mut self) {
        unreachable!("nothing panics")
    }

    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        let (items, input) = self.launched.take().unwrap();
        self.note(format!("finish {items}"));
        let answers = input.chunks(ITEM_BYTES).flat_map(|item| item_checksum([item]).to_le_bytes());
        *outputs = vec![answers.collect()];
        Ok(())
    }
}

#[tokio::test]
async fn the_next_plan_is_staged_while_one_runs() {
    let (steps, done) = Steps::new(false);
    let mut scene = Scene::new(Box::new(steps));
    let (mut leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.own(8, input(2, 2));
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 7, 1)]));
    scene.execute(&leader, plan(2, Duration::from_millis(1), &[request(OWNER, 8, 2)]));
    assert_eq!(scene.result().await, (7, Ok(answer(1))));
    let (second, answers) = scene.result().await;
    assert_eq!((second, answers.unwrap().len()), (8, 8));
    assert_eq!((leader.done().await.sequence, leader.done().await.sequence), (1, 2));
    let done = done.lock().unwrap().clone();
    assert_eq!(done, ["stage 1", "launch 1", "stage 2", "finish 1", "launch 2", "finish 2"]);
}

#[tokio::test]
async fn a_plan_that_could_not_be_staged_ahead_is_staged_in_its_turn() {
    let (steps, done) = Steps::new(true);
    let mut scene = Scene::new(Box::new(steps));
    let (leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.own(8, input(2, 2));
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 7, 1)]));
    scene.execute(&leader, plan(2, Duration::from_millis(1), &[request(OWNER, 8, 2)]));
    assert!(scene.result().await.1.is_ok() && scene.result().await.1.is_ok());
    let done = done.lock().unwrap().clone();
    assert_eq!(done, ["stage 1", "launch 1", "refuse", "finish 1", "stage 2", "launch 2", "finish 2"]);
}

#[tokio::test]
async fn a_device_that_fails_costs_the_batch_and_nothing_else() {
    let full = DeviceError::OutOfMemory("2 MB asked for".into());
    let device = FakeDevice::new(&[ITEM_BYTES], FakePace::default(), 1).with_faults(vec![FakeFault::Compute(1, full)]);
    let model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
    let mut scene = Scene::new(Box::new(model));
    let (mut leader, _) = scene.sealed().await;
    for (sequence, fate) in [(1, true), (2, false), (3, true)] {
        scene.own(sequence, input(sequence as u8, 1));
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(OWNER, sequence, 1)]));
        let expected = if fate { Ok(answer(sequence as u8)) } else { Err(FailReason::ExecutionFailed) };
        assert_eq!(scene.result().await, (sequence, expected));
        assert_eq!(leader.done().await.failed.len(), usize::from(!fate));
    }
}

/// A model on a device that panics once, after a step of its second batch was done in part.
#[derive(Debug)]
struct Panics {
    model: StagedModel<FakeDevice>,
    /// Which step, and how often it has yet to be called.
    step: &'static str,
    left: u32,
    resets: bool,
}

impl Panics {
    fn panic_in(&mut self, step: &str) {
        if self.step == step {
            self.left = self.left.wrapping_sub(1);
            assert!(self.left != 0, "planted");
        }
    }
}

impl ModelExecutor for Panics {
    fn run(&mut self, _: &BatchInputs<'_>, _: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        unreachable!("it is run in steps")
    }

    fn signature(&self) -> &Signature {
        self.model.signature()
    }

    fn batch_max(&self) -> u32 {
        self.model.batch_max()
    }

    fn kind(&self) -> &'static str {
        "panics"
    }

    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        Some(self)
    }
}

impl StagedExecutor for Panics {
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        self.model.stage(batch)?;
        self.panic_in("stage");
        Ok(())
    }

    fn staged(&self) -> usize {
        self.model.staged()
    }

    fn launch(&mut self) -> Result<(), ExecuteError> {
        self.model.launch()?;
        self.panic_in("launch");
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool, ExecuteError> {
        self.model.is_done()
    }

    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.panic_in("finish");
        self.model.finish(outputs)
    }

    fn reset(&mut self) {
        assert!(self.resets, "planted");
        self.model.reset();
    }
}

#[tokio::test]
async fn after_a_panic_every_batch_has_its_own_answer() {
    for step in ["stage", "launch", "finish"] {
        for resets in [true, false] {
            let device = FakeDevice::new(&[ITEM_BYTES], FakePace::default(), 1);
            let model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
            let mut scene = Scene::new(Box::new(Panics { model, step, left: 2, resets }));
            let (mut leader, _) = scene.sealed().await;
            for sequence in 1..=4 {
                scene.own(sequence, input(sequence as u8, 1));
                scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(OWNER, sequence, 1)]));
                let expected = match sequence {
                    2 => Err(FailReason::ExecutionFailed),
                    3.. if !resets => Err(FailReason::ModelNotReady),
                    _ => Ok(answer(sequence as u8)),
                };
                assert_eq!(scene.result().await, (sequence, expected), "{step}, resets: {resets}");
                assert_eq!(leader.done().await.sequence, sequence);
            }
        }
    }
}

#[tokio::test]
async fn a_model_that_fails_when_it_runs_fails_its_requests_and_others_go_on() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let load = |fault: Fault| -> Box<dyn ModelExecutor> {
        let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
        Box::new(OnnxExecutor::from_memory(&runtime, "fault", fault.build().bytes(), &options).unwrap())
    };
    let numbers = |number: f32| Bytes::from(number.to_le_bytes().repeat(4));
    let other = ModelId::new(2);
    for fault in [Fault::IndexOutOfRange, Fault::ReshapeMismatch, Fault::OutputTooLong, Fault::OutOfMemory] {
        let mut scene = Scene::new(load(fault));
        // Square roots: it works.
        scene.inputs.send(Input::Loaded(other, vec![load(Fault::NotANumber)])).ok().unwrap();
        let (mut leader, _) = scene.sealed().await;
        scene.own(1, numbers(9.0));
        scene.own(2, numbers(9.0));
        scene.execute(&leader, plan(1, Duration::ZERO, &[request(OWNER, 1, 1)]));
        scene.execute(&leader, Execute { model: other, ..plan(2, Duration::ZERO, &[request(OWNER, 2, 1)]) });
        assert_eq!(scene.result().await, (1, Err(FailReason::ExecutionFailed)), "{fault:?}");
        assert_eq!(scene.result().await, (2, Ok(numbers(3.0))), "{fault:?}");
        assert_eq!((leader.done().await.failed.len(), leader.done().await.failed.len()), (1, 0), "{fault:?}");
    }
}
