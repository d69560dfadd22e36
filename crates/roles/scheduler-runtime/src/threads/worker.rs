//! What a decision thread runs.

use symphony_types::Time;

use crate::workers::worker_metrics::WorkerMetrics;

/// Inputs (requests, cancels, reports, offers) that one turn takes in before it looks at the clock and its timers
/// again. At 0.1 to 0.2 µs each a turn stays within tens of microseconds, however much has gathered. Rare inputs cost
/// more: a turn of cancels goes once through the queues of their models, and the loss of a GPU or a frontend moves all
/// that it had.
pub(crate) const TURN_INPUTS_MAX: usize = 256;

/// Timers that ring in one turn of a worker. The others are late already; so may be those of other leads on the thread,
/// whose turns come in between.
pub(crate) const TURN_TIMERS_MAX: usize = 256;

/// One owner of decision objects.
pub(crate) trait Worker: Send {
    /// Handles what has arrived, up to [`TURN_INPUTS_MAX`], and everything that is due.
    fn turn(&mut self, turn: TurnStart) -> TurnEnd;

    /// Hands over what the turn decided, at `now`, as far as others have not seen it yet: plans before the answers that
    /// make their GPUs free for others, then offers, and wakers at the end. It comes after the turns of all workers of
    /// the group: whoever is woken by it may take this thread's core away, and by then nothing of the lead is left to
    /// decide.
    fn hand_over(&mut self, now: Time);

    /// What it counts.
    fn metrics(&self) -> &WorkerMetrics;
}

/// What a worker is told at the beginning of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnStart {
    /// Counts the group's turns.
    pub(crate) number: u64,
    /// The time of every decision in this turn.
    pub(crate) now: Time,
    /// When the group's last turn ended: a timer that was armed in it for a time before this was past from the
    /// beginning.
    pub(crate) last_ended: Time,
}

/// What a worker says at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnEnd {
    /// When it must be called again at the latest; [`Time::ZERO`] if there is more to do already.
    pub(crate) wake_at: Time,
    /// Inputs and timers handled; if there were none, there is nothing to hand over.
    pub(crate) handled: usize,
}

/// How a decision thread waits, and where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Spins instead of sleeping: the shortest reaction, a whole core each.
    pub spin: bool,
    /// Bind the thread to a core.
    pub pin: bool,
}
