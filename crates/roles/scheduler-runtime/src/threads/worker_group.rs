//! The workers of one lead that share a decision thread and take their turns together.

use std::sync::Arc;

use symphony_types::{Nanos, Time};

use crate::threads::turn::TurnStart;
use crate::threads::waker::GroupWaker;
use crate::threads::worker::Worker;

/// Some workers of one lead, each with a part in every turn.
pub(crate) struct WorkerGroup {
    waker: Arc<GroupWaker>,
    workers: Vec<Box<dyn Worker>>,
    /// Duration of each worker's part of the turn so far; none if it had nothing to do.
    spent: Vec<Option<Nanos>>,
    /// Its turns so far.
    turns: u64,
    /// When all decisions of its last turn had been made.
    last_ended: Time,
}

impl WorkerGroup {
    /// `waker` belongs to all workers together. Workers take their turns in this order: requests first, so that their
    /// offers are ranked in the same turn.
    pub(crate) fn new(waker: Arc<GroupWaker>, workers: Vec<Box<dyn Worker>>) -> Self {
        let spent = vec![None; workers.len()];
        Self { waker, workers, spent, turns: 0, last_ended: Time::ZERO }
    }

    pub(crate) fn waker(&self) -> &GroupWaker {
        &self.waker
    }

    /// One turn, which begins at `now`, a fresh reading of the clock. Returns when the next one is due at the latest
    /// ([`Time::ZERO`] if there is more to do already), and the time.
    pub(crate) fn run_turn(&mut self, now: Time, clock: &impl Fn() -> Time) -> (Time, Time) {
        self.waker.answer();
        self.waker.set_in_turn(true);
        self.turns += 1;
        let mut turn = TurnStart { number: self.turns, now, last_ended: self.last_ended };
        let mut wake_at = Time::NEVER;
        for (worker, spent) in self.workers.iter_mut().zip(&mut self.spent) {
            let end = worker.run_turn(turn);
            wake_at = wake_at.min(end.wake_at);
            // The end of one worker's part is the beginning of the next: one clock reading serves both.
            let now = clock();
            *spent = (end.handled > 0).then(|| now.since(turn.now));
            turn.now = now;
        }
        self.last_ended = turn.now;
        for (worker, spent) in self.workers.iter_mut().zip(&self.spent) {
            let Some(decided_in) = *spent else { continue };
            worker.send_outputs(turn.now);
            let now = clock();
            worker.metrics().turns.record(decided_in + now.since(turn.now));
            turn.now = now;
        }
        self.waker.set_in_turn(false);
        (wake_at, turn.now)
    }
}

impl std::fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerGroup").field("slot", &self.waker.slot()).field("workers", &self.workers.len()).finish()
    }
}
