//! The processes of a cluster by name.

use std::collections::BTreeSet;
use std::fmt;

use crate::scenario::ClusterShape;

/// One process. Numbers begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Process {
    /// A scheduler replica, by its id.
    Replica(u64),
    /// A backend.
    Backend(u32),
    /// A frontend.
    Frontend(u32),
}

impl Process {
    /// The subcommand that starts it.
    pub(crate) const fn role(self) -> &'static str {
        match self {
            Self::Replica(_) => "scheduler",
            Self::Backend(_) => "backend",
            Self::Frontend(_) => "frontend",
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(n) => write!(f, "scheduler-{n}"),
            Self::Backend(n) => write!(f, "backend-{n}"),
            Self::Frontend(n) => write!(f, "frontend-{n}"),
        }
    }
}

/// Who there is. Replicas come and go; an id is never given again.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    replicas: BTreeSet<u64>,
    replicas_ever: u64,
    backends: u32,
    frontends: u32,
    subclusters: u32,
}

impl Processes {
    pub(crate) fn of(shape: &ClusterShape) -> Self {
        Self {
            replicas: (1..=u64::from(shape.replicas)).collect(),
            replicas_ever: u64::from(shape.replicas),
            backends: shape.backends * shape.subclusters,
            frontends: shape.frontends,
            subclusters: shape.subclusters,
        }
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = Process> + use<> {
        self.replicas.clone().into_iter().map(Process::Replica)
    }

    /// Adds a replica under a new id.
    pub(crate) fn add_replica(&mut self) -> Process {
        self.replicas_ever += 1;
        self.replicas.insert(self.replicas_ever);
        Process::Replica(self.replicas_ever)
    }

    pub(crate) fn remove_replica(&mut self, replica: Process) {
        if let Process::Replica(id) = replica {
            self.replicas.remove(&id);
        }
    }

    pub(crate) fn backends(&self) -> impl Iterator<Item = Process> + use<> {
        (1..=self.backends).map(Process::Backend)
    }

    pub(crate) fn frontends(&self) -> impl Iterator<Item = Process> + use<> {
        (1..=self.frontends).map(Process::Frontend)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Process> + use<> {
        self.replicas().chain(self.backends()).chain(self.frontends())
    }

    /// Names of the sub-clusters.
    pub(crate) fn subclusters(&self) -> Vec<String> {
        (1..=self.subclusters).map(|n| format!("pool-{n}")).collect()
    }

    /// The sub-cluster of a backend; backends are dealt out in turn. Empty for other processes.
    pub(crate) fn subcluster_of(&self, process: Process) -> String {
        match process {
            Process::Backend(n) => format!("pool-{}", (n - 1) % self.subclusters + 1),
            Process::Replica(_) | Process::Frontend(_) => String::new(),
        }
    }
}
