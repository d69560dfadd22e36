//! Failure detection, on threads or in tasks.

use std::time::Duration;

use symphony_cluster_state::Command;
use tokio::sync::{mpsc, watch};

use crate::config::ControlPlaneConfig;
use crate::error::StartError;
use crate::failure_detector::in_tasks::LivenessTasks;
use crate::failure_detector::on_threads::{DetectorContext, LivenessThreads};
use crate::failure_detector::{ContactState, HeartbeatAddresses, SilenceSwitch};
use crate::metrics::Metrics;
use crate::plane::HeartbeatListener;
use crate::vital::Vital;

/// How long the heartbeat threads are waited for: a few heartbeats, and a dial that is under way.
const THREADS_END_WITHIN: Duration = Duration::from_millis(500);

/// What shows this replica to the leader, and judges the others while it leads.
#[derive(Debug)]
pub(crate) enum Detection {
    Threads(LivenessThreads),
    Tasks(LivenessTasks),
}

impl Detection {
    /// Starts it. What is declared arrives on the returned channel.
    pub(crate) fn start(
        config: &ControlPlaneConfig,
        listener: HeartbeatListener,
        outlook: DetectorContext,
        standing: watch::Sender<ContactState>,
        metrics: &Metrics,
        vital: &Vital,
    ) -> Result<(Self, mpsc::Receiver<Command>), StartError> {
        match listener {
            HeartbeatListener::Threads(listener) => {
                let (threads, declared) = LivenessThreads::start(config, listener, outlook, standing, metrics, vital)?;
                Ok((Self::Threads(threads), declared))
            }
            HeartbeatListener::Tasks(listener) => {
                let (tasks, declared) = LivenessTasks::start(config, listener, outlook, standing, metrics, vital);
                Ok((Self::Tasks(tasks), declared))
            }
        }
    }

    /// What makes this replica look dead as long as it is set.
    pub(crate) fn silence_switch(&self) -> SilenceSwitch {
        match self {
            Self::Threads(threads) => threads.silence_switch(),
            Self::Tasks(tasks) => tasks.silence_switch(),
        }
    }

    /// The addresses whose names have to be resolved, if it cannot wait for that itself.
    pub(crate) fn to_resolve(&self) -> Option<HeartbeatAddresses> {
        match self {
            Self::Threads(threads) => Some(threads.peers()),
            Self::Tasks(_) => None,
        }
    }

    /// Ends it and waits for it: a few heartbeats and a dial that is under way, and no longer.
    pub(crate) async fn shutdown(self) {
        match self {
            Self::Threads(mut threads) => {
                let ended = tokio::task::spawn_blocking(move || threads.shutdown());
                match tokio::time::timeout(THREADS_END_WITHIN, ended).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => tracing::error!("ending the beat threads panicked"),
                    Err(_) => tracing::warn!("beat threads have not ended after {THREADS_END_WITHIN:?}"),
                }
            }
            Self::Tasks(tasks) => tasks.shutdown(),
        }
    }
}
