//! Hosts the [`GpuRanker`] of one sub-cluster: carries offers to it and grants from it.

use std::sync::Arc;

use symphony_scheduler::{GpuChoice, GpuRanker, RankAction, RankInput};
use symphony_types::{GpuId, Time};

use crate::clock::Clock;
use crate::counters::{Counters, add};
use crate::inbox::Inbox;
use crate::messages::{ModelMessage, RankMessage};
use crate::offer_board::OfferBoard;
use crate::worker::Worker;

#[derive(Clone, Copy, Debug, Default)]
struct GpuPlans {
    /// Number of the next plan.
    next: u64,
    /// Whether the GPU is out with a model.
    granted: bool,
}

/// Owner of the sub-cluster's GPUs.
#[derive(Debug)]
pub(crate) struct RankWorker {
    ranker: GpuRanker,
    clock: Clock,
    inbox: Arc<Inbox<RankMessage>>,
    offers: Arc<OfferBoard>,
    models: Arc<[Arc<Inbox<ModelMessage>>]>,
    gpus: Vec<GpuPlans>,
    actions: Vec<RankAction>,
    wake_at: Time,
    counters: Arc<Counters>,
}

impl RankWorker {
    /// `models[ordinal % models.len()]` is the worker of a model.
    pub(crate) fn new(
        clock: Clock,
        inbox: Arc<Inbox<RankMessage>>,
        offers: Arc<OfferBoard>,
        models: Arc<[Arc<Inbox<ModelMessage>>]>,
        counters: Arc<Counters>,
    ) -> Self {
        let ranker = GpuRanker::new(0, 0, GpuChoice::LowestId);
        Self { ranker, clock, inbox, offers, models, gpus: vec![], actions: vec![], wake_at: Time::NEVER, counters }
    }

    fn step(&mut self, now: Time, input: RankInput) {
        self.ranker.step(now, input, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                RankAction::Grant { model, gpu, free_at } => {
                    let plans = &mut self.gpus[gpu.get() as usize];
                    plans.granted = true;
                    let grant = ModelMessage::Grant { ordinal: model, gpu: gpu.get(), free_at, sequence: plans.next };
                    self.models[model as usize % self.models.len()].push(grant);
                }
                RankAction::WakeAt(time) => self.wake_at = time,
            }
        }
    }

    fn receive(&mut self, now: Time, message: RankMessage) {
        match message {
            RankMessage::Release { ordinal, gpu, free_at, used } => {
                let plans = &mut self.gpus[gpu as usize];
                plans.granted = false;
                plans.next += u64::from(used);
                self.step(now, RankInput::Release { model: ordinal, gpu: GpuId::new(gpu), free_at });
            }
            RankMessage::Sealed { gpu, free_at } => {
                let slot = gpu as usize;
                if slot >= self.gpus.len() {
                    self.gpus.resize(slot + 1, GpuPlans::default());
                }
                self.gpus[slot].next = 1;
                self.step(now, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at });
            }
            RankMessage::Lost { gpu } => self.step(now, RankInput::Remove(GpuId::new(gpu))),
            RankMessage::Done { gpu, sequence, free_at } => {
                // A report about an older plan knows nothing of those sent since: free time must not move backwards.
                let newest = self.gpus.get(gpu as usize).is_some_and(|p| !p.granted && p.next == sequence + 1);
                if newest {
                    self.step(now, RankInput::BusyUntil { gpu: GpuId::new(gpu), free_at });
                }
            }
            RankMessage::Forget { ordinal } => self.step(now, RankInput::Forget(ordinal)),
        }
    }
}

impl Worker for RankWorker {
    fn turn(&mut self) -> Time {
        let now = self.clock.now();
        while let Some(message) = self.inbox.pop() {
            self.receive(now, message);
        }
        let offers = Arc::clone(&self.offers);
        offers.take(|model, (answered, candidate)| self.step(now, RankInput::Offer { model, answered, candidate }));
        if self.wake_at <= now {
            add(&self.counters.timers, 1);
            add(&self.counters.timer_late_nanoseconds, now.since(self.wake_at).get());
            self.wake_at = Time::NEVER;
            self.step(now, RankInput::Wake);
        }
        self.wake_at
    }
}
