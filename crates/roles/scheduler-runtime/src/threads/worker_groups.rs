//! The groups of one decision thread: arrivals, departures, and the order of turns. Without the thread: time is an
//! argument.

use std::panic::{AssertUnwindSafe, catch_unwind};

use symphony_types::Time;

use crate::threads::turn_order::TurnOrder;
use crate::threads::waker::ThreadWaker;
use crate::threads::worker_group::WorkerGroup;

/// All groups of a thread, by slot.
#[derive(Debug, Default)]
pub(crate) struct WorkerGroups {
    slots: Vec<Option<WorkerGroup>>,
    order: TurnOrder,
}

/// The result of one step.
#[derive(Debug)]
pub(crate) enum Turn {
    /// There is nothing to do before this time.
    Idle(Time),
    /// A group had its turn, which ended at this time.
    Done(Time),
    /// A group has ended, after its last turn; its slot is free.
    Ended(WorkerGroup),
    /// A group has panicked in its turn; its slot is free.
    Failed(WorkerGroup),
}

impl WorkerGroups {
    /// Installs a group in its slot and queues it, since messages may have come before it.
    pub(crate) fn install(&mut self, group: WorkerGroup, now: Time) {
        let slot = group.waker().slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
            self.order.grow(self.slots.len());
        }
        self.slots[slot] = Some(group);
        self.order.wake(slot, now);
    }

    /// Queues the woken groups. `now` is the present or slightly earlier.
    pub(crate) fn queue_woken(&mut self, thread_waker: &ThreadWaker, now: Time) {
        while let Some(slot) = thread_waker.next_woken() {
            // A group that had a turn since then has seen everything, and one that is not installed yet will.
            let group = self.slots.get(slot).and_then(Option::as_ref);
            if group.is_some_and(|group| group.waker().is_woken()) {
                self.order.wake(slot, now);
            }
        }
    }

    /// One turn of one group. It takes time linear in that group's events, plus O(log n) for n slots.
    pub(crate) fn run_next(&mut self, now: Time, clock: &impl Fn() -> Time) -> Turn {
        let Some(slot) = self.order.next(now) else { return Turn::Idle(self.order.wake_at()) };
        let place = &mut self.slots[slot];
        // Before the check whether the group is over: a later end wakes it again.
        if let Some(group) = place {
            group.waker().answer();
        }
        if let Some(group) = place.take_if(|group| group.waker().is_over()) {
            return Turn::Ended(group);
        }
        let Some(mut group) = place.take() else { return Turn::Done(now) };
        // The workers of a panicked group are never used again; other groups share nothing with it.
        let Ok((wake_at, now)) = catch_unwind(AssertUnwindSafe(|| group.run_turn(now, clock))) else {
            return Turn::Failed(group);
        };
        *place = Some(group);
        // A group that is late with its timers queues like any group with more to do: else it would always be first.
        if wake_at <= now {
            self.order.wake(slot, now);
        } else {
            self.order.arm(slot, wake_at);
        }
        Turn::Done(now)
    }
}

#[cfg(test)]
mod tests;
