//! Faults of a federation as scenarios write them down.

use serde::Deserialize;

/// One fault. Times count from the beginning of the round's trouble.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FederationFault {
    /// All processes of a cluster that is home to a model with load.
    LoseCluster(Loss),
    /// Replicas of the group above the clusters.
    Top(TopTrouble),
    /// An operator moves models with load between clusters all the time.
    Travel(Travel),
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    /// `kill -9`; at the end it is started again.
    Kill,
    /// SIGSTOP; at the end SIGCONT.
    Pause,
}

/// A cluster that is lost.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Loss {
    pub(crate) how: How,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts at least. It also lasts until the models are served elsewhere, for which a group above the
    /// clusters has to find new homes.
    pub(crate) for_ms: u64,
}

/// Which replicas of the federation's group a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TopTarget {
    /// Its leader.
    Leader,
    /// All of it.
    All,
}

/// Trouble of the group above the clusters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopTrouble {
    pub(crate) who: TopTarget,
    pub(crate) how: How,
    /// Waits, in bounded time, until a model is on its way from one cluster to another.
    #[serde(default)]
    pub(crate) in_a_move: bool,
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it lasts.
    pub(crate) for_ms: u64,
}

/// Moves, one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Travel {
    /// When it begins.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// How long it goes on.
    pub(crate) for_ms: u64,
}

impl FederationFault {
    /// Its name in reports, which is the one in files.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::LoseCluster(_) => "lose-cluster",
            Self::Top(_) => "top",
            Self::Travel(_) => "travel",
        }
    }

    /// When it begins and how long it lasts at least.
    pub(crate) const fn times_ms(&self) -> (u64, u64) {
        match self {
            Self::LoseCluster(f) => (f.at_ms, f.for_ms),
            Self::Top(f) => (f.at_ms, f.for_ms),
            Self::Travel(f) => (f.at_ms, f.for_ms),
        }
    }

    /// When it ends at the earliest.
    pub(crate) fn ends_ms(&self) -> u64 {
        let (at_ms, for_ms) = self.times_ms();
        at_ms + for_ms.max(1)
    }
}

impl How {
    /// In words, for reports.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Pause => "paused",
        }
    }
}
