//! What the detector's two runners, on threads and in tasks, have in common: its sources, its limits, and how the
//! failures that it declares are proposed.

use std::sync::Arc;

use symphony_cluster_state::Command;
use symphony_consensus::Leadership;
use symphony_protocol::view::View;
use symphony_types::{BootId, NodeId};
use tokio::sync::{mpsc, watch};

use crate::config::ControlPlaneConfig;
use crate::error::CallError;
use crate::failure_detector::{ContactState, HeartbeatRecords, HeartbeatSources, SilenceSwitch, cluster_hash};
use crate::group::checkpoints::Checkpoints;
use crate::group::propose::{AttemptError, Proposer};
use crate::metrics::Metrics;

/// Events waiting for the detector: two heartbeat intervals of 64 replicas.
pub(crate) const EVENTS_MAX: usize = 128;

/// Declared failures waiting to be proposed: more than there are replicas.
pub(crate) const DECLARATIONS_MAX: usize = 128;

/// How often the port of a replica is probed after its connection was lost.
pub(crate) const PROBE_ATTEMPTS: u32 = 3;

/// What the detector and the heartbeats are made from.
#[derive(Clone, Debug)]
pub(crate) struct DetectorContext {
    pub(crate) records: HeartbeatRecords,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) applied: watch::Receiver<u64>,
}

impl DetectorContext {
    /// The content of this replica's heartbeats.
    pub(crate) fn sources(
        &self,
        config: &ControlPlaneConfig,
        contact_state: watch::Sender<ContactState>,
        silence_switch: SilenceSwitch,
    ) -> HeartbeatSources {
        HeartbeatSources {
            cluster: cluster_hash(&config.cluster),
            me: config.node,
            boot: config.boot,
            leadership: self.leadership.clone(),
            applied: self.applied.clone(),
            checkpoints: self.checkpoints.clone(),
            contact_state,
            silence_switch,
            level: config.net.level().newest(),
        }
    }
}

/// Queues a declared failure for the proposer.
pub(crate) fn queue_declaration(me: NodeId, node: NodeId, boot: BootId, declarations: &mpsc::Sender<Command>) {
    tracing::warn!(%node, %boot, "replica shows no sign of life; proposing that it is down");
    let command = Command::NodeDown { node, boot, avoid: Some(me) };
    if declarations.try_send(command).is_err() {
        tracing::warn!(%node, "too many declarations at a time; this one is repeated later");
    }
}

/// Proposes the declared failures while this replica leads; otherwise another replica watches.
pub(crate) async fn propose_declared(mut declared: mpsc::Receiver<Command>, proposer: Proposer, metrics: Metrics) {
    while let Some(command) = declared.recv().await {
        match proposer.propose_here(&command).await {
            Ok(accepted) => {
                metrics.nodes_declared_down.inc();
                tracing::info!(index = accepted.index, "replica is down");
            }
            Err(AttemptError::Fatal(CallError::Stopped)) => return,
            Err(AttemptError::Fatal(error)) => tracing::info!(%error, "replica is not declared down"),
            Err(AttemptError::Retry(reason)) => {
                tracing::info!(reason, "declaration not proposed; repeated while silence lasts")
            }
        }
    }
}
