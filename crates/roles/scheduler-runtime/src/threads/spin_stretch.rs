//! How long before a timer a sleeping thread should wake up.

use symphony_types::Nanos;

/// A sleep ends about this late on a machine with a core to spare; less would make every timer late there.
const STRETCH_MIN: Nanos = Nanos::from_micros(30);
/// Spinning longer than this before every timer costs more than the rare timer that it saves: at a thousand timers per
/// second it is a third of a core.
const STRETCH_MAX: Nanos = Nanos::from_micros(300);
/// At the beginning, before anything was measured.
const STRETCH_FIRST: Nanos = Nanos::from_micros(60);
/// A stretch shrinks by this part of what is too much of it with every sleep that ended in time: half of it is gone
/// after 44 sleeps.
const SHRINK_BY: u64 = 64;

/// The last stretch before a timer, which is spun and not slept: as long as sleeps lately overshot.
///
/// A thread that wakes up gets its core at once on an idle machine. On a busy one it waits until the thread that has
/// the core pauses, 0.1 to 0.2 ms usually, and by then its timer has passed, unless it asked to be woken that much
/// earlier.
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

    /// Learns that a sleep ended `overshoot` after the time it was asked to end at.
    pub(crate) fn learn(&mut self, overshoot: Nanos) {
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
        stretch.learn(Nanos::from_micros(150));
        assert_eq!(stretch.get(), Nanos::from_micros(150));
        stretch.learn(Nanos::from_millis(20));
        assert_eq!(stretch.get(), STRETCH_MAX);
        (0..45).for_each(|_| stretch.learn(Nanos::from_micros(5)));
        assert!(stretch.get() < Nanos::from_micros(165) && stretch.get() > Nanos::from_micros(150));
        (0..2000).for_each(|_| stretch.learn(Nanos::ZERO));
        assert!(stretch.get() < STRETCH_MIN + Nanos::from_micros(1) && stretch.get() >= STRETCH_MIN);
    }
}
