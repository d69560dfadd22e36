//! Follows the view: loads the models of the sub-cluster, and of the one to which this backend moves, lets go of those that
//! left, and reports how it went.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_executor::{EmulatedExecutor, ModelExecutor, OnnxExecutor, OnnxOptions, Pace, Runtime};
use symphony_protocol::control as pb;
use symphony_protocol::view::{BackendView, ModelSource, ModelSpec, ModelView, View};
use symphony_transport::ControlClient;
use symphony_types::{ModelId, SubclusterId};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::execution::{Identity, Input};

/// How long a report may take; after that the next change of the view tries again.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// A report that got lost is repeated at this pace.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);

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
    Loading,
    /// Ended; reported until the view shows it, and last at this time.
    Ended(Result<(), String>, Option<Instant>),
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

    fn follow(&self, view: &View, models: &mut HashMap<ModelId, Standing>, loaded: &mpsc::UnboundedSender<Loaded>) {
        models.retain(|&model, _| {
            let stays = view.models.get(&model).is_some_and(|m| self.is_to_hold(view, m));
            if !stays {
                tracing::info!(%model, "unloaded");
                let _ = self.execution.send(Input::Unloaded(model));
            }
            stays
        });
        for (&id, model) in &view.models {
            if !self.is_to_hold(view, model) {
                continue;
            }
            match models.get_mut(&id) {
                None => {
                    models.insert(id, Standing::Loading);
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

    fn loaded(
        &self,
        model: ModelId,
        result: Result<Vec<Box<dyn ModelExecutor>>, String>,
        models: &mut HashMap<ModelId, Standing>,
    ) {
        // Unloaded while it was loading: the executors are dropped here.
        let Some(standing) = models.get_mut(&model) else { return };
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
        *standing = Standing::Ended(state, None);
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
