//! Failure detection, on threads or in tasks.

use std::time::Duration;

use symphony_cluster_state::Command;
use tokio::sync::{mpsc, watch};

use crate::config::ControlPlaneConfig;
use crate::error::StartError;
use crate::failure_detector::declarations::DetectorContext;
use crate::failure_detector::task_runner::TaskRunner;
use crate::failure_detector::thread_runner::ThreadRunner;
use crate::failure_detector::{ContactState, HeartbeatAddresses, SilenceSwitch};
use crate::metrics::Metrics;
use crate::vital::Vital;

/// How long to wait for the heartbeat threads: a few heartbeats, and a dial in progress.
const THREADS_END_WITHIN: Duration = Duration::from_millis(500);

/// The bound heartbeat port; its kind selects threads or tasks.
#[derive(Debug)]
pub enum HeartbeatListener {
    /// Threads of their own: a busy runtime is not a dead replica.
    Threads(std::net::TcpListener),
    /// Tasks of the runtime, for a simulation.
    Tasks(symphony_net::sockets::Listener),
}

impl From<std::net::TcpListener> for HeartbeatListener {
    fn from(listener: std::net::TcpListener) -> Self {
        Self::Threads(listener)
    }
}

/// Sends this replica's heartbeats to the Raft leader, and watches the others while this replica leads.
#[derive(Debug)]
pub(crate) enum FailureDetection {
    Threads(ThreadRunner),
    Tasks(TaskRunner),
}

impl FailureDetection {
    /// Starts it. Declared failures arrive on the returned channel.
    pub(crate) fn start(
        config: &ControlPlaneConfig,
        listener: HeartbeatListener,
        context: DetectorContext,
        contact_state: watch::Sender<ContactState>,
        metrics: &Metrics,
        vital: &Vital,
    ) -> Result<(Self, mpsc::Receiver<Command>), StartError> {
        match listener {
            HeartbeatListener::Threads(listener) => {
                let (threads, declared) =
                    ThreadRunner::start(config, listener, context, contact_state, metrics, vital)?;
                Ok((Self::Threads(threads), declared))
            }
            HeartbeatListener::Tasks(listener) => {
                let (tasks, declared) = TaskRunner::start(config, listener, context, contact_state, metrics, vital);
                Ok((Self::Tasks(tasks), declared))
            }
        }
    }

    /// While this is on, the replica looks dead to the others.
    pub(crate) fn silence_switch(&self) -> SilenceSwitch {
        match self {
            Self::Threads(threads) => threads.silence_switch(),
            Self::Tasks(tasks) => tasks.silence_switch(),
        }
    }

    /// The addresses with names to resolve, if resolving needs a task of its own.
    pub(crate) fn to_resolve(&self) -> Option<HeartbeatAddresses> {
        match self {
            Self::Threads(threads) => Some(threads.peers()),
            Self::Tasks(_) => None,
        }
    }

    /// Stops it and waits: at most a few heartbeats and a dial in progress.
    pub(crate) async fn shutdown(self) {
        match self {
            Self::Threads(mut threads) => {
                let ended = tokio::task::spawn_blocking(move || threads.shutdown());
                match tokio::time::timeout(THREADS_END_WITHIN, ended).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => tracing::error!("ending the heartbeat threads panicked"),
                    Err(_) => tracing::warn!("heartbeat threads have not ended after {THREADS_END_WITHIN:?}"),
                }
            }
            Self::Tasks(tasks) => tasks.shutdown(),
        }
    }
}
