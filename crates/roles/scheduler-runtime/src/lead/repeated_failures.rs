//! How long a sub-cluster waits for its next leader after repeated panics or hangs of its leads. A pure value.

use std::collections::HashMap;

use symphony_types::{Nanos, SubclusterId, Time, Token};

/// Why a lead was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// One of its turns panicked. The cost is one hand-over.
    Panicked,
    /// One of its turns hung the thread. The cost is a hand-over for each lead on that thread, and a lost thread that
    /// may spin for ever.
    Hung,
}

/// Pause after the second failure; it doubles with each further one.
const PAUSE_MIN: Nanos = Nanos::from_millis(250);

impl FailureKind {
    /// Longest pause: a sub-cluster that fails on every replica changes leaders at this rate and no faster. For panics
    /// the pause is long against a take-over, which keeps the load on the log and on other leads low, and short
    /// against an operator's repair. For hangs it bounds the disturbance of the neighbours: at most two hangs a
    /// minute, on a replica that leads hundreds of sub-clusters.
    const fn pause_max(self) -> Nanos {
        match self {
            Self::Panicked => Nanos::from_millis(2_000),
            Self::Hung => Nanos::from_millis(30_000),
        }
    }

    /// A failure is forgotten after this time; a lead that fails more rarely is handed over at once. Longer than a
    /// round over three replicas with the longest pause at each, since otherwise a failure would be forgotten during
    /// the round.
    const fn remembered_for(self) -> Nanos {
        match self {
            Self::Panicked => Nanos::from_millis(10_000),
            Self::Hung => Nanos::from_millis(120_000),
        }
    }
}

/// The recent panics and hangs of this replica's leads.
///
/// The cause of a failure may follow the lead from replica to replica: a model, a view, a steady stream of bad
/// requests. Each replica delays a sub-cluster that it has given up before, so replicas need not tell each other about
/// failures.
#[derive(Debug, Default)]
pub(crate) struct RepeatedFailures(HashMap<SubclusterId, Last>);

#[derive(Debug)]
struct Last {
    token: Token,
    until: Time,
    pause: Nanos,
}

impl RepeatedFailures {
    /// Records a failure of a lead. Returns how long to wait before another replica leads; zero the first time.
    pub(crate) fn record(&mut self, now: Time, subcluster: SubclusterId, token: Token, kind: FailureKind) -> Nanos {
        self.0.retain(|_, last| now < last.until);
        let before = self.0.get(&subcluster);
        let pause = match before {
            None => Nanos::ZERO,
            // Another worker group of a lead that was given up already.
            Some(last) if last.token == token => return last.pause,
            Some(last) => (last.pause + last.pause).clamp(PAUSE_MIN, kind.pause_max()),
        };
        self.0.insert(subcluster, Last { token, until: now + kind.remembered_for(), pause });
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SICK: SubclusterId = SubclusterId::new(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Nanos::from_millis(ms)
    }

    /// The pause in milliseconds, each time under a new token.
    fn pauses(kind: FailureKind) -> impl FnMut(u64, SubclusterId) -> u64 {
        let (mut repeated_failures, mut token) = (RepeatedFailures::default(), 0);
        move |ms, subcluster| {
            token += 1;
            repeated_failures.record(at(ms), subcluster, Token::new(token), kind).get() / 1_000_000
        }
    }

    #[test]
    fn who_panics_again_waits_longer_and_longer_and_after_a_while_not_at_all() {
        let mut pause = pauses(FailureKind::Panicked);
        assert_eq!([0, 100, 200, 300, 400, 500].map(|ms| pause(ms, SICK)), [0, 250, 500, 1_000, 2_000, 2_000]);
        assert_eq!(pause(500, SubclusterId::new(2)), 0, "another one panics for the first time");
        assert_eq!(pause(10_499, SICK), 2_000);
        assert_eq!(pause(20_499, SICK), 0, "ten seconds were well");
        assert_eq!(pause(20_500, SICK), 250);
    }

    #[test]
    fn who_hangs_again_waits_for_up_to_half_a_minute_and_is_remembered_on_its_way_round_the_replicas() {
        let mut pause = pauses(FailureKind::Hung);
        let way_round = 3 * FailureKind::Hung.pause_max().get() / 1_000_000;
        let waits: Vec<_> = (0..9).map(|time| pause(time * way_round, SICK)).collect();
        assert_eq!(waits, [0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
        assert_eq!(pause(9 * way_round, SICK), 30_000);
        assert_eq!(pause(9 * way_round + 120_000, SICK), 0, "two minutes were well");
    }

    #[test]
    fn a_panic_after_hangs_waits_no_longer_than_panics_do() {
        let mut repeated_failures = RepeatedFailures::default();
        let mut record =
            |token: u64, kind| repeated_failures.record(at(token), SICK, Token::new(token), kind).get() / 1_000_000;
        let hung: Vec<_> = (1..=6).map(|token| record(token, FailureKind::Hung)).collect();
        assert_eq!(hung, [0, 250, 500, 1_000, 2_000, 4_000]);
        assert_eq!(record(7, FailureKind::Panicked), 2_000);
    }

    #[test]
    fn a_lead_is_counted_once_however_many_of_its_groups_panic() {
        let (mut repeated_failures, now) = (RepeatedFailures::default(), Time::ZERO);
        let mut record = |token| repeated_failures.record(now, SICK, Token::new(token), FailureKind::Panicked);
        assert_eq!([record(1), record(1)], [Nanos::ZERO; 2]);
        assert_eq!([record(2), record(2)], [PAUSE_MIN; 2]);
    }

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut repeated_failures = RepeatedFailures::default();
        for id in 0..1_000 {
            repeated_failures.record(
                at(u64::from(id) * 100),
                SubclusterId::new(id),
                Token::new(1),
                FailureKind::Panicked,
            );
        }
        assert_eq!(repeated_failures.0.len(), 100);
    }
}
