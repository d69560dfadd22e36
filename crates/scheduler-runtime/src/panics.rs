//! How long a sub-cluster waits for its next leader when leads of it panic one after the other. A pure value.

use std::collections::HashMap;

use symphony_types::{Nanos, SubclusterId, Time, Token};

/// A panic is forgotten after this. Leads that panic more rarely are handed on at once.
const REMEMBERED_FOR: Nanos = Nanos::from_millis(10_000);
/// Pause after the second panic; it doubles with each further one.
const PAUSE_MIN: Nanos = Nanos::from_millis(250);
/// Longest pause: a sub-cluster that panics wherever it goes changes hands so often and no more. Long against a take-over, so
/// that the log and the other leads of its leaders hardly notice; short against an operator who mends it.
const PAUSE_MAX: Nanos = Nanos::from_millis(2_000);

/// The panics of this replica's leads that are remembered.
///
/// What makes a lead panic may go with it from replica to replica: a model, a view, requests of which there are always new ones. Each
/// replica lets a sub-cluster wait that it has given up before, so that nobody has to be told of the others' panics.
#[derive(Debug, Default)]
pub(crate) struct Panics(HashMap<SubclusterId, Last>);

#[derive(Debug)]
struct Last {
    token: Token,
    at: Time,
    pause: Nanos,
}

impl Panics {
    /// A lead has panicked. Returns how long to wait before somebody else is asked to lead; nothing the first time.
    pub(crate) fn note(&mut self, now: Time, subcluster: SubclusterId, token: Token) -> Nanos {
        self.0.retain(|_, last| now.since(last.at) < REMEMBERED_FOR);
        let before = self.0.get(&subcluster);
        let pause = match before {
            None => Nanos::ZERO,
            // Another crew of a lead that was given up already.
            Some(last) if last.token == token => return last.pause,
            Some(last) => (last.pause + last.pause).clamp(PAUSE_MIN, PAUSE_MAX),
        };
        self.0.insert(subcluster, Last { token, at: now, pause });
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ILL: SubclusterId = SubclusterId::new(1);

    #[test]
    fn who_panics_again_waits_longer_and_longer_and_after_a_while_not_at_all() {
        let mut panics = Panics::default();
        let mut token = 0;
        let mut pause = |ms: u64, subcluster| {
            token += 1;
            panics.note(Time::ZERO + Nanos::from_millis(ms), subcluster, Token::new(token)).get() / 1_000_000
        };
        assert_eq!([0, 100, 200, 300, 400, 500].map(|ms| pause(ms, ILL)), [0, 250, 500, 1_000, 2_000, 2_000]);
        assert_eq!(pause(500, SubclusterId::new(2)), 0, "another one panics for the first time");
        assert_eq!(pause(10_499, ILL), 2_000);
        assert_eq!(pause(20_499, ILL), 0, "ten seconds were well");
        assert_eq!(pause(20_500, ILL), 250);
    }

    #[test]
    fn a_lead_is_counted_once_however_many_of_its_crews_panic() {
        let (mut panics, now) = (Panics::default(), Time::ZERO);
        assert_eq!(panics.note(now, ILL, Token::new(1)), Nanos::ZERO);
        assert_eq!(panics.note(now, ILL, Token::new(1)), Nanos::ZERO);
        assert_eq!(panics.note(now, ILL, Token::new(2)), PAUSE_MIN);
        assert_eq!(panics.note(now, ILL, Token::new(2)), PAUSE_MIN);
    }

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut panics = Panics::default();
        for id in 0..1_000 {
            let now = Time::ZERO + Nanos::from_millis(u64::from(id) * 100);
            panics.note(now, SubclusterId::new(id), Token::new(1));
        }
        assert_eq!(panics.0.len(), 100);
    }
}
