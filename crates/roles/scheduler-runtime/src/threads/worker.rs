//! The interface of workers on a decision thread.

use symphony_types::Time;

use crate::threads::turn::{TurnEnd, TurnStart};
use crate::workers::worker_metrics::WorkerMetrics;

/// Events (requests, cancels, reports, offers) that one turn handles before it reads the clock and checks its timers.
/// At 0.1 to 0.2 µs each a turn stays within tens of microseconds under any load. Rare events cost more: a turn of
/// cancels walks the queues of their models once, and the loss of a GPU or a frontend moves all of its requests.
pub(crate) const TURN_EVENTS_MAX: usize = 256;

/// Timers that fire in one turn of a worker. The remaining ones are late anyway, and timers of other leads on the
/// thread may be too: their turns come in between.
pub(crate) const TURN_TIMERS_MAX: usize = 256;

/// An object that owns decision objects.
pub(crate) trait Worker: Send {
    /// Handles what has arrived, up to [`TURN_EVENTS_MAX`], and everything that is due.
    fn run_turn(&mut self, turn: TurnStart) -> TurnEnd;

    /// Sends the decisions of the turn, at `now`, as far as they are not visible yet: first plans, then the
    /// answers that free their GPUs for others, then offers, and wake-ups last. Called after the turns of all workers
    /// of the group: a woken thread may take this thread's core, and by then the lead has nothing left to decide.
    fn send_outputs(&mut self, now: Time);

    /// What it counts.
    fn metrics(&self) -> &WorkerMetrics;
}

/// How a decision thread waits, and where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Spins instead of sleeping: the shortest reaction, for a whole core per thread.
    pub spin: bool,
    /// Bind the thread to a core.
    pub pin: bool,
}
