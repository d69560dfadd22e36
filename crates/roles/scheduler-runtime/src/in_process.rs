//! A sub-cluster's decision threads without a network: requests and GPUs are objects of the same process.

use std::sync::Arc;

use symphony_protocol::dispatch::{RequestHeader, ToFrontend};
use symphony_protocol::execute::{Execute, ToBackend};
use symphony_scheduler::{DataDelay, GuardedPolicy, ModelQueueConfig, PolicyFault};
use symphony_tape::TapeOrigin;
use symphony_transport::{LocalReceiver, local_link};
use symphony_types::{
    BackendId, BootId, FrontendId, GpuClass, GpuClasses, GpuId, LatencyProfile, ModelId, Nanos, Time, Token,
};

use crate::records::tapes::Tapes;
use crate::threads::clock::Clock;
use crate::threads::decision_threads::DecisionThreads;
use crate::workers::decision_config::DecisionConfig;
use crate::workers::messages::{GpuRoute, ModelMessage, Peer, PlanId, RankMessage, SealNumber};
use crate::workers::offer_board::SUBCLUSTER_MODELS_MAX;
use crate::workers::policy_worker::LeadPolicy;
use crate::workers::subcluster_workers::Workers;
use crate::workers::worker_metrics::WorkerDurations;

/// The production workers of one sub-cluster on production threads, driven by function calls instead of links: for
/// benchmarks of the scheduler alone (the Symphony paper, Figure 11) and for tests. Its decisions end when it is
/// dropped.
///
/// There is one frontend and one backend; GPUs are numbered from 0, and so are models, at most
/// [`SUBCLUSTER_MODELS_MAX`] of them. Plans come out as the frames a backend would get.
#[derive(Debug)]
pub struct InProcess {
    workers: Arc<Workers>,
    frontend: Peer,
    seals: Vec<SealNumber>,
    backend: symphony_transport::LinkSender<ToBackend>,
    /// Its threads end with their last user.
    _threads: Arc<DecisionThreads>,
}

/// What an [`InProcess`] puts out: plans, and requests that ended without one.
#[derive(Debug)]
pub struct Orders {
    plans: LocalReceiver<ToBackend>,
    ended: LocalReceiver<ToFrontend>,
}

impl InProcess {
    /// A sub-cluster on threads of its own.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(config: &DecisionConfig) -> std::io::Result<(Self, Orders)> {
        Self::on(&Arc::new(DecisionThreads::new(config.clone())), None)
    }

    /// A sub-cluster whose every decision is recorded.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn recorded(config: &DecisionConfig, tapes: &Tapes) -> std::io::Result<(Self, Orders)> {
        Self::on(&Arc::new(DecisionThreads::new(config.clone())), Some((tapes, TapeOrigin::default())))
    }

    /// A sub-cluster on the threads of a replica, which it may share with others.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn on(threads: &Arc<DecisionThreads>, tapes: Option<(&Tapes, TapeOrigin)>) -> std::io::Result<(Self, Orders)> {
        Self::start_with(threads, tapes, None)
    }

    /// A sub-cluster for which the policy of this text decides, on threads of its own; recorded if there are tapes.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn with_policy(
        config: &DecisionConfig,
        text: &str,
        policy: GuardedPolicy,
        tapes: Option<&Tapes>,
    ) -> std::io::Result<(Self, Orders)> {
        let policy = LeadPolicy { text: text.to_owned(), policy };
        let tapes = tapes.map(|tapes| (tapes, TapeOrigin::default()));
        Self::start_with(&Arc::new(DecisionThreads::new(config.clone())), tapes, Some(policy))
    }

    fn start_with(
        threads: &Arc<DecisionThreads>,
        tapes: Option<(&Tapes, TapeOrigin)>,
        policy: Option<LeadPolicy>,
    ) -> std::io::Result<(Self, Orders)> {
        let workers = Workers::start("local", threads, tapes, policy)?;
        let (backend, plans) = local_link();
        let (sender, ended) = local_link();
        let frontend = Peer { frontend: FrontendId::new(1), boot: BootId::new(1), link: workers.number() };
        workers.send_to_all(|| ModelMessage::Frontend { peer: frontend, sender: sender.clone() });
        // The sub-cluster had no leader before: there is nothing to recover.
        workers.send_to_all(|| ModelMessage::AllSealed);
        let _threads = Arc::clone(threads);
        Ok((Self { workers, frontend, seals: Vec::new(), backend, _threads }, Orders { plans, ended }))
    }

    /// The clock of all times here.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.workers.clock
    }

    /// Serves one more model.
    ///
    /// # Panics
    /// If the number is beyond the limit.
    pub fn add_model(&self, model: u32, config: ModelQueueConfig) {
        assert!((model as usize) < SUBCLUSTER_MODELS_MAX, "model {model}, the limit is {SUBCLUSTER_MODELS_MAX}");
        let add = ModelMessage::Add {
            model: ModelId::new(model),
            name: format!("model-{model}").into(),
            ordinal: model,
            config: Box::new(config),
            counts: Arc::default(),
        };
        self.workers.of_model(model).push(add);
    }

    /// Stops serving a model: its waiting requests fail.
    pub fn remove_model(&self, model: u32) {
        self.workers.of_model(model).push(ModelMessage::Remove { model: ModelId::new(model) });
    }

    /// Adds a GPU of this class that is free now, and returns its number.
    pub fn add_gpu(&mut self, class: GpuClass) -> u32 {
        let (gpu, seal) = (self.seals.len() as u32, self.workers.number());
        self.seals.push(seal);
        let route = GpuRoute {
            gpu: GpuId::new(gpu),
            class,
            seal,
            token: Token::new(1),
            backend: BackendId::new(1),
            backend_boot: BootId::new(1),
            sender: self.backend.clone(),
        };
        self.workers.send_to_all(|| ModelMessage::Route { gpu, route: route.clone() });
        self.workers.rank.push(RankMessage::GpuReady { gpu, class, seal, free_at: self.workers.clock.now() });
        gpu
    }

    /// Sets how long a model's inputs take to arrive.
    pub fn set_data_delay(&self, model: u32, data: DataDelay) {
        self.workers.of_model(model).push(ModelMessage::DataDelay { model: ModelId::new(model), data });
    }

    /// Sets the profile of a model on a class of GPUs that it was added without.
    pub fn set_profile(&self, model: u32, class: GpuClass, profile: LatencyProfile) {
        let profile = Box::new(profile);
        self.workers.of_model(model).push(ModelMessage::Profile { model: ModelId::new(model), class, profile });
    }

    /// Sets which classes of GPUs exist. Before this call each model assumes GPUs of every class that it has a profile
    /// for.
    pub fn set_classes(&self, classes: GpuClasses) {
        self.workers.send_to_all(|| ModelMessage::Classes { classes });
    }

    /// Loses a GPU with everything planned on it.
    pub fn remove_gpu(&self, gpu: u32) {
        let Some(&seal) = self.seals.get(gpu as usize) else { return };
        self.workers.rank.push(RankMessage::Lost { gpu, seal });
        self.workers.send_to_all(|| ModelMessage::Unroute { gpu, seal });
    }

    /// Model workers, each on a thread of its own or all on one; number `model % model_threads` owns a model.
    #[must_use]
    pub fn model_threads(&self) -> usize {
        self.workers.models.len()
    }

    /// Sends a frame of requests, all for models of one model worker; their budgets count from `received`.
    ///
    /// # Errors
    /// If the worker's inbox is at its limit: the frame comes back.
    pub fn announce(
        &self,
        thread: usize,
        received: Time,
        requests: Vec<RequestHeader>,
    ) -> Result<(), Vec<RequestHeader>> {
        let message = ModelMessage::Announce { peer: self.frontend, received, requests, redriven: false };
        match self.workers.models[thread].try_push(message) {
            Err(ModelMessage::Announce { requests, .. }) => Err(requests),
            _ => Ok(()),
        }
    }

    /// Reports the end of a plan: it took `latency`, it began `start_late` after its planned start, and its GPU has
    /// finished all its plans at `free_at`.
    pub fn done(&self, plan: &Execute, start_late: Nanos, latency: Nanos, free_at: Time) {
        let gpu = plan.gpu.get();
        let Some(&seal) = self.seals.get(gpu as usize) else { return };
        let (model, plan) = (plan.model, PlanId { gpu, seal, sequence: plan.sequence });
        self.workers.rank.push(RankMessage::Done { plan, free_at, more: false });
        self.workers.of_model(model.get()).push(ModelMessage::Done { plan, start_late, latency, failed: Vec::new() });
    }

    /// What the policy did wrong, if one decides and has: nothing is decided any more.
    #[must_use]
    pub fn policy_fault(&self) -> Option<PolicyFault> {
        self.workers.policy_fault.as_ref().and_then(|fault| fault.borrow().clone())
    }

    /// Every counter with its name.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.workers.counters()
    }

    /// Requests that each model worker has taken in; cheap enough to poll.
    pub fn taken_in(&self) -> impl Iterator<Item = u64> {
        self.workers.taken_in()
    }

    /// How late timers fired and how long turns took, by kind of worker.
    #[must_use]
    pub fn durations(&self) -> Vec<WorkerDurations> {
        self.workers.durations()
    }
}

impl Orders {
    /// The next plan, if there is one.
    pub fn plan(&mut self) -> Option<Execute> {
        loop {
            match self.plans.try_receive()? {
                ToBackend::Execute(plan) => return Some(plan),
                ToBackend::Hello { .. } | ToBackend::Seal { .. } | ToBackend::Retired { .. } => {}
            }
        }
    }

    /// Requests that ended without a plan since the last call.
    pub fn ended(&mut self) -> usize {
        let mut ended = 0;
        while let Some(message) = self.ended.try_receive() {
            if let ToFrontend::Ended { requests } = message {
                ended += requests.len();
            }
        }
        ended
    }
}
