//! Restores a backup into the directory of a replica that does not run (ADR 42).

use symphony_cluster_state::{Backup, BackupError};
use symphony_consensus::{Beginning, GroupConfig};
use symphony_federation_state::{FederationState, Violation};

use crate::state_machine::FederationStateMachine;

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It is another federation's, contradicts itself, or the clock is behind it.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Its state cannot be read, for example because another release wrote it.
    #[error("its state, written by release {release}, cannot be read by this one: {source}")]
    State {
        /// The release that took the backup.
        release: String,
        /// Why its bytes are no state.
        source: symphony_federation_state::RestoreError,
    },
    /// The state with which the new group would begin breaks an invariant.
    #[error("the restored state breaks {0}")]
    Impossible(#[from] Violation),
    /// The directory is not empty, or the disk fails.
    #[error(transparent)]
    Disk(#[from] symphony_consensus::StartError),
}

/// The state in a federation's backup.
///
/// # Errors
/// If it cannot be read or is not the one that the backup says.
pub fn open(backup: &Backup) -> Result<FederationState, RestoreError> {
    let unreadable = |source| RestoreError::State { release: backup.release.clone(), source };
    let state = FederationState::restore(&backup.state).map_err(unreadable)?;
    if state.applied_index() != backup.index {
        return Err(BackupError::Index { said: backup.index, index: state.applied_index() }.into());
    }
    Ok(state)
}

/// Makes this replica's directory, which must be empty or missing, that of the founder of a new group of all configured
/// replicas, with the state of the backup. Returns the new group's first log index, above all of the former group. The
/// time is in milliseconds since 1970; `chance` is any number, drawn at random.
///
/// # Errors
/// See [`RestoreError`].
pub async fn restore(config: GroupConfig, backup: &Backup, at_unix_ms: u64, chance: u64) -> Result<u64, RestoreError> {
    backup.check_cluster(&config.cluster)?;
    let state = open(backup)?;
    let index = backup.number_above(state.largest_number(), at_unix_ms, chance)?;
    let state = state.begin_anew(index, at_unix_ms)?;
    let beginning = Beginning { state: state.snapshot(), index, term: index };
    symphony_consensus::restore(config, beginning, FederationStateMachine::new().0).await?;
    Ok(index)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use symphony_types::NodeId;

    use super::*;
    use crate::scene::Scene;

    fn config(dir: &std::path::Path, name: &str) -> GroupConfig {
        let voters: BTreeMap<_, _> = (1..=3).map(|id| (NodeId::new(id), format!("10.0.0.{id}:7500"))).collect();
        GroupConfig::new(name, NodeId::new(1), voters, dir.to_owned())
    }

    fn backup() -> Backup {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        Backup {
            cluster: "world".into(),
            release: "0.2.0".into(),
            taken_at_unix_ms: 1_700_000_000_000,
            node: NodeId::new(2),
            index: scene.state.applied_index(),
            term: 3,
            state: scene.state.snapshot(),
            confirmed: true,
        }
    }

    #[tokio::test]
    async fn a_backup_is_restored_once_into_an_empty_directory_of_its_federation() {
        let dir = tempfile::tempdir().unwrap();
        let (good, now) = (backup(), 1_700_000_100_000);
        let foreign = restore(config(dir.path(), "moon"), &good, now, 0).await.unwrap_err().to_string();
        assert!(foreign.contains("it is of cluster `world`"), "{foreign}");
        let behind = restore(config(dir.path(), "world"), &good, 1_600_000_000_000, 0).await.unwrap_err();
        assert!(matches!(behind, RestoreError::Backup(BackupError::Clock { .. })), "{behind}");
        let wrong = Backup { index: good.index + 1, ..good.clone() };
        assert!(matches!(open(&wrong), Err(RestoreError::Backup(BackupError::Index { .. }))));
        let of_a_cluster = Backup { state: b"SYCS".to_vec(), ..good.clone() };
        assert!(matches!(open(&of_a_cluster), Err(RestoreError::State { .. })));

        let index = restore(config(dir.path(), "world"), &good, now, 5).await.unwrap();
        assert!(index > now / 1000 * 1_000_000, "{index}");
        let again = restore(config(dir.path(), "world"), &good, now, 5).await.unwrap_err();
        assert!(matches!(again, RestoreError::Disk(symphony_consensus::StartError::NotEmpty { .. })), "{again}");
    }
}
