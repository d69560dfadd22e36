//! Failure detection, on threads or in tasks.

use std::time::Duration;

use symphony_cluster_state::Command;
use tokio::sync::{mpsc, watch};

use crate::beat::{BeatAddresses, Mute, Standing};
use crate::config::ControlPlaneConfig;
use crate::error::StartError;
use crate::liveness::{LivenessThreads, Outlook};
use crate::liveness_tasks::LivenessTasks;
use crate::metrics::Metrics;
use crate::plane::BeatListener;
use crate::vital::Vital;

/// How long the beat threads are waited for: a few beats, and a dial that is under way.
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
        listener: BeatListener,
        outlook: Outlook,
        standing: watch::Sender<Standing>,
        metrics: &Metrics,
        vital: &Vital,
    ) -> Result<(Self, mpsc::Receiver<Command>), StartError> {
        match listener {
            BeatListener::Threads(listener) => {
                let (threads, declared) = LivenessThreads::start(config, listener, outlook, standing, metrics, vital)?;
                Ok((Self::Threads(threads), declared))
            }
            BeatListener::Tasks(listener) => {
                let (tasks, declared) = LivenessTasks::start(config, listener, outlook, standing, metrics, vital);
                Ok((Self::Tasks(tasks), declared))
            }
        }
    }

    /// What makes this replica look dead as long as it is set.
    pub(crate) fn mute(&self) -> Mute {
        match self {
            Self::Threads(threads) => threads.mute(),
            Self::Tasks(tasks) => tasks.mute(),
        }
    }

    /// The addresses whose names have to be resolved, if it cannot wait for that itself.
    pub(crate) fn to_resolve(&self) -> Option<BeatAddresses> {
        match self {
            Self::Threads(threads) => Some(threads.peers()),
            Self::Tasks(_) => None,
        }
    }

    /// Ends it and waits for it: a few beats and a dial that is under way, and no longer.
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
