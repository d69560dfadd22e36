//! Detects old messages. A pure value; each receiver keeps one per sender.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Answers that no message has confirmed yet: at a message every few milliseconds, a bound of seconds.
const UNECHOED_MAX: usize = 1024;

/// A very slow connection still delivers: its messages were sent long ago, and the sender may be gone. So each message
/// carries the number of the last answer that its sender had received. A message that does not confirm an answer from
/// `timeout` ago is no sign of life. Only the receiver's clock is used.
#[derive(Debug)]
pub struct RoundTrip {
    timeout: Duration,
    /// Unconfirmed answers, by the number of the message that each answered.
    unechoed: VecDeque<(u64, Instant)>,
}

impl RoundTrip {
    /// Nothing was answered yet.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, unechoed: VecDeque::new() }
    }

    /// The message with this number is answered now.
    pub fn answered(&mut self, now: Instant, number: u64) {
        // The oldest ones decide; of the newer ones any that fits serves as well.
        if self.unechoed.len() < UNECHOED_MAX {
            self.unechoed.push_back((number, now));
        }
    }

    /// Whether a message was sent recently, if the last answer that its sender had received was the one to number
    /// `echoed`.
    pub fn is_recent(&mut self, now: Instant, echoed: u64) -> bool {
        while self.unechoed.front().is_some_and(|(number, _)| *number <= echoed) {
            self.unechoed.pop_front();
        }
        self.unechoed.front().is_none_or(|(_, at)| now.saturating_duration_since(*at) <= self.timeout)
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
