//! How old the messages are that arrive. A pure value; whoever hears a sender keeps one for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Answers that have not come back yet: a bound of seconds at a message every few milliseconds.
const UNECHOED_MAX: usize = 1024;

/// A connection that hardly moves still delivers: what arrives was sent long ago, and its sender may be gone for all
/// practical purposes. So a message says which answer its sender had last, and one that does not know of an answer sent
/// `patience` ago is no sign of life. Only the receiver's clock is asked.
#[derive(Debug)]
pub struct RoundTrip {
    patience: Duration,
    /// Answers that no message has told of, by the number of the message that each was for.
    unechoed: VecDeque<(u64, Instant)>,
}

impl RoundTrip {
    /// Nothing was answered yet.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, unechoed: VecDeque::new() }
    }

    /// A message of that number is answered now.
    pub fn answered(&mut self, now: Instant, number: u64) {
        // The oldest are what counts; of newer ones the next that has room is as good.
        if self.unechoed.len() < UNECHOED_MAX {
            self.unechoed.push_back((number, now));
        }
    }

    /// Whether a message was sent lately whose sender had the answer to the one of number `echoed` last.
    pub fn is_recent(&mut self, now: Instant, echoed: u64) -> bool {
        while self.unechoed.front().is_some_and(|(number, _)| *number <= echoed) {
            self.unechoed.pop_front();
        }
        self.unechoed.front().is_none_or(|(_, at)| now.saturating_duration_since(*at) <= self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_old_as_the_oldest_answer_that_its_sender_does_not_know() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut trip = RoundTrip::new(Duration::from_millis(200));
        assert!(trip.is_recent(at(0), 0), "nothing was answered yet");
        trip.answered(at(0), 1);
        trip.answered(at(10), 2);
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
            trip.answered(start + Duration::from_millis(sequence), sequence);
        }
        assert!(trip.unechoed.len() <= UNECHOED_MAX && !trip.is_recent(start + Duration::from_secs(5), 0));
    }
}
