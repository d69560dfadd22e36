//! Errors of the control plane.

use std::io;
use std::time::Duration;

use symphony_cluster_state::{CodecError, Refusal};

use crate::config::ControlPlaneConfig;

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("control plane configuration: {0}")]
    Config(String),
    /// The control group did not start.
    #[error(transparent)]
    Group(#[from] symphony_consensus::StartError),
    /// A listener or a thread could not be set up.
    #[error("{what}: {source}")]
    Io {
        /// The failed step.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a replica can no longer be part of the cluster: its process should end with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fatal(pub(crate) String);

impl Fatal {
    /// The disk lacks entries that were acknowledged from it.
    pub(crate) fn forgotten(config: &ControlPlaneConfig) -> Self {
        let (node, dir) = (config.node, config.data_dir.display());
        Self(format!(
            "scheduler {node} runs on an older copy of its disk ({dir}), or the disk lost what it had written: what it acknowledged and voted \
             for is forgotten. Give it a new id (symphony members replace {} --with NEW --control HOST:PORT) and an empty directory",
            node.get()
        ))
    }
}

/// Why a command or a read got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The cluster's state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command does not fit the log.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// No attempt to propose it succeeded in time. It may have been committed nevertheless; repeating it is harmless
    /// (for an operation, under the same id).
    #[error("no leader of the control group took it within {within:?}: {last}; a quorum of the replicas must be up")]
    NoLeader {
        /// The time given.
        within: Duration,
        /// Why the last attempt failed.
        last: String,
    },
    /// The membership of the control group was not changed.
    #[error("{0}")]
    Membership(String),
    /// This replica is shutting down.
    #[error("this replica is shutting down")]
    Stopped,
}
