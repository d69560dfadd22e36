//! Hosts the [`ModelQueue`](symphony_scheduler::ModelQueue)s of some models of one sub-cluster: carries requests to
//! them, plans from them to backends, and outcomes to frontends.

mod arrivals;
mod decisions;
mod frontends;
mod models;
mod offers;
mod plans;
mod recovery;

use std::collections::HashMap;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use symphony_controllers::Run;
use symphony_explain::BatchEnd;
use symphony_protocol::execute::Execute;
use symphony_scheduler::{MinTree, ModelActions, ModelInput, PlanCheck, Request};
use symphony_types::{FailReason, FrontendId, GpuClass, GpuClasses, ModelId, Nanos, RequestId, Time};

use crate::records::recorder_queue::RecorderQueue;
use crate::records::tape_recorder::TapeRecorder;
use crate::threads::clock::Clock;
use crate::threads::inbox::Inbox;
use crate::threads::worker::{TURN_EVENTS_MAX, TURN_TIMERS_MAX, TurnEnd, TurnStart, Worker};
use crate::workers::counters::count;
use crate::workers::id_map::IdMap;
use crate::workers::messages::{GpuRoute, ModelMessage, PlanId, RankMessage, SealNumber};
use crate::workers::offer_board::OfferBoard;
use crate::workers::sent_plans::{Ran, SentPlan, SentPlans};
use crate::workers::worker_metrics::WorkerMetrics;
use arrivals::{CancelFrame, FrameInProgress, RequestFrame};
use frontends::FrontendPeer;
use models::ModelSlot;
pub(crate) use recovery::REDRIVE_WAIT;
use recovery::Recovery;

/// Hosts the queues of some of the sub-cluster's models.
pub(crate) struct ModelWorker {
    inbox: Arc<Inbox<ModelMessage>>,
    rank: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    slots: Vec<Option<ModelSlot>>,
    /// The classes of the sub-cluster's GPUs, once known.
    classes: GpuClasses,
    /// All linked backends are cordoned or draining.
    all_drained: bool,
    by_id: IdMap<ModelId, usize>,
    by_ordinal: IdMap<u32, usize>,
    wakes: MinTree,
    /// Slots and classes whose newest offer is not published yet: a burst of requests makes one offer.
    offering: Vec<(usize, GpuClass)>,
    /// The frame in progress. Messages behind it wait, since they may concern its requests.
    frame_in_progress: Option<FrameInProgress>,
    frontends: IdMap<FrontendId, FrontendPeer>,
    /// Whether outcomes wait to be sent to frontends.
    ended: bool,
    /// By ordinal of the GPU.
    routes: Vec<Option<GpuRoute>>,
    /// Plans of this turn: place, start, and message to the backend.
    outgoing: Vec<(PlanId, Time, Execute)>,
    sent: SentPlans,
    /// The queue of ended batches for the learner.
    runs: Option<Arc<ArrayQueue<Run>>>,
    log: RecorderQueue,
    /// Messages to the rank worker, held until the plans of the turn are on their links. It may grant a GPU to a model
    /// of another worker at once, whose plan must not overtake the plan before it.
    answers: Vec<RankMessage>,
    /// When the next account is sent to the rank worker.
    account_at: Time,
    /// Whether models that shed have news for the next account.
    account_is_stale: bool,
    /// Whether the rank worker has unread messages or offers and was not woken for them.
    wake_rank: bool,
    recovery: Option<Recovery>,
    /// Requests that a backend had when it was sealed. They run again only if that backend is lost.
    known_by_backend: HashMap<RequestId, SealNumber>,
    /// Requests among them that were announced again, and so are still wanted; by the seal of their backend.
    redriven_awaited: HashMap<SealNumber, Vec<(ModelId, Request)>>,
    actions: ModelActions,
    check: PlanCheck,
    tape: TapeRecorder,
    metrics: Arc<WorkerMetrics>,
    /// The number of the current turn.
    turn: u64,
}

impl ModelWorker {
    pub(crate) fn new(
        clock: Clock,
        inbox: Arc<Inbox<ModelMessage>>,
        rank: Arc<Inbox<RankMessage>>,
        offers: Arc<OfferBoard>,
        metrics: Arc<WorkerMetrics>,
        log: RecorderQueue,
    ) -> Self {
        Self {
            inbox,
            rank,
            offers,
            slots: Vec::new(),
            classes: GpuClasses::NONE,
            all_drained: false,
            by_id: IdMap::default(),
            by_ordinal: IdMap::default(),
            wakes: MinTree::new(0),
            offering: Vec::new(),
            frame_in_progress: None,
            frontends: IdMap::default(),
            ended: false,
            routes: Vec::new(),
            outgoing: Vec::new(),
            sent: SentPlans::default(),
            runs: None,
            log,
            answers: Vec::new(),
            account_at: Time::ZERO,
            account_is_stale: false,
            wake_rank: false,
            recovery: Some(Recovery { until: clock.now() + REDRIVE_WAIT, waiting: Vec::new() }),
            known_by_backend: HashMap::new(),
            redriven_awaited: HashMap::new(),
            actions: ModelActions::with_room(),
            check: PlanCheck::default(),
            tape: TapeRecorder::default(),
            metrics,
            turn: 0,
        }
    }

    /// Sets the tape.
    pub(crate) fn with_tape(mut self, tape: TapeRecorder) -> Self {
        self.tape = tape;
        self
    }

    /// Sets how long redriven requests wait, counted from `now`.
    pub(crate) fn with_redrive_wait(mut self, now: Time, wait: Nanos) -> Self {
        self.recovery = Some(Recovery { until: now + wait, waiting: Vec::new() });
        self
    }

    /// Sets the queue of ended batches, which a learner reads.
    pub(crate) fn with_runs(mut self, runs: Option<Arc<ArrayQueue<Run>>>) -> Self {
        self.runs = runs;
        self
    }

    fn receive(&mut self, now: Time, message: ModelMessage) {
        match message {
            ModelMessage::Add { model, ordinal, config, counts } => {
                self.add_model(now, (model, ordinal), *config, counts);
            }
            ModelMessage::Change { model, ordinal, config } => self.change_model(now, (model, ordinal), *config),
            ModelMessage::Profile { model, class, profile } => self.set_profile(model, class, *profile),
            ModelMessage::DataDelay { model, data } => self.set_data_delay(now, model, data),
            ModelMessage::Classes { classes } => self.set_classes(now, classes),
            ModelMessage::AllDrained(all) => self.all_drained = all,
            ModelMessage::Remove { model } => self.remove_model(model),
            ModelMessage::Route { gpu, route } => self.set_route(gpu, route),
            ModelMessage::Unroute { gpu, seal } => self.unroute(now, gpu, seal),
            ModelMessage::Frontend { peer, sender } => self.link(now, peer, sender),
            ModelMessage::FrontendGone { peer } => {
                if self.is_linked(peer) {
                    self.frontends.remove(&peer.frontend);
                    self.withdraw(now, peer.frontend, peer.boot);
                }
            }
            ModelMessage::Announce { peer, received, requests, redriven } => {
                // Requests from a former link were, or will be, announced again on the new one.
                if self.is_linked(peer) {
                    let requests = requests.into_iter();
                    self.frame_in_progress =
                        Some(FrameInProgress::Requests(RequestFrame { peer, received, requests, redriven }));
                }
            }
            ModelMessage::Cancel { frontend, boot, requests } => {
                self.frame_in_progress =
                    Some(FrameInProgress::Cancels(CancelFrame { frontend, boot, requests: requests.into_iter() }));
            }
            ModelMessage::Grant { ordinal, class, free_at, plan, why } => {
                match self.by_ordinal.get(&ordinal).copied() {
                    Some(slot) => self.grant(now, slot, class, free_at, plan, why),
                    None => self.send_to_rank(RankMessage::Release { ordinal, plan, free_at, used: false }),
                }
            }
            ModelMessage::Pool(word) => self.apply_signal(now, word),
            ModelMessage::Done { plan, start_late, latency, failed } => {
                if let Some(sent) = self.sent.take(plan) {
                    self.batch_done(now, plan.gpu, sent, (start_late, latency), &failed);
                }
            }
            ModelMessage::Refused { plan } => {
                if let Some(plan) = self.sent.take(plan) {
                    self.record_end(&plan, BatchEnd::Refused);
                    self.requeue(now, plan);
                }
            }
            ModelMessage::Known { seal, requests } => {
                self.known_by_backend.extend(requests.iter().map(|&id| (id, seal)));
            }
            ModelMessage::AllSealed => self.recover(now),
            #[cfg(test)]
            ModelMessage::Hang(until) => {
                let _ = until.recv();
            }
            #[cfg(test)]
            // Without a panic message: in an unoptimised program, printing one can take longer than relapses are
            // remembered.
            ModelMessage::Panic => std::panic::resume_unwind(Box::new("planted")),
        }
    }

    fn set_route(&mut self, gpu: u32, route: GpuRoute) {
        let slot = gpu as usize;
        if slot >= self.routes.len() {
            self.routes.resize(slot + 1, None);
        }
        self.routes[slot] = Some(route);
    }

    /// The GPU is lost under this seal: what was sent to it, or was awaited from it, is queued again.
    fn unroute(&mut self, now: Time, gpu: u32, seal: SealNumber) {
        if let Some(route) = self.routes.get_mut(gpu as usize) {
            route.take_if(|route| route.seal == seal);
        }
        while let Some(plan) = self.sent.take_oldest(gpu, seal) {
            self.record_end(&plan, BatchEnd::Lost);
            self.requeue(now, plan);
        }
        self.known_by_backend.retain(|_, by| *by != seal);
        for (model, request) in self.redriven_awaited.remove(&seal).unwrap_or_default() {
            count(&self.metrics.counters.requeued_requests, 1);
            self.enqueue_returned(now, model, request);
        }
    }

    fn batch_done(
        &mut self,
        now: Time,
        gpu: u32,
        sent: SentPlan,
        (start_late, latency): (Nanos, Nanos),
        failed: &[(RequestId, FailReason)],
    ) {
        let ran = sent.ran(failed);
        self.record_end(&sent, BatchEnd::Done { start_late, latency });
        self.report_run(gpu, &sent, ran, latency);
        // The latency of a batch that did not run as planned says nothing about the plan.
        let latency = if ran == Ran::Whole { latency } else { sent.predicted };
        if ran == Ran::Whole {
            self.metrics.execution_errors.record(sent.predicted, latency);
        }
        if let Some(&slot) = self.by_id.get(&sent.model) {
            if let Some(model) = &self.slots[slot] {
                count(&model.counts.executed, sent.requests.len() as u64);
                count(&model.counts.failed, failed.len() as u64);
                let late = sent.requests.iter().filter(|request| now > request.deadline).count();
                count(&model.counts.late, late as u64);
            }
            self.step(now, slot, ModelInput::Done { start_late, latency, predicted: sent.predicted });
        }
        self.sent.recycle(sent);
    }
}

impl Worker for ModelWorker {
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd {
        let now = turn.now;
        self.turn = turn.number;
        let mut handled = 0;
        while handled < TURN_EVENTS_MAX {
            if self.frame_in_progress.is_some() {
                handled += self.handle_frame(now, TURN_EVENTS_MAX - handled);
            } else if let Some(message) = self.inbox.pop() {
                self.receive(now, message);
                handled += 1;
            } else {
                break;
            }
        }
        let more = handled >= TURN_EVENTS_MAX;
        let handled_max = handled + TURN_TIMERS_MAX;
        while handled < handled_max
            && let Some((slot, wake_at)) = self.wakes.min().filter(|&(_, wake_at)| wake_at <= now.as_nanos())
        {
            let armed_in = self.slots[slot].as_ref().map_or(0, |model| model.armed_in);
            self.metrics.timer_fired(turn, armed_in, Time::from_nanos(wake_at));
            self.wakes.set(slot, MinTree::EMPTY);
            self.step(now, slot, ModelInput::Wake);
            handled += 1;
        }
        if self.recovery.as_ref().is_some_and(|recovery| recovery.until <= now) {
            self.recover(now);
            handled += 1;
        }
        if self.account_is_stale && self.account_at <= now {
            self.send_account(now);
            handled += 1;
        }
        // A turn without plans need not wait: on a shared thread its offers are ranked in the same turn.
        if self.outgoing.is_empty() {
            self.answer_rank();
        }
        if more {
            return TurnEnd { wake_at: Time::ZERO, handled };
        }
        let recovery = self.recovery.as_ref().map_or(Time::NEVER, |recovery| recovery.until);
        // A quiet worker must still send its account in time: sent with the next event, an old account would count as
        // new.
        let account_at = if self.account_is_stale { self.account_at } else { Time::NEVER };
        TurnEnd { wake_at: recovery.min(account_at).min(Time::from_nanos(self.wakes.min_key())), handled }
    }

    fn send_outputs(&mut self, now: Time) {
        self.send_plans(now);
        self.answer_rank();
        if std::mem::take(&mut self.wake_rank) {
            self.rank.wake();
        }
        self.send_outcomes();
        self.log.flush();
    }

    fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

#[cfg(test)]
mod tests;
