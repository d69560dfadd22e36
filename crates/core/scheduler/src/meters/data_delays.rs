//! What the models of a sub-cluster plan for their inputs: what its backends have measured, within limits
//! (docs/adr/0030).

use std::collections::BTreeMap;

use symphony_types::{BackendId, Nanos, Time};

use crate::meters::delays::{DataDelay, DelaySource};
use symphony_types::PAYLOAD_DELAY_FORGOTTEN_AFTER;
use symphony_types::PayloadDelay;

/// What an item is given where nothing was measured yet.
const UNMEASURED_PER_ITEM: Nanos = Nanos::from_micros(20);
/// Inputs are given at most this part of a model's SLO: one in four. However slow the network is, most of the budget
/// stays for batching.
const SLO_SHARE_MAX: u64 = 4;

/// Whether measurements count, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDelaySettings {
    /// What each item is given, whatever is measured; none if measurements count.
    pub per_item: Option<Nanos>,
    /// A measured delay of a batch counts at least so much.
    pub min: Nanos,
    /// And at most so much.
    pub max: Nanos,
    /// A backend's word that it does not repeat for so long counts no more: whoever reads nothing measures nothing.
    pub forgotten_after: Nanos,
}

impl Default for DataDelaySettings {
    /// Nothing is given, whatever is measured.
    fn default() -> Self {
        Self {
            per_item: Some(Nanos::ZERO),
            min: Nanos::ZERO,
            max: Nanos::MAX,
            forgotten_after: PAYLOAD_DELAY_FORGOTTEN_AFTER,
        }
    }
}

/// The newest word of each backend, and when it came.
#[derive(Clone, Debug)]
pub struct DataDelays {
    settings: DataDelaySettings,
    measured: BTreeMap<BackendId, (Time, PayloadDelay)>,
}

impl DataDelays {
    /// Before anything is measured.
    #[must_use]
    pub const fn new(settings: DataDelaySettings) -> Self {
        Self { settings, measured: BTreeMap::new() }
    }

    /// A backend has measured. Whether [`DataDelays::of`] may say something else now.
    pub fn note(&mut self, now: Time, backend: BackendId, delay: PayloadDelay) -> bool {
        let before = self.longest();
        self.measured.insert(backend, (now, delay));
        self.longest() != before
    }

    /// A backend is gone. Whether [`DataDelays::of`] may say something else now.
    pub fn remove(&mut self, backend: BackendId) -> bool {
        let before = self.longest();
        self.measured.remove(&backend);
        self.longest() != before
    }

    /// Forgets what was not repeated for too long. Whether [`DataDelays::of`] may say something else now.
    pub fn forget(&mut self, now: Time) -> bool {
        let (before, after) = (self.longest(), self.settings.forgotten_after);
        self.measured.retain(|_, (at, _)| *at + after > now);
        self.longest() != before
    }

    /// When [`DataDelays::forget`] has something to do next.
    #[must_use]
    pub fn forgets_at(&self) -> Option<Time> {
        self.measured.values().map(|(at, _)| *at + self.settings.forgotten_after).min()
    }

    /// What is as long as any backend's: a batch is formed before it is known which GPU runs it.
    #[must_use]
    pub fn longest(&self) -> Option<PayloadDelay> {
        self.measured.values().map(|&(_, delay)| delay).reduce(PayloadDelay::or_longer)
    }

    /// For a model with so many bytes of input in each item.
    #[must_use]
    pub fn of(&self, item_bytes: u64, slo: Nanos) -> DataDelay {
        if let Some(per_item) = self.settings.per_item {
            return DataDelay::each_item(per_item);
        }
        let max = self.settings.max.min(Nanos::new(slo.get() / SLO_SHARE_MAX));
        let Some(longest) = self.longest() else {
            return DataDelay { fixed: Nanos::ZERO, per_item: UNMEASURED_PER_ITEM, max, source: DelaySource::Assumed };
        };
        let per_item = PayloadDelay { fixed: Nanos::ZERO, ..longest }.of(item_bytes);
        let fixed = longest.fixed.max(self.settings.min);
        DataDelay { fixed, per_item, max, source: DelaySource::Measured }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Nanos = Nanos::from_millis(40);
    const HOUR: Nanos = Nanos::from_millis(3_600_000);
    const SETTINGS: DataDelaySettings = DataDelaySettings {
        per_item: None,
        min: Nanos::from_micros(100),
        max: Nanos::from_millis(5),
        forgotten_after: HOUR,
    };

    fn measured(fixed_us: u64, per_mib_us: u64) -> PayloadDelay {
        PayloadDelay { fixed: Nanos::from_micros(fixed_us), per_mib: Nanos::from_micros(per_mib_us) }
    }

    #[test]
    fn the_slowest_backend_counts_as_long_as_it_is_there() {
        let [fast, slow] = [1, 2].map(BackendId::new);
        let mut delays = DataDelays::new(SETTINGS);
        assert_eq!(
            (delays.of(1 << 20, SLO).source, delays.of(1 << 20, SLO).of(3)),
            (DelaySource::Assumed, Nanos::from_micros(60))
        );
        assert!(delays.note(Time::ZERO, fast, measured(200, 500)));
        assert!(delays.note(Time::ZERO, slow, measured(900, 400)));
        assert!(!delays.note(Time::ZERO, fast, measured(150, 500)), "nobody is given more or less for that");
        let of = delays.of(1 << 19, SLO);
        assert_eq!((of.source, of.of(2)), (DelaySource::Measured, Nanos::from_micros(900 + 2 * 250)));
        assert!(delays.remove(slow) && !delays.remove(slow));
        assert_eq!(delays.of(1 << 19, SLO).of(2), Nanos::from_micros(150 + 2 * 250));
    }

    #[test]
    fn a_word_that_is_not_repeated_is_forgotten() {
        let [idle, busy] = [1, 2].map(BackendId::new);
        let mut delays = DataDelays::new(SETTINGS);
        let at = |minutes: u64| Time::ZERO + Nanos::from_millis(minutes * 60_000);
        assert_eq!(delays.forgets_at(), None);
        delays.note(at(0), idle, measured(9000, 0));
        for minutes in 1..60 {
            delays.note(at(minutes), busy, measured(200, 0));
            assert!(!delays.forget(at(minutes)));
        }
        assert_eq!((delays.longest(), delays.forgets_at()), (Some(measured(9000, 0)), Some(at(60))));
        assert!(delays.forget(at(60)));
        assert_eq!((delays.longest(), delays.forgets_at()), (Some(measured(200, 0)), Some(at(59 + 60))));
        assert!(delays.forget(at(59 + 60)));
        assert_eq!(delays.of(1, SLO).source, DelaySource::Assumed);
    }

    #[test]
    fn measurements_count_within_limits_and_not_where_a_delay_is_set() {
        let mut delays = DataDelays::new(SETTINGS);
        delays.note(Time::ZERO, BackendId::new(1), measured(1, 0));
        assert_eq!(delays.of(1, SLO).of(8), Nanos::from_micros(100), "the floor");
        delays.note(Time::ZERO, BackendId::new(1), measured(3000, 1000));
        assert_eq!(delays.of(1 << 20, SLO).of(1), Nanos::from_millis(4));
        assert_eq!(delays.of(1 << 20, SLO).of(64), Nanos::from_millis(5), "the ceiling");
        assert_eq!(delays.of(1 << 20, Nanos::from_millis(8)).of(1), Nanos::from_millis(2), "a quarter of the SLO");
        let per_item = Some(Nanos::from_micros(7));
        let mut set = DataDelays::new(DataDelaySettings { per_item, ..SETTINGS });
        set.note(Time::ZERO, BackendId::new(1), measured(3000, 1000));
        assert_eq!(set.of(1 << 20, SLO), DataDelay::each_item(Nanos::from_micros(7)));
    }
}
