//! The workers of one sub-cluster: their threads, and the ways to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crossbeam::queue::ArrayQueue;
use symphony_explain::{FlightRecorder, RecorderLimits};
use symphony_scheduler::Pressure;
use symphony_tape::TapeOrigin;
use symphony_types::ModelId;

use crate::clock::Clock;
use crate::counters::Counters;
use crate::flight_log::{FlightLog, SharedRecorder};
use crate::inbox::{Doorbell, Inbox, Pulse};
use crate::load::Loads;
use crate::messages::{ModelMessage, RankMessage};
use crate::model_worker::ModelWorker;
use crate::offer_board::{OfferBoard, SUBCLUSTER_MODELS_MAX};
use crate::rank_worker::RankWorker;
use crate::tapes::Tapes;
use crate::worker::{ThreadPolicy, Worker, start_thread};
use crate::worker_metrics::{WorkerDurations, WorkerKind, WorkerMetrics};
use symphony_epochs::{Learner, LearningSettings, Run};

/// Ends of batches that wait to be learnt from: at ten collections a second those of five thousand batches, in 16 KB, since a
/// replica may lead hundreds of sub-clusters. What does not find room is not learnt from.
pub(crate) const RUNS_WAITING_MAX: usize = 512;

/// How a sub-cluster's decisions are made.
#[derive(Clone, Debug)]
pub struct DecisionConfig {
    /// Model threads beside the rank thread; 0 runs everything on one thread.
    pub model_threads: u32,
    /// How the threads wait.
    pub threads: ThreadPolicy,
    /// Pinned threads take cores from this one on.
    pub first_core: usize,
    /// What each model worker keeps for explanations; none records nothing, to measure what recording costs.
    pub recorder: Option<RecorderLimits>,
    /// What is learnt from the ends of batches.
    pub learning: LearningSettings,
}

impl Default for DecisionConfig {
    fn default() -> Self {
        let threads = ThreadPolicy::default();
        let learning = LearningSettings::default();
        Self { model_threads: 0, threads, first_core: 0, recorder: Some(RecorderLimits::WORKER), learning }
    }
}

/// The ways to the workers of a sub-cluster.
#[derive(Debug)]
pub(crate) struct Workers {
    /// The sub-cluster's, for logs.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) rank: Arc<Inbox<RankMessage>>,
    /// `models[model % models.len()]` serves a model.
    pub(crate) models: Arc<[Arc<Inbox<ModelMessage>>]>,
    /// What the links count; several tasks do.
    pub(crate) link_counters: Counters,
    /// What models and GPUs have to do.
    pub(crate) loads: Loads,
    /// Ends of batches, for the learner; none if nothing is learnt.
    pub(crate) runs: Option<Arc<ArrayQueue<Run>>>,
    pub(crate) learner: Mutex<Learner>,
    metrics: Vec<Arc<WorkerMetrics>>,
    /// One per model worker, if anything is recorded.
    pub(crate) recorders: Vec<SharedRecorder>,
    /// Models by the ordinal that they had last.
    pub(crate) ordinals: RwLock<HashMap<u32, ModelId>>,
    /// GPU kinds, by class.
    pub(crate) kinds: RwLock<Vec<String>>,
    numbers: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Workers {
    /// Whether ends of batches wait to be learnt from.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.as_ref().is_some_and(|runs| !runs.is_empty())
    }

    /// Starts the threads of sub-cluster `name`, recorded if there are tapes.
    pub(crate) fn start(
        name: &str,
        config: &DecisionConfig,
        tapes: Option<(&Tapes, TapeOrigin)>,
    ) -> std::io::Result<Arc<Self>> {
        let tape = |worker: &str, metrics: &Arc<WorkerMetrics>| {
            tapes.map(|(tapes, origin)| tapes.record(origin, worker, metrics)).unwrap_or_default()
        };
        let (clock, stop, threads) = (Clock::start(), Arc::new(AtomicBool::new(false)), config.threads);
        let rank_bell = Arc::new(Doorbell::default());
        // With no model threads one bell, and so one thread, serves all.
        let model_bells: Vec<_> = match config.model_threads {
            0 => vec![Arc::clone(&rank_bell)],
            threads => (0..threads).map(|_| Arc::default()).collect(),
        };
        let rank = Arc::new(Inbox::new(Arc::clone(&rank_bell)));
        let models: Arc<[_]> = model_bells.iter().map(|bell| Arc::new(Inbox::new(Arc::clone(bell)))).collect();
        let offers = Arc::new(OfferBoard::new(SUBCLUSTER_MODELS_MAX));
        let mut metrics = Vec::new();
        let mut measured = |kind| {
            let of_worker = Arc::new(WorkerMetrics::new(kind));
            metrics.push(Arc::clone(&of_worker));
            of_worker
        };
        let mut model_workers: Vec<Box<dyn Worker>> = Vec::new();
        let mut recorders = Vec::new();
        let runs = config.learning.is_on().then(|| Arc::new(ArrayQueue::new(RUNS_WAITING_MAX)));
        for (index, inbox) in models.iter().enumerate() {
            let recorder = config.recorder.map(|limits| Arc::new(Mutex::new(FlightRecorder::new(limits))));
            recorders.extend(recorder.clone());
            let log = FlightLog::new(recorder);
            let (rank, offers) = (Arc::clone(&rank), Arc::clone(&offers));
            let metrics = measured(WorkerKind::Model);
            let tape = tape(&format!("model-{index}"), &metrics);
            let worker = ModelWorker::new(clock, Arc::clone(inbox), rank, offers, metrics, log);
            let worker = worker.with_tape(tape).with_runs(runs.clone());
            model_workers.push(Box::new(worker));
        }
        let metrics_of_rank = measured(WorkerKind::Rank);
        let tape = tape("rank", &metrics_of_rank);
        let rank_worker = RankWorker::new(Arc::clone(&rank), offers, Arc::clone(&models), metrics_of_rank);
        let rank_worker: Box<dyn Worker> = Box::new(rank_worker.with_tape(tape));
        // Whatever fails on the way, dropping this ends the threads that were started.
        let (link_counters, numbers) = (Counters::default(), AtomicU64::new(0));
        let workers = Arc::new(Self {
            name: name.to_owned(),
            clock,
            rank,
            models,
            link_counters,
            loads: Loads::default(),
            runs,
            learner: Mutex::new(Learner::new(config.learning.clone())),
            metrics,
            recorders,
            ordinals: RwLock::default(),
            kinds: RwLock::default(),
            numbers,
            stop: Arc::clone(&stop),
        });
        // Asked here and not by the threads: they inherit the caller's cores, and the caller may be bound later.
        let cores = if threads.pin { core_affinity::get_core_ids().unwrap_or_default() } else { Vec::new() };
        let core = |index: usize| (!cores.is_empty()).then(|| cores[(config.first_core + index) % cores.len()]);
        if config.model_threads == 0 {
            // Requests first, so that their offers are ranked in the same turn.
            model_workers.push(rank_worker);
            start_thread(format!("decide-{name}"), model_workers, rank_bell, stop, clock, threads, core(0))?;
        } else {
            let rank_stop = Arc::clone(&stop);
            start_thread(format!("rank-{name}"), vec![rank_worker], rank_bell, rank_stop, clock, threads, core(0))?;
            for (index, (worker, bell)) in model_workers.into_iter().zip(model_bells).enumerate() {
                let (name, stop) = (format!("model-{name}-{index}"), Arc::clone(&stop));
                start_thread(name, vec![worker], bell, stop, clock, threads, core(1 + index))?;
            }
        }
        Ok(workers)
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.rank.ring();
        for inbox in self.models.iter() {
            inbox.ring();
        }
    }

    /// The pulses of the threads; a thread that runs several workers is told several times.
    pub(crate) fn pulses(&self) -> impl Iterator<Item = Pulse> {
        std::iter::once(self.rank.pulse()).chain(self.models.iter().map(|inbox| inbox.pulse()))
    }

    /// A number larger than all before it: what it names is newer than what an older one names.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn tell_all(&self, message: impl Fn() -> ModelMessage) {
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
        let models = self.metrics.iter().filter(|metrics| metrics.kind == WorkerKind::Model);
        models.map(|metrics| metrics.counters.requests.load(Ordering::Relaxed))
    }

    /// How hard the sub-cluster is pressed.
    pub(crate) fn pressure(&self) -> Pressure {
        let now = self.clock.now();
        self.metrics.iter().map(|metrics| metrics.pressure(now)).max().unwrap_or_default()
    }

    /// The durations that the workers measured, by kind.
    pub(crate) fn durations(&self) -> Vec<WorkerDurations> {
        let workers = || self.metrics.iter().map(Arc::as_ref);
        [WorkerKind::Model, WorkerKind::Rank].map(|kind| WorkerDurations::of(kind, workers())).into()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}
