//! The free times of a sub-cluster's GPUs, and which model gets which GPU when.

use symphony_types::{GpuClass, GpuId, Nanos, Time};

use crate::actions::{Candidate, RankAction, RankActions, RankInput};
use crate::ranker::gpu_counts::GpuCounts;
use crate::why::{GrantWhy, IDLE_COUNTED_MAX, Matched, Rival};
use crate::{GpuChoice, MinTree};

/// The most GPUs of one sub-cluster.
pub const GPUS_MAX: usize = 1 << 16;
/// The most models of one sub-cluster.
pub const MODELS_MAX: usize = 1 << 16;
/// Plans that a host may have out on one GPU, the running one included: no more fit into the shortest queue a backend
/// is configured with by default. A GPU that runs over its predictions gets the next one when it reports, not before.
pub const PLANS_AHEAD_MAX: usize = 2;

/// The GPUs of one class, and what wants one of them. Models and GPUs have the same slots in every class.
#[derive(Clone, Debug)]
struct ClassRanks {
    class: GpuClass,
    candidates: Vec<Option<Candidate>>,
    /// When each candidate wants its plan sent: start − lead.
    due: MinTree,
    /// Candidates that are due and found no GPU, in the order in which they will.
    ready: MinTree,
    /// The same candidates by lead, longest first: `MinTree::EMPTY − 1 − lead`.
    ready_lead: MinTree,
    ready_count: u32,
    /// Since when each GPU of this class that is idle is free.
    idle: MinTree,
    /// When each GPU of this class that is busy should be free. Neither has those that are granted, overdue, or must
    /// not be used.
    busy: MinTree,
    /// GPUs of this class that are there, whatever they do.
    present: u32,
}

impl ClassRanks {
    fn new(class: GpuClass, models: usize, gpus: usize) -> Self {
        Self {
            class,
            candidates: vec![None; models],
            due: MinTree::new(models),
            ready: MinTree::new(models),
            ready_lead: MinTree::new(models),
            ready_count: 0,
            idle: MinTree::new(gpus),
            busy: MinTree::new(gpus),
            present: 0,
        }
    }

    fn grow(&mut self, models: usize, gpus: usize) {
        if models > self.candidates.len() {
            self.candidates.resize(models, None);
            self.due.grow(models);
            self.ready.grow(models);
            self.ready_lead.grow(models);
        }
        if gpus > self.idle.len() {
            self.idle.grow(gpus);
            self.busy.grow(gpus);
        }
    }

    fn make_ready(&mut self, slot: usize, place_in_line: Time, lead: Nanos) {
        self.ready_count += u32::from(self.ready.key(slot) == MinTree::EMPTY);
        self.ready.set(slot, place_in_line.as_nanos());
        self.ready_lead.set(slot, (MinTree::EMPTY - 1).saturating_sub(lead.get()));
    }

    fn unready(&mut self, slot: usize) {
        if self.ready.key(slot) != MinTree::EMPTY {
            self.ready_count -= 1;
            self.ready.set(slot, MinTree::EMPTY);
            self.ready_lead.set(slot, MinTree::EMPTY);
        }
    }

    /// A GPU for a start at this time: one that is idle before one that should be free by then.
    fn gpu_free_by(&self, choice: GpuChoice, start: Time) -> Option<usize> {
        match choice {
            GpuChoice::LowestId => {
                self.idle.first_at_most(MinTree::EMPTY).or_else(|| self.busy.first_at_most(start.as_nanos()))
            }
            GpuChoice::EarliestFree => {
                let busy = || self.busy.min().filter(|&(_, free_at)| free_at <= start.as_nanos());
                self.idle.min().or_else(busy).map(|(gpu, _)| gpu)
            }
        }
    }

    /// When the next GPU is free, or since when.
    fn next_free(&self) -> u64 {
        if self.idle.is_empty() { self.busy.min_key() } else { self.idle.min_key() }
    }

    /// GPUs that are free by this time, counted up to [`IDLE_COUNTED_MAX`].
    fn free_by(&self, start: Time) -> u8 {
        let most = usize::from(IDLE_COUNTED_MAX);
        let idle = self.idle.count_at_most(MinTree::EMPTY, most);
        (idle + self.busy.count_at_most(start.as_nanos(), most - idle)) as u8
    }

    fn free_at(&self, gpu: usize) -> u64 {
        self.idle.key(gpu).min(self.busy.key(gpu))
    }
}

/// What is known of a GPU besides when it is free.
#[derive(Clone, Copy, Debug, Default)]
struct GpuSlot {
    class: GpuClass,
    present: bool,
    granted: bool,
    /// It runs plans whose ends are reported.
    report_due: bool,
}

/// Owner of GPU availability in one sub-cluster (seed 000, `RankThread`). It sees candidates, never requests, so its
/// cost grows with batches.
///
/// GPUs and models are dense ordinals here; the host translates. A model finds a GPU when its candidate is due; else it
/// waits in the ready set, in the place that its policy gives it, until a GPU finds it. Where GPUs are of several
/// classes, a model has a candidate for each of them, and the first that meets a GPU of its class takes the others
/// back.
#[derive(Clone, Debug)]
pub struct GpuRanker {
    /// By class; the classes that were spoken of so far, and all below them.
    classes: Vec<ClassRanks>,
    /// Grants given so far, by model. An offer that has answered fewer is older than the last grant.
    grants: Vec<u64>,
    gpus: Vec<GpuSlot>,
    wake_at: Time,
}

impl GpuRanker {
    /// For `models` models and `gpus` GPUs, none of them usable until the host says when it is free. Both grow when
    /// larger ordinals appear, up to [`MODELS_MAX`] and [`GPUS_MAX`]; beyond that an input is ignored.
    #[must_use]
    pub fn new(models: u32, gpus: u32) -> Self {
        let (models, gpus) = ((models as usize).min(MODELS_MAX), (gpus as usize).min(GPUS_MAX));
        Self {
            classes: vec![ClassRanks::new(GpuClass::FIRST, models, gpus)],
            grants: vec![0; models],
            gpus: vec![GpuSlot::default(); gpus],
            wake_at: Time::NEVER,
        }
    }

    /// Candidates that are due and wait for a GPU.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.classes.iter().any(|ranks| !ranks.ready.is_empty())
    }

    /// GPUs that are idle.
    #[must_use]
    pub fn gpus_idle(&self) -> GpuCounts {
        let mut idle = GpuCounts::default();
        for ranks in &self.classes {
            idle.0[ranks.class.index()] = ranks.idle.count_at_most(MinTree::EMPTY, GPUS_MAX) as u32;
        }
        idle
    }

    /// GPUs that are there, whatever they do.
    #[must_use]
    pub fn gpus(&self) -> GpuCounts {
        let mut gpus = GpuCounts::default();
        for ranks in &self.classes {
            gpus.0[ranks.class.index()] = ranks.present;
        }
        gpus
    }

    /// When the GPU is free; [`Time::NEVER`] while it is granted, overdue, or must not be used.
    #[must_use]
    pub fn free_at(&self, gpu: GpuId) -> Time {
        let slot = gpu.get() as usize;
        match self.gpus.get(slot) {
            Some(known) => Time::from_nanos(self.classes[known.class.index()].free_at(slot)),
            None => Time::NEVER,
        }
    }

    /// One decision: time and input come in, orders go out (appended to `out`).
    pub fn step(&mut self, now: Time, input: RankInput, out: &mut RankActions) {
        self.pass_ends(now);
        match input {
            RankInput::Offer { model, answered, class, candidate } => {
                let Some(slot) = self.model_slot(model) else { return };
                if answered < self.grants[slot] {
                    return;
                }
                self.know_class(class);
                self.place(class.index(), slot, candidate);
            }
            RankInput::Release { model: _, gpu, free_at, report_due } => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                // A GPU that was removed while it was granted stays away.
                if self.take_back(slot) {
                    self.set_free(now, slot, free_at, report_due);
                }
            }
            RankInput::Add { gpu, class, free_at } => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                if !self.gpus[slot].granted {
                    self.know_class(class);
                    self.set_free(now, slot, Time::NEVER, false);
                    self.set_present(slot, false);
                    self.gpus[slot].class = class;
                    self.set_present(slot, true);
                    self.set_free(now, slot, free_at, false);
                }
            }
            RankInput::BusyUntil { gpu, free_at, report_due } => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                if !self.gpus[slot].granted {
                    self.set_free(now, slot, free_at, report_due);
                }
            }
            RankInput::Remove(gpu) => {
                let Some(slot) = self.gpu_slot(gpu) else { return };
                self.take_back(slot);
                self.set_present(slot, false);
                self.set_free(now, slot, Time::NEVER, false);
            }
            RankInput::Forget(model) => {
                let Some(slot) = self.model_slot(model) else { return };
                self.withdraw(slot);
                // The slot's next model answers its own grants only.
                self.grants[slot] = 0;
            }
            RankInput::Wake => self.wake_at = Time::NEVER,
        }
        self.match_up(now, out);
    }

    /// Takes the candidate for a class out of every set and, if there is a new one, waits for its start. Inlined, so
    /// that the candidate goes right where it is kept.
    #[inline(always)]
    fn place(&mut self, class: usize, slot: usize, candidate: Option<Candidate>) {
        let ranks = &mut self.classes[class];
        ranks.candidates[slot] = candidate;
        ranks.unready(slot);
        ranks.due.set(slot, candidate.map_or(MinTree::EMPTY, |c| (c.start - c.lead).as_nanos()));
    }

    /// Takes back all candidates of a model.
    fn withdraw(&mut self, slot: usize) {
        for class in 0..self.classes.len() {
            self.place(class, slot, None);
        }
    }

    /// What GPUs were to do until now is done: they are idle, but for those of which it is to be reported. These are
    /// overdue, and get nothing until it is: how much longer they take nobody knows.
    #[inline]
    fn pass_ends(&mut self, now: Time) {
        for ranks in &mut self.classes {
            while ranks.busy.min_key() < now.as_nanos()
                && let Some((gpu, end)) = ranks.busy.min()
            {
                ranks.busy.set(gpu, MinTree::EMPTY);
                if !self.gpus[gpu].report_due {
                    ranks.idle.set(gpu, end);
                }
            }
        }
    }

    fn set_free(&mut self, now: Time, gpu: usize, free_at: Time, report_due: bool) {
        let slot = &mut self.gpus[gpu];
        slot.report_due = report_due;
        let ranks = &mut self.classes[slot.class.index()];
        let is_idle = free_at <= now && !report_due;
        let key = |holds: bool| if holds { free_at.as_nanos() } else { MinTree::EMPTY };
        ranks.idle.set(gpu, key(is_idle));
        ranks.busy.set(gpu, key(!is_idle && free_at >= now));
    }

    fn set_present(&mut self, gpu: usize, present: bool) {
        let GpuSlot { class, present: was, .. } = &mut self.gpus[gpu];
        let count = &mut self.classes[class.index()].present;
        *count = *count - u32::from(*was) + u32::from(present);
        *was = present;
    }

    /// Whether the GPU was out with a model; it no longer is.
    fn take_back(&mut self, gpu: usize) -> bool {
        std::mem::take(&mut self.gpus[gpu].granted)
    }

    /// Matches models and GPUs as far as `now` allows, and asks to be woken when there is more to do.
    fn match_up(&mut self, now: Time, out: &mut RankActions) {
        if self.next_due().1 <= now.as_nanos() {
            self.models_find_gpus(now, out);
        }
        let mut wake_at = Time::NEVER;
        for class in 0..self.classes.len() {
            if !self.classes[class].ready.is_empty() {
                wake_at = wake_at.min(self.gpus_find_models(class, now, out));
            }
        }
        wake_at = wake_at.min(Time::from_nanos(self.next_due().1));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.push(RankAction::WakeAt(wake_at));
        }
    }

    /// The class whose next candidate is due first, and when; the lowest of several.
    #[inline]
    fn next_due(&self) -> (usize, u64) {
        let mut next = (0, MinTree::EMPTY);
        for (class, ranks) in self.classes.iter().enumerate() {
            if ranks.due.min_key() < next.1 {
                next = (class, ranks.due.min_key());
            }
        }
        next
    }

    fn models_find_gpus(&mut self, now: Time, out: &mut RankActions) {
        loop {
            let (class, due) = self.next_due();
            if due > now.as_nanos() {
                break;
            }
            let ranks = &mut self.classes[class];
            let Some((slot, _)) = ranks.due.min() else { break };
            ranks.due.set(slot, MinTree::EMPTY);
            let Some(candidate) = ranks.candidates[slot] else { continue };
            let start = candidate.start.max(now + candidate.lead);
            if start > candidate.latest {
                // The window has passed; the model wakes up by itself and forms another candidate.
                self.place(class, slot, None);
                continue;
            }
            let choice = candidate.gpu_choice;
            match ranks.gpu_free_by(choice, start) {
                Some(gpu) => self.grant((class, slot), (gpu, choice), start, Matched::AtItsStart, out),
                None => ranks.make_ready(slot, candidate.place_in_line(), candidate.lead),
            }
        }
    }

    /// Returns when a GPU of this class has to look again.
    fn gpus_find_models(&mut self, class: usize, now: Time, out: &mut RankActions) -> Time {
        loop {
            let ranks = &mut self.classes[class];
            let Some((slot, _)) = ranks.ready.min() else { return Time::NEVER };
            let free_at = ranks.next_free();
            if free_at == MinTree::EMPTY {
                return Time::NEVER;
            }
            let lead_max = Nanos::new(MinTree::EMPTY - 1 - ranks.ready_lead.min_key());
            let free_at = Time::from_nanos(free_at);
            if free_at - lead_max > now {
                return free_at - lead_max;
            }
            ranks.unready(slot);
            let Some(candidate) = ranks.candidates[slot] else { continue };
            let start = free_at.max(now + candidate.lead);
            if start > candidate.latest {
                self.place(class, slot, None);
                continue;
            }
            let choice = candidate.gpu_choice;
            if let Some(gpu) = ranks.gpu_free_by(choice, start) {
                self.grant((class, slot), (gpu, choice), start, Matched::FirstInLine, out);
            }
        }
    }

    fn grant(
        &mut self,
        (class, model): (usize, usize),
        (gpu, choice): (usize, GpuChoice),
        start: Time,
        matched: Matched,
        out: &mut RankActions,
    ) {
        let ranks = &mut self.classes[class];
        let free_at = Time::from_nanos(ranks.free_at(gpu));
        self.gpus[gpu].granted = true;
        ranks.idle.set(gpu, MinTree::EMPTY);
        ranks.busy.set(gpu, MinTree::EMPTY);
        self.withdraw(model);
        self.grants[model] += 1;
        let why = self.why(class, start, matched, choice);
        let class = self.classes[class].class;
        out.push(RankAction::Grant { model: model as u32, gpu: GpuId::new(gpu as u32), class, free_at, why });
    }

    /// What there was to choose from, for a grant whose GPU and model are out of every set already.
    fn why(&self, class: usize, start: Time, matched: Matched, choice: GpuChoice) -> GrantWhy {
        let ranks = &self.classes[class];
        let next_rival = ranks.ready.min().and_then(|(model, _)| {
            let candidate = ranks.candidates[model]?;
            Some(Rival { model: model as u32, latest: candidate.latest })
        });
        GrantWhy { matched, choice, others_idle: ranks.free_by(start), rivals: ranks.ready_count, next_rival }
    }

    #[inline]
    fn know_class(&mut self, class: GpuClass) {
        if class.index() >= self.classes.len() {
            self.grow_classes(class);
        }
    }

    /// Makes room for the class and those below it.
    #[cold]
    fn grow_classes(&mut self, class: GpuClass) {
        for unknown in GpuClass::all().take(class.index() + 1).skip(self.classes.len()) {
            self.classes.push(ClassRanks::new(unknown, self.grants.len(), self.gpus.len()));
        }
    }

    #[inline]
    fn model_slot(&mut self, model: u32) -> Option<usize> {
        let slot = model as usize;
        if slot < self.grants.len() {
            return Some(slot);
        }
        self.grow_models(slot)
    }

    #[cold]
    fn grow_models(&mut self, slot: usize) -> Option<usize> {
        if slot >= MODELS_MAX {
            return None;
        }
        self.grants.resize(slot + 1, 0);
        for ranks in &mut self.classes {
            ranks.grow(slot + 1, 0);
        }
        Some(slot)
    }

    fn gpu_slot(&mut self, gpu: GpuId) -> Option<usize> {
        let slot = gpu.get() as usize;
        if slot >= GPUS_MAX {
            return None;
        }
        if slot >= self.gpus.len() {
            self.gpus.resize(slot + 1, GpuSlot::default());
            for ranks in &mut self.classes {
                ranks.grow(0, slot + 1);
            }
        }
        Some(slot)
    }
}
