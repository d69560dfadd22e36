//! Follows the view: loads the models of the sub-cluster, and of the one to which this backend moves, lets go of those that
//! left, and reports how it went.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_executor::{EmulatedExecutor, MemoryUse, ModelExecutor, OnnxExecutor, OnnxOptions, Pace, Runtime};
use symphony_protocol::control as pb;
use symphony_protocol::view::{BackendView, ModelSource, ModelSpec, ModelView, View};
use symphony_transport::ControlClient;
use symphony_types::{ModelId, SubclusterId};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::execution::{Identity, Input};
use crate::gpu_memory::GpuMemory;
use crate::metrics::Counts;
use crate::model_book::{BookState, ModelBook};

/// How long a report may take; after that the next change of the view tries again.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// A report that got lost is repeated at this pace.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Models are loaded one after another, so that what each takes can be told apart. One that hangs, on a disk that is gone, holds up
/// the others for so long; then they load beside it.
const LOAD_ALONE_WITHIN: Duration = Duration::from_secs(30);

/// What runs the models of this backend.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Takes ℓ(b), as fast as each GPU is, and answers with checksums.
    Emulated(Arc<[Arc<Pace>]>),
    /// ONNX Runtime on the CPU.
    OrtCpu {
        /// The loaded library.
        runtime: Runtime,
        /// Directory that model paths are relative to.
        model_dir: PathBuf,
        /// Threads that one batch may use.
        intra_threads: usize,
    },
}

impl Engine {
    /// One executor of the model on a GPU, by its place, of `kind`.
    fn load(&self, spec: &ModelSpec, gpu: usize, kind: &str) -> Result<Box<dyn ModelExecutor>, String> {
        let profile = spec.profiles.get(kind).ok_or_else(|| {
            let known: Vec<_> = spec.profiles.keys().map(String::as_str).collect();
            format!("no profile for GPU kind `{kind}`; the model has profiles for: {}", known.join(", "))
        })?;
        match self {
            Self::Emulated(paces) => {
                let executor = EmulatedExecutor::new(profile.latency.clone(), spec.signature.clone());
                let pace = paces.get(gpu).cloned().unwrap_or_default();
                Ok(Box::new(executor.paced(pace)))
            }
            Self::OrtCpu { runtime, model_dir, intra_threads } => {
                let ModelSource::Onnx(path) = &spec.source else {
                    return Err("the model is emulated, this backend runs ONNX files; load it on another one".into());
                };
                let options = OnnxOptions {
                    batch_max: profile.latency.batch_max(),
                    intra_threads: *intra_threads,
                    signature: Some(spec.signature.clone()),
                    ..OnnxOptions::default()
                };
                let path = model_dir.join(path);
                let executor = OnnxExecutor::from_file(runtime, &path, &options).map_err(|e| e.to_string())?;
                if let Some(sizes) = executor.batch_sizes() {
                    let refuse = |problem| format!("model `{}` cannot be used: {problem}", path.display());
                    sizes.check(&profile.latency).map_err(refuse)?;
                }
                Ok(Box::new(executor))
            }
        }
    }
}

/// How a model stands at this backend.
enum Standing {
    Loading,
    /// Ended; reported until the view shows it, and last at this time.
    Ended(Result<(), String>, Option<Instant>),
}

pub(crate) struct ModelLoader {
    pub(crate) identity: Identity,
    /// Kind of each GPU.
    pub(crate) kinds: Vec<String>,
    /// Memory of each GPU.
    pub(crate) memory: Vec<GpuMemory>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) book: Arc<ModelBook>,
    /// Whose turn it is to load.
    pub(crate) loading: Arc<Semaphore>,
    pub(crate) engine: Engine,
    pub(crate) control: ControlClient,
    pub(crate) view: watch::Receiver<Arc<View>>,
    pub(crate) execution: UnboundedSender<Input>,
}

type Loaded = (ModelId, Result<Vec<Box<dyn ModelExecutor>>, String>);

impl ModelLoader {
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let (loaded_in, mut loaded) = mpsc::unbounded_channel::<Loaded>();
        let mut models: HashMap<ModelId, Standing> = HashMap::new();
        let mut homes = vec![self.identity.subcluster];
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            let now = self.homes(&view);
            if now != homes {
                homes.clone_from(&now);
                let _ = self.execution.send(Input::Homes(now));
            }
            self.follow(&view, &mut models, &loaded_in);
            tokio::select! {
                () = ended.cancelled() => return,
                changed = self.view.changed() => if changed.is_err() { return },
                Some((model, result)) = loaded.recv() => self.loaded(model, result, &mut models),
                () = tokio::time::sleep(REPORT_AGAIN_AFTER) => {}
            }
        }
    }

    fn follow(&mut self, view: &View, models: &mut HashMap<ModelId, Standing>, loaded: &mpsc::UnboundedSender<Loaded>) {
        let stays = |model: &ModelId| view.models.get(model).is_some_and(|m| self.is_to_hold(view, m));
        let left: Vec<_> = models.keys().copied().filter(|model| !stays(model)).collect();
        for model in left {
            tracing::info!(%model, "unloaded");
            models.remove(&model);
            self.memory.iter_mut().for_each(|gpu| gpu.release(model));
            self.book.gone(model);
            let _ = self.execution.send(Input::Unloaded(model));
        }
        for (&id, model) in &view.models {
            if !self.is_to_hold(view, model) {
                continue;
            }
            match models.get_mut(&id) {
                None => {
                    self.book.stands(id, &model.spec.name, BookState::Loading);
                    if let Err(reason) = self.reserve(id, &model.spec) {
                        let standing = self.failed(id, &model.spec.name, reason);
                        models.insert(id, standing);
                        continue;
                    }
                    models.insert(id, Standing::Loading);
                    let turn = Arc::clone(&self.loading);
                    let (engine, kinds, spec) = (self.engine.clone(), self.kinds.clone(), model.spec.clone());
                    let loaded = loaded.clone();
                    let load =
                        move || kinds.iter().enumerate().map(|(gpu, kind)| engine.load(&spec, gpu, kind)).collect();
                    tokio::spawn(async move {
                        let _turn = tokio::time::timeout(LOAD_ALONE_WITHIN, turn.acquire_owned()).await;
                        let executors = tokio::task::spawn_blocking(load).await;
                        let executors = executors.unwrap_or_else(|error| Err(format!("loading ended: {error}")));
                        let _ = loaded.send((id, executors));
                    });
                }
                Some(Standing::Loading) => {}
                Some(Standing::Ended(state, reported)) => {
                    let replica = model.replicas.get(&self.identity.backend);
                    let shown = replica.is_some_and(|r| r.boot == self.identity.boot && r.state == *state);
                    // Every report changes the view, and every change leads here: at each turn again, many models
                    // would report each other's changes.
                    if !shown && reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN_AFTER) {
                        *reported = Some(Instant::now());
                        self.report(id, state);
                    }
                }
            }
        }
    }

    /// The sub-clusters that may have this backend: its own, and the one to which it is on its way.
    fn homes(&self, view: &View) -> Vec<SubclusterId> {
        let me = view.backends.get(&self.identity.backend).filter(|me| me.boot == self.identity.boot);
        let of = |me: &BackendView| std::iter::once(me.subcluster).chain(me.moving.map(|moving| moving.to)).collect();
        me.map_or_else(|| vec![self.identity.subcluster], of)
    }

    /// Whether the plan has the model here. A view from before the registration does not know this backend.
    fn is_to_hold(&self, view: &View, model: &ModelView) -> bool {
        let me = view.backends.get(&self.identity.backend).filter(|me| me.boot == self.identity.boot);
        me.map_or_else(|| model.is_held_by(self.identity.subcluster), |me| me.is_to_hold(model))
    }

    /// Keeps memory for a model, as much as its profile says.
    fn reserve(&mut self, model: ModelId, spec: &ModelSpec) -> Result<(), String> {
        for (gpu, kind) in self.memory.iter_mut().zip(&self.kinds) {
            // Without a profile it is not loaded, which is said elsewhere.
            let Some(profile) = spec.profiles.get(kind) else { continue };
            let (static_bytes, dynamic_bytes) = (profile.static_memory_bytes, profile.dynamic_memory_bytes);
            gpu.take(model, MemoryUse { static_bytes, dynamic_bytes }, "its profile")?;
        }
        Ok(())
    }

    /// Holds a loaded model to what it takes: more than its profile says may be more than there is.
    fn account(
        &mut self,
        model: ModelId,
        spec: &ModelSpec,
        executors: &[Box<dyn ModelExecutor>],
    ) -> Result<(), String> {
        for (index, (executor, kind)) in executors.iter().zip(&self.kinds).enumerate() {
            let (Some(measured), Some(profile)) = (executor.memory(), spec.profiles.get(kind)) else { continue };
            self.book.measured(model, index, measured);
            let needs = MemoryUse {
                static_bytes: measured.static_bytes.max(profile.static_memory_bytes),
                dynamic_bytes: measured.dynamic_bytes.max(profile.dynamic_memory_bytes),
            };
            self.memory[index].take(model, needs, "measurement")?;
        }
        Ok(())
    }

    fn failed(&mut self, model: ModelId, name: &str, reason: String) -> Standing {
        tracing::error!(%model, name, %reason, "model not loaded");
        self.memory.iter_mut().for_each(|gpu| gpu.release(model));
        Counts::add(&self.counts.loads_failed, 1);
        self.book.stands(model, name, BookState::Failed);
        Standing::Ended(Err(reason), None)
    }

    fn loaded(
        &mut self,
        model: ModelId,
        result: Result<Vec<Box<dyn ModelExecutor>>, String>,
        models: &mut HashMap<ModelId, Standing>,
    ) {
        // Unloaded while it was loading: the executors are dropped here.
        let view = Arc::clone(&self.view.borrow());
        let known = view.models.get(&model).filter(|_| models.contains_key(&model));
        let Some(spec) = known.map(|known| &known.spec) else {
            let_go(result);
            return;
        };
        let fits = result.and_then(|executors| match self.account(model, spec, &executors) {
            Ok(()) => Ok(executors),
            Err(reason) => {
                let_go(Ok(executors));
                Err(reason)
            }
        });
        let standing = match fits {
            Ok(executors) => {
                tracing::info!(%model, name = spec.name, "loaded");
                Counts::add(&self.counts.loads, 1);
                self.book.stands(model, &spec.name, BookState::Ready);
                let _ = self.execution.send(Input::Loaded(model, executors));
                Standing::Ended(Ok(()), None)
            }
            Err(reason) => self.failed(model, &spec.name, reason),
        };
        models.insert(model, standing);
    }

    fn report(&self, model: ModelId, state: &Result<(), String>) {
        let (state, error) = match state {
            Ok(()) => (pb::ModelState::Ready, String::new()),
            Err(error) => (pb::ModelState::Failed, error.clone()),
        };
        let replica = pb::ModelReplica {
            backend: self.identity.backend.get(),
            boot_id: self.identity.boot.get(),
            state: state.into(),
            error,
        };
        let request = pb::ReportModelRequest { model: model.get(), replica: Some(replica) };
        let control = self.control.clone();
        tokio::spawn(async move {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = request.clone();
                async move { client.report_model(request).await }
            };
            if let Err(error) = control.call(REPORT_WITHIN, call).await {
                tracing::warn!(%model, %error, "cannot report the model's state; will try again");
            }
        });
    }
}

/// Gives the memory of models back that nobody runs, on a thread for such work.
fn let_go(executors: Result<Vec<Box<dyn ModelExecutor>>, String>) {
    tokio::task::spawn_blocking(move || drop(executors));
}
