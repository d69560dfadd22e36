//! The interface of workers on a decision thread.

use symphony_types::Time;

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

/// What a turn begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnStart {
    /// Counts the group's turns.
    pub(crate) number: u64,
    /// The time of every decision in this turn.
    pub(crate) now: Time,
    /// When the group's last turn ended: a timer that it armed for an earlier time could not fire in time.
    pub(crate) last_ended: Time,
}

/// The result of a worker's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnEnd {
    /// When the next turn is due at the latest; [`Time::ZERO`] if there is more to do already.
    pub(crate) wake_at: Time,
    /// Events and timers handled; 0 means that there is nothing to send.
    pub(crate) handled: usize,
}

/// How a decision thread waits, and where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Spins instead of sleeping: the shortest reaction, for a whole core per thread.
    pub spin: bool,
    /// Bind the thread to a core.
    pub pin: bool,
}
