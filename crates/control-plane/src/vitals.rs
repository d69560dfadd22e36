//! Failure detection, on threads or in tasks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use symphony_cluster_state::Command;
use tokio::sync::{mpsc, watch};

use crate::beat::Standing;
use crate::config::ControlPlaneConfig;
use crate::error::StartError;
use crate::liveness::{LivenessThreads, Outlook};
use crate::liveness_tasks::LivenessTasks;
use crate::metrics::Metrics;
use crate::plane::BeatListener;

/// What shows this replica to the leader, and judges the others while it leads.
#[derive(Debug)]
pub(crate) enum Vitals {
    Threads(LivenessThreads),
    Tasks(LivenessTasks),
}

impl Vitals {
    /// Starts it. What is declared arrives on the returned channel.
    pub(crate) fn start(
        config: &ControlPlaneConfig,
        listener: BeatListener,
        outlook: Outlook,
        standing: watch::Sender<Standing>,
        metrics: &Metrics,
    ) -> Result<(Self, mpsc::Receiver<Command>), StartError> {
        match listener {
            BeatListener::Threads(listener) => {
                let (threads, declared) = LivenessThreads::start(config, listener, outlook, standing, metrics)?;
                Ok((Self::Threads(threads), declared))
            }
            BeatListener::Tasks(listener) => {
                let (tasks, declared) = LivenessTasks::start(config, listener, outlook, standing, metrics);
                Ok((Self::Tasks(tasks), declared))
            }
        }
    }

    /// What makes this replica look dead as long as it is set.
    pub(crate) fn mute(&self) -> Arc<AtomicBool> {
        match self {
            Self::Threads(threads) => threads.mute(),
            Self::Tasks(tasks) => tasks.mute(),
        }
    }

    /// Ends it and waits for it: a few beats at most.
    pub(crate) async fn shutdown(self) {
        match self {
            Self::Threads(mut threads) => {
                if tokio::task::spawn_blocking(move || threads.shutdown()).await.is_err() {
                    tracing::error!("ending the beat threads panicked");
                }
            }
            Self::Tasks(tasks) => tasks.shutdown(),
        }
    }
}
