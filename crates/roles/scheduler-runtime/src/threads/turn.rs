//! A turn of a worker: what it begins with, and its result.

use symphony_types::Time;

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
