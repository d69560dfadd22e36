//! How an attempt ended.

use symphony_protocol::dispatch::EndReason;
use symphony_types::FailReason;

use super::request_table::Ending;
use crate::oip::InferError;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    /// The cluster, or this frontend, decided how.
    Settled(Ending),
    /// Nothing came in time.
    Unanswered,
    /// Its pictures cannot be decoded, for the reason that its client gets.
    BadInput(InferError),
}

impl AttemptEnd {
    /// Only what has not run in a cluster, and never will, is tried in another one (invariant F1).
    pub(super) const fn may_run_elsewhere(&self) -> bool {
        matches!(self, Self::Settled(Ending::NotHere))
    }

    pub(super) const fn failed(reason: FailReason) -> Self {
        Self::Settled(Ending::NoResult(EndReason::Failed(reason)))
    }
}
