//! Follows the view: loads the models of this backend's sub-cluster and of the destination of a move, drops those that
//! left, and reports the results. Nothing is loaded while something is being dropped, within a limit: the partition
//! plan has room for the new model only in place of the old one.
//!
//! A model that shares its trunk is loaded in parts. A model that begins or ceases to share it is loaded again, and
//! served as it was until then.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_executor::{MemoryUse, ModelExecutor, Stop};
use symphony_protocol::control as pb;
use symphony_protocol::view::{BackendView, ModelSpec, ModelView, View};
use symphony_transport::ControlClient;
use symphony_types::{CutDigest, ModelId, SubclusterId};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::accepted_plan::UnloadGuard;
use crate::counts::Counts;
use crate::engine::{Engine, NotLoaded};
use crate::gpu_memory::GpuMemory;
use crate::gpu_time::GpuTime;
use crate::load_meter::LoadMeter;
use crate::model_states::{ModelState, ModelStates, sum};
use crate::plan_intake::{BackendIdentity, IntakeEvent};
use crate::trunks::Trunks;

/// How long a report may take; after that the next change of the view tries again.
const REPORT_WITHIN: Duration = Duration::from_secs(10);
/// A lost report is repeated at this pace.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Models are loaded one after another, so that the memory of each can be measured. A load that hangs, perhaps on a
/// dead disk, delays the others for this long; then they load beside it.
pub(crate) const LOAD_ALONE_WITHIN: Duration = Duration::from_secs(30);
/// How long loads wait for a model that is being dropped: accepted plans end within seconds, and loads within the time
/// of a slow disk. Anything longer hangs. It keeps its memory but delays no load any more: what fits beside it is
/// loaded; what does not is refused, and tried again once it has gone.
pub(crate) const LEAVES_WITHIN: Duration = Duration::from_secs(60);

/// The state of a model at this backend.
enum LocalModel {
    /// With the switch that aborts its batches.
    Loading(Stop),
    Ended(ModelReport),
    /// To be dropped since then, but its memory is still taken: by accepted plans, or by a load in progress. If that
    /// hangs, the report for the case that the model is wanted again.
    Leaving {
        since: tokio::time::Instant,
        hangs: Option<ModelReport>,
    },
}

/// The report on a model, until the view shows it.
struct ModelReport {
    state: Result<(), String>,
    took: Duration,
    /// When it was last sent.
    reported: Option<Instant>,
    /// It did not fit beside the others.
    lacks_memory: bool,
    form: Form,
}

/// How a model is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Form {
    /// The trunk that it was last to share, whether or not it could; none: it was to be whole.
    requested: Option<CutDigest>,
    /// Whether it is being loaded like that, while it is served as it was before.
    is_changing: bool,
}

impl ModelReport {
    fn failed(reason: String, took: Duration) -> Self {
        Self { state: Err(reason), took, reported: None, lacks_memory: false, form: Form::default() }
    }
}

impl LocalModel {
    fn leaving() -> Self {
        Self::Leaving { since: tokio::time::Instant::now(), hangs: None }
    }
}

pub(crate) struct ModelLoader {
    pub(crate) identity: BackendIdentity,
    /// Kind of each GPU.
    pub(crate) kinds: Vec<String>,
    /// Memory of each GPU. A model has its share from before it is loaded until it has really gone.
    pub(crate) memory: Vec<GpuMemory>,
    /// The gaps between plans, by GPU.
    pub(crate) times: Vec<Arc<GpuTime>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) model_states: Arc<ModelStates>,
    /// The permit to load.
    pub(crate) loading: Arc<Semaphore>,
    /// Keeps the times of concurrent loads from being counted twice.
    pub(crate) meter: Arc<Mutex<LoadMeter>>,
    pub(crate) engine: Engine,
    pub(crate) trunks: Arc<Trunks>,
    pub(crate) control: ControlClient,
    pub(crate) view: watch::Receiver<Arc<View>>,
    /// Whether the frontends are linked, or no longer waited for. Nothing is reported before: the first batches follow
    /// the report that a model is ready.
    pub(crate) linked: watch::Receiver<bool>,
    pub(crate) intake: UnboundedSender<IntakeEvent>,
}

/// The end of a load.
struct Loaded {
    model: ModelId,
    spec: ModelSpec,
    /// One executor for each GPU, or the error.
    result: Result<Vec<Box<dyn ModelExecutor>>, NotLoaded>,
    took: Duration,
    /// The permit to load; none if another load has held it for too long.
    turn: Option<OwnedSemaphorePermit>,
    request: LoadRequest,
}

/// How a model is to be loaded.
#[derive(Clone, Copy, Debug)]
struct LoadRequest {
    /// The trunk that it is to share.
    trunk: Option<CutDigest>,
    /// Whether it is loaded already, otherwise: then nothing comes of this if it fails.
    again: bool,
}

impl ModelLoader {
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let (loaded_in, mut loaded) = mpsc::unbounded_channel::<Loaded>();
        let (gone_in, mut gone) = mpsc::unbounded_channel::<ModelId>();
        let mut models: HashMap<ModelId, LocalModel> = HashMap::new();
        let mut homes = vec![self.identity.subcluster];
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            let now = self.homes(&view);
            if now != homes {
                homes.clone_from(&now);
                let _ = self.intake.send(IntakeEvent::Homes(now));
            }
            self.unload(&view, &mut models, &gone_in);
            self.apply_view(&view, &mut models, &loaded_in);
            let linked = *self.linked.borrow_and_update();
            tokio::select! {
                () = ended.cancelled() => return,
                Ok(()) = self.linked.changed(), if !linked => {}
                changed = self.view.changed() => if changed.is_err() { return },
                Some(ended) = loaded.recv() => self.loaded(ended, &mut models, &gone_in),
                Some(model) = gone.recv() => self.gone(model, &mut models),
                () = tokio::time::sleep(REPORT_AGAIN_AFTER) => {}
            }
        }
    }

    /// Begins to drop the models that should leave.
    fn unload(&self, view: &View, models: &mut HashMap<ModelId, LocalModel>, gone: &UnboundedSender<ModelId>) {
        models.retain(|&model, local| {
            if view.models.get(&model).is_some_and(|m| self.is_to_hold(view, m)) {
                return true;
            }
            self.model_states.remove(model);
            match local {
                // A model that is still loading is dropped when its load has ended.
                LocalModel::Leaving { .. } => {}
                LocalModel::Loading(stop) => {
                    stop.give_up();
                    *local = LocalModel::leaving();
                }
                LocalModel::Ended(ModelReport { state: Err(_), .. }) => return false,
                LocalModel::Ended(ModelReport { state: Ok(()), .. }) => {
                    let unload_guard = Arc::new(UnloadGuard { model, gone: gone.clone() });
                    let _ = self.intake.send(IntakeEvent::Unloaded(unload_guard));
                    *local = LocalModel::leaving();
                }
            }
            true
        });
        self.find_hung_unloads(models);
    }

    fn find_hung_unloads(&self, models: &mut HashMap<ModelId, LocalModel>) {
        for (model, local) in models {
            let LocalModel::Leaving { since, hangs: hangs @ None } = local else { continue };
            if since.elapsed() < LEAVES_WITHIN {
                continue;
            }
            let within_s = LEAVES_WITHIN.as_secs();
            tracing::warn!(
                %model,
                "was to go {within_s} s ago and has not: its load, or a batch before it, takes that long or hangs. It keeps its memory until \
                 that ends; what fits beside it is loaded from here on. A restart of the backend frees it"
            );
            Counts::add(&self.counts.models_hung, 1);
            let reason = format!("was to go more than {within_s} s ago and hangs; it is loaded anew once it has gone");
            *hangs = Some(ModelReport::failed(reason, Duration::ZERO));
        }
    }

    /// A model has gone from all GPUs, with its memory. Models that lacked memory are tried again.
    fn gone(&mut self, model: ModelId, models: &mut HashMap<ModelId, LocalModel>) {
        tracing::info!(%model, "unloaded");
        self.release(model);
        models.remove(&model);
        models.retain(|_, local| !matches!(local, LocalModel::Ended(ModelReport { lacks_memory: true, .. })));
    }

    /// Loads and reports the models that this backend should hold.
    fn apply_view(&mut self, view: &View, models: &mut HashMap<ModelId, LocalModel>, loaded: &UnboundedSender<Loaded>) {
        let leaving = models.values().any(|local| matches!(local, LocalModel::Leaving { hangs: None, .. }));
        for (&id, model) in &view.models {
            if !self.is_to_hold(view, model) {
                continue;
            }
            match models.get_mut(&id) {
                None if leaving => {}
                None => {
                    self.model_states.set_state(id, &model.spec.name, ModelState::Loading);
                    let request = LoadRequest { trunk: self.trunk_of(model), again: false };
                    if let Err(reason) = self.reserve(id, &model.spec, request.trunk) {
                        let report = self.lacks_memory(id, &model.spec.name, reason, Duration::ZERO);
                        models.insert(id, LocalModel::Ended(report));
                        continue;
                    }
                    let stop = Stop::default();
                    tokio::spawn(self.load(id, model.spec.clone(), request, stop.clone(), loaded.clone()));
                    models.insert(id, LocalModel::Loading(stop));
                }
                Some(LocalModel::Loading(_) | LocalModel::Leaving { hangs: None, .. }) => {}
                Some(LocalModel::Leaving { hangs: Some(report), .. }) => {
                    self.model_states.set_state(id, &model.spec.name, ModelState::Failed);
                    self.send_report(id, model, report);
                }
                Some(LocalModel::Ended(report)) => {
                    self.send_report(id, model, report);
                    let trunk = self.trunk_of(model);
                    if report.state.is_ok() && !report.form.is_changing && report.form.requested != trunk {
                        report.form = Form { requested: trunk, is_changing: true };
                        let request = LoadRequest { trunk, again: true };
                        tokio::spawn(self.load(id, model.spec.clone(), request, Stop::default(), loaded.clone()));
                    }
                }
            }
        }
    }

    /// The trunk that the model is to share here.
    fn trunk_of(&self, model: &ModelView) -> Option<CutDigest> {
        model.shared_trunk().filter(|_| self.engine.hosts_families())
    }

    /// Sends the report if the view does not show it yet.
    fn send_report(&self, id: ModelId, model: &ModelView, report: &mut ModelReport) {
        if !*self.linked.borrow() {
            return;
        }
        let holder = model.holders.get(&self.identity.backend);
        let shown = holder.is_some_and(|r| r.boot == self.identity.boot && r.state == report.state);
        // Every report changes the view, and every change leads here: without the pause, many models would trigger
        // each other's reports.
        if !shown && report.reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN_AFTER) {
            report.reported = Some(Instant::now());
            self.report(id, &report.state, report.took);
        }
    }

    /// Loads a model for each GPU when it gets the permit.
    fn load(
        &self,
        model: ModelId,
        spec: ModelSpec,
        request: LoadRequest,
        stop: Stop,
        loaded: UnboundedSender<Loaded>,
    ) -> impl Future<Output = ()> + use<> {
        let (engine, kinds, times) = (self.engine.clone(), self.kinds.clone(), self.times.clone());
        let (turns, meter, trunks) = (Arc::clone(&self.loading), Arc::clone(&self.meter), Arc::clone(&self.trunks));
        async move {
            let turn = tokio::time::timeout(LOAD_ALONE_WITHIN, turns.acquire_owned()).await;
            let turn = turn.ok().and_then(Result::ok);
            let begun = lock(&meter).begin(Instant::now());
            let of = spec.clone();
            let load = move || -> Result<Vec<Box<dyn ModelExecutor>>, NotLoaded> {
                let gpus = || kinds.iter().zip(&times).enumerate();
                if let Some(trunk) = request.trunk {
                    let part = |(gpu, (kind, time)): (usize, (&String, &Arc<GpuTime>))| {
                        engine.load_in_parts((model, &of), (gpu, kind.as_str(), &**time), &stop, (trunk, &*trunks))
                    };
                    let parts: Result<Vec<_>, String> = gpus().map(part).collect();
                    match parts {
                        Ok(executors) => return Ok(executors),
                        Err(reason) if request.again => return Err(NotLoaded::from(reason)),
                        Err(reason) => tracing::info!(%model, %trunk, %reason, "not loaded in parts; loads it whole"),
                    }
                }
                gpus().map(|(gpu, (kind, time))| engine.load(&of, gpu, kind, time, &stop)).collect()
            };
            let result = tokio::task::spawn_blocking(load).await;
            let result = result.unwrap_or_else(|error| Err(format!("loading ended: {error}").into()));
            let took = lock(&meter).end(Instant::now(), begun);
            let _ = loaded.send(Loaded { model, spec, result, took, turn, request });
        }
    }

    /// The sub-clusters that may use this backend: its own, and the destination of a move.
    fn homes(&self, view: &View) -> Vec<SubclusterId> {
        let me = view.backends.get(&self.identity.backend).filter(|me| me.boot == self.identity.boot);
        let of = |me: &BackendView| std::iter::once(me.subcluster).chain(me.moving.map(|moving| moving.to)).collect();
        me.map_or_else(|| vec![self.identity.subcluster], of)
    }

    /// Whether the plan has the model here. A view from before the registration does not contain this backend.
    fn is_to_hold(&self, view: &View, model: &ModelView) -> bool {
        let me = view.backends.get(&self.identity.backend).filter(|me| me.boot == self.identity.boot);
        me.map_or_else(|| model.is_held_by(self.identity.subcluster), |me| me.is_to_hold(model))
    }

    /// Reserves memory for a model, by its profile. If its trunk is loaded here only the suffix is added, which is not
    /// in the profile: it is measured.
    fn reserve(&mut self, model: ModelId, spec: &ModelSpec, trunk: Option<CutDigest>) -> Result<(), String> {
        for (index, (gpu, kind)) in self.memory.iter_mut().zip(&self.kinds).enumerate() {
            if trunk.is_some_and(|trunk| self.trunks.has(index, trunk)) {
                continue;
            }
            // A model without a profile is not loaded, which is reported elsewhere.
            let Some(profile) = spec.profiles.get(kind) else { continue };
            let (static_bytes, dynamic_bytes) = (profile.static_memory_bytes, profile.dynamic_memory_bytes);
            gpu.take(model, MemoryUse { static_bytes, dynamic_bytes }, "its profile")?;
        }
        Ok(())
    }

    /// Accounts for a loaded model's measured memory, which may exceed its profile and what is free. A trunk that
    /// models share counts once.
    fn account(
        &mut self,
        model: ModelId,
        spec: &ModelSpec,
        executors: &[Box<dyn ModelExecutor>],
    ) -> Result<(), String> {
        for (index, (executor, kind)) in executors.iter().zip(&self.kinds).enumerate() {
            let (Some(measured), Some(profile)) = (executor.memory(), spec.profiles.get(kind)) else { continue };
            self.model_states.measured(model, index, measured);
            if let Some(member) = executor.in_family() {
                let trunk = (member.trunk(), member.trunk_memory());
                self.memory[index].take_in_family(model, measured, trunk, "measurement")?;
                continue;
            }
            let needs = MemoryUse {
                static_bytes: measured.static_bytes.max(profile.static_memory_bytes),
                dynamic_bytes: measured.dynamic_bytes.max(profile.dynamic_memory_bytes),
            };
            self.memory[index].take(model, needs, "measurement")?;
        }
        Ok(())
    }

    fn lacks_memory(&mut self, model: ModelId, name: &str, reason: String, took: Duration) -> ModelReport {
        ModelReport { lacks_memory: true, ..self.failed(model, name, reason, took) }
    }

    fn failed(&mut self, model: ModelId, name: &str, reason: String, took: Duration) -> ModelReport {
        tracing::error!(%model, name, %reason, "model not loaded");
        self.release(model);
        Counts::add(&self.counts.loads_failed, 1);
        self.model_states.set_state(model, name, ModelState::Failed);
        ModelReport::failed(reason, took)
    }

    fn release(&mut self, model: ModelId) {
        self.memory.iter_mut().for_each(|gpu| gpu.release(model));
        self.show_trunks();
    }

    /// Shows the memory of shared trunks.
    fn show_trunks(&self) {
        let mut trunks = BTreeMap::new();
        for (trunk, memory) in self.memory.iter().flat_map(GpuMemory::trunks) {
            let all = trunks.entry(trunk).or_default();
            *all = sum(*all, memory);
        }
        self.model_states.set_trunks(trunks);
    }

    /// A model that is served has been loaded otherwise, and takes the place of what there was. If it could not be, or
    /// there is no room for it like that, all stays as it is.
    fn loaded_again(
        &mut self,
        model: ModelId,
        spec: &ModelSpec,
        result: Result<Vec<Box<dyn ModelExecutor>>, NotLoaded>,
        turn: Option<OwnedSemaphorePermit>,
    ) {
        let before = self.memory.clone();
        match result.map(|executors| (self.account(model, spec, &executors), executors)) {
            Ok((Ok(()), executors)) => {
                let in_parts = executors.iter().any(|executor| executor.in_family().is_some());
                tracing::info!(%model, name = spec.name, in_parts, "loaded again");
                let _ = self.intake.send(IntakeEvent::Loaded(model, executors));
            }
            Ok((Err(reason), executors)) => {
                tracing::warn!(%model, name = spec.name, %reason, "cannot be loaded otherwise, for lack of memory: goes on as it is");
                self.memory = before;
                // The next load waits until the memory is free again.
                free_executors(executors, move || drop(turn));
            }
            Err(NotLoaded { reason, .. }) => {
                tracing::warn!(%model, name = spec.name, %reason, "cannot be loaded otherwise: goes on as it is");
            }
        }
        self.show_trunks();
    }

    fn loaded(&mut self, loaded: Loaded, models: &mut HashMap<ModelId, LocalModel>, gone: &UnboundedSender<ModelId>) {
        let Loaded { model, spec, result, took, turn, request } = loaded;
        if request.again {
            match models.get_mut(&model) {
                Some(LocalModel::Ended(report))
                    if report.form == Form { requested: request.trunk, is_changing: true } =>
                {
                    report.form.is_changing = false;
                    self.loaded_again(model, &spec, result, turn);
                }
                // It is leaving, or was loaded again meanwhile.
                _ => free_executors(result.unwrap_or_default(), move || drop(turn)),
            }
            return;
        }
        if !matches!(models.get(&model), Some(LocalModel::Loading(_))) {
            // However late the load ends: the model was not loaded again meanwhile, and its memory is freed when it
            // has really gone.
            let unload_guard = UnloadGuard { model, gone: gone.clone() };
            free_executors(result.unwrap_or_default(), move || drop(unload_guard));
            return;
        }
        let report = match result.map(|executors| (self.account(model, &spec, &executors), executors)) {
            Ok((Ok(()), executors)) => {
                tracing::info!(%model, name = spec.name, "loaded");
                Counts::add(&self.counts.loads, 1);
                self.model_states.set_state(model, &spec.name, ModelState::Ready);
                let _ = self.intake.send(IntakeEvent::Loaded(model, executors));
                self.show_trunks();
                let form = Form { requested: request.trunk, is_changing: false };
                ModelReport { state: Ok(()), took, reported: None, lacks_memory: false, form }
            }
            Ok((Err(reason), executors)) => {
                // The next load waits until the memory is free again.
                free_executors(executors, move || drop(turn));
                self.lacks_memory(model, &spec.name, reason, took)
            }
            Err(NotLoaded { reason, lacks_memory: true, .. }) => self.lacks_memory(model, &spec.name, reason, took),
            Err(NotLoaded { reason, hung, .. }) => {
                Counts::add(&self.counts.models_hung, hung.into());
                self.failed(model, &spec.name, reason, took)
            }
        };
        models.insert(model, LocalModel::Ended(report));
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

fn lock(meter: &Mutex<LoadMeter>) -> MutexGuard<'_, LoadMeter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees the memory of idle models on a thread for that, and then runs `then`.
fn free_executors(executors: Vec<Box<dyn ModelExecutor>>, then: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(move || {
        drop(executors);
        then();
    });
}
