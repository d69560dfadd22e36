//! Which batch starts although it could still grow, because waiting cannot pay (docs/adr/0008).

use symphony_types::{Nanos, Time};

use crate::MinTree;
use crate::actions::{Demand, Growth};
use crate::outlook::Outlook;
use crate::why::Matched;

/// Standard deviations of the demand between its mean and the number of GPUs, below which bursts are taken to fill the
/// GPUs soon: at three, one moment in a thousand.
const SPARE_DEVIATIONS_MIN: f64 = 3.0;

/// The candidates of one ranker that may start early, against its GPUs.
///
/// Deferral wins by larger batches and loses when GPUs stood idle that are missed later. So an idle GPU is given to the
/// candidate that would be next anyway
/// - when the candidates, at the times they are expected to start, *crowd*: at some moment more of them want a GPU than
///   have come free by then; or
/// - when arrivals are *bursty* and the demand comes close to the number of GPUs, and the GPU would be idle for longer, times how
///   likely it is that the demand exceeds the GPUs, than starting now costs in batch size: only then idle time is missed;
///
/// but never to one whose own wait is less than twice of what starting it now costs. Where SLOs leave less room than a few times
/// a batch's fixed cost, early starts only make batches small, and small batches keep all GPUs busy.
///
/// GPUs of all classes count together, and of a model's candidates for them the one that wants a GPU first: the model takes
/// the others back when one of them is granted.
#[derive(Clone, Debug)]
pub(crate) struct EarlyStart {
    outlook: Outlook,
    classes: Vec<ClassStarts>,
    /// Which GPUs are in sight, free or not.
    in_sight: Vec<bool>,
}

/// What is known of one class. Models and GPUs have the same slots in every class.
#[derive(Clone, Debug)]
struct ClassStarts {
    /// When each candidate would start by itself.
    expected: MinTree,
    growths: Vec<Option<Growth>>,
    /// The last demand that each model told, and the sums over all models.
    demands: Vec<Demand>,
    mean: u64,
    variance: u64,
    /// GPUs in sight.
    gpus: usize,
}

impl ClassStarts {
    fn new(models: usize) -> Self {
        Self {
            expected: MinTree::new(models),
            growths: vec![None; models],
            demands: vec![Demand::default(); models],
            mean: 0,
            variance: 0,
            gpus: 0,
        }
    }

    fn grow(&mut self, models: usize) {
        if models > self.growths.len() {
            self.expected.grow(models);
            self.growths.resize(models, None);
            self.demands.resize(models, Demand::default());
        }
    }

    fn demand(&mut self, model: usize, demand: Demand) {
        let former = std::mem::replace(&mut self.demands[model], demand);
        self.mean = self.mean + u64::from(demand.mean) - u64::from(former.mean);
        self.variance = self.variance + u64::from(demand.variance) - u64::from(former.variance);
    }
}

impl EarlyStart {
    /// Without candidates or GPUs. All are dense slots.
    pub(crate) fn new(classes: usize, models: usize, gpus: usize) -> Self {
        Self {
            outlook: Outlook::new(models, gpus),
            classes: vec![ClassStarts::new(models); classes],
            in_sight: vec![false; gpus],
        }
    }

    /// Makes room for more classes, models and GPUs.
    pub(crate) fn grow(&mut self, classes: usize, models: usize, gpus: usize) {
        self.outlook.grow(models, gpus);
        self.in_sight.resize(gpus.max(self.in_sight.len()), false);
        let models = models.max(self.classes.first().map_or(0, |class| class.growths.len()));
        for class in &mut self.classes {
            class.grow(models);
        }
        self.classes.resize_with(classes.max(self.classes.len()), || ClassStarts::new(models));
    }

    /// Lets time pass. To be called before anything else is said at this time.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        self.outlook.advance(now);
    }

    /// The GPU comes free at this time; [`Time::NEVER`] while it is granted or must not be used, and before its class
    /// changes.
    pub(crate) fn gpu(&mut self, class: usize, gpu: usize, free_at: Time) {
        self.outlook.gpu(gpu, free_at);
        let is_in_sight = free_at != Time::NEVER;
        let was_in_sight = std::mem::replace(&mut self.in_sight[gpu], is_in_sight);
        let gpus = &mut self.classes[class].gpus;
        *gpus = *gpus + usize::from(is_in_sight) - usize::from(was_in_sight);
    }

    /// The model's candidate waits to grow; `None` if it has none, or one that cannot start early.
    #[inline]
    pub(crate) fn candidate(&mut self, class: usize, model: usize, growth: Option<Growth>) {
        let starts = &mut self.classes[class];
        starts.growths[model] = growth;
        starts.expected.set(model, growth.map_or(MinTree::EMPTY, |growth| growth.expected.as_nanos()));
        if let Some(growth) = growth {
            starts.demand(model, growth.demand);
        }
        let mut wanted = growth.map_or(Time::NEVER, |growth| growth.wanted);
        if self.classes.len() > 1 {
            let all = self.classes.iter().filter_map(|starts| starts.growths[model]);
            wanted = all.map(|growth| growth.wanted).min().unwrap_or(Time::NEVER);
        }
        self.outlook.batch(model, wanted);
    }

    /// The model is gone.
    pub(crate) fn forget(&mut self, model: usize) {
        for class in 0..self.classes.len() {
            self.candidate(class, model, None);
            self.classes[class].demand(model, Demand::default());
        }
    }

    /// The candidate that should start now, by class and model, and why. `granted` says how many GPUs of a class are out
    /// with models at the moment, `can_start` whether there is a GPU for a candidate.
    pub(crate) fn next(
        &mut self,
        now: Time,
        granted: impl Fn(usize) -> usize,
        can_start: impl Fn(usize, usize) -> bool,
    ) -> Option<(usize, usize, Matched)> {
        let idle = self.outlook.idle();
        if idle == 0 {
            return None;
        }
        let next_of = |(class, starts): (usize, &ClassStarts)| {
            let (model, expected) = starts.expected.min()?;
            can_start(class, model).then_some((expected, class, model))
        };
        let (_, class, model) = match &self.classes[..] {
            [only] => next_of((0, only))?,
            all => all.iter().enumerate().filter_map(next_of).min()?,
        };
        let growth = self.classes[class].growths[model]?;
        if growth.loss == Nanos::MAX {
            return None;
        }
        if self.outlook.is_crowded() {
            return Some((class, model, Matched::EarlyCrowded));
        }
        self.would_be_missed(now, &growth, idle, granted).then_some((class, model, Matched::EarlyBursts))
    }

    /// Whether the last of the idle GPUs would stay idle for so long that more of it is missed, in the mean, than starting the
    /// candidate now costs.
    fn would_be_missed(&mut self, now: Time, growth: &Growth, idle: usize, granted: impl Fn(usize) -> usize) -> bool {
        if self.classes.iter().all(|class| class.variance == 0) {
            return false;
        }
        // Batches may start later than expected by their tolerance, but are expected to start before.
        let idle_for = self.outlook.nth_batch(idle).since(now) - growth.wanted.since(growth.expected);
        if idle_for <= growth.loss {
            return false;
        }
        let gpus = self.outlook.gpus() + (0..self.classes.len()).map(&granted).sum::<usize>();
        let (mean, variance) = self.demand(gpus, granted);
        let spare = (gpus as f64 - mean).max(0.0);
        if spare > SPARE_DEVIATIONS_MIN * variance.sqrt() {
            return false;
        }
        // The demand exceeds the GPUs with at most this probability, whatever its distribution (Cantelli's inequality).
        let missed = variance / (variance + spare * spare);
        idle_for.as_secs_f64() * missed > growth.loss.as_secs_f64()
    }

    /// What all models ask of `gpus` GPUs, as they are: the mean, and its variance. Each class serves as large a part of it
    /// as it has GPUs out of those that it would need to serve all.
    fn demand(&self, gpus: usize, granted: impl Fn(usize) -> usize) -> (f64, f64) {
        let per_gpu = f64::from(Demand::PER_GPU);
        let of = |class: &ClassStarts| (class.mean as f64 / per_gpu, class.variance as f64 / per_gpu);
        if let [only] = &self.classes[..] {
            return of(only);
        }
        let parts = || {
            self.classes
                .iter()
                .enumerate()
                .filter(|(_, class)| class.mean > 0)
                .map(|(at, class)| ((class.gpus + granted(at)) as f64, of(class)))
        };
        let served: f64 = parts().map(|(gpus, (mean, _))| gpus / mean).sum();
        if served <= 0.0 {
            return (0.0, 0.0);
        }
        let mean = gpus as f64 / served;
        let variance = parts().map(|(here, (own, variance))| here / gpus as f64 * variance * (mean / own).powi(2));
        (mean, variance.sum())
    }
}
