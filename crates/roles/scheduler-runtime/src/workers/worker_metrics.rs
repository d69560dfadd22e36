//! Measurements of one worker: written by its thread alone, read by any thread.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use symphony_scheduler::{PRESSURE_VALID, Pressure};
use symphony_telemetry::{DurationCounts, DurationHistogram, ErrorHistogram};
use symphony_types::Time;

use crate::threads::turn::TurnStart;
use crate::workers::counters::{Counters, count};

/// The kind of a worker; the label `worker` of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerKind {
    /// Hosts queues of models.
    Model,
    /// Hosts the ranker of the GPUs.
    Rank,
    /// Hosts a policy that decides for the whole sub-cluster.
    Policy,
}

impl WorkerKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Model, Self::Rank, Self::Policy];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Rank => "rank",
            Self::Policy => "policy",
        }
    }
}

/// One worker's counters and histograms, on their own cache lines: counting costs a plain addition and causes no false
/// sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerMetrics {
    pub(crate) kind: WorkerKind,
    pub(crate) counters: Counters,
    /// Lateness of timers that could have fired in time.
    pub(crate) timers_late: DurationHistogram,
    /// Duration of turns with work, including the hand-over.
    pub(crate) turns: DurationHistogram,
    /// The error of predicted execution times.
    pub(crate) execution_errors: ErrorHistogram,
    /// GPU time demanded, in nanoseconds.
    pub(crate) demand_ns: AtomicU64,
    pressure: AtomicU32,
    /// End of the pressure's validity, in nanoseconds.
    pressure_until: AtomicU64,
}

impl WorkerMetrics {
    pub(crate) fn new(kind: WorkerKind) -> Self {
        Self {
            kind,
            counters: Counters::default(),
            timers_late: DurationHistogram::default(),
            turns: DurationHistogram::default(),
            execution_errors: ErrorHistogram::default(),
            demand_ns: AtomicU64::default(),
            pressure: AtomicU32::default(),
            pressure_until: AtomicU64::default(),
        }
    }

    /// Records a new pressure.
    pub(crate) fn pressed(&self, now: Time, pressure: Pressure) {
        self.pressure.store(pressure.millionths(), Ordering::Relaxed);
        self.pressure_until.store((now + PRESSURE_VALID).as_nanos(), Ordering::Relaxed);
    }

    /// The pressure at this time: none if the last one has expired.
    pub(crate) fn pressure(&self, now: Time) -> Pressure {
        let is_valid = now.as_nanos() <= self.pressure_until.load(Ordering::Relaxed);
        if is_valid { Pressure::from_millionths(self.pressure.load(Ordering::Relaxed)) } else { Pressure::NONE }
    }

    /// A timer for `wake_at`, armed in the turn `armed_in`, fires. If its time had passed before that turn ended, it
    /// could not fire in time: it is counted, but its lateness is not.
    pub(crate) fn timer_fired(&self, turn: TurnStart, armed_in: u64, wake_at: Time) {
        count(&self.counters.timers, 1);
        let past = armed_in == turn.number || (armed_in + 1 == turn.number && wake_at <= turn.last_ended);
        if past {
            count(&self.counters.timers_past, 1);
        } else {
            self.timers_late.record(turn.now.since(wake_at));
        }
    }
}

/// Durations of the workers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct WorkerDurations {
    /// Which kind; the sums are over all workers of it.
    pub worker: WorkerKind,
    /// Lateness of timers, without those that had passed already when they were armed.
    pub timers_late: DurationCounts,
    /// Duration of turns with work, including the hand-over.
    pub turns: DurationCounts,
}

impl WorkerDurations {
    /// The durations of all workers of `kind` together.
    pub(crate) fn of<'a>(kind: WorkerKind, workers: impl IntoIterator<Item = &'a WorkerMetrics>) -> Self {
        let mut all = Self { worker: kind, timers_late: DurationCounts::default(), turns: DurationCounts::default() };
        for metrics in workers.into_iter().filter(|metrics| metrics.kind == kind) {
            all.timers_late.merge(&metrics.timers_late.read());
            all.turns.merge(&metrics.turns.read());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::Nanos;

    use super::*;

    #[test]
    fn a_pressure_is_shown_while_it_is_valid() {
        let (metrics, at) = (WorkerMetrics::new(WorkerKind::Rank), Time::from_nanos(5_000));
        assert_eq!(metrics.pressure(at), Pressure::NONE);
        metrics.pressed(at, Pressure::from_share(0.25));
        assert_eq!(metrics.pressure(at + PRESSURE_VALID), Pressure::from_share(0.25));
        assert_eq!(metrics.pressure(at + PRESSURE_VALID + Nanos::new(1)), Pressure::NONE);
    }

    #[test]
    fn only_a_timer_that_could_have_fired_in_time_is_late() {
        let at = Time::from_nanos;
        let metrics = WorkerMetrics::new(WorkerKind::Rank);
        let turn = TurnStart { number: 7, now: at(1_000), last_ended: at(900) };
        // Armed in the last turn for a time before its end, or in this turn: past from the beginning.
        metrics.timer_fired(turn, 6, at(900));
        metrics.timer_fired(turn, 7, at(1_000));
        // Armed in the last turn for a time after its end.
        metrics.timer_fired(turn, 6, at(901));
        metrics.timer_fired(turn, 5, at(400));
        let late = metrics.timers_late.read();
        assert_eq!((late.count(), late.sum()), (2, Nanos::new(99 + 600)));
        let counted: Vec<_> =
            metrics.counters.read().into_iter().filter(|(name, _)| name.starts_with("timer")).collect();
        assert_eq!(counted, [("timers", 4), ("timers_past", 2)]);
    }
}
