//! Makes the directory of the replica from which a group begins anew, with a state from a backup (ADR 42).
//!
//! The directory is that of a former leader of `term` that has compacted its whole log into a snapshot at `index`. The
//! caller chooses both above everything that the former group can have reached, so the usual rules of Raft hold for the
//! new one: empty replicas vote for it and get its snapshot, and whatever is left of the former group has the shorter
//! log and the older vote. It has to be elected before its log grows: until then it is
//! [as new](crate::founding::PeerState) as an empty disk.

use std::io;

use openraft::storage::RaftLogStorage as _;

use crate::config::GroupConfig;
use crate::disk::{self, restore_mark};
use crate::error::StartError;
use crate::fault::OnDiskError;
use crate::log::store::LogStore;
use crate::record::{Ballot, Members, Position};
use crate::snapshot::image::{self, Image};
use crate::snapshot::snapshot_store::SnapshotStore;
use crate::state_machine::StateMachine;

/// What a group begins with instead of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The state, as [`StateMachine::snapshot`] wrote it.
    pub state: Vec<u8>,
    /// The log index that the state counts as; the log continues behind it.
    pub index: u64,
    /// The term of that entry; elections continue behind it.
    pub term: u64,
}

/// Writes the group's beginning into the configured directory, which must be empty or missing. The configured voters
/// are the group's first members; the others start over empty directories and get the state from this one. Of all
/// replicas one is restored: two beginnings would be two groups.
///
/// `state` only shows that the bytes can be restored.
///
/// # Errors
/// A configuration that contradicts itself or does not name this replica as a voter; a directory that is not empty; a
/// state that does not restore; a disk that fails or is full. What was written until then is refused at a start.
pub async fn restore(
    mut config: GroupConfig,
    beginning: Beginning,
    state: impl StateMachine,
) -> Result<(), StartError> {
    config.validate().map_err(StartError::Config)?;
    if !config.voters.contains_key(&config.node) {
        return Err(StartError::Config(format!("{} is not among the voters", config.node)));
    }
    // This process serves nothing: it reports the failure.
    config.on_disk_error = OnDiskError::Stop;
    let at = Position { term: beginning.term, node: config.node.get(), index: beginning.index };
    let (blocking, opening) = (config.environment.blocking(), config.clone());
    let begun = blocking.run(move || begin(&opening, at, beginning.state, Box::new(state))).await;
    let mut log = begun.map_err(|error| StartError::Raft(error.to_string()))??;
    let written = write_log(&mut log, at).await;
    log.close().await;
    let place = config.data_dir.display().to_string();
    let finished = match written {
        Ok(()) => blocking.run(move || restore_mark::finish(&config.data_dir, at.index)).await.flatten(),
        Err(error) => Err(error),
    };
    finished.map_err(|source| StartError::Storage { place, source })
}

/// The snapshot, and an empty log beside it.
fn begin(
    config: &GroupConfig,
    at: Position,
    state: Vec<u8>,
    machine: Box<dyn StateMachine>,
) -> Result<LogStore, StartError> {
    let storage = |source| StartError::Storage { place: config.data_dir.display().to_string(), source };
    disk::create_empty(&config.data_dir)?;
    let members = Members {
        configs: vec![config.voters.keys().map(|node| node.get()).collect()],
        addresses: config.voters.iter().map(|(node, address)| (node.get(), address.clone())).collect(),
    };
    let image = Image { at: Some(at), members_at: Some(at), members, state };
    let bytes = image::encode(image, &config.cluster).map_err(|error| StartError::Config(error.to_string()))?;
    let snapshots =
        SnapshotStore::open(config.data_dir.join(disk::SNAPSHOT_DIR), config.cluster.clone()).map_err(storage)?;
    snapshots.put(Some(at), &bytes).map_err(storage)?;
    Ok(disk::open_unchecked(config, machine)?.0)
}

/// The vote for itself in that term, and the mark that everything up to the snapshot was purged.
async fn write_log(log: &mut LogStore, at: Position) -> io::Result<()> {
    // The mark first: the vote waits for the barrier that covers both.
    log.purge(at.into()).await?;
    let vote = Ballot { term: at.term, node: at.node, committed: false };
    log.save_vote(&vote.into()).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use symphony_types::NodeId;

    use super::*;
    use crate::config::Engine;

    struct Kept(Vec<u8>);

    impl StateMachine for Kept {
        fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Vec<u8>, String> {
            Ok(Vec::new())
        }
        fn snapshot(&self) -> Vec<u8> {
            self.0.clone()
        }
        fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
            if bytes == b"rubbish" {
                return Err("it is rubbish".into());
            }
            self.0 = bytes.to_vec();
            Ok(())
        }
    }

    fn config(dir: &Path, engine: Engine) -> GroupConfig {
        let voters: BTreeMap<_, _> = (1..=3).map(|id| (NodeId::new(id), format!("10.0.0.{id}:7000"))).collect();
        GroupConfig { engine, ..GroupConfig::new("blue", NodeId::new(1), voters, dir.to_owned()) }
    }

    fn beginning(state: &[u8]) -> Beginning {
        Beginning { state: state.to_vec(), index: 1 << 50, term: 1 << 49 }
    }

    #[tokio::test]
    async fn the_directory_has_the_state_the_vote_and_no_entries() {
        for engine in [Engine::Sled, Engine::Redb] {
            let dir = tempfile::tempdir().unwrap();
            let config = config(dir.path(), engine);
            restore(config.clone(), beginning(b"state"), Kept(Vec::new())).await.unwrap();
            let (log, machine) = disk::open(&config, Box::new(Kept(Vec::new()))).unwrap();
            let at = Position { term: 1 << 49, node: 1, index: 1 << 50 };
            let known = log.known();
            assert_eq!(known.vote, Some(Ballot { term: at.term, node: 1, committed: false }), "{engine:?}");
            assert_eq!((known.purged, known.last, machine.applied()), (Some(at), Some(at), Some(at)), "{engine:?}");
            assert_eq!(restore_mark::log_begins_at(&config.data_dir).unwrap(), at.index);
            log.close().await;
        }
    }

    #[tokio::test]
    async fn what_is_there_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("disk-id"), "7\n").unwrap();
        let config = config(dir.path(), Engine::Redb);
        let refused = restore(config, beginning(b"state"), Kept(Vec::new())).await.unwrap_err();
        assert!(matches!(refused, StartError::NotEmpty { .. }), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was written beside it");
    }

    #[tokio::test]
    async fn a_restore_that_did_not_end_is_not_started_from_and_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), Engine::Redb);
        let failed = restore(config.clone(), beginning(b"rubbish"), Kept(Vec::new())).await.unwrap_err().to_string();
        assert!(failed.contains("it is rubbish"), "{failed}");
        let opened = disk::open(&config, Box::new(Kept(Vec::new())));
        assert!(matches!(opened, Err(StartError::RestoreUnfinished { .. })));
        let again = restore(config, beginning(b"state"), Kept(Vec::new())).await.unwrap_err();
        assert!(matches!(again, StartError::NotEmpty { .. }), "{again}");
    }

    #[tokio::test]
    async fn a_replica_that_is_no_member_begins_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config = GroupConfig { node: NodeId::new(9), ..config(dir.path(), Engine::Redb) };
        let refused = restore(config, beginning(b"state"), Kept(Vec::new())).await.unwrap_err().to_string();
        assert!(refused.contains("not among the voters"), "{refused}");
    }
}
