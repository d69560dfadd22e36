//! The input delays that the models of a sub-cluster plan for: those measured by its backends, within limits
//! (docs/adr/0030).

use std::collections::BTreeMap;

use symphony_types::{BackendId, Nanos, Time};

use crate::meters::delays::{DataDelay, DelaySource};
use symphony_types::PAYLOAD_DELAY_FORGOTTEN_AFTER;
use symphony_types::PayloadDelay;

/// The delay per item before the first measurement.
const UNMEASURED_PER_ITEM: Nanos = Nanos::from_micros(20);
/// Input delays take at most this share of a model's SLO: one in four. However slow the network is, most of the budget
/// remains for batching.
const SLO_SHARE_MAX: u64 = 4;

/// Whether measurements are used, and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDelaySettings {
    /// A fixed delay per item; `None` if measurements are used.
    pub per_item: Option<Nanos>,
    /// Lower limit of a batch's measured delay.
    pub min: Nanos,
    /// Upper limit of a batch's measured delay.
    pub max: Nanos,
    /// A backend's report expires after this time unless repeated: a backend that reads no inputs measures nothing.
    pub forgotten_after: Nanos,
}

impl Default for DataDelaySettings {
    /// No input delay, whatever is measured.
    fn default() -> Self {
        Self {
            per_item: Some(Nanos::ZERO),
            min: Nanos::ZERO,
            max: Nanos::MAX,
            forgotten_after: PAYLOAD_DELAY_FORGOTTEN_AFTER,
        }
    }
}

/// The newest report of each backend, with its time.
#[derive(Clone, Debug)]
pub struct DataDelays {
    settings: DataDelaySettings,
    measured: BTreeMap<BackendId, (Time, PayloadDelay)>,
}

impl DataDelays {
    /// Without any report.
    #[must_use]
    pub const fn new(settings: DataDelaySettings) -> Self {
        Self { settings, measured: BTreeMap::new() }
    }

    /// Records a backend's report. Returns whether the result of [`DataDelays::of`] may have changed.
    pub fn record(&mut self, now: Time, backend: BackendId, delay: PayloadDelay) -> bool {
        let before = self.longest();
        self.measured.insert(backend, (now, delay));
        self.longest() != before
    }

    /// Removes a backend. Returns whether the result of [`DataDelays::of`] may have changed.
    pub fn remove(&mut self, backend: BackendId) -> bool {
        let before = self.longest();
        self.measured.remove(&backend);
        self.longest() != before
    }

    /// Removes expired reports. Returns whether the result of [`DataDelays::of`] may have changed.
    pub fn forget(&mut self, now: Time) -> bool {
        let (before, after) = (self.longest(), self.settings.forgotten_after);
        self.measured.retain(|_, (at, _)| *at + after > now);
        self.longest() != before
    }

    /// When the next report expires, so that [`DataDelays::forget`] must be called.
    #[must_use]
    pub fn forgets_at(&self) -> Option<Time> {
        self.measured.values().map(|(at, _)| *at + self.settings.forgotten_after).min()
    }

    /// The largest delay of any backend: a batch is formed before its GPU is known.
    #[must_use]
    pub fn longest(&self) -> Option<PayloadDelay> {
        self.measured.values().map(|&(_, delay)| delay).reduce(PayloadDelay::or_longer)
    }

    /// The delay for a model with this many input bytes per item.
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
        assert!(delays.record(Time::ZERO, fast, measured(200, 500)));
        assert!(delays.record(Time::ZERO, slow, measured(900, 400)));
        assert!(!delays.record(Time::ZERO, fast, measured(150, 500)), "nobody is given more or less for that");
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
        delays.record(at(0), idle, measured(9000, 0));
        for minutes in 1..60 {
            delays.record(at(minutes), busy, measured(200, 0));
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
        delays.record(Time::ZERO, BackendId::new(1), measured(1, 0));
        assert_eq!(delays.of(1, SLO).of(8), Nanos::from_micros(100), "the floor");
        delays.record(Time::ZERO, BackendId::new(1), measured(3000, 1000));
        assert_eq!(delays.of(1 << 20, SLO).of(1), Nanos::from_millis(4));
        assert_eq!(delays.of(1 << 20, SLO).of(64), Nanos::from_millis(5), "the ceiling");
        assert_eq!(delays.of(1 << 20, Nanos::from_millis(8)).of(1), Nanos::from_millis(2), "a quarter of the SLO");
        let per_item = Some(Nanos::from_micros(7));
        let mut set = DataDelays::new(DataDelaySettings { per_item, ..SETTINGS });
        set.record(Time::ZERO, BackendId::new(1), measured(3000, 1000));
        assert_eq!(set.of(1 << 20, SLO), DataDelay::each_item(Nanos::from_micros(7)));
    }
}
