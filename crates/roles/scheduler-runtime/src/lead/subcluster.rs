//! One sub-cluster while this node leads it: its decision threads, its backends, its models.

mod queues;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use symphony_cluster_state::LeadReport;
use symphony_net::Net;
use symphony_protocol::view::{BackendView, ModelView, View};
use symphony_scheduler::{DataDelaySettings, DataDelays, Delays, PolicyFault, PolicyRegistry};
use symphony_tape::TapeOrigin;
use symphony_transport::EchoTimes;
use symphony_types::{
    BackendId, BootId, GPU_CLASSES_MAX, GpuClass, GpuClasses, GpuId, ModelId, NodeId, SubclusterId, Token,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::queues::ServedModel;
use crate::lead::families::{Hosting, SharedQueue};
use crate::lead::policy::failure_of;
use crate::lead::prepared_handover::DialledLinks;
use crate::lead::servable::BackendHoldings;
use crate::lead::stuck_links::{StuckLinks, Tenure, echo_times};
use crate::links::backend::{BackendLink, LinkEvent, LinkedGpu, Usage};
use crate::records::tapes::Tapes;
use crate::threads::decision_threads::DecisionThreads;
use crate::workers::corrections::correct;
use crate::workers::counters::add;
use crate::workers::decision_config::DecisionConfig;
use crate::workers::messages::{ModelMessage, RankMessage};
use crate::workers::policy_worker::LeadPolicy;
use crate::workers::subcluster_workers::Workers;
use symphony_controllers::Learner;

/// How long the lead waits for the view to explain a fence: a backend that obeys another leader should have moved to
/// another sub-cluster. Without that explanation the lead itself is over.
const FENCED_EXPLAINED_WITHIN: Duration = Duration::from_millis(100);
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
    /// The queue configurations of the served models.
    served: HashMap<ModelId, ServedModel>,
    /// GPU kinds by class, in the order of their first appearance. A kind keeps its class until the lead ends, since
    /// plans and grants under way name it.
    kinds: Vec<String>,
    /// The classes that were last sent to models.
    classes: GpuClasses,
    /// Whether models last learnt that no backend takes work.
    all_drained: bool,
    /// Backends that are not used because their GPUs are of one kind too many.
    left_alone: BTreeSet<BackendId>,
    sealed: BTreeSet<BackendId>,
    /// Backends that obey another leader, by the token under which they were linked, and when they reported that.
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
                        tracing::warn!(subcluster = %self.id, token = %self.token, "most links hardly move; another replica should lead");
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
        // No GPU is granted for a plan of several models that its backend has to run one after another.
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
                    // Under the lock, as for every sender of corrections: the last message about a GPU is the newest.
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

    fn learner(&self) -> MutexGuard<'_, Learner> {
        self.workers.learner.lock().unwrap_or_else(PoisonError::into_inner)
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
        let reported = fault.wait_for(Option::is_some).await.ok().and_then(|reported| reported.clone());
        if let Some(reported) = reported {
            return reported;
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
