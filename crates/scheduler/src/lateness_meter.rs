//! By how much plans end later than predicted: what has to come off deadlines besides the network's delays (docs/adr/0007).

use symphony_types::Nanos;

/// Plans remembered. At twenty batches a second, six seconds: long enough to hold a machine's pauses, short enough to
/// forget them.
const WINDOW: usize = 128;
/// Plans between two looks at the window, but for the first plans, each of which is looked at; a look sorts it.
const LOOK_EVERY: usize = 16;
/// The quantile that is planned for: goodput allows one request in a hundred to be bad, half of them are left for what
/// no meter foresees.
const QUANTILE: f64 = 0.995;

/// How late plans end beside how long they should take: what a model that has measured little of itself expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lateness(u32);

impl Lateness {
    /// Plans end when they should.
    pub const NONE: Self = Self(0);
    /// Four times as long as predicted: no plan can allow for more.
    const MAX: u32 = 4000;

    /// From thousandths of the predicted time; what is beyond four times is cut.
    #[must_use]
    pub const fn from_thousandths(thousandths: u32) -> Self {
        if thousandths > Self::MAX { Self(Self::MAX) } else { Self(thousandths) }
    }

    /// In thousandths of the predicted time.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// Of plans that should have taken `predicted` together; none if there were none.
    pub(crate) fn between(late: Nanos, predicted: Nanos) -> Option<Self> {
        let thousandths = (u128::from(late.get()) * 1000).checked_div(predicted.get().into())?;
        Some(Self::from_thousandths(u32::try_from(thousandths).unwrap_or(u32::MAX)))
    }

    /// How late a plan may end that should take so long.
    pub(crate) fn of(self, predicted: Nanos) -> Nanos {
        Nanos::new((u128::from(predicted.get()) * u128::from(self.0) / 1000) as u64)
    }
}

/// The quantile of lateness over the last plans, in fixed memory.
#[derive(Clone, Debug)]
pub struct LatenessMeter {
    samples: [Nanos; WINDOW],
    filled: usize,
    next: usize,
    since_look: usize,
    /// The quantile at the last look.
    late: Nanos,
    /// Plans since it was told, and how long they should have taken.
    untold: (u64, Nanos),
}

impl Default for LatenessMeter {
    fn default() -> Self {
        Self {
            samples: [Nanos::ZERO; WINDOW],
            filled: 0,
            next: 0,
            since_look: 0,
            late: Nanos::ZERO,
            untold: (0, Nanos::ZERO),
        }
    }
}

impl LatenessMeter {
    /// Notes that a plan ended `late` after its predicted end (zero if it was early). True if the lateness to plan for was found anew.
    pub fn note(&mut self, late: Nanos, predicted: Nanos) -> bool {
        self.samples[self.next] = late;
        self.next = (self.next + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
        self.untold = (self.untold.0 + 1, self.untold.1 + predicted);
        self.since_look += 1;
        if self.since_look < LOOK_EVERY && self.filled > LOOK_EVERY {
            return false;
        }
        self.since_look = 0;
        let mut sorted = self.samples;
        let seen = &mut sorted[..self.filled];
        let last = seen.len() - 1;
        // Of the first few the largest: the second largest of four is no high quantile.
        let rank = if seen.len() < LOOK_EVERY { last } else { (last as f64 * QUANTILE) as usize };
        self.late = *seen.select_nth_unstable(rank).1;
        true
    }

    /// The lateness to plan for; at least `usual` as long as the window is not full.
    pub(crate) fn expected(&self, usual: Nanos) -> Nanos {
        if self.filled < WINDOW { self.late.max(usual) } else { self.late }
    }

    /// The plans noted since this was asked last: how late they may have ended together, and how long they should have taken.
    pub fn take_told(&mut self) -> (Nanos, Nanos) {
        let (plans, predicted) = std::mem::take(&mut self.untold);
        (self.late.saturating_mul(plans), predicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: Nanos = Nanos::from_millis(10);

    fn note(meter: &mut LatenessMeter, micros: u64, times: usize) -> Nanos {
        for _ in 0..times {
            meter.note(Nanos::from_micros(micros), TAKES);
        }
        meter.expected(Nanos::ZERO)
    }

    #[test]
    fn one_pause_is_planned_for_only_while_it_is_remembered_with_others() {
        let mut meter = LatenessMeter::default();
        assert_eq!(note(&mut meter, 100, 128), Nanos::from_micros(100));
        // One in 128 is the outlier that the quantile leaves out; two are a habit.
        note(&mut meter, 9000, 1);
        assert_eq!(note(&mut meter, 100, 15), Nanos::from_micros(100));
        note(&mut meter, 9000, 1);
        assert_eq!(note(&mut meter, 100, 15), Nanos::from_micros(9000));
        // A window later it is forgotten.
        assert_eq!(note(&mut meter, 100, 128), Nanos::from_micros(100));
    }

    #[test]
    fn the_first_plans_count_at_once_and_what_is_usual_until_there_are_enough() {
        let mut meter = LatenessMeter::default();
        let usual = Nanos::from_micros(700);
        assert_eq!(meter.expected(usual), usual);
        assert_eq!(note(&mut meter, 900, 1), Nanos::from_micros(900));
        assert_eq!(note(&mut meter, 100, 3), Nanos::from_micros(900), "the largest of few");
        note(&mut meter, 100, 123);
        assert_eq!(meter.expected(usual), usual, "one is missing");
        note(&mut meter, 100, 1);
        assert_eq!(meter.expected(usual), Nanos::from_micros(100));
    }

    #[test]
    fn lateness_is_told_by_the_time_that_plans_should_take() {
        let mut meter = LatenessMeter::default();
        note(&mut meter, 500, 4);
        let (late, predicted) = meter.take_told();
        assert_eq!((late, predicted), (Nanos::from_millis(2), Nanos::from_millis(40)));
        let lateness = Lateness::between(late, predicted).unwrap();
        assert_eq!((lateness.thousandths(), lateness.of(TAKES)), (50, Nanos::from_micros(500)));
        assert_eq!(meter.take_told(), (Nanos::ZERO, Nanos::ZERO), "told already");
        assert_eq!(Lateness::between(late, Nanos::ZERO), None);
        assert_eq!(Lateness::between(Nanos::MAX, Nanos::new(1)), Some(Lateness::from_thousandths(u32::MAX)));
    }
}
