//! How early the batches of a sub-cluster may start before frontrun.

use symphony_types::Nanos;

/// The load that early starts may cause. At 1, pools with 8 % noise lose up to a fifth of their goodput, since GPUs
/// that happen to be busy at the same time make requests late; at 0.8, many models on few GPUs lose a tenth.
pub(crate) const LOAD_MAX: f64 = 0.9;
/// The part of its longest wait for which a batch may have to wait for a GPU in the mean. At 0.3 tight SLOs with 8 %
/// noise lose 4 % in the mean; at 0.1 many models on few GPUs lose up to a seventh.
const GPU_WAIT_MAX: f64 = 0.2;
/// The least early start, at any load: the time in which a GPU is found. Between 0.05 and 0.15 goodput varies by one
/// percent; at 0 many models on few GPUs lose a third, at 0.35 a single model loses a sixth.
const LEAST: f64 = 0.1;
/// The least early start once another arrival has become unlikely. At 0.2 many models on few GPUs lose more; at 0.5
/// models with a high fixed cost lose five percent, and without a limit thirty.
const LEAST_UNLIKELY: f64 = 0.3;

/// Demand is computed at these shares of the longest wait; the last one means a start at once. Between them it is
/// interpolated linearly. They are denser at short waits, where batches are small and demand is steep.
pub(crate) const WAITS: [f64; DEMAND_LEVELS] =
    [1.0, 0.75, 0.5, 0.25, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0, 0.0];
/// The number of levels.
pub const DEMAND_LEVELS: usize = 9;

/// How early a batch may start before frontrun, as a share of its longest wait, SLO − ℓ(1). One means at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EarlyStart(u32);

impl EarlyStart {
    /// Start at once.
    pub const AT_ONCE: Self = Self(Self::ONE);
    /// The least early start, at any load.
    pub(crate) const LEAST: Self = Self((LEAST * Self::ONE as f64) as u32);
    /// No early start: neither because of spare GPU time nor because the model keeps less than one GPU busy.
    pub(crate) const NONE: Self = Self(0);
    const ONE: u32 = 1_000_000;

    /// From millionths; larger values are cut to one.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::ONE { Self::AT_ONCE } else { Self(millionths) }
    }

    /// The share in millionths, 0 to 10⁶.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// As a share, 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }

    /// The least early start where another arrival has become unlikely.
    #[inline]
    #[must_use]
    pub(crate) fn where_unlikely(self) -> Self {
        self.max(Self((LEAST_UNLIKELY * Self::ONE as f64) as u32))
    }

    /// This share of a wait. Unlimited if the start is at once, since requests may wait longer than the SLO.
    #[inline]
    #[must_use]
    pub(crate) const fn of(self, wait: Nanos) -> Nanos {
        if self.0 >= Self::ONE {
            Nanos::MAX
        } else {
            Nanos::new((wait.get() as u128 * self.0 as u128 / Self::ONE as u128) as u64)
        }
    }

    /// The largest early start whose load is at most [`load_max`]; `loads` come from
    /// [`Demand::loads`](super::demand::Demand::loads).
    #[must_use]
    pub(crate) fn affordable(loads: &[f64; DEMAND_LEVELS], load_max: f64) -> Self {
        let share = match loads.iter().position(|&load| load > load_max) {
            None => 1.0,
            Some(0) => 0.0,
            Some(above) => {
                let (lower, upper) = (loads[above - 1], loads[above]);
                let within = (load_max - lower) / (upper - lower);
                1.0 - (WAITS[above - 1] + within * (WAITS[above] - WAITS[above - 1]))
            }
        };
        // Float-to-integer casts saturate.
        Self::from_millionths((share.max(LEAST) * f64::from(Self::ONE)).round() as u32)
    }
}

/// The load that early starts may cause on `gpus` GPUs, where ℓ(1) takes `alone_share` of the time that requests have.
///
/// At a load of ρ a batch waits for one of n GPUs for about ρ/(1 − ρ) · ℓ/2n in the mean, if starts come at random and
/// each takes ℓ = ℓ(1). Where a request's time leaves little beside ℓ that must be short, or GPUs that take longer than
/// predicted make requests late.
pub(crate) fn load_max(alone_share: f64, gpus: u32) -> f64 {
    // On a single GPU batches wait for each other whenever they start; deferral lessens its load by little.
    if alone_share <= 0.0 || gpus <= 1 {
        return LOAD_MAX;
    }
    // What ρ/(1 − ρ) may be.
    let odds_max = GPU_WAIT_MAX * (1.0 - alone_share) / alone_share * 2.0 * f64::from(gpus);
    LOAD_MAX.min(odds_max / (1.0 + odds_max))
}

/// The value until the first measurement.
impl Default for EarlyStart {
    fn default() -> Self {
        Self::AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn batches_start_as_early_as_the_load_allows() {
        let share = |loads: [f64; DEMAND_LEVELS]| EarlyStart::affordable(&loads, LOAD_MAX).share();
        assert_eq!(share([0.0; DEMAND_LEVELS]), 1.0, "nothing is asked");
        assert_eq!(share([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]), 1.0);
        // Half way between an eighth and a sixteenth of the wait.
        assert!((share([0.1, 0.2, 0.3, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6]) - (1.0 - 1.5 / 16.0)).abs() < 1e-6);
        assert_eq!(share([0.95; DEMAND_LEVELS]), LEAST);
        assert_eq!(share([0.89, 1.89, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), LEAST, "0.01 of the first step");
    }

    #[test]
    fn the_less_time_is_left_beside_an_item_the_less_load_early_starts_may_cause() {
        assert_eq!(load_max(0.0, 8), LOAD_MAX, "an item takes nothing, or nothing is asked");
        assert_eq!(load_max(0.2, 8), LOAD_MAX);
        // A tenth of what an item takes is two tenths of the wait, half of ℓ: ρ/(1 − ρ) = 0.1 · 2n.
        assert!((load_max(2.0 / 3.0, 14) - 2.8 / 3.8).abs() < 1e-9);
        assert!((load_max(2.0 / 3.0, 5) - 0.5).abs() < 1e-9, "fewer GPUs come free more rarely");
        assert_eq!(load_max(1.0, 8), 0.0, "no request can wait");
        assert_eq!(load_max(0.5, 1), LOAD_MAX, "a single GPU");
    }

    #[test]
    fn a_part_of_the_slo_is_a_time_and_at_once_has_no_end() {
        let slo = Nanos::from_millis(200);
        assert_eq!(EarlyStart::from_millionths(100_000).of(slo), Nanos::from_millis(20));
        assert_eq!(EarlyStart::from_millionths(0).of(slo), Nanos::ZERO);
        assert_eq!(EarlyStart::from_millionths(2_000_000).of(slo), Nanos::MAX);
        assert!(EarlyStart::from_millionths(999_999).of(Nanos::MAX - Nanos::new(1)) < Nanos::MAX);
    }

    proptest! {
        #[test]
        fn more_load_never_starts_batches_earlier(
            steps in prop::array::uniform9(0.0..0.3_f64), factor in 0.5..1.0_f64,
        ) {
            let mut load = 0.0;
            let loads = steps.map(|step| { load += step; load });
            let (start, lighter) =
                (EarlyStart::affordable(&loads, LOAD_MAX), EarlyStart::affordable(&loads.map(|load| load * factor), LOAD_MAX));
            prop_assert!(lighter >= start);
        }
    }
}
