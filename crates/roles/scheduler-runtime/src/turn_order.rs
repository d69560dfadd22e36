//! Whose turn is next on a decision thread. A pure value.

use symphony_scheduler::MinTree;
use symphony_types::{Nanos, Time};

/// A crew that was rung goes before timers that are due later than so long after its ring. Timers are what is exact to tens
/// of microseconds; two full turns is what a message may wait for them.
const RUNG_PATIENCE: Nanos = Nanos::from_micros(100);

/// Crews by seat, in the order of their turns: due timers by their time, then who was rung, in the order of the rings.
///
/// Nobody waits for ever: timers that fall due [`RUNG_PATIENCE`] after a ring come behind it, and who has more to do after a
/// turn is rung again, behind all others. Each step costs O(log n) for n seats, whatever the crews do that are not meant.
#[derive(Debug)]
pub(crate) struct TurnOrder {
    /// When the timer of each seat is due, in nanoseconds.
    timers: MinTree,
    /// The number of the ring of each seat that was rung.
    rung: MinTree,
    /// When each seat that was rung was.
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
    /// Makes room for `seats`.
    pub(crate) fn grow(&mut self, seats: usize) {
        self.timers.grow(seats);
        self.rung.grow(seats);
        if seats > self.since.len() {
            self.since.resize(seats, Time::ZERO);
        }
    }

    /// The crew has something to do. One that was rung already keeps its place.
    pub(crate) fn ring(&mut self, seat: usize, now: Time) {
        if self.rung.key(seat) == MinTree::EMPTY {
            self.rings += 1;
            self.rung.set(seat, self.rings);
            self.since[seat] = now;
        }
    }

    /// The crew wants a turn at this time, and not at the one said before; [`Time::NEVER`] for none.
    pub(crate) fn arm(&mut self, seat: usize, at: Time) {
        self.timers.set(seat, at.as_nanos());
    }

    /// Takes the seat whose turn it is, with its ring and its timer: one turn serves both.
    pub(crate) fn next(&mut self, now: Time) -> Option<usize> {
        let due = self.timers.min().map(|(seat, at)| (seat, Time::from_nanos(at))).filter(|&(_, at)| at <= now);
        let rung = self.rung.min().map(|(seat, _)| (seat, self.since[seat]));
        let seat = match (due, rung) {
            (Some((_, at)), Some((seat, since))) if since + RUNG_PATIENCE < at => seat,
            (Some((seat, _)), _) | (None, Some((seat, _))) => seat,
            (None, None) => return None,
        };
        self.take_off(seat);
        Some(seat)
    }

    /// Forgets what the seat waits for.
    pub(crate) fn take_off(&mut self, seat: usize) {
        self.timers.set(seat, MinTree::EMPTY);
        self.rung.set(seat, MinTree::EMPTY);
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

    fn order(seats: usize) -> TurnOrder {
        let mut order = TurnOrder::default();
        order.grow(seats);
        order
    }

    fn all(order: &mut TurnOrder, now: Time) -> Vec<usize> {
        std::iter::from_fn(|| order.next(now)).collect()
    }

    #[test]
    fn due_timers_go_first_by_their_time_then_rings_in_their_order() {
        let mut order = order(6);
        for (seat, due) in [(0, 900), (1, 700), (2, 800), (5, 2_000)] {
            order.arm(seat, at(due));
        }
        for seat in [4, 3, 4, 2] {
            order.ring(seat, at(1_000));
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
        /// Many crews that always have timers due and always more to do: nobody waits for more turns than everybody else can
        /// have in the time that a ring waits for timers.
        #[test]
        fn nobody_starves(
            works in prop::collection::vec((1_u64..60, 1_u64..400, any::<bool>()), 2..40),
        ) {
            let mut order = order(works.len());
            let mut now = at(1);
            let mut waits_since = vec![Some(0); works.len()];
            (0..works.len()).for_each(|seat| order.ring(seat, now));
            // In that time a crew can be due so often, and once more for its ring; and everybody may be before.
            let patience = RUNG_PATIENCE.get() / 1_000;
            let turns_max = works.iter().map(|&(_, period, _)| 3 + 2 * patience / period.max(1)).sum::<u64>() + 1;
            for turn in 0..4_000_u64 {
                let Some(seat) = order.next(now) else {
                    now = order.wake_at();
                    continue;
                };
                let (takes, period, more) = works[seat];
                waits_since[seat] = None;
                now += Nanos::from_micros(takes);
                if more {
                    order.ring(seat, now);
                } else {
                    order.arm(seat, now + Nanos::from_micros(period));
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
