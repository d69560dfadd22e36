//! Whose turn is next on a decision thread. A pure value.

use symphony_scheduler::MinTree;
use symphony_types::{Nanos, Time};

/// A group that was rung goes before timers that are due later than so long after its ring. Timers are what is exact to
/// tens of microseconds; two full turns is what a message may wait for them.
const RUNG_PATIENCE: Nanos = Nanos::from_micros(100);

/// WorkerGroups by slot, in the order of their turns: due timers by their time, then who was rung, in the order of the
/// rings.
///
/// Nobody waits for ever: timers that fall due [`RUNG_PATIENCE`] after a ring come behind it, and who has more to do
/// after a turn is rung again, behind all others. Each step costs O(log n) for n slots, whatever the groups do that are
/// not meant.
#[derive(Debug)]
pub(crate) struct TurnOrder {
    /// When the timer of each slot is due, in nanoseconds.
    timers: MinTree,
    /// The number of the ring of each slot that was rung.
    rung: MinTree,
    /// When each slot that was rung was.
    since: Vec<Time>,
    /// Rings so far.
    rings: u64,
}

impl Default for TurnOrder {
    fn default() -> Self {
        Self { timers: MinTree::new(0), rung: MinTree::new(0), since: Vec::new(), rings: 0 }
    }
}

impl TurnOrder {
    /// Makes room for `slots`.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.timers.grow(slots);
        self.rung.grow(slots);
        if slots > self.since.len() {
            self.since.resize(slots, Time::ZERO);
        }
    }

    /// The group has something to do. One that was rung already keeps its place.
    pub(crate) fn ring(&mut self, slot: usize, now: Time) {
        if self.rung.key(slot) == MinTree::EMPTY {
            self.rings += 1;
            self.rung.set(slot, self.rings);
            self.since[slot] = now;
        }
    }

    /// The group wants a turn at this time, and not at the one said before; [`Time::NEVER`] for none.
    pub(crate) fn arm(&mut self, slot: usize, at: Time) {
        self.timers.set(slot, at.as_nanos());
    }

    /// Takes the slot whose turn it is, with its ring and its timer: one turn serves both.
    pub(crate) fn next(&mut self, now: Time) -> Option<usize> {
        let due = self.timers.min().map(|(slot, at)| (slot, Time::from_nanos(at))).filter(|&(_, at)| at <= now);
        let rung = self.rung.min().map(|(slot, _)| (slot, self.since[slot]));
        let slot = match (due, rung) {
            (Some((_, at)), Some((slot, since))) if since + RUNG_PATIENCE < at => slot,
            (Some((slot, _)), _) | (None, Some((slot, _))) => slot,
            (None, None) => return None,
        };
        self.take_off(slot);
        Some(slot)
    }

    /// Forgets what the slot waits for.
    pub(crate) fn take_off(&mut self, slot: usize) {
        self.timers.set(slot, MinTree::EMPTY);
        self.rung.set(slot, MinTree::EMPTY);
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
    fn due_timers_go_first_by_their_time_then_rings_in_their_order() {
        let mut order = order(6);
        for (slot, due) in [(0, 900), (1, 700), (2, 800), (5, 2_000)] {
            order.arm(slot, at(due));
        }
        for slot in [4, 3, 4, 2] {
            order.ring(slot, at(1_000));
        }
        assert_eq!(order.wake_at(), at(700));
        assert_eq!(all(&mut order, at(1_000)), [1, 2, 0, 4, 3], "2 is served once for both");
        assert_eq!(order.wake_at(), at(2_000));
        order.take_off(5);
        assert_eq!((order.wake_at(), order.next(at(3_000))), (Time::NEVER, None));
    }

    #[test]
    fn who_was_rung_waits_for_timers_that_are_due_and_not_for_those_that_fall_due_much_later() {
        let mut order = order(3);
        order.ring(0, at(1_000));
        order.arm(1, at(1_000) + RUNG_PATIENCE);
        order.arm(2, at(1_001) + RUNG_PATIENCE);
        assert_eq!(all(&mut order, at(5_000)), [1, 0, 2]);
    }

    proptest! {
        /// Many groups that always have timers due and always more to do: nobody waits for more turns than everybody
        /// else can have in the time that a ring waits for timers.
        #[test]
        fn nobody_starves(
            works in prop::collection::vec((1_u64..60, 1_u64..400, any::<bool>()), 2..40),
        ) {
            let mut order = order(works.len());
            let mut now = at(1);
            let mut waits_since = vec![Some(0); works.len()];
            (0..works.len()).for_each(|slot| order.ring(slot, now));
            // In that time a group can be due so often, and once more for its ring; and everybody may be before.
            let patience = RUNG_PATIENCE.get() / 1_000;
            let turns_max = works.iter().map(|&(_, period, _)| 3 + 2 * patience / period.max(1)).sum::<u64>() + 1;
            for turn in 0..4_000_u64 {
                let Some(slot) = order.next(now) else {
                    now = order.wake_at();
                    continue;
                };
                let (takes, period, more) = works[slot];
                waits_since[slot] = None;
                now += Nanos::from_micros(takes);
                if more {
                    order.ring(slot, now);
                } else {
                    order.arm(slot, now + Nanos::from_micros(period));
                }
                for (other, since) in waits_since.iter_mut().enumerate() {
                    let waits = order.rung.key(other) != MinTree::EMPTY
                        || Time::from_nanos(order.timers.key(other)) <= now;
                    *since = waits.then(|| since.unwrap_or(turn));
                    prop_assert!(since.is_none_or(|since| turn - since <= turns_max), "{} after {} turns", other, turns_max);
                }
            }
        }
    }
}
