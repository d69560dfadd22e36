//! Which batch starts although it could still grow, because waiting cannot pay (docs/adr/0008).

use symphony_types::Time;

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
/// - when arrivals are *bursty* and the demand comes close to the number of GPUs, so that idle time is missed sooner or
///   later, and the GPU would be idle for longer than starting now costs in batch size.
#[derive(Clone, Debug)]
pub(crate) struct EarlyStart {
    outlook: Outlook,
    /// When each candidate would start by itself.
    expected: MinTree,
    growths: Vec<Option<Growth>>,
    /// The last demand that each model told, and the sums over all models.
    demands: Vec<Demand>,
    mean: u64,
    variance: u64,
}

impl EarlyStart {
    /// Without candidates or GPUs. Both are dense slots.
    pub(crate) fn new(models: usize, gpus: usize) -> Self {
        Self {
            outlook: Outlook::new(models, gpus),
            expected: MinTree::new(models),
            growths: vec![None; models],
            demands: vec![Demand::default(); models],
            mean: 0,
            variance: 0,
        }
    }

    /// Makes room for more models and GPUs.
    pub(crate) fn grow(&mut self, models: usize, gpus: usize) {
        self.outlook.grow(models, gpus);
        if models > self.growths.len() {
            self.expected.grow(models);
            self.growths.resize(models, None);
            self.demands.resize(models, Demand::default());
        }
    }

    /// Lets time pass. To be called before anything else is said at this time.
    pub(crate) fn advance(&mut self, now: Time) {
        self.outlook.advance(now);
    }

    /// The GPU comes free at this time; [`Time::NEVER`] while it is granted or must not be used.
    pub(crate) fn gpu(&mut self, gpu: usize, free_at: Time) {
        self.outlook.gpu(gpu, free_at);
    }

    /// The model's candidate waits to grow; `None` if it has none, or one that cannot start early.
    pub(crate) fn candidate(&mut self, model: usize, growth: Option<Growth>) {
        self.growths[model] = growth;
        self.expected.set(model, growth.map_or(MinTree::EMPTY, |growth| growth.expected.as_nanos()));
        self.outlook.batch(model, growth.map_or(Time::NEVER, |growth| growth.wanted));
        if let Some(growth) = growth {
            self.demand(model, growth.demand);
        }
    }

    /// The model is gone.
    pub(crate) fn forget(&mut self, model: usize) {
        self.candidate(model, None);
        self.demand(model, Demand::default());
    }

    fn demand(&mut self, model: usize, demand: Demand) {
        let former = std::mem::replace(&mut self.demands[model], demand);
        self.mean = self.mean + u64::from(demand.mean) - u64::from(former.mean);
        self.variance = self.variance + u64::from(demand.variance) - u64::from(former.variance);
    }

    /// The model whose candidate should start now, and why; `granted` GPUs are out with models at the moment.
    pub(crate) fn next(&mut self, now: Time, granted: usize) -> Option<(usize, Matched)> {
        let (model, _) = self.expected.min()?;
        let idle = self.outlook.idle();
        if idle == 0 {
            return None;
        }
        if self.outlook.is_crowded() {
            return Some((model, Matched::EarlyCrowded));
        }
        self.would_be_missed(now, model, idle, granted).then_some((model, Matched::EarlyBursts))
    }

    /// Whether the last of the idle GPUs would stay idle for longer than starting the candidate now costs, and be missed.
    fn would_be_missed(&self, now: Time, model: usize, idle: usize, granted: usize) -> bool {
        if self.variance == 0 {
            return false;
        }
        let per_gpu = f64::from(Demand::PER_GPU);
        let spare = (self.outlook.gpus() + granted) as f64 - self.mean as f64 / per_gpu;
        if spare > SPARE_DEVIATIONS_MIN * (self.variance as f64 / per_gpu).sqrt() {
            return false;
        }
        let idle_for = self.outlook.nth_batch(idle).since(now);
        self.growths[model].is_some_and(|growth| idle_for > growth.loss)
    }
}
