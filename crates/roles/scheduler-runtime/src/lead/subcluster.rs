//! One sub-cluster while this node leads it: its decision threads, its backends, its models.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_cluster_state::LeadReport;
use symphony_net::Net;
use symphony_protocol::view::{BackendView, ModelView, View};
use symphony_scheduler::{
    ClassProfiles, DataDelay, DataDelaySettings, DataDelays, Delays, ModelQueueConfig, PolicyFault, PolicyRegistry,
};
use symphony_tape::TapeOrigin;
use symphony_transport::EchoTimes;
use symphony_types::{
    BackendId, BootId, GPU_CLASSES_MAX, GpuClass, GpuClasses, GpuId, ModelId, Nanos, NodeId, SubclusterId, Token,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::lead::families::{Hosting, SharedQueue, shared_queues};
use crate::lead::policy::failure_of;
use crate::lead::prepared_handover::DialledLinks;
use crate::lead::servable::{BackendHoldings, servable};
use crate::lead::served_as::ServedAs;
use crate::lead::stuck_links::{StuckLinks, Tenure, echo_times};
use crate::links::backend::{BackendLink, LinkEvent, LinkedGpu, Usage};
use crate::records::tapes::Tapes;
use crate::threads::decision_threads::DecisionThreads;
use crate::workers::corrections::correct;
use crate::workers::counters::add;
use crate::workers::decision_config::DecisionConfig;
use crate::workers::messages::{Member, ModelMessage, NewQueue, RankMessage};
use crate::workers::offer_board::SUBCLUSTER_MODELS_MAX;
use crate::workers::policy_worker::LeadPolicy;
use crate::workers::subcluster_workers::Workers;
use symphony_controllers::Learner;

/// How long the lead waits for the view to explain a fence: a backend that obeys another leader should have moved to
/// another sub-cluster. Without that explanation the lead itself is over.
const FENCED_EXPLAINED_WITHIN: Duration = Duration::from_millis(100);
/// The most waiting requests of one model.
const MODEL_REQUESTS_MAX: usize = 1 << 16;

/// What a node needs in order to lead.
#[derive(Clone, Debug)]
pub struct LeadConfig {
    /// This replica.
    pub node: NodeId,
    /// The boot in which it was made leader.
    pub boot: BootId,
    /// The network to backends, and the admission of callers.
    pub net: Net,
    /// Delays to the GPU and back, without those of inputs (`data_delays`).
    pub delays: Delays,
    /// How long inputs take to arrive: a fixed time, or the limits for measured times.
    pub data_delays: DataDelaySettings,
    /// How its leads decide.
    pub decisions: DecisionConfig,
    /// Where decisions are recorded, if at all.
    pub tapes: Option<Tapes>,
    /// A decision thread that spends more than this on one turn counts as hung.
    pub stuck_after: Duration,
    /// Names of sub-clusters that consolidate: they keep whole GPUs idle, at the price of latency.
    pub consolidate: Vec<String>,
    /// The policies that this program adds.
    pub policies: PolicyRegistry,
}

/// A sub-cluster that this node leads under one token.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) token: Token,
    /// The policy that decides for it, if one does.
    pub(crate) policy: Option<String>,
    pub(crate) workers: Arc<Workers>,
    /// Whether its links move.
    pub(crate) stuck_links: Arc<StuckLinks>,
    pub(crate) echo: EchoTimes,
    /// What the lead follows: views cut to this sub-cluster.
    pub(crate) view: watch::Sender<Arc<View>>,
    /// Cancelled when the lead ends, for whatever reason.
    pub(crate) ended: CancellationToken,
}

impl Lead {
    /// Installs the workers, and starts the task that follows `view` (cut to the sub-cluster) and its later versions.
    /// `dialled` are connections that were made in advance. If there is a `policy`, it decides for all models.
    pub(crate) fn start(
        config: &LeadConfig,
        threads: &DecisionThreads,
        (id, token): (SubclusterId, Token),
        policy: Option<LeadPolicy>,
        view: View,
        dialled: DialledLinks,
        reports: mpsc::UnboundedSender<LeadReport>,
    ) -> std::io::Result<Self> {
        let origin = TapeOrigin { node: config.node, boot: config.boot, subcluster: id, token };
        let tapes = config.tapes.as_ref().map(|tapes| (tapes, origin));
        let named = policy.as_ref().map(|policy| policy.text.clone());
        let workers = Workers::start(&id.to_string(), threads, tapes, policy)?;
        if view.subclusters.get(&id).is_some_and(|subcluster| config.consolidate.contains(&subcluster.name)) {
            workers.rank.push(RankMessage::Consolidate);
        }
        let ended = CancellationToken::new();
        let (stuck_links, echo) =
            (Arc::<StuckLinks>::default(), echo_times(threads.clock().origin(), config.stuck_after));
        let task = LeadTask {
            stuck_links: Arc::clone(&stuck_links),
            echo,
            config: config.clone(),
            id,
            token,
            policy_faults: threads.policy_fault_counter(),
            workers: Arc::clone(&workers),
            gpu_ordinals: HashMap::new(),
            models: HashMap::new(),
            shared: Vec::new(),
            queues_ever: 0,
            dialled,
            backends: BTreeMap::new(),
            data_delays: DataDelays::new(config.data_delays),
            served: HashMap::new(),
            kinds: Vec::new(),
            classes: GpuClasses::NONE,
            all_drained: false,
            left_alone: BTreeSet::new(),
            sealed: BTreeSet::new(),
            fenced: BTreeMap::new(),
            recovered: false,
        };
        let (view, views) = watch::channel(Arc::new(view));
        if let Some(policy) = &named {
            tracing::info!(subcluster = %id, %token, %policy, "a policy decides for the whole sub-cluster");
        }
        tokio::spawn(task.run(views, reports, ended.clone()));
        Ok(Self { token, policy: named, workers, stuck_links, echo, view, ended })
    }

    /// Passes a newer view, cut to this sub-cluster, to the lead. The lead wakes if anything in it has changed.
    pub(crate) fn set_view(&self, view: View) {
        self.view.send_if_modified(|known| {
            let changed = !known.says_the_same(&view);
            if changed {
                *known = Arc::new(view);
            }
            changed
        });
    }

    /// Ends the lead. Frontends announce the waiting requests to the next leader.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        // The workers hold the links, which must end with the lead.
        self.workers.stop();
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.end();
    }
}

struct LinkedBackend {
    boot: BootId,
    /// The models that it runs through shared trunks.
    hosting: Hosting,
    gpus: Vec<LinkedGpu>,
    usage: watch::Sender<Usage>,
    task: JoinHandle<()>,
}

impl LinkedBackend {
    /// The token that seals the lead's GPUs.
    fn token(&self) -> Token {
        self.gpus.iter().map(|gpu| gpu.token).max().unwrap_or_default()
    }

    fn classes(&self) -> impl Iterator<Item = GpuClass> {
        self.gpus.iter().map(|gpu| gpu.class)
    }

    fn holdings(&self, view: &View, id: BackendId) -> BackendHoldings {
        let ready = view.models.iter().filter(|(_, model)| holds(model, id, self.boot));
        BackendHoldings {
            in_use: *self.usage.borrow() == Usage::Use,
            takes_work: takes_work(view, id),
            holds: ready.map(|(&model, _)| model).collect(),
        }
    }
}

/// A served model: what its queue was told.
struct ServedModel {
    item_bytes: u64,
    how: ServedAs,
    /// The SLO that its queue goes by.
    queue_slo: Nanos,
    /// The delay that the model was last told.
    sent: DataDelay,
}

/// Follows the view: which backends to seal, which models to serve.
struct LeadTask {
    stuck_links: Arc<StuckLinks>,
    echo: EchoTimes,
    config: LeadConfig,
    id: SubclusterId,
    token: Token,
    policy_faults: Arc<AtomicU64>,
    workers: Arc<Workers>,
    gpu_ordinals: HashMap<GpuId, u32>,
    /// Ordinals of the served models.
    models: HashMap<ModelId, u32>,
    /// The queues that several of them share.
    shared: Vec<SharedQueue>,
    /// Queues made so far, including former ones.
    queues_ever: u32,
    /// Connections made before the lead began and not yet used.
    dialled: DialledLinks,
    backends: BTreeMap<BackendId, LinkedBackend>,
    /// Delays measured by the backends.
    data_delays: DataDelays,
    /// What the served models were told.
    served: HashMap<ModelId, ServedModel>,
    /// GPU kinds by class, in the order of their first appearance. A kind keeps its class until the lead ends, since
    /// plans and grants under way name it.
    kinds: Vec<String>,
    /// The classes that models were last told.
    classes: GpuClasses,
    /// Whether models were last told that no backend takes work.
    all_drained: bool,
    /// Backends that are not used because their GPUs are of one kind too many.
    left_alone: BTreeSet<BackendId>,
    sealed: BTreeSet<BackendId>,
    /// Backends that obey another leader, by the token under which they were linked, and when they said so.
    fenced: BTreeMap<(BackendId, Token), Instant>,
    recovered: bool,
}

impl LeadTask {
    async fn run(
        mut self,
        mut view: watch::Receiver<Arc<View>>,
        reports: mpsc::UnboundedSender<LeadReport>,
        ended: CancellationToken,
    ) {
        let (events_in, mut events) = mpsc::unbounded_channel();
        tracing::info!(subcluster = %self.id, token = %self.token, "leads");
        let stuck_links = Arc::clone(&self.stuck_links);
        let mut tenure = Tenure::begin(now());
        let mut policy_fault = self.workers.policy_fault.clone();
        loop {
            let current = Arc::clone(&view.borrow_and_update());
            // A newer assignment is another lead's: the news in its view is not for this one.
            if current.subclusters.get(&self.id).is_none_or(|s| s.token <= self.token) {
                self.apply_view(&current, &events_in);
                self.check_recovered();
            }
            self.fenced.retain(|(id, token), _| self.backends.get(id).is_some_and(|b| b.token() == *token));
            if self.data_delays.forget(self.workers.clock.now()) {
                self.send_data_delays();
            }
            let forgets_in = self.data_delays.forgets_at().map(|at| at.since(self.workers.clock.now()));
            let unexplained = self.fenced.values().min().map(|&since| since + FENCED_EXPLAINED_WITHIN);
            let check_at = tenure.check_at();
            let has_standbys = current.subclusters.get(&self.id).is_some_and(|s| !s.standbys.is_empty());
            tokio::select! {
                () = ended.cancelled() => break,
                fault = faulted(&mut policy_fault) => {
                    // Frontends announce what waits here to the next lead.
                    add(&self.policy_faults, 1);
                    tracing::error!(subcluster = %self.id, token = %self.token, %fault, "the lead ends by a fault of its policy");
                    let failure = failure_of(&fault);
                    let _ = reports.send(LeadReport::PolicyFailed { subcluster: self.id, token: self.token, failure });
                    break;
                }
                () = tokio::time::sleep_until(unexplained.unwrap_or_else(now).into()), if unexplained.is_some() => {
                    // Usually another replica leads by now, and this report is refused. If none does, one must be
                    // chosen.
                    let _ = reports.send(LeadReport::CutOff { subcluster: self.id, token: self.token });
                    break;
                }
                // A backend that does not read cannot answer either.
                () = tokio::time::sleep(forgets_in.unwrap_or_default().into()), if forgets_in.is_some() => {}
                changed = view.changed() => if changed.is_err() { break },
                () = stuck_links.changed(check_at) => {
                    if tenure.should_give_up(now(), stuck_links.is_cut_off(), has_standbys) {
                        tracing::warn!(subcluster = %self.id, token = %self.token, "most links hardly move; somebody else shall lead");
                        let _ = reports.send(LeadReport::CutOff { subcluster: self.id, token: self.token });
                    }
                }
                event = events.recv() => match event {
                    Some(LinkEvent::Sealed(backend)) => {
                        self.sealed.insert(backend);
                    }
                    Some(LinkEvent::Fenced(backend)) => {
                        if let Some(linked) = self.backends.get(&backend) {
                            self.fenced.insert((backend, linked.token()), now());
                        }
                    }
                    None => break,
                    // A report of a backend that has left, or of its earlier boot, no longer counts.
                    Some(LinkEvent::PayloadDelay(backend, boot, delay)) => {
                        let is_linked = self.backends.get(&backend).is_some_and(|linked| linked.boot == boot);
                        if is_linked && self.data_delays.record(self.workers.clock.now(), backend, delay) {
                            self.send_data_delays();
                        }
                    }
                    Some(LinkEvent::Hosts(backend, boot, models)) => {
                        if let Some(linked) = self.backends.get_mut(&backend).filter(|linked| linked.boot == boot) {
                            linked.hosting = models.into_iter().map(|hosted| (hosted.model, hosted)).collect();
                        }
                    }
                    // A lead that is cut off cannot judge other processes; the next leader can. The link repeats the
                    // report.
                    Some(LinkEvent::Down(..)) if has_standbys && stuck_links.is_cut_off() => {}
                    Some(LinkEvent::Down(backend, boot)) => {
                        let _ = reports.send(LeadReport::BackendDown(backend, boot));
                    }
                },
            }
        }
        ended.cancel();
        self.workers.stop();
        for backend in self.backends.values() {
            backend.task.abort();
        }
        tracing::info!(subcluster = %self.id, token = %self.token, "leads no longer");
    }

    fn apply_view(&mut self, view: &View, events: &mpsc::UnboundedSender<LinkEvent>) {
        self.apply_backends(view, events);
        self.apply_models(view);
        // A backend may be used while it takes work, holds every served model, and has profiles for its GPUs.
        let usage = |id: BackendId, backend: &LinkedBackend| {
            let now = *backend.usage.borrow();
            match (takes_work(view, id), self.holds_all(view, id, backend)) {
                (false, _) => Usage::Retire,
                (true, true) => Usage::Use,
                (true, false) if now == Usage::Retire => Usage::Hold,
                (true, false) => now,
            }
        };
        let usages: Vec<_> = self.backends.iter().map(|(&id, backend)| (id, usage(id, backend))).collect();
        // Nor is one granted for a plan of several models that its backend has to run one after another.
        self.regroup(view, &usages);
        // Models learn of a backend's kinds of GPUs before one of them can be granted.
        let in_use = usages.iter().filter(|(_, usage)| *usage == Usage::Use);
        self.send_classes(in_use.flat_map(|(id, _)| self.backends[id].classes()).collect());
        let all_drained = !usages.is_empty() && usages.iter().all(|(_, usage)| *usage == Usage::Retire);
        if std::mem::replace(&mut self.all_drained, all_drained) != all_drained {
            self.workers.send_to_all(|| ModelMessage::AllDrained(all_drained));
        }
        for (id, next) in usages {
            self.backends[&id].usage.send_if_modified(|usage| std::mem::replace(usage, next) != next);
        }
    }

    fn holds_all(&self, view: &View, id: BackendId, backend: &LinkedBackend) -> bool {
        let profiled = |model: &ModelView| {
            backend.classes().all(|class| model.spec.profiles.contains_key(&self.kinds[class.index()]))
        };
        let mut models = self.models.keys().map(|model| view.models.get(model));
        models.all(|model| model.is_some_and(|model| holds(model, id, backend.boot) && profiled(model)))
    }

    fn apply_backends(&mut self, view: &View, events: &mpsc::UnboundedSender<LinkEvent>) {
        let mine: BTreeMap<_, _> = view.backends.iter().filter(|(_, b)| b.subcluster == self.id && b.up).collect();
        let mut gone = Vec::new();
        for (id, linked) in &self.backends {
            let same = mine.get(id).is_some_and(|b| b.boot == linked.boot && self.same_gpus(b, linked));
            if !same {
                gone.push(*id);
            }
        }
        for id in gone {
            if let Some(linked) = self.backends.remove(&id) {
                linked.task.abort();
                self.sealed.remove(&id);
                if self.data_delays.remove(id) {
                    self.send_data_delays();
                }
                for gpu in &linked.gpus {
                    // Under the lock, as for everybody that tells the workers of corrections: the last message about a
                    // GPU is the newest.
                    let mut learner = self.learner();
                    correct(&self.workers, learner.remove_gpu(gpu.ordinal));
                }
            }
        }
        for (&id, backend) in mine {
            if !self.backends.contains_key(&id) {
                self.link(view, id, backend, events);
            }
        }
    }

    /// The class of a GPU kind; none if there are too many kinds. A new class is announced, with profiles, to the
    /// served models.
    fn class_of(&mut self, view: &View, kind: &str) -> Option<GpuClass> {
        if let Some(known) = self.kinds.iter().position(|known| known == kind) {
            return GpuClass::new(known);
        }
        let class = GpuClass::new(self.kinds.len())?;
        self.kinds.push(kind.to_owned());
        self.workers.kinds.write().unwrap_or_else(PoisonError::into_inner).push(kind.to_owned());
        for &model in self.models.keys() {
            let profile = view.models.get(&model).and_then(|view| view.spec.profiles.get(kind));
            if let Some(profile) = profile.map(|profile| Box::new(profile.latency.clone())) {
                self.learner().add_model(model, class, (*profile).clone());
                self.workers.of_model(model.get()).push(ModelMessage::Profile { model, class, profile });
            }
        }
        Some(class)
    }

    /// Tells models the classes of GPUs in use, or of all linked GPUs while none is in use.
    fn send_classes(&mut self, in_use: GpuClasses) {
        let linked = || self.backends.values().flat_map(LinkedBackend::classes).collect();
        let classes = if in_use == GpuClasses::NONE { linked() } else { in_use };
        if classes != GpuClasses::NONE && classes != self.classes {
            self.classes = classes;
            self.workers.send_to_all(|| ModelMessage::Classes { classes });
        }
    }

    /// Tells models their input delays where these have changed.
    fn send_data_delays(&mut self) {
        *self.workers.payload_delay.lock().unwrap_or_else(PoisonError::into_inner) = self.data_delays.longest();
        for (&model, served) in &mut self.served {
            let data = self.data_delays.of(served.item_bytes, served.queue_slo);
            if std::mem::replace(&mut served.sent, data) != data {
                self.workers.of_model(model.get()).push(ModelMessage::DataDelay { model, data });
            }
        }
    }

    fn same_gpus(&self, backend: &BackendView, linked: &LinkedBackend) -> bool {
        backend.gpus.len() == linked.gpus.len()
            && backend
                .gpus
                .iter()
                .zip(&linked.gpus)
                .all(|(gpu, mine)| gpu.id == mine.gpu && gpu.binding.max(self.token) == mine.token)
    }

    fn link(&mut self, view: &View, id: BackendId, backend: &BackendView, events: &mpsc::UnboundedSender<LinkEvent>) {
        let mut gpus = Vec::with_capacity(backend.gpus.len());
        for gpu in &backend.gpus {
            let Some(class) = self.class_of(view, &gpu.kind) else {
                if self.left_alone.insert(id) {
                    tracing::error!(backend = %backend.name, kind = %gpu.kind, limit = GPU_CLASSES_MAX, "too many GPU kinds; not used");
                }
                return;
            };
            let counts = self.workers.loads.of_gpu(gpu.id);
            let next = self.gpu_ordinals.len() as u32;
            let ordinal = *self.gpu_ordinals.entry(gpu.id).or_insert(next);
            self.learner().add_gpu(ordinal, gpu.id, class);
            gpus.push(LinkedGpu { gpu: gpu.id, class, token: gpu.binding.max(self.token), ordinal, counts });
        }
        let (usage, usage_receiver) = watch::channel(Usage::Hold);
        let link = BackendLink {
            clock: self.workers.clock,
            node: self.config.node,
            node_boot: self.config.boot,
            subcluster: self.id,
            backend: id,
            boot: backend.boot,
            net: self.config.net.clone(),
            addr: backend.exec_addr.clone(),
            name: backend.name.clone(),
            gpus: gpus.clone(),
            workers: Arc::clone(&self.workers),
            events: events.clone(),
            usage: usage_receiver,
            dialled: self.dialled.remove(&(id, backend.boot)),
            stuck_links: Arc::clone(&self.stuck_links),
            echo: self.echo,
        };
        let task = tokio::spawn(link.run());
        self.backends.insert(id, LinkedBackend { boot: backend.boot, hosting: Hosting::new(), gpus, usage, task });
    }

    fn apply_models(&mut self, view: &View) {
        let mut gone: Vec<_> = self.models.keys().copied().collect();
        gone.retain(|model| view.models.get(model).is_none_or(|m| !m.is_served_by(self.id)));
        for model in gone {
            self.stop_serving(model);
        }
        let served = self.served.iter().filter_map(|(&id, served)| Some((id, served.how, view.models.get(&id)?)));
        let changed: Vec<_> = served.filter(|(_, how, model)| *how != ServedAs::of(model)).collect();
        for (id, _, model) in changed {
            let is_shared = self.shared.iter().any(|queue| queue.has(id));
            match self.served.get_mut(&id).filter(|_| is_shared) {
                // Another queue follows, if it makes a difference to those that share it.
                Some(served) => served.how = ServedAs::of(model),
                None => self.change(id, model),
            }
        }
        let holdings: Vec<_> = self.backends.iter().map(|(&id, backend)| backend.holdings(view, id)).collect();
        let served = self.models.keys().copied().collect();
        let waiting: Vec<_> = view
            .models
            .iter()
            .filter(|(id, model)| model.is_served_by(self.id) && !self.models.contains_key(id))
            .map(|(&id, _)| id)
            .collect();
        for id in servable(&served, waiting, &holdings) {
            self.serve(id, &view.models[&id]);
        }
    }

    fn stop_serving(&mut self, model: ModelId) {
        self.models.remove(&model);
        self.served.remove(&model);
        self.shared.iter_mut().for_each(|queue| queue.leave(model));
        self.workers.loads.forget(model);
        self.learner().remove_model(model);
        self.workers.send_to_all(|| ModelMessage::Remove { model });
    }

    fn serve(&mut self, id: ModelId, model: &ModelView) {
        let Some(profiles) = self.profiles(model) else {
            tracing::warn!(model = %model.spec.name, "no profile for every GPU kind of the sub-cluster; not served");
            return;
        };
        for class in GpuClass::all() {
            if let Some(profile) = profiles.get(class) {
                self.learner().add_model(id, class, profile.clone());
            }
        }
        let Some((ordinal, config)) = self.place(id, model, profiles) else { return };
        let counts = self.workers.loads.of_model(id);
        let name = model.spec.name.as_str().into();
        self.workers.of_model(id.get()).push(ModelMessage::Add { model: id, name, ordinal, config, counts });
        tracing::info!(model = %model.spec.name, policy = %model.spec.policy, subcluster = %self.id, "serves");
    }

    /// The SLO, policy or value of a served model is another one.
    fn change(&mut self, id: ModelId, model: &ModelView) {
        let Some(profiles) = self.profiles(model) else { return };
        let Some((ordinal, config)) = self.place(id, model, profiles) else { return };
        self.workers.of_model(id.get()).push(ModelMessage::Change { model: id, ordinal, config });
        let (slo_ms, policy) = (model.spec.slo.as_millis_f64(), &model.spec.policy);
        tracing::info!(model = %model.spec.name, slo_ms, %policy, subcluster = %self.id, "serves it otherwise");
    }

    /// An ordinal for the model's own queue, and how that is made.
    fn place(
        &mut self,
        id: ModelId,
        model: &ModelView,
        profiles: ClassProfiles,
    ) -> Option<(u32, Box<ModelQueueConfig>)> {
        let ordinal = self.free_ordinal(id, model)?;
        let how = ServedAs::of(model);
        Some((ordinal, self.queue_config((id, model), ordinal, how, profiles)))
    }

    /// A free ordinal, which tells the rank worker which model worker has the queue.
    fn free_ordinal(&mut self, id: ModelId, model: &ModelView) -> Option<u32> {
        let workers = self.workers.models.len() as u32;
        let taken: BTreeSet<_> = self.models.values().copied().collect();
        // A free ordinal is reused as late as possible: offers and grants of its former model may still be under way.
        let places = SUBCLUSTER_MODELS_MAX as u32 / workers;
        let mut ordinals =
            (0..places).map(|k| self.queues_ever.wrapping_add(k) % places * workers + id.get() % workers);
        let Some(ordinal) = ordinals.find(|ordinal| !taken.contains(ordinal)) else {
            tracing::error!(model = %model.spec.name, limit = SUBCLUSTER_MODELS_MAX, "too many models; not served");
            return None;
        };
        self.workers.ordinals.write().unwrap_or_else(PoisonError::into_inner).insert(ordinal, id);
        self.queues_ever = self.queues_ever.wrapping_add(1);
        Some(ordinal)
    }

    /// How the queue of this ordinal is made; the model waits in it from here on.
    fn queue_config(
        &mut self,
        (id, model): (ModelId, &ModelView),
        ordinal: u32,
        queue: ServedAs,
        profiles: ClassProfiles,
    ) -> Box<ModelQueueConfig> {
        let item_bytes = model.spec.signature.inputs.iter().map(|input| input.item_bytes() as u64).sum();
        let data = self.data_delays.of(item_bytes, queue.slo);
        let how = ServedAs::of(model);
        self.served.insert(id, ServedModel { item_bytes, how, queue_slo: queue.slo, sent: data });
        self.models.insert(id, ordinal);
        Box::new(ModelQueueConfig {
            profiles,
            slo: queue.slo,
            policy: queue.policy,
            delays: Delays { data, ..self.config.delays },
            requests_max: MODEL_REQUESTS_MAX,
        })
    }

    /// Lets models of a family share a queue if every backend in use runs them through their trunk, and gives those
    /// that no longer do queues of their own. What waits for them waits on.
    fn regroup(&mut self, view: &View, usages: &[(BackendId, Usage)]) {
        let now_or_next = |(id, next): &&(BackendId, Usage)| {
            *next == Usage::Use || self.backends.get(id).is_some_and(|linked| *linked.usage.borrow() == Usage::Use)
        };
        let in_use = usages.iter().filter(now_or_next).filter_map(|(id, _)| self.backends.get(id));
        let hosting: Vec<_> = in_use.map(|linked| &linked.hosting).collect();
        // A policy for the whole sub-cluster plans by tables of whole models. Without a GPU nothing is planned.
        if self.workers.policy_fault.is_some() || hosting.is_empty() {
            return;
        }
        let served = view.models.iter().filter(|(id, _)| self.models.contains_key(id)).map(|(&id, model)| (id, model));
        let wanted = shared_queues(served, &hosting, self.workers.models.len() as u32, &self.kinds);
        if wanted == self.shared {
            return;
        }
        let (kept, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.shared).into_iter().partition(|queue| wanted.contains(queue));
        let begun: Vec<_> = wanted.iter().filter(|queue| !kept.contains(queue)).cloned().collect();
        self.shared = wanted;
        let mut queues = Vec::new();
        for queue in begun {
            match self.new_shared_queue(view, &queue) {
                Some(new) => queues.push(new),
                None => self.shared.retain(|one| *one != queue),
            }
        }
        let mut alone: Vec<_> = ended.iter().flat_map(SharedQueue::members).collect();
        alone.retain(|id| self.models.contains_key(id) && !self.shared.iter().any(|queue| queue.has(*id)));
        for id in alone {
            match view.models.get(&id).and_then(|model| self.new_own_queue(id, model)) {
                Some(queue) => queues.push(queue),
                // Its queue goes with the others. It is served again when that is possible, as a model that comes.
                None => self.stop_serving(id),
            }
        }
        let mut by_worker: BTreeMap<u32, Vec<NewQueue>> = BTreeMap::new();
        for queue in queues {
            by_worker.entry(queue.ordinal % self.workers.models.len() as u32).or_default().push(queue);
        }
        for (worker, queues) in by_worker {
            self.workers.of_model(worker).push(ModelMessage::Regroup { queues });
        }
    }

    fn new_shared_queue(&mut self, view: &View, queue: &SharedQueue) -> Option<NewQueue> {
        let models: Vec<_> = queue.members().filter_map(|id| Some((id, view.models.get(&id)?))).collect();
        let &(first, model) = models.first()?;
        let families = queue.profiles(&view.models, &self.kinds);
        if families.is_empty() {
            return None;
        }
        let ordinal = self.free_ordinal(first, model)?;
        let profiles: ClassProfiles = families.iter().map(|(class, family)| (*class, family.worst().clone())).collect();
        let mut config = None;
        for &member in &models {
            config = Some(self.queue_config(member, ordinal, queue.how, profiles.clone()));
        }
        let names: Vec<_> = models.iter().map(|(_, model)| model.spec.name.as_str()).collect();
        tracing::info!(models = names.join(", "), trunk = %queue.trunk, subcluster = %self.id, "share a queue");
        let members = models.into_iter().map(|(id, model)| self.member(id, model)).collect();
        Some(NewQueue { members, ordinal, config: config?, families })
    }

    fn new_own_queue(&mut self, id: ModelId, model: &ModelView) -> Option<NewQueue> {
        // Another kind of GPUs may be linked since, without a profile for it: the model is served, and stays so.
        let profiles = self.known_profiles(model);
        profiles.iter().next()?;
        // What was learnt of it is not in these.
        for class in GpuClass::all() {
            if let Some(profile) = profiles.get(class) {
                self.learner().add_model(id, class, profile.clone());
            }
        }
        let (ordinal, config) = self.place(id, model, profiles)?;
        tracing::info!(model = %model.spec.name, subcluster = %self.id, "has a queue of its own");
        Some(NewQueue { members: vec![self.member(id, model)], ordinal, config, families: Vec::new() })
    }

    fn member(&self, id: ModelId, model: &ModelView) -> Member {
        Member { id, name: model.spec.name.as_str().into(), counts: self.workers.loads.of_model(id) }
    }

    fn learner(&self) -> MutexGuard<'_, Learner> {
        self.workers.learner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model's profiles on all GPU kinds seen so far; none unless every kind that is linked now has one.
    fn profiles(&self, model: &ModelView) -> Option<ClassProfiles> {
        let profiles = self.known_profiles(model);
        let mut classes = self.backends.values().flat_map(LinkedBackend::classes).peekable();
        classes.peek()?;
        classes.all(|class| profiles.get(class).is_some()).then_some(profiles)
    }

    /// The model's profiles on those GPU kinds seen so far that it has one for.
    fn known_profiles(&self, model: &ModelView) -> ClassProfiles {
        let of_class =
            |class: GpuClass| Some((class, model.spec.profiles.get(self.kinds.get(class.index())?)?.latency.clone()));
        GpuClass::all().filter_map(of_class).collect()
    }

    fn check_recovered(&mut self) {
        if !self.recovered && self.backends.keys().all(|id| self.sealed.contains(id)) {
            self.recovered = true;
            self.workers.send_to_all(|| ModelMessage::AllSealed);
        }
    }
}

/// The fault of a lead's policy, once there is one; never without a policy.
async fn faulted(fault: &mut Option<watch::Receiver<Option<PolicyFault>>>) -> PolicyFault {
    if let Some(fault) = fault {
        let told = fault.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        if let Some(told) = told {
            return told;
        }
    }
    std::future::pending().await
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn takes_work(view: &View, backend: BackendId) -> bool {
    view.backends.get(&backend).is_none_or(|backend| backend.duty.takes_work())
}

fn holds(model: &ModelView, backend: BackendId, boot: BootId) -> bool {
    model.holders.get(&backend).is_some_and(|r| r.boot == boot && r.state.is_ok())
}
