//! How long this replica has had no contact with the control group. A pure value, kept by the heartbeat sender.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Heartbeats that wait for an acknowledgement: at an interval of milliseconds, a bound of seconds.
const UNACKNOWLEDGED_MAX: usize = 1024;

/// When the control group was last known to have a leader with a quorum. Counted from when the acknowledged heartbeat
/// was *sent*, so that a slow acknowledgement gains no time.
///
/// Safety does not depend on it (tokens ensure that). It stops a leader of sub-clusters that cannot be replaced or
/// told to stop.
#[derive(Debug)]
pub(crate) struct Contact {
    bound: Duration,
    confirmed: Instant,
    sent: VecDeque<(u64, Instant)>,
    next: u64,
}

impl Contact {
    pub(crate) fn new(now: Instant, bound: Duration) -> Self {
        Self { bound, confirmed: now, sent: VecDeque::new(), next: 1 }
    }

    /// Numbers a heartbeat sent now.
    pub(crate) fn heartbeat_sent(&mut self, now: Instant) -> u64 {
        let sequence = self.next;
        self.next += 1;
        if self.sent.len() == UNACKNOWLEDGED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((sequence, now));
        sequence
    }

    /// A leader with a quorum has acknowledged this heartbeat. Returns when it was sent, if known.
    pub(crate) fn acknowledged(&mut self, sequence: u64) -> Option<Instant> {
        while let Some(&(number, at)) = self.sent.front()
            && number <= sequence
        {
            self.sent.pop_front();
            if number == sequence {
                self.confirmed(at);
                return Some(at);
            }
        }
        None
    }

    /// Records that the control group had a leader with a quorum at that time.
    pub(crate) fn confirmed(&mut self, at: Instant) {
        self.confirmed = self.confirmed.max(at);
    }

    /// Whether sub-clusters may be led.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        self.within(now, self.bound)
    }

    /// Whether a leader with a quorum was confirmed within this time.
    pub(crate) fn within(&self, now: Instant, time: Duration) -> bool {
        now.saturating_duration_since(self.confirmed) <= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_is_lost_a_bound_after_the_last_heartbeat_that_was_acknowledged_was_sent() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut contact = Contact::new(start, Duration::from_millis(1_000));
        assert!(contact.holds(at(1_000)) && !contact.holds(at(1_001)));
        let first = contact.heartbeat_sent(at(100));
        let second = contact.heartbeat_sent(at(200));
        contact.acknowledged(second);
        contact.acknowledged(first);
        contact.acknowledged(99);
        assert!(
            contact.within(at(250), Duration::from_millis(50)) && !contact.within(at(251), Duration::from_millis(50))
        );
        assert!(contact.holds(at(1_200)) && !contact.holds(at(1_201)), "counted from sending, whatever is said later");
        let third = contact.heartbeat_sent(at(5_000));
        assert!(!contact.holds(at(5_001)), "a heartbeat alone says nothing");
        contact.acknowledged(third);
        assert!(contact.holds(at(6_000)), "contact again");
        contact.confirmed(at(3_000));
        assert!(contact.holds(at(6_000)), "older news changes nothing");
        for _ in 0..5_000 {
            contact.heartbeat_sent(at(6_000));
        }
        assert!(contact.sent.len() <= UNACKNOWLEDGED_MAX);
    }
}
