//! The GPU time that a sub-cluster's load requires, as a function of how early its batches start.

use symphony_types::{GPU_CLASSES_MAX, GpuClass, Nanos};

use super::early_start::{DEMAND_LEVELS, WAITS, load_max};
use crate::DataDelay;
use crate::queue::class_window::ClassWindow;
use crate::ranker::gpu_counts::GpuCounts;

/// What the arrivals ask of GPUs, for each GPU class as if all GPUs were of that class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// GPU time per early-start level. The first level is that of deferred batches, the last that of single items.
    pub busy: [[Nanos; DEMAND_LEVELS]; GPU_CLASSES_MAX],
    /// GPU time of deferred batches, each model's times the share of its requests' time that ℓ(1) takes, at most 1.
    pub alone: [Nanos; GPU_CLASSES_MAX],
}

impl Demand {
    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let sums = self.busy.iter_mut().flatten().chain(&mut self.alone);
        for (sum, more) in sums.zip(other.busy.iter().flatten().chain(&other.alone)) {
            *sum += *more;
        }
        self
    }

    /// The load per level: demand over the capacity of `gpus` during `within`. With several GPU classes, class c serves
    /// the share n_c / N_c of the demand, where n_c is the number of its GPUs and N_c the number that it would need to
    /// serve everything.
    #[must_use]
    pub(crate) fn loads(&self, gpus: &GpuCounts, within: Nanos) -> [f64; DEMAND_LEVELS] {
        std::array::from_fn(|level| {
            let demand =
                self.busy.iter().map(|class| class[level]).zip(&gpus.0).filter(|&(demand, _)| demand > Nanos::ZERO);
            let (mut nothing_asked, mut served) = (true, 0.0);
            for (demand, &gpus) in demand {
                nothing_asked = false;
                served += f64::from(gpus) * within.as_secs_f64() / demand.as_secs_f64();
            }
            if nothing_asked { 0.0 } else { 1.0 / served }
        })
    }

    /// The load that early starts may cause on `gpus`: [`load_max`] for the GPUs whose class leaves any time beside
    /// ℓ(1). With several, each counts by the share of the demand that it serves, as in [`Self::loads`].
    #[must_use]
    pub(crate) fn load_max(&self, gpus: &GpuCounts) -> f64 {
        let (mut able, mut served, mut alone) = (0, 0.0, 0.0);
        for ((class, alone_time), &gpus) in self.busy.iter().zip(&self.alone).zip(&gpus.0) {
            let deferred = class[0];
            if *alone_time < deferred {
                let serves = f64::from(gpus) / deferred.as_secs_f64();
                able += gpus;
                served += serves;
                alone += serves * alone_time.as_secs_f64() / deferred.as_secs_f64();
            }
        }
        load_max(if served > 0.0 { alone / served } else { 0.0 }, able)
    }

    /// Adds `items` items on this class, of whose requests' time ℓ(1) takes `alone_share`.
    pub(crate) fn add(&mut self, class: GpuClass, items: u64, item_times: &[Nanos; DEMAND_LEVELS], alone_share: f64) {
        let class = class.index();
        for (sum, time) in self.busy[class].iter_mut().zip(item_times) {
            *sum += time.saturating_mul(items);
        }
        let deferred = item_times[0].saturating_mul(items);
        self.alone[class] += Nanos::from_secs_f64(deferred.as_secs_f64() * alone_share.min(1.0));
    }
}

/// The GPU time of one item at each level, at `rate` items per second; `budget` = SLO − reply delay − control delay.
pub(crate) fn item_times(window: &ClassWindow, rate: f64, budget: Nanos, data: DataDelay) -> [Nanos; DEMAND_LEVELS] {
    let alone = window.takes(1);
    WAITS.map(|wait| {
        let within = (alone.as_secs_f64() + (budget - alone).as_secs_f64() * wait).min(budget.as_secs_f64());
        let batch = expected_batch(window, rate, within, data);
        Nanos::from_secs_f64(latency_s(window, batch) / batch)
    })
}

/// The mean batch size if the first item is answered `within` seconds: b with ℓ(b) + (b − 1)/rate + d·b = within. It
/// may be fractional.
fn expected_batch(window: &ClassWindow, rate: f64, within: f64, data: DataDelay) -> f64 {
    let needed =
        |batch: u32| window.takes(batch).as_secs_f64() + f64::from(batch - 1) / rate + data.of(batch).as_secs_f64();
    let most = window.profile.batch_max();
    let (mut low, mut high) = (1, most + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if needed(middle) <= within { low = middle } else { high = middle }
    }
    if low == most {
        return f64::from(most);
    }
    let (below, above) = (needed(low), needed(low + 1));
    let more = if above > below { ((within - below) / (above - below)).clamp(0.0, 1.0) } else { 0.0 };
    f64::from(low) + more
}

/// ℓ(b) in seconds, interpolated linearly between integer sizes.
fn latency_s(window: &ClassWindow, batch: f64) -> f64 {
    let low = batch as u32;
    let (below, above) = (window.profile.latency(low), window.profile.latency(low + 1));
    let below = below.as_secs_f64();
    if above == Nanos::MAX { below } else { below + (batch - f64::from(low)) * (above.as_secs_f64() - below) }
}
