//! Decides when a slow write is a stall, and how to react. A pure value.

use std::time::{Duration, Instant};

/// The reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Ask the most advanced follower to take over, while entries still reach it.
    HandOver {
        /// How long the write has been waiting.
        waited: Duration,
    },
    /// Send nothing as a leader any more: the hand-over failed, so the others have to elect.
    FallSilent,
    /// The disk is back: behave as usual.
    Resume {
        /// Duration of the stall.
        stalled: Duration,
    },
}

/// Checks per limit while a write waits or a stall lasts: an event is noticed at most a twelfth of the limit late.
const CHECKS_PER_LIMIT: u32 = 12;

/// The longest pause is the limit divided by this. A write records when it began: one that begins just after a check is
/// seen by the next one, and checked again exactly when it becomes a stall.
const LONGEST_PAUSE_PART: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Well,
    HandingOver { since: Instant },
    Silent { since: Instant },
}

/// Judges the writer of one log.
#[derive(Debug)]
pub(super) struct StallDecision {
    limit: Duration,
    handover_timeout: Duration,
    phase: Phase,
}

impl StallDecision {
    /// A write longer than `limit` is a stall; a hand-over may take `handover_timeout`.
    pub(super) fn new(limit: Duration, handover_timeout: Duration) -> Self {
        Self { limit, handover_timeout, phase: Phase::Well }
    }

    /// The pause after a check at `now` that found a write waiting since then.
    pub(super) fn pause(&self, now: Instant, busy_since: Option<Instant>) -> Duration {
        let (shortest, longest) = (self.limit / CHECKS_PER_LIMIT, self.limit / LONGEST_PAUSE_PART);
        match (self.phase, busy_since) {
            (Phase::Well, None) => longest,
            (Phase::Well, Some(since)) => (since + self.limit).saturating_duration_since(now).clamp(shortest, longest),
            (Phase::HandingOver { .. } | Phase::Silent { .. }, _) => shortest,
        }
    }

    /// Takes the start of the waiting write, if there is one. At most one order per call.
    pub(super) fn step(&mut self, now: Instant, busy_since: Option<Instant>) -> Option<Order> {
        let waited = busy_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        match self.phase {
            Phase::Well if waited < self.limit => None,
            Phase::Well => {
                self.phase = Phase::HandingOver { since: now - waited };
                Some(Order::HandOver { waited })
            }
            // Another write is waiting now, or none: the stalled one has ended.
            Phase::HandingOver { since } | Phase::Silent { since } if waited < self.limit => {
                self.phase = Phase::Well;
                Some(Order::Resume { stalled: now.saturating_duration_since(since) })
            }
            Phase::HandingOver { since } if waited >= self.limit + self.handover_timeout => {
                self.phase = Phase::Silent { since };
                Some(Order::FallSilent)
            }
            Phase::HandingOver { .. } | Phase::Silent { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_stall_hands_over_then_silences_then_resumes() {
        let start = Instant::now();
        let mut decision = StallDecision::new(ms(300), ms(60));
        let mut step =
            |at: u64, since: Option<u64>| decision.step(start + ms(at), since.map(|since| start + ms(since)));
        assert_eq!(step(0, None), None);
        assert_eq!(step(399, Some(100)), None);
        assert_eq!(step(405, Some(100)), Some(Order::HandOver { waited: ms(305) }));
        assert_eq!(step(430, Some(100)), None);
        assert_eq!(step(460, Some(100)), Some(Order::FallSilent));
        assert_eq!(step(5_000, Some(100)), None);
        assert_eq!(step(5_100, None), Some(Order::Resume { stalled: ms(5_000) }));
        assert_eq!(step(5_200, None), None);
    }

    #[test]
    fn a_write_that_hangs_is_found_as_soon_as_it_is_a_stall_whenever_it_began_and_an_idle_disk_is_seldom_looked_at() {
        let start = Instant::now();
        for begun in 150..450 {
            let (mut decision, mut now, mut checks) = (StallDecision::new(ms(300), ms(60)), start, 0);
            let begun = start + ms(begun);
            let found = loop {
                let busy_since = (now >= begun).then_some(begun);
                if let Some(order) = decision.step(now, busy_since) {
                    break order;
                }
                checks += 1;
                now += decision.pause(now, busy_since);
            };
            let Order::HandOver { waited } = found else { panic!("{found:?}") };
            assert!(waited <= ms(300 + 300 / 12) && checks <= 6, "{waited:?}, {checks} checks");
        }
    }

    #[test]
    fn slow_writes_one_after_another_are_no_stall() {
        let start = Instant::now();
        let mut decision = StallDecision::new(ms(300), ms(60));
        for write in 0..50_u64 {
            let begun = start + ms(write * 290);
            assert_eq!(decision.step(begun + ms(289), Some(begun)), None);
        }
    }

    #[test]
    fn a_hand_over_that_the_disk_overtakes_is_taken_back() {
        let start = Instant::now();
        let mut decision = StallDecision::new(ms(300), ms(60));
        assert!(matches!(decision.step(start + ms(310), Some(start)), Some(Order::HandOver { .. })));
        let next_write = start + ms(320);
        assert_eq!(decision.step(start + ms(330), Some(next_write)), Some(Order::Resume { stalled: ms(330) }));
        assert!(matches!(decision.step(next_write + ms(300), Some(next_write)), Some(Order::HandOver { .. })));
    }
}
