//! The crews of one decision thread: who comes, who goes, and whose turn it is. Without the thread: time is an argument.

use std::panic::{AssertUnwindSafe, catch_unwind};

use symphony_types::Time;

use crate::crew::Crew;
use crate::doorbell::Doorbell;
use crate::turn_order::TurnOrder;

/// All crews of a thread, by seat.
#[derive(Debug, Default)]
pub(crate) struct Crews {
    seats: Vec<Option<Crew>>,
    order: TurnOrder,
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nobody has anything to do before this time.
    Nobody(Time),
    /// A crew had its turn, which ended at this time.
    Taken(Time),
    /// A crew is over. It has had its last turn, and its seat is free.
    Over(Crew),
    /// A crew has panicked in its turn. It has no more of them, and its seat is free.
    Failed(Crew),
}

impl Crews {
    /// A crew takes its seat, and has a turn soon: it may have been told something before it came.
    pub(crate) fn sit(&mut self, crew: Crew, now: Time) {
        let seat = crew.bell().seat();
        if seat >= self.seats.len() {
            self.seats.resize_with(seat + 1, || None);
            self.order.grow(self.seats.len());
        }
        self.seats[seat] = Some(crew);
        self.order.ring(seat, now);
    }

    /// Takes in which bells were rung, at `now` or a little earlier.
    pub(crate) fn hear(&mut self, door: &Doorbell, now: Time) {
        while let Some(seat) = door.next_rung() {
            // A crew that had a turn since then has seen everything, and one that has not come yet will.
            let crew = self.seats.get(seat).and_then(Option::as_ref);
            if crew.is_some_and(|crew| crew.bell().is_rung()) {
                self.order.ring(seat, now);
            }
        }
    }

    /// One turn of one crew. It takes a step for each input of that crew, and O(log n) for n seats.
    pub(crate) fn turn(&mut self, now: Time, clock: &impl Fn() -> Time) -> Turn {
        let Some(seat) = self.order.next(now) else { return Turn::Nobody(self.order.wake_at()) };
        let place = &mut self.seats[seat];
        // Before it is asked whether it is over: whoever ends it from now on rings again.
        if let Some(crew) = place {
            crew.bell().answer();
        }
        if let Some(crew) = place.take_if(|crew| crew.bell().is_over()) {
            return Turn::Over(crew);
        }
        let Some(mut crew) = place.take() else { return Turn::Taken(now) };
        // Nobody looks at the workers of a crew again that has panicked; the other crews share nothing with it.
        let Ok((wake_at, now)) = catch_unwind(AssertUnwindSafe(|| crew.turn(now, clock))) else {
            return Turn::Failed(crew);
        };
        *place = Some(crew);
        // Who is late with its timers waits like everybody else with more to do: else it would be first for ever.
        if wake_at <= now {
            self.order.ring(seat, now);
        } else {
            self.order.arm(seat, wake_at);
        }
        Turn::Taken(now)
    }
}

#[cfg(test)]
mod tests;
