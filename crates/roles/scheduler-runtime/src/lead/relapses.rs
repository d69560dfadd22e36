//! How long a sub-cluster waits for its next leader when leads of it panic or hang one after the other. A pure value.

use std::collections::HashMap;

use symphony_types::{Nanos, SubclusterId, Time, Token};

/// What a lead was given up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// A turn of it panicked. That costs a hand-over.
    Panicked,
    /// Its thread hung in a turn of it. That costs the neighbours a hand-over each, and leaves a thread behind, which
    /// may turn for ever.
    Hung,
}

/// Pause after the second time; it doubles with each further one.
const PAUSE_MIN: Nanos = Nanos::from_millis(250);

impl Ill {
    /// Longest pause: a sub-cluster that is ill wherever it goes changes hands so often and no more. For panics it is
    /// long against a take-over, so that the log and the other leads of its leaders hardly notice, and short against an
    /// operator who mends it. For hangs it is long against what neighbours notice: two a minute at most, of a replica
    /// that leads hundreds.
    const fn pause_max(self) -> Nanos {
        match self {
            Self::Panicked => Nanos::from_millis(2_000),
            Self::Hung => Nanos::from_millis(30_000),
        }
    }

    /// It is forgotten after this. Leads that fall ill more rarely are handed on at once. Longer than it takes to go
    /// round three replicas with the longest pause at each: else it would be forgotten on the way.
    const fn remembered_for(self) -> Nanos {
        match self {
            Self::Panicked => Nanos::from_millis(10_000),
            Self::Hung => Nanos::from_millis(120_000),
        }
    }
}

/// The panics and hangs of this replica's leads that are remembered.
///
/// What makes a lead ill may go with it from replica to replica: a model, a view, requests of which there are always
/// new ones. Each replica lets a sub-cluster wait that it has given up before, so that nobody has to be told of what
/// happened at the others.
#[derive(Debug, Default)]
pub(crate) struct Relapses(HashMap<SubclusterId, Last>);

#[derive(Debug)]
struct Last {
    token: Token,
    until: Time,
    pause: Nanos,
}

impl Relapses {
    /// A lead has fallen ill. Returns how long to wait before somebody else is asked to lead; nothing the first time.
    pub(crate) fn note(&mut self, now: Time, subcluster: SubclusterId, token: Token, ill: Ill) -> Nanos {
        self.0.retain(|_, last| now < last.until);
        let before = self.0.get(&subcluster);
        let pause = match before {
            None => Nanos::ZERO,
            // Another group of a lead that was given up already.
            Some(last) if last.token == token => return last.pause,
            Some(last) => (last.pause + last.pause).clamp(PAUSE_MIN, ill.pause_max()),
        };
        self.0.insert(subcluster, Last { token, until: now + ill.remembered_for(), pause });
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
    fn pauses(ill: Ill) -> impl FnMut(u64, SubclusterId) -> u64 {
        let (mut relapses, mut token) = (Relapses::default(), 0);
        move |ms, subcluster| {
            token += 1;
            relapses.note(at(ms), subcluster, Token::new(token), ill).get() / 1_000_000
        }
    }

    #[test]
    fn who_panics_again_waits_longer_and_longer_and_after_a_while_not_at_all() {
        let mut pause = pauses(Ill::Panicked);
        assert_eq!([0, 100, 200, 300, 400, 500].map(|ms| pause(ms, SICK)), [0, 250, 500, 1_000, 2_000, 2_000]);
        assert_eq!(pause(500, SubclusterId::new(2)), 0, "another one panics for the first time");
        assert_eq!(pause(10_499, SICK), 2_000);
        assert_eq!(pause(20_499, SICK), 0, "ten seconds were well");
        assert_eq!(pause(20_500, SICK), 250);
    }

    #[test]
    fn who_hangs_again_waits_for_up_to_half_a_minute_and_is_remembered_on_its_way_round_the_replicas() {
        let mut pause = pauses(Ill::Hung);
        let way_round = 3 * Ill::Hung.pause_max().get() / 1_000_000;
        let waits: Vec<_> = (0..9).map(|time| pause(time * way_round, SICK)).collect();
        assert_eq!(waits, [0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
        assert_eq!(pause(9 * way_round, SICK), 30_000);
        assert_eq!(pause(9 * way_round + 120_000, SICK), 0, "two minutes were well");
    }

    #[test]
    fn a_panic_after_hangs_waits_no_longer_than_panics_do() {
        let mut relapses = Relapses::default();
        let mut note = |token: u64, ill| relapses.note(at(token), SICK, Token::new(token), ill).get() / 1_000_000;
        let hung: Vec<_> = (1..=6).map(|token| note(token, Ill::Hung)).collect();
        assert_eq!(hung, [0, 250, 500, 1_000, 2_000, 4_000]);
        assert_eq!(note(7, Ill::Panicked), 2_000);
    }

    #[test]
    fn a_lead_is_counted_once_however_many_of_its_crews_panic() {
        let (mut relapses, now) = (Relapses::default(), Time::ZERO);
        let mut note = |token| relapses.note(now, SICK, Token::new(token), Ill::Panicked);
        assert_eq!([note(1), note(1)], [Nanos::ZERO; 2]);
        assert_eq!([note(2), note(2)], [PAUSE_MIN; 2]);
    }

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut relapses = Relapses::default();
        for id in 0..1_000 {
            relapses.note(at(u64::from(id) * 100), SubclusterId::new(id), Token::new(1), Ill::Panicked);
        }
        assert_eq!(relapses.0.len(), 100);
    }
}
