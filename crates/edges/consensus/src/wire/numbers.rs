//! Numbers of appends: they let a receiver detect old messages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::acknowledged::Acknowledged;
use crate::limits::NODES_MAX;
use crate::round_trip::RoundTrip;
use crate::timing::Timing;

/// Messages sent to one replica, over all connections to it.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    last: AtomicU64,
    answered: AtomicU64,
    pub(crate) acknowledged: Acknowledged,
}

impl Sent {
    /// The number of the next message, and the largest number that was answered.
    pub(crate) fn next(&self) -> (u64, u64) {
        let answered = self.answered.load(Ordering::Relaxed);
        (self.last.fetch_add(1, Ordering::Relaxed) + 1, answered)
    }

    /// The message with this number was answered, whatever the answer.
    pub(crate) fn answered(&self, number: u64) {
        self.answered.fetch_max(number, Ordering::Relaxed);
    }
}

/// Messages from leaders. Over a very slow link heartbeats arrive long after they were sent. Counted as signs of life
/// they would keep this node loyal while the link has some left, even if the sender is long gone.
#[derive(Debug)]
pub(crate) struct Received {
    timeout: Duration,
    /// By sender: the term in which it leads, and its unconfirmed answers. In each term it may be another process.
    senders: Mutex<HashMap<u64, (u64, RoundTrip)>>,
}

impl Received {
    pub(crate) fn new(timing: &Timing) -> Self {
        // A leader that is silent for this long is replaced; so a pause that costs no leadership makes no message
        // stale either.
        Self { timeout: timing.election_max * 2, senders: Mutex::default() }
    }

    /// Whether a message from the leader of `term` was sent recently, if the last answer that it had received was the
    /// one to number `echoed`.
    pub(crate) fn is_recent(&self, now: Instant, (from, term): (u64, u64), echoed: u64) -> bool {
        #[cfg(feature = "planted-faults")]
        if crate::planted::is(crate::planted::Bug::OldAppendsBelieved) {
            return true;
        }
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.get(&from).is_none_or(|(known, _)| *known < term) {
            senders.insert(from, (term, RoundTrip::new(self.timeout)));
            if senders.len() > NODES_MAX {
                forget_the_oldest(&mut senders, from);
            }
        }
        // A message of an older term is left for the core to refuse.
        let leads = senders.get_mut(&from).filter(|(known, _)| *known == term);
        leads.is_none_or(|(_, trip)| trip.is_recent(now, echoed))
    }

    /// The message with this number is answered now.
    pub(crate) fn answered(&self, now: Instant, (from, term): (u64, u64), number: u64) {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, trip)) = senders.get_mut(&from)
            && *known == term
            && number > 0
        {
            trip.answered(now, number);
        }
    }
}

/// Replicas come and go, and their ids are never reused. The sender with the lowest term is the least likely to lead
/// again; among equals `newest` stays.
fn forget_the_oldest(senders: &mut HashMap<u64, (u64, RoundTrip)>, newest: u64) {
    let oldest = senders.iter().min_by_key(|&(&from, &(term, _))| (term, from == newest, from));
    if let Some(oldest) = oldest.map(|(&from, _)| from) {
        senders.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: u64 = 1;

    /// Two seconds of heartbeats with this delay each way: when each arrived, and whether it counted as a sign of
    /// life.
    fn arrived(under_way: impl Fn(u64) -> u64) -> Vec<(u64, bool)> {
        let (sent, received, start) = (Sent::default(), Received::new(&Timing::lan()), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let (mut messages, mut answers, mut arrived) = (Vec::new(), Vec::new(), Vec::new());
        for ms in 0..2_000 {
            if ms % 20 == 0 {
                messages.push((ms + under_way(ms), sent.next()));
            }
            while let Some((_, (number, echoed))) = messages.first().copied().filter(|(due, _)| *due <= ms) {
                messages.remove(0);
                arrived.push((ms, received.is_recent(at(ms), (LEADER, 5), echoed)));
                received.answered(at(ms), (LEADER, 5), number);
                answers.push((ms + under_way(ms), number));
            }
            while let Some((_, number)) = answers.first().copied().filter(|(due, _)| *due <= ms) {
                answers.remove(0);
                sent.answered(number);
            }
        }
        arrived
    }

    #[test]
    fn heartbeats_over_a_link_that_moves_are_signs_of_life_and_those_of_one_that_hardly_does_are_not() {
        let taken = |arrived: &[(u64, bool)]| arrived.iter().filter(|(_, recent)| *recent).count();
        assert_eq!(taken(&arrived(|_| 5)), 100, "far away");
        // A quarter of the traffic gets through.
        let dripping = arrived(|ms| 3 * ms);
        let (last, last_taken) = (dripping.last().unwrap().0, dripping.iter().rfind(|(_, recent)| *recent).unwrap().0);
        assert!(last_taken < 400 && last > 1_900, "believed, they would keep a follower loyal: {dripping:?}");
        let held_up = arrived(|ms| 180_u64.saturating_sub(ms.saturating_sub(1_000)) * u64::from(ms >= 1_000));
        assert_eq!(taken(&held_up), 100, "a pause that costs no leadership: {held_up:?}");
    }

    #[test]
    fn in_another_term_it_is_another_process_and_who_does_not_count_is_believed() {
        let (received, start) = (Received::new(&Timing::lan()), Instant::now());
        let late = start + Duration::from_secs(1);
        assert!(received.is_recent(start, (LEADER, 5), 0));
        received.answered(start, (LEADER, 5), 1);
        assert!(!received.is_recent(late, (LEADER, 5), 0));
        assert!(received.is_recent(late, (LEADER, 4), 0), "the core refuses it by its term");
        assert!(received.is_recent(late, (LEADER, 6), 0));
        received.answered(late, (LEADER, 6), 0);
        assert!(received.is_recent(late + Duration::from_secs(9), (LEADER, 6), 0));
        for stranger in 10..10 + 2 * NODES_MAX as u64 {
            assert!(received.is_recent(late, (stranger, 1), 0));
        }
        assert!(received.senders.lock().unwrap().len() <= NODES_MAX, "bounded");
    }

    /// Over the years a group has more replicas than it ever has at a time.
    #[test]
    fn the_leaders_of_the_latest_terms_are_looked_at_however_many_there_were_before() {
        let (received, start) = (Received::new(&Timing::lan()), Instant::now());
        let late = start + Duration::from_secs(1);
        let believed = |leader: (u64, u64)| {
            assert!(received.is_recent(start, leader, 0), "nothing was answered yet");
            received.answered(start, leader, 1);
            received.is_recent(late, leader, 0)
        };
        let leaders = 1..=3 * NODES_MAX as u64;
        for (replica, term) in leaders.clone().zip(leaders.clone()) {
            assert!(!believed((replica, term)), "{replica} hears nobody in term {term}");
        }
        assert!(received.senders.lock().unwrap().len() <= NODES_MAX, "bounded");
        let latest = *leaders.end();
        assert!(received.is_recent(late, (1, 1), 0), "of a term long over: the core refuses it");
        assert!(!received.is_recent(late, (latest, latest), 0), "who leads now is not forgotten for it");
        let oldest_known = latest + 1 - NODES_MAX as u64;
        assert!(!received.is_recent(late, (oldest_known, oldest_known), 0), "nor anybody else");
    }
}
