//! The duty of a process, as operators set it.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{BackendId, FrontendId, NodeId};

/// What work a process may be given.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(Clone, Copy, Debug))]
pub enum Duty {
    /// Any work.
    #[default]
    Serving,
    /// No new work: no sub-cluster to lead, no batch plan, no request. The process keeps the work it has until it is
    /// done.
    Cordoned,
    /// No new work; the work it has is handed over or finished as soon as that causes no gap in service.
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

    /// Whether the process may be given new work.
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

/// A process that is known to the cluster's state.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A scheduler replica.
    Scheduler(NodeId),
    /// A backend, in any boot.
    Backend(BackendId),
    /// A frontend, in any boot.
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
