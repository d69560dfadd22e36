//! What a process of the cluster is there for, as operators say it.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{BackendId, FrontendId, NodeId};

/// What a process may be given.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(Clone, Copy, Debug))]
pub enum Duty {
    /// Work, as it comes.
    #[default]
    Serving,
    /// Nothing new: no sub-cluster to lead, no batch plan, no request. What it has it keeps until it is done.
    Cordoned,
    /// Nothing new, and what it has is handed over or finished as soon as that goes without a gap.
    Draining,
}

impl Duty {
    /// The stable label, for tables, JSON and the wire.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        }
    }

    /// Whether it may be given something new.
    #[must_use]
    pub const fn takes_work(self) -> bool {
        matches!(self, Self::Serving)
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A process that the cluster's state knows.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A scheduler replica.
    Scheduler(NodeId),
    /// A backend.
    Backend(BackendId),
    /// A frontend.
    Frontend(FrontendId),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler(id) => write!(f, "scheduler {id}"),
            Self::Backend(id) => write!(f, "backend {id}"),
            Self::Frontend(id) => write!(f, "frontend {id}"),
        }
    }
}
