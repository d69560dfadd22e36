//! The inputs of a run, and the actions that it asks for.

use std::fmt;

use symphony_types::{DropReason, FailReason, Outcome, Time};

/// A stage request of a run: counted from zero in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub(crate) u32);

impl AskId {
    /// The number within the run.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The stage request with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.0)
    }
}

/// Stage requests of one item each, for consecutive rows of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The stage, by its index in the pipeline.
    pub stage: usize,
    /// The first one; the others follow it.
    pub first: AskId,
    /// How many, at least one: the n-th is for the n-th row that passed the edge's condition.
    pub rows: u32,
    /// By when each must be answered.
    pub deadline: Time,
}

impl Ask {
    /// The stage requests.
    pub fn ids(self) -> impl Iterator<Item = AskId> {
        (self.first.0..self.first.0.saturating_add(self.rows)).map(AskId)
    }
}

/// Why a stage request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Given up by its scheduler.
    Dropped(DropReason),
    /// Ended by an error.
    Failed(FailReason),
}

impl From<Lost> for Outcome {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Dropped(reason) => Self::Dropped(reason),
            Lost::Failed(reason) => Self::Failed(reason),
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A stage request has its result.
    StageDone {
        /// The stage request that has its result.
        ask: AskId,
        /// How many of its rows go along each edge out of its stage, in the pipeline's order of edges; missing ones are
        /// none.
        rows: &'a [u32],
    },
    /// A stage request ended without a result.
    StageEnded {
        /// The stage request that ended without a result.
        ask: AskId,
        /// How it was lost.
        lost: Lost,
    },
    /// The client withdrew the request.
    Cancel,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a stage.
    Ask(Ask),
    /// Take back a stage request whose result is not needed any more.
    Withdraw(AskId),
    /// The request has its outcome; nothing follows.
    End {
        /// How the request ended.
        outcome: Outcome,
        /// Whether nothing is missing: rows of lost stage requests are, and those beyond the limit of a run.
        is_complete: bool,
    },
}
