//! Restores a backup into the directory of a replica that does not run (ADR 42).

use symphony_cluster_state::{Backup, BackupError, NewGroup};
use symphony_consensus::{Beginning, GroupConfig};

use crate::config::ControlPlaneConfig;
use crate::group::checkpoints::Checkpoints;
use crate::group::state_machine::{ClusterStateMachine, SharedState};
use crate::metrics::Metrics;
use crate::plane::group_config;

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The configuration contradicts itself.
    #[error("control plane configuration: {0}")]
    Config(String),
    /// The backup is not one for this cluster, or cannot be read.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The directory is not empty, or the disk fails.
    #[error(transparent)]
    Disk(#[from] symphony_consensus::StartError),
}

/// Makes this replica's directory, which must be empty or missing, that of the founder of a new group of all configured
/// replicas, with the state of the backup. Returns the new group's first log index, above all of the former group.
/// `ids_skipped` and `chance` as in [`NewGroup`].
///
/// # Errors
/// See [`RestoreError`].
pub async fn restore(
    config: &ControlPlaneConfig,
    backup: &Backup,
    ids_skipped: u32,
    chance: u64,
) -> Result<u64, RestoreError> {
    config.validate().map_err(RestoreError::Config)?;
    let replicas = config.replicas.keys().copied().collect();
    let new = NewGroup { replicas, at_unix_ms: (config.wall_clock)(), ids_skipped, chance };
    let (state, index) = backup.begin_anew(&config.cluster, &new)?;
    let voters = config.replicas.iter().map(|(&node, addrs)| (node, addrs.control.clone())).collect();
    let group = GroupConfig { voters, ..group_config(config) };
    let (state_machine, _) = ClusterStateMachine::new(
        SharedState::default(),
        Checkpoints::default(),
        Metrics::default(),
        config.net.level().clone(),
    );
    let beginning = Beginning { state: state.snapshot(), index, term: index };
    symphony_consensus::restore(group, beginning, state_machine).await?;
    Ok(index)
}
