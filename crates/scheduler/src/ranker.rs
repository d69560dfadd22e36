//! The free times of a sub-cluster's GPUs, and which model gets which GPU when.

use symphony_types::{GpuId, Nanos, Time};

use crate::actions::{Candidate, RankAction, RankActions, RankInput};
use crate::early_start::EarlyStart;
use crate::why::{GrantWhy, IDLE_COUNTED_MAX, Matched, Rival};
use crate::{GpuChoice, MinTree, ReadyOrder};

/// The most GPUs of one sub-cluster.
pub const GPUS_MAX: usize = 1 << 16;
/// The most models of one sub-cluster.
pub const MODELS_MAX: usize = 1 << 16;
/// Plans that a host may have out on one GPU, the running one included: no more fit into the shortest queue a backend is
/// configured with by default. A GPU that runs over its predictions gets the next one when it reports, not before.
pub const PLANS_AHEAD_MAX: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
struct ModelSlot {
    candidate: Option<Candidate>,
    /// Grants given so far. An offer that has answered fewer is older than the last grant.
    grants: u64,
}

/// Owner of GPU availability in one sub-cluster (seed 000, `RankThread`). It sees candidates, never requests, so its
/// cost grows with batches.
///
/// GPUs and models are dense ordinals here; the host translates. A model finds a GPU when its candidate is due; else it
/// waits in the ready set, ordered by *latest* unless told otherwise, until a GPU finds it.
#[derive(Clone, Debug)]
pub struct GpuRanker {
    choice: GpuChoice,
    order: ReadyOrder,
    models: Vec<ModelSlot>,
    /// When each candidate wants its plan sent: start − lead.
    due: MinTree,
    /// Candidates that are due and found no GPU, in the order in which they will.
    ready: MinTree,
    /// The same candidates by lead, longest first: `MinTree::EMPTY − 1 − lead`.
    ready_lead: MinTree,
    ready_count: u32,
    /// When each GPU is free; empty while it is granted or must not be used.
    free: MinTree,
    granted: Vec<bool>,
    granted_count: usize,
    /// Made with the first candidate that may start early.
    early_start: Option<Box<EarlyStart>>,
    wake_at: Time,
}

impl GpuRanker {
    /// For `models` models and `gpus` GPUs, none of them usable until the host says when it is free. Both grow when
    /// larger ordinals appear, up to [`MODELS_MAX`] and [`GPUS_MAX`]; beyond that an input is ignored.
    #[must_use]
    pub fn new(models: u32, gpus: u32, choice: GpuChoice) -> Self {
        let (models, gpus) = ((models as usize).min(MODELS_MAX), (gpus as usize).min(GPUS_MAX));
        Self {
            choice,
            order: ReadyOrder::default(),
            models: vec![ModelSlot::default(); models],
            due: MinTree::new(models),
            ready: MinTree::new(models),
            ready_lead: MinTree::new(models),
            ready_count: 0,
            free: MinTree::new(gpus),
            granted: vec![false; gpus],
            granted_count: 0,
            early_start: None,
            wake_at: Time::NEVER,
        }
    }

    /// The same, with another order of those that wait for a GPU.
    #[must_use]
    pub const fn with_ready_order(mut self, order: ReadyOrder) -> Self {
        self.order = order;
        self
    }

    /// Candidates that are due and wait for a GPU.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the GPU is free; [`Time::NEVER`] while it is granted or must not be used.
    #[must_use]
    pub fn free_at(&self, gpu: GpuId) -> Time {
        let slot = gpu.get() as usize;
        if slot < self.free.len() { Time::from_nanos(self.free.key(slot)) } else { Time::NEVER }
    }

    /// One decision: time and input come in, orders go out (appended to `out`).
    pub fn step(&mut self, now: Time, input: RankInput, out: &mut RankActions) {
        if let Some(early_start) = &mut self.early_start {
            early_start.advance(now);
        }
        match input {
            RankInput::Offer { model, answered, candidate } => {
                let Some(slot) = self.model_slot(model) else { return };
                if answered < self.models[slot].grants {
                    return;
                }
                if self.early_start.is_none() && candidate.is_some_and(|c| c.growth.is_some()) {
                    self.begin_early_start(now);
                }
                self.place(slot, candidate);
            }
            RankInput::Release { model: _, gpu, free_at } => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                // A GPU that was removed while it was granted stays away.
                if self.take_back(slot) {
                    self.set_free(slot, free_at);
                }
            }
            RankInput::BusyUntil { gpu, free_at } => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                if !self.granted[slot] {
                    self.set_free(slot, free_at);
                }
            }
            RankInput::Remove(gpu) => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                self.take_back(slot);
                self.set_free(slot, Time::NEVER);
            }
            RankInput::Forget(model) => {
                let Some(slot) = self.model_slot(model) else { return };
                self.place(slot, None);
                if let Some(early_start) = &mut self.early_start {
                    early_start.forget(slot);
                }
                // The slot's next model answers its own grants only.
                self.models[slot].grants = 0;
            }
            RankInput::Wake => self.wake_at = Time::NEVER,
        }
        self.match_up(now, out);
    }

    /// Takes the candidate out of every set and, if there is a new one, waits for its start.
    fn place(&mut self, slot: usize, candidate: Option<Candidate>) {
        self.models[slot].candidate = candidate;
        self.unready(slot);
        self.due.set(slot, candidate.map_or(MinTree::EMPTY, |c| (c.start - c.lead).as_nanos()));
        if let Some(early_start) = &mut self.early_start {
            early_start.candidate(slot, candidate.and_then(|c| c.growth));
        }
    }

    /// Looks ahead from now on.
    fn begin_early_start(&mut self, now: Time) {
        let mut early_start = Box::new(EarlyStart::new(self.models.len(), self.granted.len()));
        early_start.advance(now);
        for gpu in 0..self.granted.len() {
            early_start.gpu(gpu, Time::from_nanos(self.free.key(gpu)));
        }
        self.early_start = Some(early_start);
    }

    fn set_free(&mut self, gpu: usize, free_at: Time) {
        self.free.set(gpu, free_at.as_nanos());
        if let Some(early_start) = &mut self.early_start {
            early_start.gpu(gpu, free_at);
        }
    }

    /// Whether the GPU was out with a model; it no longer is.
    fn take_back(&mut self, gpu: usize) -> bool {
        let was = std::mem::take(&mut self.granted[gpu]);
        self.granted_count -= usize::from(was);
        was
    }

    fn place_in_line(&self, candidate: &Candidate) -> Time {
        match self.order {
            ReadyOrder::Latest => candidate.latest,
            ReadyOrder::Frontrun => candidate.frontrun,
            ReadyOrder::Start => candidate.start,
            ReadyOrder::Deadline => candidate.must_end_by,
        }
    }

    fn make_ready(&mut self, slot: usize, candidate: &Candidate) {
        self.ready_count += u32::from(self.ready.key(slot) == MinTree::EMPTY);
        self.ready.set(slot, self.place_in_line(candidate).as_nanos());
        self.ready_lead.set(slot, (MinTree::EMPTY - 1).saturating_sub(candidate.lead.get()));
    }

    fn unready(&mut self, slot: usize) {
        if self.ready.key(slot) != MinTree::EMPTY {
            self.ready_count -= 1;
            self.ready.set(slot, MinTree::EMPTY);
            self.ready_lead.set(slot, MinTree::EMPTY);
        }
    }

    /// Matches models and GPUs as far as `now` allows, and asks to be woken when there is more to do.
    fn match_up(&mut self, now: Time, out: &mut RankActions) {
        self.models_find_gpus(now, out);
        let gpus_next = self.gpus_find_models(now, out);
        self.start_early(now, out);
        let wake_at = gpus_next.min(Time::from_nanos(self.due.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.push(RankAction::WakeAt(wake_at));
        }
    }

    fn models_find_gpus(&mut self, now: Time, out: &mut RankActions) {
        while let Some((slot, due)) = self.due.min() {
            if due > now.as_nanos() {
                break;
            }
            self.due.set(slot, MinTree::EMPTY);
            let Some(candidate) = self.models[slot].candidate else { continue };
            let start = candidate.start.max(now + candidate.lead);
            if start > candidate.latest {
                // The window has passed; the model wakes up by itself and forms another candidate.
                self.place(slot, None);
                continue;
            }
            match self.gpu_free_by(start) {
                Some(gpu) => self.grant(slot, gpu, start, Matched::AtItsStart, out),
                None => self.make_ready(slot, &candidate),
            }
        }
    }

    /// Returns when a GPU has to look again.
    fn gpus_find_models(&mut self, now: Time, out: &mut RankActions) -> Time {
        while let (Some((slot, _)), Some((_, free_at))) = (self.ready.min(), self.free.min()) {
            let lead_max = Nanos::new(MinTree::EMPTY - 1 - self.ready_lead.min_key());
            let free_at = Time::from_nanos(free_at);
            if free_at - lead_max > now {
                return free_at - lead_max;
            }
            self.unready(slot);
            let Some(candidate) = self.models[slot].candidate else { continue };
            let start = free_at.max(now + candidate.lead);
            if start > candidate.latest {
                self.place(slot, None);
                continue;
            }
            if let Some(gpu) = self.gpu_free_by(start) {
                self.grant(slot, gpu, start, Matched::FirstInLine, out);
            }
        }
        Time::NEVER
    }

    /// Gives idle GPUs to candidates for which waiting cannot pay.
    fn start_early(&mut self, now: Time, out: &mut RankActions) {
        while let Some(early_start) = &mut self.early_start {
            let Some((slot, why)) = early_start.next(now, self.granted_count) else { return };
            let Some(candidate) = self.models[slot].candidate else { return };
            let start = now + candidate.lead;
            let Some(gpu) = self.gpu_free_by(start) else { return };
            self.grant(slot, gpu, start, why, out);
        }
    }

    fn gpu_free_by(&self, start: Time) -> Option<usize> {
        match self.choice {
            GpuChoice::LowestId => self.free.first_at_most(start.as_nanos()),
            GpuChoice::EarliestFree => {
                self.free.min().filter(|&(_, free_at)| free_at <= start.as_nanos()).map(|(gpu, _)| gpu)
            }
        }
    }

    fn grant(&mut self, model: usize, gpu: usize, start: Time, matched: Matched, out: &mut RankActions) {
        let free_at = Time::from_nanos(self.free.key(gpu));
        self.set_free(gpu, Time::NEVER);
        self.granted[gpu] = true;
        self.granted_count += 1;
        self.place(model, None);
        self.models[model].grants += 1;
        let why = self.why(start, matched);
        out.push(RankAction::Grant { model: model as u32, gpu: GpuId::new(gpu as u32), free_at, why });
    }

    /// What there was to choose from, for a grant whose GPU and model are out of every set already.
    fn why(&self, start: Time, matched: Matched) -> GrantWhy {
        let next_rival = self.ready.min().and_then(|(model, _)| {
            let candidate = self.models[model].candidate?;
            Some(Rival { model: model as u32, latest: candidate.latest })
        });
        GrantWhy {
            matched,
            choice: self.choice,
            others_idle: self.free.count_at_most(start.as_nanos(), IDLE_COUNTED_MAX.into()) as u8,
            rivals: self.ready_count,
            next_rival,
        }
    }

    fn model_slot(&mut self, model: u32) -> Option<usize> {
        let slot = model as usize;
        if slot >= MODELS_MAX {
            return None;
        }
        if slot >= self.models.len() {
            self.models.resize(slot + 1, ModelSlot::default());
            self.due.grow(slot + 1);
            self.ready.grow(slot + 1);
            self.ready_lead.grow(slot + 1);
            if let Some(early_start) = &mut self.early_start {
                early_start.grow(slot + 1, 0);
            }
        }
        Some(slot)
    }

    fn gpu_slot(&mut self, gpu: GpuId) -> Option<usize> {
        let slot = gpu.get() as usize;
        if slot >= GPUS_MAX {
            return None;
        }
        if slot >= self.granted.len() {
            self.granted.resize(slot + 1, false);
            self.free.grow(slot + 1);
            if let Some(early_start) = &mut self.early_start {
                early_start.grow(0, slot + 1);
            }
        }
        Some(slot)
    }
}
