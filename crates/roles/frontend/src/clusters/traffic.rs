//! Traffic splits: which version gets a request that names none, and whether another one gets a copy.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use symphony_protocol::view::Traffic;

/// The fraction of the golden ratio, and that of the plastic ratio, in 2⁻⁶⁴: multiples of either fall evenly into
/// [0, 1), and those of one are independent of those of the other. Every hundred requests are so split as all of them.
const OF_VERSIONS: u64 = 0x9e37_79b9_7f4a_7c15;
const OF_COPIES: u64 = 0xc13f_a9a9_02a6_328f;

/// Models whose turns are remembered: more than are split at a time. Beyond that all start over.
const MODELS_KEPT: usize = 1024;

/// How many requests of a model have been split, and how many may have been copied.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    requests: u64,
    copies: u64,
}

/// Splits the requests of a frontend, those of each model by themselves.
#[derive(Debug, Default)]
pub(crate) struct TrafficSplitter(Mutex<HashMap<String, Turns>>);

impl TrafficSplitter {
    fn turn(&self, model: &str, of: impl Fn(&mut Turns) -> &mut u64) -> u64 {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() >= MODELS_KEPT && !models.contains_key(model) {
            models.clear();
        }
        if !models.contains_key(model) {
            models.insert(model.to_owned(), Turns::default());
        }
        let Some(turns) = models.get_mut(model) else { return 0 };
        let turn = of(turns);
        std::mem::replace(turn, turn.wrapping_add(1))
    }

    /// The version that gets the next request, of those that are ready; none if the split knows none.
    pub(crate) fn next(&self, model: &str, traffic: &Traffic, is_ready: impl Fn(u64) -> bool) -> Option<u64> {
        let ready: Vec<_> = traffic.weights.iter().filter(|(version, _)| is_ready(**version)).collect();
        let total = ready.iter().map(|(_, weight)| u64::from(**weight)).sum();
        let mut at = below(total, OF_VERSIONS, self.turn(model, |turns| &mut turns.requests));
        let chosen = ready.iter().find(|(_, weight)| {
            let weight = u64::from(**weight);
            let is_here = at < weight;
            at = at.saturating_sub(weight);
            is_here
        });
        chosen.map(|(version, _)| **version)
    }

    /// Whether the next request is one of this many in a hundred of which there are copies.
    pub(crate) fn is_copied(&self, model: &str, percent: u32) -> bool {
        below(100, OF_COPIES, self.turn(model, |turns| &mut turns.copies)) < u64::from(percent)
    }
}

/// A number of the sequence, from 0 up to `total`, which it does not reach.
fn below(total: u64, step: u64, turn: u64) -> u64 {
    let fraction = turn.wrapping_mul(step);
    ((u128::from(fraction) * u128::from(total)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(weights: &[(u64, u32)]) -> Traffic {
        Traffic { weights: weights.iter().copied().collect(), shadow: None }
    }

    #[test]
    fn every_hundred_requests_are_split_as_the_weights_say() {
        let (splitter, split) = (TrafficSplitter::default(), traffic(&[(1, 19), (2, 1)]));
        for _ in 0..50 {
            let second = (0..100).filter(|_| splitter.next("m", &split, |_| true) == Some(2)).count();
            assert!((4..=6).contains(&second), "{second}");
        }
    }

    #[test]
    fn what_others_get_does_not_move_the_turns_of_a_model() {
        let (splitter, split) = (TrafficSplitter::default(), traffic(&[(1, 19), (2, 1)]));
        let mut second = 0;
        for _ in 0..100 {
            second += usize::from(splitter.next("m", &split, |_| true) == Some(2));
            // By which a sequence for all would come to the same place again.
            (0..88).for_each(|_| _ = splitter.next("other", &split, |_| true));
        }
        assert!((4..=6).contains(&second), "{second}");
    }

    #[test]
    fn what_is_not_ready_gets_nothing() {
        let (splitter, split) = (TrafficSplitter::default(), traffic(&[(1, 1), (2, 99)]));
        assert!((0..100).all(|_| splitter.next("m", &split, |version| version == 1) == Some(1)));
        assert_eq!(splitter.next("m", &split, |_| false), None);
        assert_eq!(splitter.next("m", &traffic(&[]), |_| true), None);
    }

    #[test]
    fn copies_are_as_many_as_asked_for_whichever_version_gets_the_request() {
        let (splitter, split) = (TrafficSplitter::default(), traffic(&[(1, 1), (2, 1)]));
        let (mut copied, mut of_first) = (0, 0);
        for _ in 0..1000 {
            let version = splitter.next("m", &split, |_| true);
            if splitter.is_copied("m", 10) {
                copied += 1;
                of_first += u32::from(version == Some(1));
            }
        }
        assert!((95..=105).contains(&copied) && (35..=65).contains(&of_first), "{of_first} of {copied}");
        assert!((0..100).all(|_| splitter.is_copied("m", 100)));
    }
}
