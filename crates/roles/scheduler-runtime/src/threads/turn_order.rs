//! The order of turns on a decision thread. A pure value.

use symphony_scheduler::MinTree;
use symphony_types::{Nanos, Time};

/// A woken group goes before timers that are due more than this after its wake-up. Timers should be exact to tens of
/// microseconds; a message may wait for them as long as two full turns take.
const WOKEN_WAIT_MAX: Nanos = Nanos::from_micros(100);

/// Worker groups by slot, in the order of their turns: first due timers by time, then woken groups in the order of
/// their wake-ups.
///
/// There is no starvation: timers due [`WOKEN_WAIT_MAX`] or more after a wake-up come behind it, and a group with more
/// work after its turn is queued again behind all others. Each operation costs O(log n) for n slots.
#[derive(Debug)]
pub(crate) struct TurnOrder {
    /// Due time of each slot's timer, in nanoseconds.
    timers: MinTree,
    /// The sequence number of each woken slot's wake-up.
    woken: MinTree,
    /// When each woken slot was woken.
    since: Vec<Time>,
    /// Wake-ups so far.
    wakes: u64,
}

impl Default for TurnOrder {
    fn default() -> Self {
        Self { timers: MinTree::new(0), woken: MinTree::new(0), since: Vec::new(), wakes: 0 }
    }
}

impl TurnOrder {
    /// Makes room for `slots` slots.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.timers.grow(slots);
        self.woken.grow(slots);
        if slots > self.since.len() {
            self.since.resize(slots, Time::ZERO);
        }
    }

    /// The group has something to do. A group that is already queued keeps its place.
    pub(crate) fn wake(&mut self, slot: usize, now: Time) {
        if self.woken.key(slot) == MinTree::EMPTY {
            self.wakes += 1;
            self.woken.set(slot, self.wakes);
            self.since[slot] = now;
        }
    }

    /// Sets the group's timer, in place of the previous one; [`Time::NEVER`] for none.
    pub(crate) fn arm(&mut self, slot: usize, at: Time) {
        self.timers.set(slot, at.as_nanos());
    }

    /// Takes the slot whose turn it is, with its wake-up and its timer: one turn serves both.
    pub(crate) fn next(&mut self, now: Time) -> Option<usize> {
        let due = self.timers.min().map(|(slot, at)| (slot, Time::from_nanos(at))).filter(|&(_, at)| at <= now);
        let woken = self.woken.min().map(|(slot, _)| (slot, self.since[slot]));
        let slot = match (due, woken) {
            (Some((_, at)), Some((slot, since))) if since + WOKEN_WAIT_MAX < at => slot,
            (Some((slot, _)), _) | (None, Some((slot, _))) => slot,
            (None, None) => return None,
        };
        self.take_off(slot);
        Some(slot)
    }

    /// Removes the slot's wake-up and timer.
    pub(crate) fn take_off(&mut self, slot: usize) {
        self.timers.set(slot, MinTree::EMPTY);
        self.woken.set(slot, MinTree::EMPTY);
    }

    /// When the first timer is due.
    pub(crate) fn wake_at(&self) -> Time {
        Time::from_nanos(self.timers.min_key())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Nanos::from_micros(micros)
    }

    fn order(slots: usize) -> TurnOrder {
        let mut order = TurnOrder::default();
        order.grow(slots);
        order
    }

    fn all(order: &mut TurnOrder, now: Time) -> Vec<usize> {
        std::iter::from_fn(|| order.next(now)).collect()
    }

    #[test]
    fn due_timers_go_first_by_their_time_then_wake_ups_in_their_order() {
        let mut order = order(6);
        for (slot, due) in [(0, 900), (1, 700), (2, 800), (5, 2_000)] {
            order.arm(slot, at(due));
        }
        for slot in [4, 3, 4, 2] {
            order.wake(slot, at(1_000));
        }
        assert_eq!(order.wake_at(), at(700));
        assert_eq!(all(&mut order, at(1_000)), [1, 2, 0, 4, 3], "2 is served once for both");
        assert_eq!(order.wake_at(), at(2_000));
        order.take_off(5);
        assert_eq!((order.wake_at(), order.next(at(3_000))), (Time::NEVER, None));
    }

    #[test]
    fn who_was_woken_waits_for_timers_that_are_due_and_not_for_those_that_fall_due_much_later() {
        let mut order = order(3);
        order.wake(0, at(1_000));
        order.arm(1, at(1_000) + WOKEN_WAIT_MAX);
        order.arm(2, at(1_001) + WOKEN_WAIT_MAX);
        assert_eq!(all(&mut order, at(5_000)), [1, 0, 2]);
    }

    proptest! {
        /// Many groups always have due timers and more work: no group waits for more turns than all groups can have
        /// within [`WOKEN_WAIT_MAX`] of a wake-up.
        #[test]
        fn nobody_starves(
            works in prop::collection::vec((1_u64..60, 1_u64..400, any::<bool>()), 2..40),
        ) {
            let mut order = order(works.len());
            let mut now = at(1);
            let mut waits_since = vec![Some(0); works.len()];
            (0..works.len()).for_each(|slot| order.wake(slot, now));
            // In that time a group can be due this often, and once more for its wake-up; and all others may go first.
            let wait_max = WOKEN_WAIT_MAX.get() / 1_000;
            let turns_max = works.iter().map(|&(_, period, _)| 3 + 2 * wait_max / period.max(1)).sum::<u64>() + 1;
            for turn in 0..4_000_u64 {
                let Some(slot) = order.next(now) else {
                    now = order.wake_at();
                    continue;
                };
                let (takes, period, more) = works[slot];
                waits_since[slot] = None;
                now += Nanos::from_micros(takes);
                if more {
                    order.wake(slot, now);
                } else {
                    order.arm(slot, now + Nanos::from_micros(period));
                }
                for (other, since) in waits_since.iter_mut().enumerate() {
                    let waits = order.woken.key(other) != MinTree::EMPTY
                        || Time::from_nanos(order.timers.key(other)) <= now;
                    *since = waits.then(|| since.unwrap_or(turn));
                    prop_assert!(since.is_none_or(|since| turn - since <= turns_max), "{} after {} turns", other, turns_max);
                }
            }
        }
    }
}
