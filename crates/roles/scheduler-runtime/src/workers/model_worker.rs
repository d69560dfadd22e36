//! Hosts the [`ModelQueue`](symphony_scheduler::ModelQueue)s of some models of one sub-cluster: steps them, and carries
//! out what they order.

mod decisions;
mod models;
mod offers;

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use symphony_controllers::Run;
use symphony_scheduler::{MinTree, ModelActions, ModelInput, PlanCheck, Request};
use symphony_types::{BootId, FailReason, FrontendId, GpuClass, GpuClasses, ModelId, Nanos, RequestId, Time};

use crate::records::recorder_queue::RecorderQueue;
use crate::records::tape_recorder::TapeRecorder;
use crate::threads::clock::Clock;
use crate::threads::inbox::Inbox;
use crate::threads::turn::{TurnEnd, TurnStart};
use crate::threads::worker::{TURN_EVENTS_MAX, TURN_TIMERS_MAX, Worker};
use crate::workers::delivery::{Delivery, EnqueueKind, Host, REDRIVE_WAIT, handle_frame, receive, recover};
use crate::workers::id_map::IdMap;
use crate::workers::messages::{Member, ModelMessage, NewQueue, PlanId, RankMessage, SealNumber};
use crate::workers::offer_board::OfferBoard;
use crate::workers::sent_plans::SentPlan;
use crate::workers::worker_metrics::WorkerMetrics;
use models::ModelSlot;

/// Hosts the queues of some of the sub-cluster's models.
pub(crate) struct ModelWorker {
    delivery: Delivery,
    rank: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    slots: Vec<Option<ModelSlot>>,
    /// The classes of the sub-cluster's GPUs, once known.
    classes: GpuClasses,
    by_id: IdMap<ModelId, usize>,
    by_ordinal: IdMap<u32, usize>,
    wakes: MinTree,
    /// Slots and classes whose newest offer is not published yet: a burst of requests makes one offer.
    offering: Vec<(usize, GpuClass)>,
    /// Messages to the rank worker, held until the plans of the turn are on their links. It may grant a GPU to a model
    /// of another worker at once, whose plan must not overtake the plan before it.
    answers: Vec<RankMessage>,
    /// When the next account is sent to the rank worker.
    account_at: Time,
    /// Whether models that shed have news for the next account.
    account_is_stale: bool,
    /// Whether the rank worker has unread messages or offers and was not woken for them.
    wake_rank: bool,
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
            delivery: Delivery::new(inbox, Arc::clone(&metrics), log, clock.now() + REDRIVE_WAIT),
            rank,
            offers,
            slots: Vec::new(),
            classes: GpuClasses::NONE,
            by_id: IdMap::default(),
            by_ordinal: IdMap::default(),
            wakes: MinTree::new(0),
            offering: Vec::new(),
            answers: Vec::new(),
            account_at: Time::ZERO,
            account_is_stale: false,
            wake_rank: false,
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
        self.delivery.recover_by(now + wait);
        self
    }

    /// Sets the queue of ended batches, which a learner reads.
    pub(crate) fn with_runs(mut self, runs: Option<Arc<ArrayQueue<Run>>>) -> Self {
        self.delivery.runs = runs;
        self
    }

    /// Handles a message that is about decisions.
    fn decide(&mut self, now: Time, message: ModelMessage) {
        match message {
            ModelMessage::Add { model, name, ordinal, config, counts } => {
                let members = vec![Member { id: model, name, counts }];
                self.add_queue(now, NewQueue { members, ordinal, config, families: Vec::new() });
            }
            ModelMessage::Regroup { queues } => self.regroup(now, queues),
            ModelMessage::Change { model, ordinal, config } => self.change_model(now, (model, ordinal), *config),
            ModelMessage::Profile { model, class, profile } => self.set_profile(model, class, *profile),
            ModelMessage::DataDelay { model, data } => self.set_data_delay(now, model, data),
            ModelMessage::Classes { classes } => self.set_classes(now, classes),
            ModelMessage::Remove { model } => self.remove_model(now, model),
            ModelMessage::Grant { ordinal, class, free_at, plan, why } => {
                match self.by_ordinal.get(&ordinal).copied() {
                    Some(slot) => self.grant(now, slot, class, free_at, plan, why),
                    None => self.send_to_rank(RankMessage::Release { ordinal, plan, free_at, used: false }),
                }
            }
            ModelMessage::Pool(signal) => self.apply_signal(now, signal),
            // The others have been carried out.
            _ => {}
        }
    }
}

impl Host for ModelWorker {
    fn delivery(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    #[inline]
    fn enqueue(&mut self, now: Time, model: ModelId, request: Request, kind: EnqueueKind) {
        let Some(&slot) = self.by_id.get(&model) else { return self.delivery.end_unserved(request.id) };
        let input = match kind {
            EnqueueKind::New => ModelInput::Arrive(request),
            EnqueueKind::Returned => ModelInput::Return(request),
            EnqueueKind::ReturnedWithNext => ModelInput::ReturnWithNext(request),
        };
        self.step(now, slot, input);
    }

    fn cancel(&mut self, now: Time, model: ModelId, ids: &mut dyn ExactSizeIterator<Item = RequestId>) {
        let Some(&slot) = self.by_id.get(&model) else { return };
        while let Some(id) = ids.next() {
            let is_last = ids.len() == 0;
            self.step(now, slot, if is_last { ModelInput::Cancel(id) } else { ModelInput::CancelWithNext(id) });
        }
    }

    fn withdraw(&mut self, now: Time, frontend: FrontendId, boot: BootId) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Withdraw { frontend, boot });
            }
        }
    }

    fn plan_done(
        &mut self,
        now: Time,
        plan: PlanId,
        sent: SentPlan,
        measured: (Nanos, Nanos),
        failed: &[(RequestId, FailReason)],
    ) {
        // Its own model may have gone, and others of its rows not.
        let others = sent.requests.iter().map(|request| sent.model_of(request));
        let slot = std::iter::once(sent.model).chain(others).find_map(|model| self.by_id.get(&model).copied());
        // By its own model: they may no longer share a queue.
        let counts = |request: &Request| {
            let slot = self.by_id.get(&sent.model_of(request))?;
            self.slots[*slot].as_ref().map(|queue| &*queue.member(request).counts)
        };
        let latency = self.delivery.batch_done(now, plan.gpu, &sent, measured, failed, counts);
        if let Some(slot) = slot {
            self.step(now, slot, ModelInput::Done { start_late: measured.0, latency, predicted: sent.predicted });
        }
        self.delivery.recycle(sent);
    }

    fn plan_refused(&mut self, _: Time, _: PlanId, _: &SentPlan) {}

    fn gpu_lost(&mut self, _: Time, _: u32, _: SealNumber) {}
}

impl Worker for ModelWorker {
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd {
        let now = turn.now;
        self.turn = turn.number;
        let mut handled = 0;
        while handled < TURN_EVENTS_MAX {
            if self.delivery.has_frame() {
                handled += handle_frame(self, now, TURN_EVENTS_MAX - handled);
            } else if let Some(message) = self.delivery.next_message() {
                if let Some(message) = receive(self, now, message) {
                    self.decide(now, message);
                }
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
        if self.delivery.recovers_at() <= now {
            recover(self, now);
            handled += 1;
        }
        if self.account_is_stale && self.account_at <= now {
            self.send_account(now);
            handled += 1;
        }
        // A turn without plans need not wait: on a shared thread its offers are ranked in the same turn.
        if !self.delivery.has_plans_to_send() {
            self.publish_to_rank();
        }
        if more {
            return TurnEnd { wake_at: Time::ZERO, handled };
        }
        let recovery = self.delivery.recovers_at();
        // A quiet worker must still send its account in time: sent with the next event, an old account would count as
        // new.
        let account_at = if self.account_is_stale { self.account_at } else { Time::NEVER };
        TurnEnd { wake_at: recovery.min(account_at).min(Time::from_nanos(self.wakes.min_key())), handled }
    }

    fn send_outputs(&mut self, now: Time) {
        self.delivery.send_plans(now);
        self.publish_to_rank();
        if std::mem::take(&mut self.wake_rank) {
            self.rank.wake();
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
