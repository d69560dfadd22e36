//! Loading beside running, with ONNX Runtime, and after dropping; the control port never answers.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use symphony_executor::{
    BatchInputs, FamilyFile, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, Stop, default_signature, digits,
    load_runtime,
};
use symphony_net::Net;
use symphony_protocol::view::{BackendView, KindProfile, ModelSource, ModelSpec, ModelView, TrunkView, View};
use symphony_testkit::needed;
use symphony_transport::ControlClient;
use symphony_types::{
    BackendId, BootId, CutDigest, DataType, LatencyProfile, ModelId, Nanos, RequestValue, Signature, SubclusterId,
    TensorSpec, Token,
};
use symphony_zoo::{Architecture, Mlp};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::counts::Counts;
use crate::engine::{EmulatedGpu, Engine, OnnxEngine};
use crate::gpu_memory::GpuMemory;
use crate::gpu_time::GpuTime;
use crate::model_loader::{LEAVES_WITHIN, LOAD_ALONE_WITHIN, ModelLoader};
use crate::model_states::{ModelState, ModelStates};
use crate::plan_intake::{BackendIdentity, IntakeEvent};

const BACKEND: BackendId = BackendId::new(1);
const HOME: SubclusterId = SubclusterId::new(1);
const BOOT: BootId = BootId::new(5);
const MB: u64 = 1 << 20;
/// Nothing here takes this long, on any machine.
const SOON: Duration = Duration::from_secs(60);

/// The digits model under any name and file, with this static memory in MB in its profile.
fn spec(name: &str, file: &str, static_mb: u64) -> ModelSpec {
    let tensor = |name: &str, data_type, item_shape: &[u32]| TensorSpec {
        name: name.into(),
        data_type,
        item_shape: item_shape.to_vec(),
    };
    let signature = Signature {
        inputs: vec![tensor("pixels", DataType::Fp32, &[64])],
        outputs: vec![tensor("label", DataType::Int64, &[])],
    };
    let latency = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
    let profile = KindProfile { latency, static_memory_bytes: static_mb * MB, dynamic_memory_bytes: 0 };
    ModelSpec {
        name: name.into(),
        subcluster: "s".into(),
        slo: Nanos::from_millis(50),
        source: ModelSource::Onnx(file.into()),
        signature,
        transforms: Default::default(),
        profiles: BTreeMap::from([("cpu".to_owned(), profile)]),
        policy: Default::default(),
        value: RequestValue::ONE,
    }
}

/// A model of [`symphony_zoo::hungry`], whose profile omits the memory of its batches.
fn hungry_spec(name: &str) -> ModelSpec {
    let tensor = |name: &str| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![4] };
    let signature = Signature { inputs: vec![tensor("input")], outputs: vec![tensor("output")] };
    ModelSpec { signature, ..spec(name, &format!("{name}.onnx"), 1) }
}

/// A model of emulated GPUs.
fn emulated_spec(name: &str, static_mb: u64) -> ModelSpec {
    ModelSpec { source: ModelSource::Emulated, signature: default_signature(), ..spec(name, "", static_mb) }
}

fn view(models: Vec<ModelSpec>) -> Arc<View> {
    numbered((1..).zip(models))
}

fn numbered(models: impl IntoIterator<Item = (u32, ModelSpec)>) -> Arc<View> {
    let backend = BackendView { boot: BOOT, up: true, subcluster: HOME, ..BackendView::default() };
    let model = |(index, spec)| {
        let view = ModelView { spec, subcluster: HOME, moving: None, holders: BTreeMap::new(), trunk: None };
        (ModelId::new(index), view)
    };
    let models = models.into_iter().map(model).collect();
    Arc::new(View { backends: [(BACKEND, backend)].into(), models, ..View::default() })
}

struct Scene {
    view: watch::Sender<Arc<View>>,
    intake: mpsc::UnboundedReceiver<IntakeEvent>,
    model_states: Arc<ModelStates>,
    linked: watch::Sender<bool>,
    counts: Arc<Counts>,
    ended: CancellationToken,
}

impl Scene {
    fn onnx(runtime: Runtime, dir: &Path, memory_mb: u64) -> Self {
        Self::new(Engine::OrtCpu(OnnxEngine { runtime, model_dir: dir.to_owned(), intra_threads: 1 }), memory_mb)
    }

    fn new(engine: Engine, memory_mb: u64) -> Self {
        Self::with_control(engine, memory_mb, "127.0.0.1:1", true)
    }

    /// With a control port at that address, and links to the frontends or none yet.
    fn with_control(engine: Engine, memory_mb: u64, control: &str, is_linked: bool) -> Self {
        let identity =
            BackendIdentity { backend: BACKEND, boot: BOOT, subcluster: HOME, gpus: vec![], token: Token::new(1) };
        let (view, watched) = watch::channel(view(vec![]));
        let (events, intake) = mpsc::unbounded_channel();
        let (linked, links) = watch::channel(is_linked);
        let (model_states, ended) = (Arc::<ModelStates>::default(), CancellationToken::new());
        let counts = Arc::<Counts>::default();
        let loader = ModelLoader {
            identity,
            kinds: vec!["cpu".into()],
            memory: vec![GpuMemory::new(memory_mb * MB)],
            times: vec![Arc::default()],
            counts: Arc::clone(&counts),
            model_states: Arc::clone(&model_states),
            loading: Arc::new(Semaphore::new(1)),
            meter: Arc::default(),
            engine,
            trunks: Arc::default(),
            control: ControlClient::new(&Net::plaintext(), &[control.to_owned()]).unwrap(),
            view: watched,
            linked: links,
            intake: events,
        };
        tokio::spawn(loader.run(ended.clone()));
        Self { view, intake, model_states, linked, counts, ended }
    }

    async fn next(&mut self) -> IntakeEvent {
        let event = tokio::time::timeout(SOON, self.intake.recv()).await;
        event.expect("something comes").expect("the loader runs")
    }

    /// The executor of the next model that is loaded.
    async fn loaded(&mut self) -> (ModelId, Box<dyn ModelExecutor>) {
        loop {
            if let IntakeEvent::Loaded(model, mut executors) = self.next().await {
                return (model, executors.pop().expect("one for the GPU"));
            }
        }
    }

    /// Waits until the condition holds, with timers stopped.
    async fn until(&self, what: &str, is_so: impl Fn(&[(String, ModelState)]) -> bool) {
        let begun = Instant::now();
        loop {
            // Lets all tasks handle their events.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            let lines: Vec<_> = self.model_states.entries().into_iter().map(|line| (line.name, line.state)).collect();
            if is_so(&lines) {
                return;
            }
            assert!(begun.elapsed() < SOON, "it never is so that {what}: {lines:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a model has this state.
    async fn has_state(&self, name: &str, state: ModelState) {
        let wait = async {
            while !self.model_states.entries().iter().any(|line| line.name == name && line.state == state) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let lines = || self.model_states.entries();
        assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "{name} never is {state:?}: {:?}", lines());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Loads of one model wait here until the gate is opened, as it is in the end.
#[derive(Debug)]
pub struct Gate {
    model: &'static str,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn pass(&self, model: &str) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| model == self.model && !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens the gate however the test ends: a load that hangs would keep the test from ending.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Runs one digit, which it must get right.
fn run_one(executor: &mut dyn ModelExecutor) {
    let (digit, mut input, mut outputs) = (digits::test_set()[0], Vec::new(), Vec::new());
    digit.append_input(&mut input);
    executor.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut outputs).unwrap();
    assert_eq!(outputs, [i64::from(digit.label).to_le_bytes().to_vec()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_runs_while_a_load_is_under_way() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good.onnx"), digits::MODEL).unwrap();
    // Opening this file blocks until there is a writer: a disk that takes for ever.
    let slow = dir.path().join("slow.onnx");
    nix::unistd::mkfifo(&slow, Mode::S_IRWXU).unwrap();
    let mut scene = Scene::onnx(runtime, dir.path(), 4096);
    scene.view.send_replace(view(vec![spec("good", "good.onnx", 1)]));
    let (_, mut good) = scene.loaded().await;

    let both = vec![spec("good", "good.onnx", 1), spec("slow", "slow.onnx", 1)];
    scene.view.send_replace(view(both));
    scene.has_state("slow", ModelState::Loading).await;
    for _ in 0..10 {
        run_one(good.as_mut());
    }
    scene.has_state("slow", ModelState::Loading).await;

    // The load ends at last. The file is removed: otherwise the runtime would wait for it once more.
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(slow, &elsewhere).unwrap();
    tokio::task::spawn_blocking(move || drop(std::fs::File::options().write(true).open(elsewhere))).await.unwrap();
    scene.has_state("slow", ModelState::Failed).await;
    scene.has_state("good", ModelState::Ready).await;
    run_one(good.as_mut());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_model_leaves_the_good_one_beside_it_alone() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good.onnx"), digits::MODEL).unwrap();
    std::fs::write(dir.path().join("half.onnx"), &digits::MODEL[..digits::MODEL.len() / 2]).unwrap();
    let mut scene = Scene::onnx(runtime, dir.path(), 4096);
    let mut other = spec("other-tensors", "good.onnx", 1);
    other.signature.outputs[0].item_shape = vec![2];
    scene.view.send_replace(view(vec![spec("half", "half.onnx", 1), other, spec("good", "good.onnx", 1)]));
    let (model, mut good) = scene.loaded().await;
    assert_eq!(model, ModelId::new(3));
    scene.has_state("half", ModelState::Failed).await;
    scene.has_state("other-tensors", ModelState::Failed).await;

    // A batch that does not fit fails, and the executor goes on.
    let short = BatchInputs { items: 1, tensors: &[&[0; 4]], start: None };
    assert!(good.run(&short, &mut Vec::new()).is_err());
    run_one(good.as_mut());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_beyond_the_memory_is_refused_by_profile_and_by_measure() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("digits.onnx"), digits::MODEL).unwrap();
    const PADDING: u64 = 150 * MB;
    // Bytes that the profile does not cover: a field of the file that no reader knows.
    let mut large = digits::MODEL.to_vec();
    large.extend([0xfa, 0x3e]);
    let (mut rest, padding) = (PADDING, vec![0; PADDING as usize]);
    while rest >= 0x80 {
        large.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    large.push(rest as u8);
    large.extend(&padding);
    std::fs::write(dir.path().join("large.onnx"), large).unwrap();

    let mut scene = Scene::onnx(runtime, dir.path(), PADDING / MB);
    let first = vec![spec("good", "digits.onnx", 1), spec("greedy", "digits.onnx", 300)];
    scene.view.send_replace(view(first.clone()));
    let (_, mut good) = scene.loaded().await;
    scene.has_state("greedy", ModelState::Failed).await;
    let with_large = first.into_iter().chain([spec("larger-than-said", "large.onnx", 1)]).collect();
    scene.view.send_replace(view(with_large));
    scene.has_state("larger-than-said", ModelState::Failed).await;
    scene.has_state("good", ModelState::Ready).await;
    run_one(good.as_mut());
    let measured = scene.model_states.entries().into_iter().find(|line| line.name == "good").unwrap().memory().unwrap();
    assert!(measured.static_bytes >= digits::MODEL.len() as u64, "{measured:?}");
}

/// Runs an ignored test in its own process: batches share the process's memory limit, and other tests would use it.
fn in_a_process_of_its_own(test: &str) {
    let Some(_) = needed("onnxruntime", load_runtime(None)) else { return };
    let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = tests.args(["--ignored", "--exact", &format!("model_loader_tests::{test}")]).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn batches_have_the_memory_that_models_leave_them() {
    in_a_process_of_its_own("batches_that_need_more_than_the_profile_says");
    in_a_process_of_its_own("what_models_take_is_not_for_batches");
    in_a_process_of_its_own("what_batches_have_had_is_not_for_models");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another test runs it in a process of its own"]
async fn batches_that_need_more_than_the_profile_says() {
    let runtime = load_runtime(None).unwrap();
    runtime.share_batch_memory(600 * MB).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("digits.onnx"), digits::MODEL).unwrap();
    // Batches of eight: 256 MB and 2 GB.
    for (file, bytes_per_item) in [("hungry.onnx", 16 * MB), ("starving.onnx", 128 * MB)] {
        std::fs::write(dir.path().join(file), symphony_zoo::hungry(bytes_per_item).bytes()).unwrap();
    }
    let mut scene = Scene::onnx(runtime, dir.path(), 600);
    let models = vec![spec("good", "digits.onnx", 1), hungry_spec("starving"), hungry_spec("hungry")];
    scene.view.send_replace(view(models.clone()));
    let (mut good, mut hungry) = (None, None);
    for _ in 0..2 {
        let (model, executor) = scene.loaded().await;
        *if model == ModelId::new(1) { &mut good } else { &mut hungry } = Some(executor);
    }
    let (mut good, mut hungry) = (good.unwrap(), hungry.unwrap());
    scene.has_state("starving", ModelState::Failed).await;
    let measured =
        scene.model_states.entries().into_iter().find(|line| line.name == "hungry").unwrap().memory().unwrap();
    assert!(measured.dynamic_bytes > 200 * MB, "before any request: {measured:?}");
    run_one(good.as_mut());

    // The measured memory of batches counts: 256 and 400 MB are too much, although the profiles name 402.
    let eight = BatchInputs { items: 8, tensors: &[&[0; 8 * 16]], start: None };
    hungry.run(&eight, &mut Vec::new()).unwrap();
    let third = models.into_iter().chain([spec("third", "digits.onnx", 400)]).collect();
    scene.view.send_replace(view(third));
    scene.has_state("third", ModelState::Failed).await;
    hungry.run(&eight, &mut Vec::new()).unwrap();
}

/// An engine whose GPU has this much memory, the digits model (300 MB by its profile), and a model whose batches of
/// eight take 400 MB.
fn engine_and_two_models(dir: &Path, memory_mb: u64) -> (Engine, ModelSpec, ModelSpec) {
    std::fs::write(dir.join("digits.onnx"), digits::MODEL).unwrap();
    std::fs::write(dir.join("hungry.onnx"), symphony_zoo::hungry(25 * MB).bytes()).unwrap();
    let runtime = load_runtime(None).unwrap();
    runtime.share_batch_memory(memory_mb * MB).unwrap();
    let engine = Engine::OrtCpu(OnnxEngine { runtime, model_dir: dir.to_owned(), intra_threads: 1 });
    (engine, spec("heavy", "digits.onnx", 300), hungry_spec("hungry"))
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn what_models_take_is_not_for_batches() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, heavy, hungry) = engine_and_two_models(dir.path(), 600);
    let _loaded = engine.load(&heavy, 0, "cpu", &GpuTime::default(), &Stop::default()).unwrap();
    let refused = engine.load(&hungry, 0, "cpu", &GpuTime::default(), &Stop::default()).unwrap_err();
    assert!(refused.lacks_memory && refused.reason.contains("its largest batch does not fit"), "{refused:?}");
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn what_batches_have_had_is_not_for_models() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, heavy, hungry) = engine_and_two_models(dir.path(), 650);
    let mut batches = engine.load(&hungry, 0, "cpu", &GpuTime::default(), &Stop::default()).unwrap();
    let refused = engine.load(&heavy, 0, "cpu", &GpuTime::default(), &Stop::default()).unwrap_err();
    assert!(refused.lacks_memory && refused.reason.contains("it takes 300 MB"), "{refused:?}");
    let eight = BatchInputs { items: 8, tensors: &[&[0; 8 * 16]], start: None };
    batches.run(&eight, &mut Vec::new()).unwrap();
}

/// A load whose batch of zeros would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_never_ends_is_ended_when_nobody_wants_its_model_any_more() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("endless.onnx"), symphony_zoo::endless_above(-1.0).bytes()).unwrap();
    std::fs::write(dir.path().join("good.onnx"), digits::MODEL).unwrap();
    let mut scene = Scene::onnx(runtime, dir.path(), 4096);
    let endless = hungry_spec("endless");
    scene.view.send_replace(numbered([(1, endless.clone())]));
    scene.has_state("endless", ModelState::Loading).await;

    // Without an abort nothing would be loaded for a minute, and a thread would loop until the process ends.
    scene.view.send_replace(numbered([(2, spec("good", "good.onnx", 1))]));
    let (model, mut good) = scene.loaded().await;
    assert_eq!(model, ModelId::new(2));
    run_one(good.as_mut());

    // If the model stays wanted, the batch is aborted as hung, and counted.
    scene.view.send_replace(numbered([(2, spec("good", "good.onnx", 1)), (3, endless)]));
    scene.has_state("endless", ModelState::Failed).await;
    assert_eq!(scene.counts.models_hung.load(std::sync::atomic::Ordering::Relaxed), 1);
    run_one(good.as_mut());
}

#[test]
fn a_model_that_is_a_link_out_of_the_folder_is_not_opened() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(elsewhere.path().join("digits.onnx"), digits::MODEL).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("digits.onnx"), dir.path().join("out.onnx")).unwrap();
    std::fs::write(dir.path().join("real.onnx"), digits::MODEL).unwrap();
    std::os::unix::fs::symlink("real.onnx", dir.path().join("in.onnx")).unwrap();
    let engine = Engine::OrtCpu(OnnxEngine { runtime, model_dir: dir.path().to_owned(), intra_threads: 1 });
    let load = |file| engine.load(&spec("m", file, 1), 0, "cpu", &GpuTime::default(), &Stop::default());
    load("in.onnx").unwrap();
    let refused = load("out.onnx").unwrap_err().reason;
    assert!(refused.contains("out.onnx") && refused.contains("expected a file within"), "{refused}");
}

/// The first batches follow the report that a model is ready, and would lack their inputs while the frontend is not
/// linked.
#[tokio::test]
async fn nothing_is_said_of_a_model_before_the_frontends_are_linked() {
    let control = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = control.local_addr().unwrap().to_string();
    let gpu = EmulatedGpu { pace: Arc::default(), noise: Arc::default(), load_bytes_per_s: None };
    let scene = Scene::with_control(Engine::Emulated([gpu].into()), 100, &addr, false);
    scene.view.send_replace(view(vec![emulated_spec("a", 10)]));
    scene.has_state("a", ModelState::Ready).await;
    let early = tokio::time::timeout(Duration::from_millis(100), control.accept()).await;
    assert!(early.is_err(), "it speaks before it is linked");
    scene.linked.send_replace(true);
    let connection = tokio::time::timeout(SOON, control.accept()).await;
    connection.expect("it speaks once it is linked").unwrap();
}

#[tokio::test]
async fn what_comes_is_loaded_when_what_goes_has_gone() {
    const OUTGOING: ModelId = ModelId::new(1);
    const INCOMING: ModelId = ModelId::new(2);
    let gpu = EmulatedGpu { pace: Arc::default(), noise: Arc::default(), load_bytes_per_s: None };
    // Two models do not fit: the planted fault, a loader that does not wait, is refused.
    let mut scene = Scene::new(Engine::Emulated([gpu].into()), 100);
    let holds = |model: ModelId| numbered([(model.get(), emulated_spec(&format!("m{model}"), 60))]);
    scene.view.send_replace(holds(OUTGOING));
    let IntakeEvent::Loaded(OUTGOING, executors) = scene.next().await else { panic!("not loaded") };

    scene.view.send_replace(holds(INCOMING));
    let IntakeEvent::Unloaded(unload_guard) = scene.next().await else { panic!("not let go of") };
    assert_eq!(unload_guard.model, OUTGOING);
    // Accepted plans run: time enough for a load that does not wait to fail.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop((executors, unload_guard));
    let IntakeEvent::Loaded(INCOMING, executors) = scene.next().await else { panic!("not loaded") };

    // Unwanted and wanted again before it has gone: it is loaded again.
    scene.view.send_replace(view(vec![]));
    let IntakeEvent::Unloaded(unload_guard) = scene.next().await else { panic!("not let go of") };
    scene.view.send_replace(holds(INCOMING));
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop((executors, unload_guard));
    assert!(matches!(scene.next().await, IntakeEvent::Loaded(INCOMING, _)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaves_while_it_is_loaded_keeps_its_memory_until_that_has_ended() {
    // One second for the first model.
    let load_bytes_per_s = NonZeroU64::new(60 * MB);
    let gpu = EmulatedGpu { pace: Arc::default(), noise: Arc::default(), load_bytes_per_s };
    let mut scene = Scene::new(Engine::Emulated([gpu].into()), 100);
    scene.view.send_replace(numbered([(1, emulated_spec("first", 60))]));
    scene.has_state("first", ModelState::Loading).await;
    scene.view.send_replace(numbered([(2, emulated_spec("second", 50))]));
    let (model, _) = scene.loaded().await;
    assert_eq!(model, ModelId::new(2), "nobody is told of the first, and the second is not refused");
    assert!(
        scene.model_states.entries().iter().all(|line| line.name == "second"),
        "{:?}",
        scene.model_states.entries()
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_that_hangs_and_is_not_wanted_any_more_holds_up_others_for_a_while_and_keeps_its_memory() {
    let gate = Arc::new(Gate { model: "hangs", is_open: Mutex::default(), opened: Condvar::new() });
    let mut scene = Scene::new(Engine::Blocked(Arc::clone(&gate)), 100);
    let opens = Opens(gate);
    let has_state =
        |name: &'static str, state| move |lines: &[(String, ModelState)]| lines.contains(&(name.into(), state));
    let (hangs, beside) = ((1, emulated_spec("hangs", 60)), (2, emulated_spec("beside", 30)));
    let too_large = (3, emulated_spec("too-large", 50));
    scene.view.send_replace(numbered([hangs.clone()]));
    scene.until("it hangs", has_state("hangs", ModelState::Loading)).await;

    scene.view.send_replace(numbered([beside.clone(), too_large.clone()]));
    scene.until("it is to go", |lines| lines.is_empty()).await;
    tokio::time::advance(LEAVES_WITHIN / 2).await;
    scene.until("nothing is loaded", |lines| lines.is_empty()).await;
    tokio::time::advance(LEAVES_WITHIN).await;
    scene.until("what fits is loaded", has_state("beside", ModelState::Loading)).await;
    // The planted fault, memory freed while the load still uses it, would load it.
    scene.until("what does not fit is refused", has_state("too-large", ModelState::Failed)).await;
    tokio::time::advance(LOAD_ALONE_WITHIN).await;
    scene.until("it is there", has_state("beside", ModelState::Ready)).await;
    assert!(matches!(scene.intake.try_recv(), Ok(IntakeEvent::Loaded(model, _)) if model == ModelId::new(2)));

    // If the model is wanted again, the report says that it hangs.
    scene.view.send_replace(numbered([hangs, beside.clone(), too_large.clone()]));
    scene.until("its word is told", has_state("hangs", ModelState::Failed)).await;
    scene.view.send_replace(numbered([beside, too_large]));
    scene.until("it is to go again", |lines| lines.len() == 2).await;

    drop(opens);
    scene.until("there is room", has_state("too-large", ModelState::Ready)).await;
    let loaded = scene.intake.try_recv();
    assert!(
        matches!(loaded, Ok(IntakeEvent::Loaded(model, _)) if model == ModelId::new(3)),
        "nobody hears of what hung"
    );
    assert!(scene.intake.try_recv().is_err());
}

/// A head on the same trunk as all others, as its file has it.
fn head(runtime: &Runtime, dir: &Path, name: &str, number: u64) -> ModelSpec {
    let file = format!("{name}.onnx");
    let shape = Mlp { width_in: 6, width: 64, hidden: 2, classes: 3 };
    std::fs::write(dir.join(&file), Architecture::mlp_head(shape, 1, number).unwrap().bytes()).unwrap();
    let whole = OnnxExecutor::from_file(runtime, &dir.join(&file), &OnnxOptions::default()).unwrap();
    ModelSpec { signature: whole.signature().clone(), ..spec(name, &file, 1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_share_a_trunk_are_loaded_in_parts_and_whole_again_when_they_no_longer_do() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let heads = ["a", "b", "c"].map(|name| head(&runtime, dir.path(), name, u64::from(name.as_bytes()[0])));
    let cuts = |name: &str| FamilyFile::read(&dir.path().join(name)).unwrap().cuts().unwrap();
    let others = cuts("b.onnx");
    let trunk = cuts("a.onnx").into_iter().rev().find(|cut| others.contains(cut)).unwrap();
    let shown = |heads: &[ModelSpec], shared: Option<CutDigest>| {
        let mut shown = View::clone(&view(heads.to_vec()));
        for model in shown.models.values_mut() {
            model.trunk = Some(TrunkView { cuts: vec![trunk], shared });
        }
        Arc::new(shown)
    };
    let answer = |executor: &mut dyn ModelExecutor| {
        let (input, mut outputs) = ([0.5_f32; 6].map(f32::to_le_bytes).concat(), Vec::new());
        executor.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut outputs).unwrap();
        outputs[0].as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect::<Vec<_>>()
    };

    let mut scene = Scene::onnx(runtime, dir.path(), 4096);
    scene.view.send_replace(shown(&heads[..2], None));
    let mut whole = BTreeMap::from([scene.loaded().await, scene.loaded().await]);
    assert!(whole.values().all(|executor| executor.in_family().is_none()));
    // The first two are loaded again, the third in parts at once: all with one trunk.
    scene.view.send_replace(shown(&heads, Some(trunk)));
    let mut parts = BTreeMap::from([scene.loaded().await, scene.loaded().await, scene.loaded().await]);
    assert_eq!(parts.len(), 3);
    let members: Vec<_> = parts.values().map(|executor| executor.in_family().expect("in parts")).collect();
    assert!(members.iter().all(|member| member.trunk() == trunk && member.trunk_place() == members[0].trunk_place()));
    assert_eq!(scene.model_states.trunks().len(), 1);
    for (model, whole) in &mut whole {
        let (whole, parts) = (answer(whole.as_mut()), answer(parts.get_mut(model).unwrap().as_mut()));
        assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-3), "{whole:?} {parts:?}");
    }
    scene.has_state("c", ModelState::Ready).await;

    scene.view.send_replace(shown(&heads, None));
    let again = BTreeMap::from([scene.loaded().await, scene.loaded().await, scene.loaded().await]);
    assert_eq!(again.len(), 3);
    assert!(again.values().all(|executor| executor.in_family().is_none()));
    scene.until("no trunk is left", |_| scene.model_states.trunks().is_empty()).await;
    assert_eq!(scene.counts.loads.load(std::sync::atomic::Ordering::Relaxed), 3, "once each");
}
