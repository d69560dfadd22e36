//! Decides which model gets which GPU when, from the free times of a sub-cluster's GPUs.

use symphony_types::{GpuClass, GpuId, Nanos, Time};

use crate::actions::{Candidate, RankAction, RankActions, RankInput};
use crate::ranker::gpu_counts::GpuCounts;
use crate::why::{GrantWhy, IDLE_COUNTED_MAX, Matched, Rival};
use crate::{GpuChoice, MinTree};

/// The most GPUs of one sub-cluster.
pub const GPUS_MAX: usize = 1 << 16;
/// The most models of one sub-cluster.
pub const MODELS_MAX: usize = 1 << 16;

/// The GPUs of one class and the candidates for them. Models and GPUs have the same slots in every class.
#[derive(Clone, Debug)]
struct ClassRanks {
    class: GpuClass,
    candidates: Vec<Option<Candidate>>,
    /// When the plan of each candidate should be sent: start − lead.
    due: MinTree,
    /// The ready set: candidates that are due and wait for a GPU, by ready order.
    ready: MinTree,
    /// The candidates of `ready` by lead, longest first: `MinTree::EMPTY − 1 − lead`.
    ready_lead: MinTree,
    ready_count: u32,
    /// The free time of each idle GPU of this class.
    idle: MinTree,
    /// The predicted free time of each busy GPU of this class. Neither set contains granted, overdue or unusable GPUs.
    busy: MinTree,
    /// The present GPUs of this class, in any state.
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

    /// A GPU for a start at this time; idle GPUs are preferred to those that should be free by then.
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

    /// The earliest free time, which may be in the past.
    fn next_free(&self) -> u64 {
        if self.idle.is_empty() { self.busy.min_key() } else { self.idle.min_key() }
    }

    /// The number of GPUs that are free by this time, counted up to [`IDLE_COUNTED_MAX`].
    fn free_by(&self, start: Time) -> u8 {
        let most = usize::from(IDLE_COUNTED_MAX);
        let idle = self.idle.count_at_most(MinTree::EMPTY, most);
        (idle + self.busy.count_at_most(start.as_nanos(), most - idle)) as u8
    }

    fn free_at(&self, gpu: usize) -> u64 {
        self.idle.key(gpu).min(self.busy.key(gpu))
    }
}

/// The state of a GPU besides its free time.
#[derive(Clone, Copy, Debug, Default)]
struct GpuSlot {
    class: GpuClass,
    present: bool,
    granted: bool,
    /// Runs plans whose ends are reported.
    report_due: bool,
}

/// Owns the availability of GPUs in one sub-cluster (the Symphony paper, `RankThread`). It sees candidates, never
/// requests, so its cost grows with the number of batches.
///
/// GPUs and models are dense ordinals here; the host translates. When a candidate becomes due it takes a usable GPU, or
/// else waits in the ready set, ordered by its policy, until a GPU becomes free. With several GPU classes a model has a
/// candidate for each; the first that is matched withdraws the others.
#[derive(Clone, Debug)]
pub struct GpuRanker {
    /// By class, up to the highest class seen so far.
    classes: Vec<ClassRanks>,
    /// Grants per model so far. An offer with a lower `answered` is older than the last grant.
    grants: Vec<u64>,
    gpus: Vec<GpuSlot>,
    wake_at: Time,
}

impl GpuRanker {
    /// For `models` models and `gpus` GPUs, none usable until the host reports when it is free. Both grow with larger
    /// ordinals, up to [`MODELS_MAX`] and [`GPUS_MAX`]; inputs beyond these are ignored.
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

    /// Whether any candidate waits for a GPU.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.classes.iter().any(|ranks| !ranks.ready.is_empty())
    }

    /// The number of idle GPUs.
    #[must_use]
    pub fn gpus_idle(&self) -> GpuCounts {
        let mut idle = GpuCounts::default();
        for ranks in &self.classes {
            idle.0[ranks.class.index()] = ranks.idle.count_at_most(MinTree::EMPTY, GPUS_MAX) as u32;
        }
        idle
    }

    /// The number of present GPUs, in any state.
    #[must_use]
    pub fn gpus(&self) -> GpuCounts {
        let mut gpus = GpuCounts::default();
        for ranks in &self.classes {
            gpus.0[ranks.class.index()] = ranks.present;
        }
        gpus
    }

    /// When the GPU is free; [`Time::NEVER`] while it is granted, overdue or unusable.
    #[must_use]
    pub fn free_at(&self, gpu: GpuId) -> Time {
        let slot = gpu.get() as usize;
        match self.gpus.get(slot) {
            Some(known) => Time::from_nanos(self.classes[known.class.index()].free_at(slot)),
            None => Time::NEVER,
        }
    }

    /// One decision: takes time and input, and appends its orders to `out`.
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
                // A GPU that was removed while it was granted stays removed.
                if self.clear_grant(slot) {
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
                self.clear_grant(slot);
                self.set_present(slot, false);
                self.set_free(now, slot, Time::NEVER, false);
            }
            RankInput::Forget(model) => {
                let Some(slot) = self.model_slot(model) else { return };
                self.withdraw(slot);
                // The next model in this slot must answer only its own grants.
                self.grants[slot] = 0;
            }
            RankInput::Wake => self.wake_at = Time::NEVER,
        }
        self.match_up(now, out);
    }

    /// Removes the class's candidate from every set and, if there is a new one, schedules its start. Inlined, so that
    /// the candidate is constructed in place.
    #[inline(always)]
    fn place(&mut self, class: usize, slot: usize, candidate: Option<Candidate>) {
        let ranks = &mut self.classes[class];
        ranks.candidates[slot] = candidate;
        ranks.unready(slot);
        ranks.due.set(slot, candidate.map_or(MinTree::EMPTY, |c| (c.start - c.lead).as_nanos()));
    }

    /// Withdraws all candidates of a model.
    fn withdraw(&mut self, slot: usize) {
        for class in 0..self.classes.len() {
            self.place(class, slot, None);
        }
    }

    /// GPUs whose predicted end has passed become idle, or overdue if their ends are reported: an overdue GPU gets no
    /// plan until its report, since it is unknown how much longer it takes.
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

    /// Clears the grant of a GPU and returns whether it was granted.
    fn clear_grant(&mut self, gpu: usize) -> bool {
        std::mem::take(&mut self.gpus[gpu].granted)
    }

    /// Matches models and GPUs as far as possible at `now`, and asks for a wake-up at the next change.
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

    /// The class with the earliest due candidate, and when it is due; the lowest class wins ties.
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
                // The window has passed; the model wakes by itself and forms another candidate.
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

    /// When a GPU of this class has to be examined again.
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

    /// The alternatives of a grant, whose GPU and model have already left every set.
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

    /// Makes room for all classes up to this one.
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
