//! A backend process: registers, loads models, and serves leaders.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use symphony_config::{BackendConfig, DeviceKind, ExecutorKind};
use symphony_executor::{Noise, load_runtime};
use symphony_executor_gpu::{Cuda, NoCuda, PinnedPool, cuda_provider_is_there};
use symphony_net::{Incoming, Net, Port, Role};
use symphony_protocol::control as pb;
use symphony_protocol::view::BackendScope;
use symphony_transport::{
    ControlClient, ControlError, LinkedPayloads, PayloadTransport, SharingError, ViewReceiver, can_share, can_use_rdma,
};
use symphony_types::{BootId, Member};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::counts::Counts;
use crate::engine::{EmulatedGpu, Engine, OnnxEngine};
use crate::executor_in_use::ExecutorInUse;
use crate::gpu_memory::GpuMemory;
use crate::journal::Journal;
use crate::leader_connections::accept_leaders;
use crate::model_loader::ModelLoader;
use crate::model_states::{ModelState, ModelStates};
use crate::pace_file;
use crate::plan_intake::{BackendIdentity, PlanIntake};
use crate::registration::{REGISTER_WITHIN, register, registration};
use crate::stay_registered::stay_registered;
use crate::trunk_reports::TrunkReports;

/// How long the report that a backend is drained may take, and the pause before it is repeated.
const REPORT_WITHIN: Duration = Duration::from_secs(5);
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long the cluster may take to commit that a backend leaves.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long the final report of a backend may take.
const GOODBYE_WITHIN: Duration = Duration::from_millis(500);
/// Host memory for copies to and from GPUs, in bytes: two batches' inputs and outputs of every model. These pages are
/// pinned: no other process can use them, even while they are idle.
pub const PINNED_BYTES_MAX: u64 = 8 << 30;

/// The port for scheduler replicas, of which a cluster has 64: a connection for leading, one for a standby, and those
/// being given up. A caller may be silent for as long as it likes: a replica that is to lead by a hand-over dials in
/// advance, and says hello only once it leads.
const EXEC: Port = Port::new("backend.exec", &[Role::Scheduler], 64 * 4);

/// How often it is looked whether a run is stuck.
const CHECK_STUCK_EVERY: Duration = Duration::from_secs(1);

/// Resolves once `is_stuck` shows that a run goes on although it was ended.
async fn a_run_is_stuck(is_stuck: impl Fn() -> bool) {
    while !is_stuck() {
        tokio::time::sleep(CHECK_STUCK_EVERY).await;
    }
}

/// Waits until only a restart can help, and says why.
async fn only_a_restart_helps(
    mut lost: watch::Receiver<bool>,
    is_stuck: impl Fn() -> bool,
    view: ViewReceiver,
    identity: &BackendIdentity,
) -> &'static str {
    tokio::select! {
        Ok(_) = lost.wait_for(|lost| *lost) => "the devices of all its GPUs are lost",
        () = a_run_is_stuck(is_stuck) => "a batch was ended and goes on, and its GPU runs nothing else",
        () = is_forgotten(view, identity) => {
            "the cluster no longer knows this boot of it, as after a restore of a backup from before"
        }
    }
}

/// Resolves once the cluster has known this boot of the backend and no longer does: no leader would send it a plan. It
/// stays beside another process that lives under its name: the two would end each other by turns.
async fn is_forgotten(mut view: ViewReceiver, identity: &BackendIdentity) {
    // A view may be older than the registration.
    let mut known = false;
    loop {
        let forgotten = match view.borrow_and_update().backends.get(&identity.backend) {
            Some(me) if me.boot == identity.boot => {
                known = true;
                false
            }
            other => known && other.is_none_or(|other| !other.up),
        };
        if forgotten {
            return;
        }
        if view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Why a backend does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// ONNX Runtime is missing.
    #[error(transparent)]
    Runtime(#[from] symphony_executor::RuntimeError),
    /// Batches cannot be kept within the memory of the GPUs.
    #[error("ONNX Runtime cannot limit the memory of batches: {0}; expected version 1.23 or later")]
    BatchMemory(String),
    /// The required device is not available.
    #[error(
        "backend.device = \"cuda\" is required: {0}; set backend.device_required = false to run ONNX models on the CPU"
    )]
    Device(NoCuda),
    /// The executor runs on GPUs only.
    #[error("backend.executor = \"cuda-gemm\" runs on CUDA devices only: {0}")]
    Gemm(NoCuda),
    /// The cluster does not answer, or refuses the registration.
    #[error("cannot register backend `{name}`: {source}")]
    Register {
        /// The backend's name.
        name: String,
        /// The cluster's answer.
        source: ControlError,
    },
    /// The journal cannot be written.
    #[error(
        "cannot write backend.journal_file {path}: {source}; name a file in a directory that this process may write to"
    )]
    Journal {
        /// The path of the journal.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// This system lacks the required transport.
    #[error("backend.payloads.required: {0}")]
    Sharing(#[from] SharingError),
    /// The system refused a thread.
    #[error("cannot start the GPU threads: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running backend; dropping it stops it.
#[derive(Debug)]
pub struct Backend {
    identity: BackendIdentity,
    name: String,
    /// GPU kinds, by place of the GPU.
    kinds: Vec<String>,
    control: ControlClient,
    view: ViewReceiver,
    transport: Arc<LinkedPayloads>,
    idle: watch::Receiver<bool>,
    /// Whether the devices of all GPUs are lost.
    lost: watch::Receiver<bool>,
    counts: Arc<Counts>,
    model_states: Arc<ModelStates>,
    in_use: ExecutorInUse,
    ended: CancellationToken,
}

impl Backend {
    /// Registers with the cluster and serves leaders on `listener`.
    ///
    /// # Errors
    /// If ONNX Runtime or shared memory is needed and missing, or the cluster refuses the registration.
    pub async fn start(
        config: &BackendConfig,
        boot: BootId,
        listener: TcpListener,
        net: Net,
        control: ControlClient,
    ) -> Result<Self, StartError> {
        let ended = CancellationToken::new();
        let engine = match config.executor {
            ExecutorKind::Emulated => emulated_engine(config, &ended),
            ExecutorKind::OrtCpu => onnx_engine(config)?,
            ExecutorKind::CudaGemm => Engine::CudaGemm(open_gpus(config).map_err(StartError::Gemm)?),
        };
        if config.payloads.must_share() {
            can_share()?;
        }
        if config.payloads.must_use_rdma() {
            can_use_rdma(&config.payloads)?;
        }
        let journal = open_journal(config)?;
        let request = registration(config, engine.label(), boot, control.newest_level());
        let in_use = ExecutorInUse::new(config, &engine);
        let identity = register(&control, &request, REGISTER_WITHIN)
            .await
            .map_err(|source| StartError::Register { name: config.name.clone(), source })?;
        let scope = BackendScope { backend: identity.backend, subcluster: identity.subcluster };
        let view = control.watch_as_backend(&format!("backend {}", config.name), scope, boot);
        let transport = LinkedPayloads::new(identity.backend, boot, net.clone(), config.payloads.clone(), view.clone());
        let transport = Arc::new(transport);
        tracing::info!(backend = %identity.backend, %boot, gpus = identity.gpus.len(),
            executor = engine.label(), transport = transport.name(), "registered");

        let early_links = transport.early_links();
        let settled = early_links.settled();
        let links_ended = ended.clone();
        tokio::spawn(async move { links_ended.run_until_cancelled(early_links.run()).await });

        let (events, events_out) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::of_gpus(identity.gpus.len()));
        let model_states = Arc::new(ModelStates::default());
        let counted = Arc::clone(&counts);
        let links = Arc::clone(&transport);
        let intake = PlanIntake::new(identity.clone(), links, events_out, counted, Arc::clone(&model_states), journal)?;
        let (idle, lost, times) = (intake.idle(), intake.lost(), intake.times());
        let intake_ended = ended.clone();
        tokio::spawn(async move { intake_ended.run_until_cancelled(intake.run()).await });
        let leaders = Incoming::new(listener, net, EXEC);
        tokio::spawn(accept_leaders(leaders, events.clone(), ended.clone()));
        let kinds: Vec<_> = request.gpus.iter().map(|gpu| gpu.kind.clone()).collect();
        let loading = Arc::new(Semaphore::new(1));
        if let Some(onnx) = engine.onnx().cloned() {
            let (loading, control, view) = (Arc::clone(&loading), control.clone(), view.clone());
            let (identity, kinds, times) = (identity.clone(), kinds.clone(), times.clone());
            let reports = TrunkReports { identity, kinds, times, loading, onnx, control, view };
            tokio::spawn(reports.run(ended.clone()));
        }
        let loader = ModelLoader {
            identity: identity.clone(),
            kinds: kinds.clone(),
            memory: request.gpus.iter().map(|gpu| GpuMemory::new(gpu.memory_bytes)).collect(),
            times,
            engine,
            trunks: Arc::default(),
            counts: Arc::clone(&counts),
            model_states: Arc::clone(&model_states),
            loading,
            meter: Arc::default(),
            control: control.clone(),
            view: view.clone(),
            linked: settled,
            intake: events,
        };
        tokio::spawn(loader.run(ended.clone()));
        tokio::spawn(report_drained(control.clone(), identity.clone(), view.clone(), idle.clone(), ended.clone()));
        let (links, seen) = (Arc::clone(&transport), view.clone());
        tokio::spawn(stay_registered(control.clone(), request, identity.clone(), links, seen, ended.clone()));
        let name = config.name.clone();
        Ok(Self { identity, name, kinds, control, view, transport, idle, lost, counts, model_states, in_use, ended })
    }

    /// How many models are still being loaded, of those that the cluster wants here.
    #[must_use]
    pub fn models_loading(&self) -> usize {
        self.model_states.entries().iter().filter(|entry| entry.state == ModelState::Loading).count()
    }

    /// Leaves without a failed request, in at most `within`: the cluster sends no more plans, accepted plans run, and
    /// their results are returned. Whatever is left then is lost with the process and run again elsewhere. Returns
    /// false in that case.
    pub async fn leave(&self, within: Duration) -> bool {
        let give_up = tokio::time::Instant::now() + within;
        let BackendIdentity { backend, boot, .. } = self.identity;
        let member = Some(Member::Backend(backend).into());
        let leave = |mut client: pb::control_client::ControlClient<_>| {
            let request = pb::LeaveRequest { member, boot_id: boot.get() };
            async move { client.leave(request).await }
        };
        if let Err(error) = self.control.call(LEAVE_WITHIN.min(within), leave).await {
            tracing::warn!(%error, "the cluster does not know that this backend leaves");
        }
        let mut idle = self.idle.clone();
        let done = async {
            let _ = idle.wait_for(|idle| *idle).await;
            self.transport.finish().await;
        };
        let in_time = tokio::time::timeout_at(give_up, done).await.is_ok();
        if !in_time {
            tracing::warn!("plans are left after {within:?}; they run elsewhere if their deadlines allow");
        }
        let down = |mut client: pb::control_client::ControlClient<_>| {
            let request = pb::ReportBackendDownRequest { backend: backend.get(), boot_id: boot.get() };
            async move { client.report_backend_down(request).await }
        };
        // Its leader would find out anyway, only later.
        if let Err(error) = self.control.call(GOODBYE_WITHIN, down).await {
            tracing::debug!(%error, "goodbye not heard");
        }
        in_time
    }

    /// Waits until only a restart can help, and says why.
    pub async fn needs_restart(&self) -> &'static str {
        let (lost, view) = (self.lost.clone(), self.view.clone());
        only_a_restart_helps(lost, symphony_executor::a_run_is_stuck, view, &self.identity).await
    }

    /// Its identity in the cluster.
    #[must_use]
    pub const fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn gpu_kinds(&self) -> &[String] {
        &self.kinds
    }

    /// The part of the view that concerns this backend; changes with it.
    #[must_use]
    pub fn view(&self) -> ViewReceiver {
        self.view.clone()
    }

    /// The transport of inputs and results: how long reads take, and the way to each frontend.
    #[must_use]
    pub fn payloads(&self) -> Arc<LinkedPayloads> {
        Arc::clone(&self.transport)
    }

    pub(crate) fn model_states(&self) -> Arc<ModelStates> {
        Arc::clone(&self.model_states)
    }

    pub(crate) const fn in_use(&self) -> ExecutorInUse {
        self.in_use
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Stops serving.
    pub fn stop(&self) {
        self.ended.cancel();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open_journal(config: &BackendConfig) -> Result<Option<Journal>, StartError> {
    let journal = config.journal_file.as_ref().map(|path| {
        Journal::open(path, config.journal_mb_max << 20)
            .map_err(|source| StartError::Journal { path: path.display().to_string(), source })
    });
    journal.transpose()
}

/// Emulated GPUs; follows the file with their pace, if there is one, until `ended`.
fn emulated_engine(config: &BackendConfig, ended: &CancellationToken) -> Engine {
    let count: u32 = config.gpus.iter().map(|gpu| gpu.count).sum();
    let load_bytes_per_s = NonZeroU64::new(config.emulated_load_mb_per_s.saturating_mul(1 << 20));
    // A seed from the name: backends differ, and a backend that restarts draws the same numbers again.
    let seed = crc32c::crc32c(config.name.as_bytes()).into();
    let gpu = |gpu| {
        let noise = Arc::new(Noise::lognormal(config.noise, seed, gpu));
        EmulatedGpu { pace: Arc::default(), noise, load_bytes_per_s }
    };
    let gpus: Arc<[EmulatedGpu]> = (0..count).map(gpu).collect();
    if let Some(path) = &config.pace_file {
        let paces = gpus.iter().map(|gpu| Arc::clone(&gpu.pace)).collect();
        tokio::spawn(pace_file::watch(path.clone(), paces, ended.clone()));
    }
    Engine::Emulated(gpus)
}

/// ONNX Runtime, on GPUs if they are wanted and available. Otherwise it logs the fallback, or fails if GPUs are
/// required.
fn onnx_engine(config: &BackendConfig) -> Result<Engine, StartError> {
    let gpus = match config.device {
        DeviceKind::Cuda => Some(open_gpus(config)),
        DeviceKind::Auto | DeviceKind::Cpu => None,
    };
    if let (Some(Err(missing)), true) = (&gpus, config.device_required) {
        return Err(StartError::Device(missing.clone()));
    }
    let runtime = load_runtime(config.onnxruntime.as_deref())?;
    let gpus = gpus.map(|gpus| gpus.and_then(|gpus| cuda_provider_is_there(&runtime).map(|()| gpus)));
    let version = runtime.version().to_owned();
    let intra_threads = config.intra_op_threads as usize;
    let onnx = OnnxEngine { runtime, model_dir: config.model_dir.clone(), intra_threads };
    match gpus {
        Some(Ok(gpus)) => {
            let names: Vec<_> = gpus.iter().map(Cuda::name).collect();
            tracing::info!(device = "cuda", gpus = names.join(", "), onnxruntime = version, "ONNX models run on GPUs");
            return Ok(Engine::OrtCuda(onnx, gpus));
        }
        Some(Err(missing)) if config.device_required => return Err(StartError::Device(missing)),
        Some(Err(missing)) => tracing::warn!("backend.device = \"cuda\" cannot be had: {missing}"),
        None => {}
    }
    let limit_bytes = onnx.runtime.share_batch_memory(memory_bytes(config)).map_err(StartError::BatchMemory)?;
    tracing::info!(device = "cpu", onnxruntime = version, limit_mb = limit_bytes >> 20, "ONNX models run on the CPU");
    Ok(Engine::OrtCpu(onnx))
}

/// The memory of all GPUs together, which are shares of one process here; 0 if one of them is unlimited.
fn memory_bytes(config: &BackendConfig) -> u64 {
    let gpus = || config.gpus.iter().filter(|gpu| gpu.count > 0);
    if gpus().any(|gpu| gpu.memory_bytes() == 0) {
        return 0;
    }
    gpus().map(|gpu| gpu.memory_bytes().saturating_mul(u64::from(gpu.count))).fold(0, u64::saturating_add)
}

/// The configured GPUs, in the driver's order from 0 on, with one pool of pinned memory for all.
fn open_gpus(config: &BackendConfig) -> Result<Arc<[Cuda]>, NoCuda> {
    let pinned = PinnedPool::new(PINNED_BYTES_MAX);
    let count: u32 = config.gpus.iter().map(|gpu| gpu.count).sum();
    (0..count).map(|ordinal| Cuda::open(ordinal, &pinned)).collect()
}

/// Reports to the cluster that this backend has nothing left to finish, once each time that it is cordoned or drained.
async fn report_drained(
    control: ControlClient,
    identity: BackendIdentity,
    mut view: ViewReceiver,
    mut idle: watch::Receiver<bool>,
    ended: CancellationToken,
) {
    let BackendIdentity { backend, boot, .. } = identity;
    loop {
        let draining = {
            let view = view.borrow_and_update();
            view.backends.get(&backend).is_some_and(|b| b.boot == boot && !b.duty.takes_work() && !b.drained)
        };
        if draining && *idle.borrow_and_update() {
            let member = Some(Member::Backend(backend).into());
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = pb::ReportDrainedRequest { member, boot_id: boot.get() };
                async move { client.report_drained(request).await }
            };
            if let Err(error) = control.call(REPORT_WITHIN, call).await {
                tracing::debug!(%error, "not reported as drained");
            }
        }
        tokio::select! {
            () = ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
            changed = idle.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(REPORT_AGAIN_AFTER), if draining => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use symphony_config::{NodeConfig, Role};
    use symphony_protocol::view::{BackendView, View};
    use symphony_testkit::needed;
    use symphony_types::{BackendId, SubclusterId, Token};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_reason_for_a_restart_is_found_and_said() {
        let identity = BackendIdentity {
            backend: BackendId::new(1),
            boot: BootId::new(7),
            subcluster: SubclusterId::new(1),
            gpus: Vec::new(),
            token: Token::new(3),
        };
        let (tell_lost, lost) = watch::channel(false);
        let (_told, view) = watch::channel(Arc::<View>::default());
        let stuck = AtomicBool::new(false);
        let why = || {
            let is_stuck = || stuck.load(Ordering::Relaxed);
            let why = only_a_restart_helps(lost.clone(), is_stuck, view.clone(), &identity);
            tokio::time::timeout(10 * CHECK_STUCK_EVERY, why)
        };
        assert!(why().await.is_err(), "nothing is wrong");
        stuck.store(true, Ordering::Relaxed);
        let reason = why().await.unwrap();
        assert!(reason.contains("was ended and goes on"), "{reason}");
        stuck.store(false, Ordering::Relaxed);
        tell_lost.send_replace(true);
        let reason = why().await.unwrap();
        assert!(reason.contains("all its GPUs are lost"), "{reason}");
    }

    #[tokio::test]
    async fn a_backend_that_the_cluster_knew_and_no_longer_knows_is_to_be_started_anew() {
        let identity = BackendIdentity {
            backend: BackendId::new(1),
            boot: BootId::new(7),
            subcluster: SubclusterId::new(1),
            gpus: Vec::new(),
            token: Token::new(3),
        };
        let shown = |boot, up| {
            let backend = BackendView { boot: BootId::new(boot), up, ..BackendView::default() };
            Arc::new(View { backends: [(BackendId::new(1), backend)].into(), ..View::default() })
        };
        for later in [shown(6, false), Arc::default()] {
            let (view_sender, view) = watch::channel(Arc::<View>::default());
            let of = identity.clone();
            let forgotten = tokio::spawn(async move { is_forgotten(view, &of).await });
            // Views that may be older than the registration, its own boot, and another process under its name.
            for before in [shown(6, false), shown(7, true), shown(8, true)] {
                view_sender.send_replace(before);
                tokio::task::yield_now().await;
                assert!(!forgotten.is_finished());
            }
            view_sender.send_replace(later);
            tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("it finds out").unwrap();
        }
    }

    fn config(settings: &[&str]) -> BackendConfig {
        let text = include_str!("../../../../deploy/config/dev.toml");
        let settings: Vec<_> = ["security.insecure_dev=true"].iter().chain(settings).map(|&s| s.to_owned()).collect();
        let layers = NodeConfig::from_layers(Role::Backend, Some((Path::new("dev.toml"), text)), [], &settings);
        layers.unwrap().backend.unwrap()
    }

    const GPUS: &str = "backend.gpus=[{ kind = \"h100\", count = 1, memory_mb = 81559 }]";

    /// Machines with a GPU skip this; the tests of `symphony-executor-gpu` cover them.
    fn no_gpu_here() -> Option<()> {
        let absent = match Cuda::open(0, &PinnedPool::new(0)) {
            Ok(gpu) => Err(format!("there is a GPU, {}", gpu.name())),
            Err(_) => Ok(()),
        };
        needed("no-cuda", absent)
    }

    #[test]
    fn a_gpu_that_is_wanted_and_not_there_leaves_the_cpu_and_the_executor_says_so() {
        let Some(()) = no_gpu_here() else { return };
        match onnx_engine(&config(&["backend.device=cuda", GPUS])) {
            Ok(engine) => assert_eq!(engine.label(), "ort-cpu"),
            // Without ONNX Runtime there is no CPU either.
            Err(error) => assert!(matches!(error, StartError::Runtime(_)), "{error}"),
        }
    }

    #[test]
    fn a_gpu_that_is_required_and_not_there_is_an_error_before_anything_else() {
        let Some(()) = no_gpu_here() else { return };
        let required = config(&["backend.device=cuda", "backend.device_required=true", GPUS]);
        let error = onnx_engine(&required).unwrap_err();
        assert!(matches!(error, StartError::Device(_)), "{error}");
        let words = error.to_string();
        assert!(words.contains("no CUDA device") && words.contains("device_required = false"), "{words}");
    }
}
