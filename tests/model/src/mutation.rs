//! Bugs that can be planted in the protocol.

/// One bug. The model with it must have a counterexample; a search that does not find it looks in the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Mutation {
    /// A new leader orders at once instead of waiting for the answers to its seals.
    SkipSeal,
    /// A backend promises only a token *above* its promise: `>` instead of `≥`.
    SealOnlyAbove,
    /// The comparison the other way round: a backend promises only a token up to its promise.
    SealOnlyUpTo,
    /// No comparison: a backend promises whatever it is asked for.
    SealAnything,
    /// The same seal again starts the count of plans anew.
    SealAgainCountsAnew,
    /// There are no seals: a plan whose token is not below the promise is run, and becomes the promise.
    NoSeal,
    /// The token is the Raft term, which survives a change of leader of the sub-cluster.
    RaftTermAsToken,
    /// The execute link does not check the backend's boot.
    NoBootCheck,
    /// A backend does not count plans.
    NoSequenceCheck,
    /// A restarted backend goes on under its old registration, with an empty memory.
    RestartWithoutRegistration,
    /// Requests announced again run without a look at what backends have.
    RedriveWithoutAsking,
    /// A second result is delivered too.
    EveryResultCounts,
    /// A frontend takes results that were meant for its former boot.
    ResultsOfFormerBoots,
    /// A scheduler that restarts fast goes on leading what it led, with an empty memory.
    FastRestartInherits,
    /// A read is answered from what the replica has applied, without the read index.
    ReadWithoutIndex,
}

impl Mutation {
    /// Every bug that can be planted.
    pub const ALL: [Self; 15] = [
        Self::SkipSeal,
        Self::SealOnlyAbove,
        Self::SealOnlyUpTo,
        Self::SealAnything,
        Self::SealAgainCountsAnew,
        Self::NoSeal,
        Self::RaftTermAsToken,
        Self::NoBootCheck,
        Self::NoSequenceCheck,
        Self::RestartWithoutRegistration,
        Self::RedriveWithoutAsking,
        Self::EveryResultCounts,
        Self::ResultsOfFormerBoots,
        Self::FastRestartInherits,
        Self::ReadWithoutIndex,
    ];
}
