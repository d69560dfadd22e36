//! What must never happen.

use std::fmt;

/// A broken promise of the protocol; a world with one is a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// I1: a GPU took a plan of a lead after it had served or sealed for a later one.
    OldLeadObeyed,
    /// I1: a GPU took a plan whose leader did not know of a plan ahead of it: its start was planned into that one's
    /// time.
    PlannedBlindly,
    /// I1: a GPU ran an order twice, or out of the order in which it was given.
    OrderRunAgain,
    /// I2: two boots lead the sub-cluster under one token.
    TokenLedTwice,
    /// I3: a request had two outcomes.
    TwoOutcomes,
    /// I3: a request was answered with another request's result.
    ForeignAnswer,
    /// I3: a request announced again was queued although a sealed backend had it.
    RunAgainThoughKnown,
    /// I3: nothing can happen any more, and a request has no outcome.
    Stuck,
    /// I4: a read that promised to be linearizable missed what had been agreed on before it began.
    StaleRead,
    /// I8: a backend refused a plan that it had promised to take.
    PromiseNotKept,
    /// I8: a backend did not promise the latest token there is.
    LatestLeadNotSealed,
    /// I8: a lead ended as fenced although no other was ever assigned after it.
    FencedByNobody,
}

impl Broken {
    /// The invariant's id and the sentence that does not hold.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::OldLeadObeyed => "I1: no GPU obeys a lead after a later one",
            Self::PlannedBlindly => "I1: whoever plans on a GPU knows what is ahead",
            Self::OrderRunAgain => "I1: every order runs at most once, in order",
            Self::TokenLedTwice => "I2: one boot leads under one token",
            Self::TwoOutcomes => "I3: a request has at most one outcome",
            Self::ForeignAnswer => "I3: an answer is to the request that asked",
            Self::RunAgainThoughKnown => "I3: what a sealed backend has is not run again",
            Self::Stuck => "I3: a request gets an outcome",
            Self::StaleRead => "I4: a linearizable read sees what was agreed on before",
            Self::PromiseNotKept => "I8: a sealed leader's plan is taken",
            Self::LatestLeadNotSealed => "I8: the latest lead is promised",
            Self::FencedByNobody => "I8: a lead is fenced by a later one only",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
