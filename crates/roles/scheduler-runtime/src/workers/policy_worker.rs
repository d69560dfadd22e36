//! Hosts a [`ClusterPolicy`](symphony_scheduler::ClusterPolicy): one worker in place of a lead's model and rank
//! workers.
//!
//! It passes every event to the policy, has every step refereed, and carries out a step's orders only if none of them
//! breaks a rule. A fault of the policy ends all decisions here; the lead reads it ([`PolicyHost::fault`]) and ends.

mod decisions;
mod gpus;
mod models;
mod request_cost;
mod requests;

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use symphony_controllers::Run;
use symphony_scheduler::{ClusterActions, ClusterFacts, ClusterInput, ClusterReferee, GuardedPolicy, PolicyFault};
use symphony_types::{ModelId, Nanos, Time};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::records::recorder_queue::RecorderQueue;
use crate::records::tape_recorder::TapeRecorder;
use crate::threads::inbox::Inbox;
use crate::threads::turn::{TurnEnd, TurnStart};
use crate::threads::worker::{TURN_EVENTS_MAX, Worker};
use crate::workers::delivery::{Delivery, handle_frame, receive, recover};
use crate::workers::id_map::IdMap;
use crate::workers::messages::{ModelMessage, RankMessage};
use crate::workers::worker_metrics::WorkerMetrics;
use gpus::Gpu;
use models::ModelSlot;
use request_cost::GpusByClass;

/// How often a policy gets the measured rates and lateness of its models, where they have changed.
const MEASURED_EVERY: Nanos = Nanos::from_millis(500);

/// A policy that is to decide for a sub-cluster.
#[derive(Debug)]
pub(crate) struct LeadPolicy {
    /// Its canonical text.
    pub(crate) text: String,
    pub(crate) policy: GuardedPolicy,
}

/// What a worker needs to host a policy.
#[derive(Debug)]
pub(crate) struct PolicyHost {
    pub(crate) policy: GuardedPolicy,
    pub(crate) merges: bool,
    /// With what it was built.
    pub(crate) facts: ClusterFacts,
    pub(crate) tape: TapeRecorder,
    /// Where its first fault is reported; there is no further one.
    pub(crate) fault: watch::Sender<Option<PolicyFault>>,
}

/// Hosts the policy of one sub-cluster.
pub(crate) struct PolicyWorker {
    delivery: Delivery,
    rank: Arc<Inbox<RankMessage>>,
    policy: GuardedPolicy,
    referee: ClusterReferee,
    fault: watch::Sender<Option<PolicyFault>>,
    /// After a fault nothing is decided here.
    is_over: bool,
    /// The models by their slots of the policy.
    slots: Vec<Option<ModelSlot>>,
    by_id: IdMap<ModelId, u32>,
    /// By ordinal.
    gpus: Vec<Gpu>,
    /// Those that are up.
    gpus_by_class: GpusByClass,
    /// Whether the policy puts several requests into a batch. Of one that the program adds it is not known, and taken
    /// for granted.
    merges: bool,
    /// Answers to retired GPUs, held until the plans of the turn are on their links.
    retired: Vec<(u64, UnboundedSender<u64>)>,
    measured_at: Time,
    wake_at: Time,
    /// The turn that armed the timer.
    armed_in: u64,
    actions: ClusterActions,
    tape: TapeRecorder,
    metrics: Arc<WorkerMetrics>,
    /// The number of the current turn.
    turn: u64,
}

impl PolicyWorker {
    pub(crate) fn new(
        host: PolicyHost,
        inbox: Arc<Inbox<ModelMessage>>,
        rank: Arc<Inbox<RankMessage>>,
        metrics: Arc<WorkerMetrics>,
        log: RecorderQueue,
        recover_by: Time,
    ) -> Self {
        let PolicyHost { policy, merges, facts, tape, fault } = host;
        Self {
            delivery: Delivery::new(inbox, Arc::clone(&metrics), log, recover_by),
            rank,
            policy,
            referee: ClusterReferee::new(facts),
            fault,
            is_over: false,
            slots: Vec::new(),
            by_id: IdMap::default(),
            gpus: Vec::new(),
            gpus_by_class: GpusByClass::default(),
            merges,
            retired: Vec::new(),
            measured_at: Time::ZERO,
            wake_at: Time::NEVER,
            armed_in: 0,
            actions: ClusterActions::with_room(),
            tape,
            metrics,
            turn: 0,
        }
    }

    /// Sets the queue of ended batches, which a learner reads.
    pub(crate) fn with_runs(mut self, runs: Option<Arc<ArrayQueue<Run>>>) -> Self {
        self.delivery.runs = runs;
        self
    }

    /// Handles a message that is about models; with one worker it also tells of routes.
    fn receive_model(&mut self, now: Time, message: ModelMessage) {
        let routed = if let ModelMessage::Route { gpu, .. } = &message { Some(*gpu) } else { None };
        if let Some(message) = receive(self, now, message) {
            self.learn(now, message);
        }
        // Its seal may have come before.
        if let Some(gpu) = routed {
            self.settle(now, gpu);
        }
    }

    const fn has_work(&self) -> bool {
        !self.is_over
    }
}

impl Worker for PolicyWorker {
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd {
        let now = turn.now;
        self.turn = turn.number;
        let mut handled = 0;
        while handled < TURN_EVENTS_MAX && self.has_work() {
            // Few, and none of them is about a request: a flood of requests must not hold them up.
            if let Some(message) = self.rank.pop() {
                self.receive_gpu(now, message);
                handled += 1;
            } else if self.delivery.has_frame() {
                handled += handle_frame(self, now, TURN_EVENTS_MAX - handled);
            } else if let Some(message) = self.delivery.next_message() {
                self.receive_model(now, message);
                handled += 1;
            } else {
                break;
            }
        }
        let more = handled >= TURN_EVENTS_MAX;
        if self.wake_at <= now && self.has_work() {
            self.metrics.timer_fired(turn, self.armed_in, self.wake_at);
            self.wake_at = Time::NEVER;
            self.step(now, ClusterInput::Wake);
            handled += 1;
        }
        if self.delivery.recovers_at() <= now && self.has_work() {
            recover(self, now);
            handled += 1;
        }
        if self.measured_at <= now && self.has_work() {
            self.measured_at = now + MEASURED_EVERY;
            self.send_measured(now);
            handled += 1;
        }
        if self.is_over {
            // What was decided before the fault is sent; all else is announced to the next lead by its frontends.
            return TurnEnd { wake_at: Time::NEVER, handled: handled.max(1) };
        }
        let wake_at = self.wake_at.min(self.delivery.recovers_at()).min(self.next_measured_at());
        TurnEnd { wake_at: if more { Time::ZERO } else { wake_at }, handled }
    }

    fn send_outputs(&mut self, now: Time) {
        self.delivery.send_plans(now);
        for (round, done) in self.retired.drain(..) {
            // If the link has ended, the GPU has too.
            let _ = done.send(round);
        }
        self.delivery.send_outcomes();
        self.delivery.log.flush();
    }

    fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

#[cfg(test)]
mod tests;
