//! The workers of one sub-cluster: their threads and inboxes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crossbeam::queue::ArrayQueue;
use symphony_explain::FlightRecorder;
use symphony_policy::PolicySpec;
use symphony_scheduler::{ClusterFacts, PolicyFault, Pressure};
use symphony_tape::TapeOrigin;
use symphony_telemetry::ErrorCounts;
use symphony_types::PayloadDelay;
use symphony_types::{ModelId, Nanos};
use tokio::sync::watch;

use crate::records::recorder_queue::{RecorderQueue, SharedRecorder};
use crate::records::tapes::Tapes;
use crate::threads::clock::Clock;
use crate::threads::decision_thread::{DecisionThread, Slot};
use crate::threads::decision_threads::DecisionThreads;
use crate::threads::inbox::Inbox;
use crate::threads::worker::Worker;
use crate::workers::counters::Counters;
use crate::workers::decision_config::DecisionConfig;
use crate::workers::load::Loads;
use crate::workers::messages::{ModelMessage, RankMessage};
use crate::workers::model_worker::ModelWorker;
use crate::workers::offer_board::{OfferBoard, SUBCLUSTER_MODELS_MAX};
use crate::workers::policy_worker::{LeadPolicy, PolicyHost, PolicyWorker};
use crate::workers::rank_worker::RankWorker;
use crate::workers::worker_metrics::{WorkerDurations, WorkerKind, WorkerMetrics};
use symphony_controllers::{Learner, Run};

/// Ended batches that wait for the learner: at ten collections a second those of five thousand batches per second, in
/// 16 KB, since a replica may lead hundreds of sub-clusters. Further ends are not learnt from.
pub(crate) const RUNS_WAITING_MAX: usize = 512;

/// The inboxes of a sub-cluster's workers, and the queue where they report ended batches.
struct Inboxes {
    rank: Arc<Inbox<RankMessage>>,
    models: Arc<[Arc<Inbox<ModelMessage>>]>,
    runs: Option<Arc<ArrayQueue<Run>>>,
}

/// Workers, by the slots that they are to be installed in.
struct Installed {
    groups: Vec<Vec<Box<dyn Worker>>>,
    metrics: Vec<Arc<WorkerMetrics>>,
    recorders: Vec<SharedRecorder>,
}

impl Inboxes {
    /// A worker for the queues of each inbox of models, and one for the ranker.
    fn queues_and_ranker(
        &self,
        (clock, config): (Clock, &DecisionConfig),
        tapes: Option<(&Tapes, TapeOrigin)>,
        slots: usize,
    ) -> Installed {
        let tape = |worker: &str, metrics: &Arc<WorkerMetrics>| {
            tapes.map(|(tapes, origin)| tapes.record(origin, worker, metrics)).unwrap_or_default()
        };
        let Self { rank, models, runs } = self;
        let offers = Arc::new(OfferBoard::new(SUBCLUSTER_MODELS_MAX));
        let (mut all_metrics, mut recorders) = (Vec::new(), Vec::new());
        let mut groups: Vec<Vec<Box<dyn Worker>>> = (0..slots).map(|_| Vec::new()).collect();
        let first_model_group = slots - models.len();
        for (index, inbox) in models.iter().enumerate() {
            let recorder = config.recorder.map(|limits| Arc::new(Mutex::new(FlightRecorder::new(limits))));
            recorders.extend(recorder.clone());
            let log = RecorderQueue::new(recorder);
            let (rank, offers) = (Arc::clone(rank), Arc::clone(&offers));
            let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Model));
            all_metrics.push(Arc::clone(&metrics));
            let tape = tape(&format!("model-{index}"), &metrics);
            let worker = ModelWorker::new(clock, Arc::clone(inbox), rank, offers, metrics, log);
            let worker =
                worker.with_tape(tape).with_runs(runs.clone()).with_redrive_wait(clock.now(), config.redrive_wait);
            groups[first_model_group + index].push(Box::new(worker));
        }
        let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Rank));
        all_metrics.push(Arc::clone(&metrics));
        let tape = tape("rank", &metrics);
        let rank_worker = RankWorker::new(Arc::clone(rank), offers, Arc::clone(models), metrics);
        // If there is only one group, the rank worker comes behind the models in it.
        groups[0].push(Box::new(rank_worker.with_tape(tape)));
        Installed { groups, metrics: all_metrics, recorders }
    }

    /// One worker for all, which gets the messages about models and about GPUs.
    fn policy_worker(
        &self,
        (clock, config): (Clock, &DecisionConfig),
        tapes: Option<(&Tapes, TapeOrigin)>,
        LeadPolicy { text, policy }: LeadPolicy,
        fault: watch::Sender<Option<PolicyFault>>,
    ) -> Installed {
        let recorder = config.recorder.map(|limits| Arc::new(Mutex::new(FlightRecorder::new(limits))));
        let log = RecorderQueue::new(recorder.clone());
        let metrics = Arc::new(WorkerMetrics::new(WorkerKind::Policy));
        let facts = ClusterFacts::default();
        let tape = tapes.map(|(tapes, origin)| tapes.record(origin, "policy", &metrics));
        let mut tape = tape.unwrap_or_default();
        tape.cluster(&text, &facts);
        let host = PolicyHost { policy, merges: PolicySpec::text_merges(&text), facts, tape, fault };
        let (inbox, recover_by) = (Arc::clone(&self.models[0]), clock.now() + config.redrive_wait);
        let worker = PolicyWorker::new(host, inbox, Arc::clone(&self.rank), Arc::clone(&metrics), log, recover_by);
        let worker: Box<dyn Worker> = Box::new(worker.with_runs(self.runs.clone()));
        Installed { groups: vec![vec![worker]], metrics: vec![metrics], recorders: recorder.into_iter().collect() }
    }
}

/// Access to the workers of a sub-cluster.
#[derive(Debug)]
pub(crate) struct Workers {
    /// The sub-cluster's name, for logs.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) rank: Arc<Inbox<RankMessage>>,
    /// `models[model % models.len()]` serves a model.
    pub(crate) models: Arc<[Arc<Inbox<ModelMessage>>]>,
    /// Counters of the links; written by several tasks.
    pub(crate) link_counters: Counters,
    /// The load of models and GPUs.
    pub(crate) loads: Loads,
    /// Ended batches, for the learner; none if nothing is learnt.
    pub(crate) runs: Option<Arc<ArrayQueue<Run>>>,
    pub(crate) learner: Mutex<Learner>,
    metrics: Vec<Arc<WorkerMetrics>>,
    /// One recorder per model worker, if decisions are recorded.
    pub(crate) recorders: Vec<SharedRecorder>,
    /// The last model of each ordinal.
    pub(crate) ordinals: RwLock<HashMap<u32, ModelId>>,
    /// GPU kinds, by class.
    pub(crate) kinds: RwLock<Vec<String>>,
    /// How long inputs take at most, as measured by the backends.
    pub(crate) payload_delay: Mutex<Option<PayloadDelay>>,
    /// The fault of the policy that decides for the sub-cluster, if one does.
    pub(crate) policy_fault: Option<watch::Receiver<Option<PolicyFault>>>,
    numbers: AtomicU64,
    slots: Vec<Slot>,
}

impl Workers {
    /// Whether ended batches wait for the learner.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.as_ref().is_some_and(|runs| !runs.is_empty())
    }

    /// Installs the workers of sub-cluster `name` on threads of their own or on shared ones; recorded if there are
    /// tapes. If there is a `policy`, it decides for all models and GPUs.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(
        name: &str,
        threads: &DecisionThreads,
        tapes: Option<(&Tapes, TapeOrigin)>,
        policy: Option<LeadPolicy>,
    ) -> std::io::Result<Arc<Self>> {
        let (clock, config) = (threads.clock(), threads.config());
        let slots = match (config.model_threads, &policy) {
            (0, _) => vec![threads.shared()?],
            (_, Some(_)) => vec![threads.own(&format!("policy-{name}"))?],
            (models, None) => {
                let rank = std::iter::once(format!("rank-{name}"));
                let models = (0..models).map(|index| format!("model-{name}-{index}"));
                rank.chain(models).map(|name| threads.own(&name)).collect::<std::io::Result<_>>()?
            }
        };
        // With one slot there is one group, and so one waker for all.
        let model_slots = if slots.len() == 1 { &slots[..] } else { &slots[1..] };
        let rank = Arc::new(Inbox::new(Arc::clone(&slots[0].waker)));
        let models: Arc<[_]> = model_slots.iter().map(|slot| Arc::new(Inbox::new(Arc::clone(&slot.waker)))).collect();
        let runs = config.learning.is_on().then(|| Arc::new(ArrayQueue::new(RUNS_WAITING_MAX)));
        let inboxes = Inboxes { rank: Arc::clone(&rank), models: Arc::clone(&models), runs: runs.clone() };
        let (fault, policy_fault) = watch::channel(None);
        let policy_fault = policy.is_some().then_some(policy_fault);
        let Installed { groups, metrics, recorders } = match policy {
            Some(policy) => inboxes.policy_worker((clock, config), tapes, policy, fault),
            None => inboxes.queues_and_ranker((clock, config), tapes, slots.len()),
        };
        for (slot, group) in slots.iter().zip(groups) {
            slot.install(group);
        }
        Ok(Arc::new(Self {
            name: name.to_owned(),
            clock,
            rank,
            models,
            link_counters: Counters::default(),
            loads: Loads::default(),
            runs,
            learner: Mutex::new(Learner::new(config.learning.clone())),
            metrics,
            recorders,
            ordinals: RwLock::default(),
            kinds: RwLock::default(),
            payload_delay: Mutex::default(),
            policy_fault,
            numbers: AtomicU64::new(0),
            slots,
        }))
    }

    /// Stops all decisions. The workers are dropped when their threads next run.
    pub(crate) fn stop(&self) {
        self.slots.iter().for_each(Slot::leave);
    }

    /// The thread that ranks GPUs; with shared threads it decides everything.
    pub(crate) fn thread(&self) -> &str {
        self.slots.first().map_or("", |slot| &slot.thread.name)
    }

    /// Whether some of the workers run on this thread.
    pub(crate) fn run_on(&self, thread: &DecisionThread) -> bool {
        self.slots.iter().any(|slot| slot.thread.number == thread.number)
    }

    /// Whether one of the workers on this thread is in its turn: if the thread hangs, this lead's decision is the
    /// cause.
    pub(crate) fn are_in_turn_on(&self, thread: &DecisionThread) -> bool {
        self.slots.iter().any(|slot| slot.thread.number == thread.number && slot.waker.is_in_turn())
    }

    /// Whether a worker has panicked: the others are useless without it.
    pub(crate) fn have_failed(&self) -> bool {
        self.slots.iter().any(|slot| slot.waker.has_failed())
    }

    /// The next number of an increasing sequence: a larger number is newer.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn send_to_all(&self, message: impl Fn() -> ModelMessage) {
        for inbox in self.models.iter() {
            inbox.push(message());
        }
    }

    pub(crate) fn of_model(&self, model: u32) -> &Arc<Inbox<ModelMessage>> {
        &self.models[model as usize % self.models.len()]
    }

    /// Every counter with its name: workers and links together.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.link_counters.read();
        for metrics in &self.metrics {
            for (sum, (_, value)) in all.iter_mut().zip(metrics.counters.read()) {
                sum.1 += value;
            }
        }
        all
    }

    /// Requests that each model worker has taken in.
    pub(crate) fn taken_in(&self) -> impl Iterator<Item = u64> {
        let models = self.metrics.iter().filter(|metrics| metrics.kind != WorkerKind::Rank);
        models.map(|metrics| metrics.counters.requests.load(Ordering::Relaxed))
    }

    /// GPU time that all requests would have taken in deferred batches.
    pub(crate) fn demand(&self) -> Nanos {
        Nanos::new(self.metrics.iter().map(|metrics| metrics.demand_ns.load(Ordering::Relaxed)).sum())
    }

    /// The pressure on the sub-cluster.
    pub(crate) fn pressure(&self) -> Pressure {
        let now = self.clock.now();
        self.metrics.iter().map(|metrics| metrics.pressure(now)).max().unwrap_or_default()
    }

    /// The error of predicted execution times.
    pub(crate) fn execution_errors(&self) -> ErrorCounts {
        let mut all = ErrorCounts::default();
        self.metrics.iter().for_each(|metrics| all.merge(&metrics.execution_errors.read()));
        all
    }

    /// The durations that the workers measured, by kind.
    pub(crate) fn durations(&self) -> Vec<WorkerDurations> {
        let workers = || self.metrics.iter().map(Arc::as_ref);
        let kinds = WorkerKind::ALL.into_iter().filter(|kind| workers().any(|metrics| metrics.kind == *kind));
        kinds.map(|kind| WorkerDurations::of(kind, workers())).collect()
    }
}
