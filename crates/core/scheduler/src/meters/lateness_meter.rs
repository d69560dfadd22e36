//! How much later than planned batches start and end: planned for in addition to the network's delays (docs/adr/0007).

use symphony_types::Nanos;

/// The number of plans in the window. At twenty batches per second it covers six seconds: long enough to contain a
/// machine's pauses, short enough to forget them.
const WINDOW: usize = 128;
/// Plans between two evaluations of the window, each of which sorts it. The first plans are all evaluated.
const EVALUATE_EVERY: usize = 16;
/// The quantile to plan for. At 0.995 the margin for the longest executions makes batches small (a zoo of A100s with 8
/// % noise loses a tenth); at 0.95 `symphony` misses too many deadlines.
const QUANTILE: f64 = 0.97;

/// How much longer than predicted executions take, relative to the prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overrun(u32);

impl Overrun {
    /// No overrun.
    pub const NONE: Self = Self(0);
    /// The limit, a hundred times: a machine that pauses during a short batch.
    const MAX: u32 = 100_000;

    /// From thousandths of the predicted time; more than a hundred times is cut.
    #[must_use]
    pub const fn from_thousandths(thousandths: u32) -> Self {
        if thousandths > Self::MAX { Self(Self::MAX) } else { Self(thousandths) }
    }

    /// In thousandths of the predicted time.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The overrun of plans with the total prediction `predicted`; `None` if that is zero.
    pub(crate) fn between(longer: Nanos, predicted: Nanos) -> Option<Self> {
        let thousandths = (u128::from(longer.get()) * 1000).checked_div(predicted.get().into())?;
        Some(Self::from_thousandths(u32::try_from(thousandths).unwrap_or(u32::MAX)))
    }

    /// The overrun in time of a plan with this prediction.
    #[inline]
    pub(crate) const fn of(self, predicted: Nanos) -> Nanos {
        if self.0 == 0 { Nanos::ZERO } else { Nanos::new(predicted.get().saturating_mul(self.0 as u64) / 1000) }
    }
}

/// The last values of a quantity, in fixed memory.
#[derive(Clone, Copy, Debug)]
struct Recent<T> {
    values: [T; WINDOW],
    filled: usize,
    next: usize,
}

impl<T: Copy + Ord> Recent<T> {
    const fn new(none: T) -> Self {
        Self { values: [none; WINDOW], filled: 0, next: 0 }
    }

    fn record(&mut self, value: T) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
    }

    /// The quantile to plan for; requires at least one value.
    fn high(&self) -> T {
        let mut sorted = self.values;
        let seen = &mut sorted[..self.filled];
        let last = seen.len() - 1;
        // The largest of the first few values: the second largest of four is no high quantile.
        let rank = if seen.len() < EVALUATE_EVERY { last } else { (last as f64 * QUANTILE) as usize };
        *seen.select_nth_unstable(rank).1
    }
}

/// High quantiles, over the last plans, of start lateness and overrun.
///
/// Start lateness depends on the machine, so it is a time. The overrun depends on the batch, so it is relative: the
/// overruns of large batches apply to small ones in proportion.
#[derive(Clone, Debug)]
pub struct LatenessMeter {
    start_lates: Recent<Nanos>,
    overruns: Recent<Overrun>,
    since_evaluated: usize,
    /// The quantiles at the last evaluation.
    start_late: Nanos,
    overrun: Overrun,
    /// Total prediction of the plans noted since the last [`LatenessMeter::take_totals`].
    unreported: Nanos,
}

impl Default for LatenessMeter {
    fn default() -> Self {
        Self {
            start_lates: Recent::new(Nanos::ZERO),
            overruns: Recent::new(Overrun::NONE),
            since_evaluated: 0,
            start_late: Nanos::ZERO,
            overrun: Overrun::NONE,
            unreported: Nanos::ZERO,
        }
    }
}

impl LatenessMeter {
    /// Records a plan: how late it started and how much longer than `predicted` it ran (zero if it was faster). Returns
    /// whether the quantiles were re-evaluated.
    pub fn record(&mut self, start_late: Nanos, longer: Nanos, predicted: Nanos) -> bool {
        self.start_lates.record(start_late);
        self.overruns.record(Overrun::between(longer, predicted).unwrap_or(Overrun::NONE));
        self.unreported += predicted;
        self.since_evaluated += 1;
        if self.since_evaluated < EVALUATE_EVERY && self.overruns.filled > EVALUATE_EVERY {
            return false;
        }
        self.since_evaluated = 0;
        (self.start_late, self.overrun) = (self.start_lates.high(), self.overruns.high());
        true
    }

    /// The start lateness to plan for.
    #[must_use]
    pub const fn start_late(&self) -> Nanos {
        self.start_late
    }

    /// The overrun to plan for; at least `usual` until the window is full.
    pub(crate) fn overrun(&self, usual: Overrun) -> Overrun {
        if self.overruns.filled < WINDOW { self.overrun.max(usual) } else { self.overrun }
    }

    /// The plans since the last call: how much longer they may have taken in total, and their total prediction.
    pub fn take_totals(&mut self) -> (Nanos, Nanos) {
        let predicted = std::mem::take(&mut self.unreported);
        (self.overrun.of(predicted), predicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: Nanos = Nanos::from_millis(10);

    /// Notes plans that took this many tenths of a percent longer.
    fn record(meter: &mut LatenessMeter, thousandths: u32, times: usize) -> u32 {
        for _ in 0..times {
            meter.record(Nanos::ZERO, Overrun::from_thousandths(thousandths).of(TAKES), TAKES);
        }
        meter.overrun(Overrun::NONE).thousandths()
    }

    #[test]
    fn a_few_pauses_are_planned_for_only_while_they_are_more_than_the_quantile_leaves_out() {
        let mut meter = LatenessMeter::default();
        assert_eq!(record(&mut meter, 10, 128), 10);
        // Four in 128 are the outliers that the quantile leaves out; five are a habit.
        record(&mut meter, 900, 4);
        assert_eq!(record(&mut meter, 10, 12), 10);
        record(&mut meter, 900, 1);
        assert_eq!(record(&mut meter, 10, 15), 900);
        // A window later they are forgotten.
        assert_eq!(record(&mut meter, 10, 128), 10);
    }

    #[test]
    fn the_first_plans_count_at_once_and_what_is_usual_until_there_are_enough() {
        let mut meter = LatenessMeter::default();
        let usual = Overrun::from_thousandths(70);
        assert_eq!(meter.overrun(usual), usual);
        assert_eq!(record(&mut meter, 90, 1), 90);
        assert_eq!(record(&mut meter, 10, 3), 90, "the largest of few");
        record(&mut meter, 10, 123);
        assert_eq!(meter.overrun(usual), usual, "one is missing");
        record(&mut meter, 10, 1);
        assert_eq!(meter.overrun(usual).thousandths(), 10);
    }

    #[test]
    fn late_starts_are_times_and_long_executions_shares_of_the_predicted_time() {
        let mut meter = LatenessMeter::default();
        for _ in 0..4 {
            meter.record(Nanos::from_micros(300), Nanos::from_micros(500), TAKES);
        }
        assert_eq!((meter.start_late(), meter.overrun(Overrun::NONE).thousandths()), (Nanos::from_micros(300), 50));
        assert_eq!(meter.overrun(Overrun::NONE).of(Nanos::from_millis(100)), Nanos::from_millis(5));
        assert_eq!(meter.take_totals(), (Nanos::from_millis(2), Nanos::from_millis(40)));
        assert_eq!(meter.take_totals(), (Nanos::ZERO, Nanos::ZERO), "told already");
        assert_eq!(Overrun::between(TAKES, Nanos::ZERO), None);
        assert_eq!(Overrun::between(Nanos::MAX, Nanos::new(1)), Some(Overrun::from_thousandths(u32::MAX)));
        assert_eq!(Overrun::from_thousandths(u32::MAX).of(Nanos::MAX), Nanos::new(u64::MAX / 1000));
    }
}
