//! How old the beats are that arrive. A pure value; whoever hears a connection keeps one for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Acknowledgements that have not come back yet: a bound of seconds at a beat of milliseconds.
const UNECHOED_MAX: usize = 1024;

/// A connection that hardly moves still delivers: what arrives was sent long ago, and its sender may be gone for all
/// practical purposes. So a beat says which acknowledgement its sender had last, and one that does not know of an
/// acknowledgement sent `patience` ago is no sign of life. Only this replica's clock is asked.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    patience: Duration,
    /// Acknowledgements that no beat has told of, by the number of the beat that each was for.
    unechoed: VecDeque<(u64, Instant)>,
}

impl RoundTrip {
    pub(crate) const fn new(patience: Duration) -> Self {
        Self { patience, unechoed: VecDeque::new() }
    }

    /// A beat of that number is acknowledged now.
    pub(crate) fn acknowledged(&mut self, now: Instant, sequence: u64) {
        // The oldest are what counts; of newer ones the next that has room is as good.
        if self.unechoed.len() < UNECHOED_MAX {
            self.unechoed.push_back((sequence, now));
        }
    }

    /// Whether a beat whose sender had heard of the beat `echoed` last was sent lately.
    pub(crate) fn is_recent(&mut self, now: Instant, echoed: u64) -> bool {
        while self.unechoed.front().is_some_and(|(sequence, _)| *sequence <= echoed) {
            self.unechoed.pop_front();
        }
        self.unechoed.front().is_none_or(|(_, at)| now.saturating_duration_since(*at) <= self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_as_old_as_the_oldest_acknowledgement_that_its_sender_does_not_know() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut trip = RoundTrip::new(Duration::from_millis(200));
        assert!(trip.is_recent(at(0), 0), "nothing was acknowledged yet");
        trip.acknowledged(at(0), 1);
        trip.acknowledged(at(10), 2);
        assert!(trip.is_recent(at(200), 0));
        assert!(!trip.is_recent(at(201), 0));
        assert!(trip.is_recent(at(205), 1), "the next one is ten milliseconds younger");
        assert!(!trip.is_recent(at(211), 1));
        assert!(trip.is_recent(at(10_000), 2), "it knows all there is");
        assert!(trip.is_recent(at(10_001), u64::MAX), "a number that was never given away says no more than that");
    }

    #[test]
    fn a_peer_that_never_tells_costs_bounded_memory_and_is_not_recent() {
        let start = Instant::now();
        let mut trip = RoundTrip::new(Duration::from_millis(200));
        for sequence in 1..=3 * UNECHOED_MAX as u64 {
            trip.acknowledged(start + Duration::from_millis(sequence), sequence);
        }
        assert!(trip.unechoed.len() <= UNECHOED_MAX && !trip.is_recent(start + Duration::from_secs(5), 0));
    }
}
