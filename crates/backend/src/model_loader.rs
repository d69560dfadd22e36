//! Follows the view: loads the models of the sub-cluster, and of the one to which this backend moves, lets go of those that
//! left, and reports how it went. Nothing is loaded while something is being let go of: the plan has room for what comes only
//! where the other one was.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_executor::{EmulatedExecutor, EmulatedMemory, ModelExecutor, OnnxExecutor, OnnxOptions, Pace, Runtime};
use symphony_protocol::control as pb;
use symphony_protocol::view::{BackendView, ModelSource, ModelSpec, ModelView, View};
use symphony_transport::ControlClient;
use symphony_types::{ModelId, SubclusterId};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::execution::{Identity, Input};
use crate::load_meter::{LoadMeter, RunningLoad};
use crate::plan::LetGo;

/// How long a report may take; after that the next change of the view tries again.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// A report that got lost is repeated at this pace.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// An emulated GPU.
#[derive(Clone, Debug)]
pub struct EmulatedGpu {
    /// How fast it is.
    pub pace: Arc<Pace>,
    /// What it holds models in.
    pub memory: Arc<EmulatedMemory>,
    /// Bytes of models that are loaded per second; none if they are there at once.
    pub load_bytes_per_s: Option<NonZeroU64>,
}

/// What runs the models of this backend.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Takes ℓ(b), as fast as each GPU is, and answers with checksums.
    Emulated(Arc<[EmulatedGpu]>),
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
    /// Whether the time that loading takes says something about the machine.
    fn takes_time_to_load(&self) -> bool {
        match self {
            Self::Emulated(gpus) => gpus.iter().any(|gpu| gpu.load_bytes_per_s.is_some()),
            Self::OrtCpu { .. } => true,
        }
    }

    /// One executor of the model on a GPU, by its place, of `kind`.
    fn load(&self, spec: &ModelSpec, gpu: usize, kind: &str) -> Result<Box<dyn ModelExecutor>, String> {
        let profile = spec.profiles.get(kind).ok_or_else(|| {
            let known: Vec<_> = spec.profiles.keys().map(String::as_str).collect();
            format!("no profile for GPU kind `{kind}`; the model has profiles for: {}", known.join(", "))
        })?;
        match self {
            Self::Emulated(gpus) => {
                let gpu = gpus.get(gpu).ok_or_else(|| format!("there is no emulated GPU {gpu}"))?;
                let memory = gpu.memory.take(profile.static_memory_bytes, profile.dynamic_memory_bytes);
                let memory = memory.map_err(|error| error.to_string())?;
                if let Some(per_second) = gpu.load_bytes_per_s {
                    let seconds = profile.static_memory_bytes as f64 / per_second.get() as f64;
                    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
                }
                let executor = EmulatedExecutor::new(profile.latency.clone(), spec.signature.clone());
                Ok(Box::new(executor.paced(Arc::clone(&gpu.pace)).holding(memory)))
            }
            Self::OrtCpu { runtime, model_dir, intra_threads } => {
                let ModelSource::Onnx(path) = &spec.source else {
                    return Err("the model is emulated, this backend runs ONNX files; load it on another one".into());
                };
                let options = OnnxOptions {
                    batch_max: profile.latency.batch_max(),
                    intra_threads: *intra_threads,
                    ..OnnxOptions::default()
                };
                let path = model_dir.join(path);
                let executor = OnnxExecutor::from_file(runtime, &path, &options).map_err(|e| e.to_string())?;
                if *executor.signature() != spec.signature {
                    let (found, asked) = (executor.signature(), &spec.signature);
                    return Err(format!("{} has the signature {found:?}; asked for was {asked:?}", path.display()));
                }
                Ok(Box::new(executor))
            }
        }
    }
}

/// How a model stands at this backend.
enum Standing {
    Loading(RunningLoad),
    /// Ended, after so long; reported until the view shows it, and last at this time.
    Ended {
        state: Result<(), String>,
        took: Duration,
        reported: Option<Instant>,
    },
    /// Not to be held any more, and its memory still taken: by plans that were accepted, or because it is being loaded.
    Leaving(Option<RunningLoad>),
}

pub(crate) struct ModelLoader {
    pub(crate) identity: Identity,
    /// Kind of each GPU.
    pub(crate) kinds: Vec<String>,
    pub(crate) engine: Engine,
    pub(crate) control: ControlClient,
    pub(crate) view: watch::Receiver<Arc<View>>,
    pub(crate) execution: UnboundedSender<Input>,
}

type Loaded = (ModelId, Result<Vec<Box<dyn ModelExecutor>>, String>);

impl ModelLoader {
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let (loaded_in, mut loaded) = mpsc::unbounded_channel::<Loaded>();
        let (gone_in, mut gone) = mpsc::unbounded_channel::<ModelId>();
        let mut models: HashMap<ModelId, Standing> = HashMap::new();
        let mut meter = LoadMeter::default();
        let mut homes = vec![self.identity.subcluster];
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            let now = self.homes(&view);
            if now != homes {
                homes.clone_from(&now);
                let _ = self.execution.send(Input::Homes(now));
            }
            self.let_go(&view, &mut models, &gone_in);
            self.follow(&view, &mut models, &mut meter, &loaded_in);
            tokio::select! {
                () = ended.cancelled() => return,
                changed = self.view.changed() => if changed.is_err() { return },
                Some((model, result)) = loaded.recv() => {
                    self.loaded(model, result, &mut models, &mut meter);
                }
                Some(model) = gone.recv() => {
                    tracing::info!(%model, "unloaded");
                    models.remove(&model);
                }
                () = tokio::time::sleep(REPORT_AGAIN_AFTER) => {}
            }
        }
    }

    /// Begins to let go of what is not to be held any more.
    fn let_go(&self, view: &View, models: &mut HashMap<ModelId, Standing>, gone: &mpsc::UnboundedSender<ModelId>) {
        models.retain(|&model, standing| {
            if view.models.get(&model).is_some_and(|m| self.is_to_hold(view, m)) {
                return true;
            }
            match standing {
                Standing::Leaving(_) => {}
                // What is being loaded goes when that has ended.
                Standing::Loading(load) => *standing = Standing::Leaving(Some(*load)),
                Standing::Ended { state: Err(_), .. } => return false,
                Standing::Ended { state: Ok(()), .. } => {
                    let let_go = Arc::new(LetGo { model, gone: gone.clone() });
                    let _ = self.execution.send(Input::Unloaded(let_go));
                    *standing = Standing::Leaving(None);
                }
            }
            true
        });
    }

    /// Loads and reports what is to be held.
    fn follow(
        &self,
        view: &View,
        models: &mut HashMap<ModelId, Standing>,
        meter: &mut LoadMeter,
        loaded: &mpsc::UnboundedSender<Loaded>,
    ) {
        let leaving = models.values().any(|standing| matches!(standing, Standing::Leaving(_)));
        for (&id, model) in &view.models {
            if !self.is_to_hold(view, model) {
                continue;
            }
            match models.get_mut(&id) {
                None if leaving => {}
                None => {
                    models.insert(id, Standing::Loading(meter.begin(Instant::now())));
                    let (engine, kinds, spec) = (self.engine.clone(), self.kinds.clone(), model.spec.clone());
                    let loaded = loaded.clone();
                    let load =
                        move || kinds.iter().enumerate().map(|(gpu, kind)| engine.load(&spec, gpu, kind)).collect();
                    tokio::spawn(async move {
                        let executors = tokio::task::spawn_blocking(load).await;
                        let executors = executors.unwrap_or_else(|error| Err(format!("loading ended: {error}")));
                        let _ = loaded.send((id, executors));
                    });
                }
                Some(Standing::Loading(_) | Standing::Leaving(_)) => {}
                Some(Standing::Ended { state, took, reported }) => {
                    let replica = model.replicas.get(&self.identity.backend);
                    let shown = replica.is_some_and(|r| r.boot == self.identity.boot && r.state == *state);
                    // Every report changes the view, and every change leads here: at each turn again, many models
                    // would report each other's changes.
                    if !shown && reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN_AFTER) {
                        *reported = Some(Instant::now());
                        self.report(id, state, *took);
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

    fn loaded(
        &self,
        model: ModelId,
        result: Result<Vec<Box<dyn ModelExecutor>>, String>,
        models: &mut HashMap<ModelId, Standing>,
        meter: &mut LoadMeter,
    ) {
        let Some(standing) = models.get_mut(&model) else { return };
        let (Standing::Loading(load) | Standing::Leaving(Some(load))) = *standing else { return };
        let took = meter.end(Instant::now(), load);
        if matches!(standing, Standing::Leaving(_)) {
            drop(result);
            models.remove(&model);
            return;
        }
        let state = match result {
            Ok(executors) => {
                tracing::info!(%model, "loaded");
                let _ = self.execution.send(Input::Loaded(model, executors));
                Ok(())
            }
            Err(reason) => {
                tracing::error!(%model, %reason, "model not loaded");
                Err(reason)
            }
        };
        *standing = Standing::Ended { state, took, reported: None };
    }

    fn report(&self, model: ModelId, state: &Result<(), String>, took: Duration) {
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
        let took = if self.engine.takes_time_to_load() { took } else { Duration::ZERO };
        let load_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let request = pb::ReportModelRequest { model: model.get(), replica: Some(replica), load_ns };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use symphony_executor::default_signature;
    use symphony_net::Net;
    use symphony_protocol::view::KindProfile;
    use symphony_types::{BackendId, BootId, GpuId, LatencyProfile, RequestValue, Token};

    use super::*;

    const HOME: SubclusterId = SubclusterId::new(1);
    const OUTGOING: ModelId = ModelId::new(1);
    const INCOMING: ModelId = ModelId::new(2);

    /// One emulated GPU with 100 bytes.
    fn engine() -> Engine {
        let memory = Arc::new(EmulatedMemory::new(100));
        let gpu = EmulatedGpu { pace: Arc::default(), memory, load_bytes_per_s: None };
        Engine::Emulated([gpu].into())
    }

    /// A model of 60 bytes: two do not fit.
    fn spec(name: &str) -> ModelSpec {
        let latency = LatencyProfile::from_line(1.0, 1.0, 4).unwrap();
        let profile = KindProfile { latency, static_memory_bytes: 50, dynamic_memory_bytes: 10 };
        ModelSpec {
            name: name.into(),
            subcluster: "s".into(),
            slo: symphony_types::Nanos::from_millis(100),
            source: ModelSource::Emulated,
            signature: default_signature(),
            profiles: [("gpu".to_owned(), profile)].into(),
            policy: String::new(),
            value: RequestValue::ONE,
            transforms: Default::default(),
        }
    }

    fn view(models: &[ModelId]) -> Arc<View> {
        let model = |id: &ModelId| {
            let spec = spec(&format!("m{id}"));
            (*id, ModelView { spec, subcluster: HOME, moving: None, replicas: [].into() })
        };
        Arc::new(View { models: models.iter().map(model).collect(), ..View::default() })
    }

    #[test]
    fn two_models_that_do_not_fit_together_cannot_be_loaded_at_a_time() {
        let engine = engine();
        let first = engine.load(&spec("a"), 0, "gpu").unwrap();
        // The planted fault: the second one is loaded before the first has gone.
        let error = engine.load(&spec("b"), 0, "gpu").err().unwrap();
        assert!(error.contains("50 of 100 bytes are taken, and 60 are needed"), "{error}");
        drop(first);
        assert!(engine.load(&spec("b"), 0, "gpu").is_ok());
    }

    async fn next(execution: &mut mpsc::UnboundedReceiver<Input>) -> Input {
        let input = tokio::time::timeout(Duration::from_secs(10), execution.recv()).await;
        input.expect("something comes within ten seconds").unwrap()
    }

    #[tokio::test]
    async fn what_comes_is_loaded_when_what_goes_has_gone() {
        let (views, view_out) = watch::channel(view(&[OUTGOING]));
        let (inputs, mut execution) = mpsc::unbounded_channel();
        let identity = Identity {
            backend: BackendId::new(1),
            boot: BootId::new(1),
            subcluster: HOME,
            gpus: vec![GpuId::new(1)],
            token: Token::new(1),
        };
        // Reports reach nobody, and are repeated.
        let control = ControlClient::new(&Net::plaintext(), &["127.0.0.1:1".to_owned()]).unwrap();
        let kinds = vec!["gpu".to_owned()];
        let loader = ModelLoader { identity, kinds, engine: engine(), control, view: view_out, execution: inputs };
        let ended = CancellationToken::new();
        let running = tokio::spawn(loader.run(ended.clone()));
        let Input::Loaded(OUTGOING, executors) = next(&mut execution).await else { panic!("not loaded") };

        views.send_replace(view(&[INCOMING]));
        let Input::Unloaded(let_go) = next(&mut execution).await else { panic!("not let go of") };
        assert_eq!(let_go.model, OUTGOING);
        // Plans that were accepted run: time enough for a load that does not wait to fail.
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop((executors, let_go));
        let Input::Loaded(INCOMING, executors) = next(&mut execution).await else { panic!("not loaded") };

        // There and back before it has gone: it is loaded anew.
        views.send_replace(view(&[]));
        let Input::Unloaded(let_go) = next(&mut execution).await else { panic!("not let go of") };
        views.send_replace(view(&[INCOMING]));
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop((executors, let_go));
        assert!(matches!(next(&mut execution).await, Input::Loaded(INCOMING, _)));
        ended.cancel();
        running.await.unwrap();
    }
}
