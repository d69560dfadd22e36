//! How long before a timer a sleeping thread should wake up and spin.

use symphony_types::Nanos;

/// The usual overshoot of a sleep on a machine with a spare core; a shorter stretch would make every timer late there.
const STRETCH_MIN: Nanos = Nanos::from_micros(30);
/// A longer spin before every timer costs more than the rare late timer that it prevents: at a thousand timers per
/// second it takes a third of a core.
const STRETCH_MAX: Nanos = Nanos::from_micros(300);
/// The stretch before the first measurement.
const STRETCH_FIRST: Nanos = Nanos::from_micros(60);
/// After each sleep that ended in time, the stretch shrinks by 1/64 of its excess: half of the excess is gone after 44
/// sleeps.
const SHRINK_BY: u64 = 64;

/// The last stretch before a timer, which the thread spins instead of sleeping: as long as recent sleeps overshot.
///
/// On an idle machine a thread that wakes up gets its core at once. On a busy one it waits until the running thread
/// pauses, usually 0.1 to 0.2 ms, and its timer would have passed by then without an earlier wake-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinStretch(Nanos);

impl Default for SpinStretch {
    fn default() -> Self {
        Self(STRETCH_FIRST)
    }
}

impl SpinStretch {
    pub(crate) const fn get(self) -> Nanos {
        self.0
    }

    /// Learns that a sleep ended `overshoot` after its requested end.
    pub(crate) fn record_overshoot(&mut self, overshoot: Nanos) {
        let wanted = overshoot.clamp(STRETCH_MIN, STRETCH_MAX);
        self.0 = if wanted > self.0 { wanted } else { Nanos::new(self.0.get() - (self.0 - wanted).get() / SHRINK_BY) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_at_once_shrinks_slowly_and_stays_within_its_limits() {
        let mut stretch = SpinStretch::default();
        stretch.record_overshoot(Nanos::from_micros(150));
        assert_eq!(stretch.get(), Nanos::from_micros(150));
        stretch.record_overshoot(Nanos::from_millis(20));
        assert_eq!(stretch.get(), STRETCH_MAX);
        (0..45).for_each(|_| stretch.record_overshoot(Nanos::from_micros(5)));
        assert!(stretch.get() < Nanos::from_micros(165) && stretch.get() > Nanos::from_micros(150));
        (0..2000).for_each(|_| stretch.record_overshoot(Nanos::ZERO));
        assert!(stretch.get() < STRETCH_MIN + Nanos::from_micros(1) && stretch.get() >= STRETCH_MIN);
    }
}
