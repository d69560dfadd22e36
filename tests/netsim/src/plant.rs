//! Faults in what a run checks. The simulation must find that something is wrong.

use clap::ValueEnum as _;
use symphony_consensus::planted::{Bug, plant};

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plant {
    /// Disks say that a write is durable when it is not: votes and entries are acknowledged before they are.
    LyingDisks,
    /// Votes alone are told before they are durable.
    VotesNotSynced,
    /// Backends take whatever leader seals last, whatever its token.
    StaleTokens,
    /// A leader without a quorum goes on sending, which keeps those loyal who hear it.
    NoQuorumGate,
    /// Replicas apply neighbouring commands in an order of their own.
    DisorderedApply,
    /// Reads are answered by whoever is asked, without a quorum.
    ReadsWithoutQuorum,
}

impl Plant {
    /// As it is called on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Plants what lies in the production code; the rest is looked at where it belongs.
    pub(crate) fn apply(self) {
        match self {
            Self::LyingDisks | Self::StaleTokens => {}
            Self::VotesNotSynced => plant(Bug::VotesNotSynced),
            Self::NoQuorumGate => plant(Bug::NoQuorumGate),
            Self::DisorderedApply => plant(Bug::DisorderedApply),
            Self::ReadsWithoutQuorum => plant(Bug::ReadsWithoutQuorum),
        }
    }
}
