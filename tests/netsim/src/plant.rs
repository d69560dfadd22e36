//! Faults in what a run checks. The simulation must find that something is wrong.

use clap::ValueEnum as _;
use symphony_consensus::planted::{Bug, plant};

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plant {
    /// Disks report a write as durable before it is: votes and entries are acknowledged too early.
    LyingDisks,
    /// Only votes are sent before they are durable.
    VotesNotSynced,
    /// Backends take whatever leader seals last, whatever its token.
    StaleTokens,
    /// Replicas do not report that their leads hang.
    HangsUnreported,
    /// A replica that stopped its heartbeats over a hung lead never sends any again.
    SilentForever,
    /// A leader without a quorum goes on sending entries and snapshots.
    NoQuorumGate,
    /// What a leader sends is believed however old it is.
    OldAppendsBelieved,
    /// Replicas apply neighbouring commands in an order of their own.
    DisorderedApply,
    /// Reads are answered by any replica, without a quorum.
    ReadsWithoutQuorum,
    /// Followers that have heard a leader never campaign again.
    TicksStayOff,
    /// A replica that has less than it acknowledged to its leader takes part all the same.
    ForgottenUnnoticed,
    /// No replica asks at its start whether others know a later boot of it.
    BootsUnasked,
    /// No replica looks which boot of it is registered when it registers.
    RegistrationsUnread,
    /// Replicas with an empty disk found a group whatever the others say.
    FoundsUnasked,
    /// Replicas with an empty disk join a group by the word of anyone who has a log.
    JoinsUnasked,
    /// Frontends leave the stage requests of a pipeline's request with the leaders when it ends.
    WithdrawsForgotten,
    /// Frontends tell no leader what they withdraw.
    CancelsUnsent,
    /// Policies of sub-clusters order plans that overlap.
    PlansOverlap,
    /// Leads do not report that they end by a fault of their policy.
    PolicyFaultsUnreported,
}

impl Plant {
    /// As it is called on the command line.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Plants what lies in the production code; the rest is looked at where it belongs.
    fn apply(self) {
        match self {
            Self::LyingDisks
            | Self::StaleTokens
            | Self::HangsUnreported
            | Self::WithdrawsForgotten
            | Self::CancelsUnsent
            | Self::PlansOverlap
            | Self::PolicyFaultsUnreported => {}
            Self::SilentForever => plant(Bug::SilentForever),
            Self::VotesNotSynced => plant(Bug::VotesNotSynced),
            Self::NoQuorumGate => plant(Bug::NoQuorumGate),
            Self::OldAppendsBelieved => plant(Bug::OldAppendsBelieved),
            Self::DisorderedApply => plant(Bug::DisorderedApply),
            Self::ReadsWithoutQuorum => plant(Bug::ReadsWithoutQuorum),
            Self::TicksStayOff => plant(Bug::TicksStayOff),
            Self::ForgottenUnnoticed => plant(Bug::ForgottenUnnoticed),
            Self::BootsUnasked => plant(Bug::BootsUnasked),
            Self::RegistrationsUnread => plant(Bug::RegistrationsUnread),
            Self::FoundsUnasked => plant(Bug::FoundsUnasked),
            Self::JoinsUnasked => plant(Bug::JoinsUnasked),
        }
    }
}

/// What is planted in a run: nothing, a fault, or several where one alone is made up for elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plants(Vec<Plant>);

impl From<Vec<Plant>> for Plants {
    fn from(plants: Vec<Plant>) -> Self {
        Self(plants)
    }
}

impl Plants {
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.0.contains(&plant)
    }

    /// Plants what lies in the production code.
    pub(crate) fn apply(&self) {
        self.0.iter().for_each(|plant| plant.apply());
    }

    /// As they are asked for on the command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        self.0.iter().flat_map(|plant| ["--plant".to_owned(), plant.name()]).collect()
    }

    /// The arguments behind a command.
    pub(crate) fn words(&self) -> String {
        self.arguments().iter().map(|word| format!(" {word}")).collect()
    }
}
