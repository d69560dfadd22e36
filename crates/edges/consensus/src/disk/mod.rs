//! A replica's directory, and the checks before the replica starts.
//!
//! ```text
//! data_dir/engine     which engine's log this is        data_dir/log/        the engine's files
//! data_dir/witness    how far the log had got           data_dir/snapshots/  the newest two
//! data_dir/ballast    room to open the log on a full disk   data_dir/forgotten   never to be used again
//! data_dir/restoring  while a backup is restored into it    data_dir/restored  where the restored log begins
//! ```

mod ballast;
mod engine_stamp;
pub(crate) mod forgotten;
pub(crate) mod restore_mark;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Engine, GroupConfig};
use crate::environment::Environment;
use crate::error::StartError;
use crate::limits::BALLAST_BYTES;
use crate::log::engine::{LogEngine, Slot};
use crate::log::frame::Stamp;
use crate::log::memory::MemoryEngine;
use crate::log::recovery::RecoveryError;
use crate::log::redb::RedbEngine;
use crate::log::sled::SledEngine;
use crate::log::store::LogStore;
use crate::log::witness::Witness;
use crate::raft_state_machine::Machine;
use crate::snapshot::snapshot_store::SnapshotStore;
use crate::state_machine::StateMachine;

const LOG_DIR: &str = "log";
pub(crate) const SNAPSHOT_DIR: &str = "snapshots";

/// The parts of an opened directory.
pub(crate) struct Parts<'a> {
    pub(crate) ballast_bytes: usize,
    pub(crate) engine: &'a dyn Fn(&Path) -> io::Result<Arc<dyn LogEngine>>,
    pub(crate) snapshots: &'a dyn Fn(PathBuf) -> io::Result<SnapshotStore>,
}

/// Opens everything on disk, and restores `state` from the newest snapshot.
pub(crate) fn open(config: &GroupConfig, state: Box<dyn StateMachine>) -> Result<(LogStore, Machine), StartError> {
    restore_mark::check(&config.data_dir)?;
    open_unchecked(config, state)
}

/// The same, also while a backup is being restored.
pub(crate) fn open_unchecked(
    config: &GroupConfig,
    state: Box<dyn StateMachine>,
) -> Result<(LogStore, Machine), StartError> {
    let parts = Parts {
        ballast_bytes: BALLAST_BYTES,
        engine: &|dir| open_engine(config.engine, dir),
        snapshots: &|dir| SnapshotStore::open(dir, config.cluster.clone()),
    };
    open_with(config, state, &parts)
}

/// Makes a directory for a restore: it must be empty or missing. It is marked until
/// [`finish`](restore_mark::finish).
pub(crate) fn create_empty(dir: &Path) -> Result<(), StartError> {
    let place = dir.display().to_string();
    let made = create_private_dir(dir).and_then(|()| Ok(fs::read_dir(dir)?.next().transpose()?.is_none()));
    match made {
        Ok(true) => restore_mark::mark(dir).map_err(|source| StartError::Storage { place, source }),
        Ok(false) => Err(StartError::NotEmpty { place }),
        Err(source) => Err(StartError::Storage { place, source }),
    }
}

/// Opens everything on disk, with parts chosen by the caller.
pub(crate) fn open_with(
    config: &GroupConfig,
    state: Box<dyn StateMachine>,
    parts: &Parts<'_>,
) -> Result<(LogStore, Machine), StartError> {
    let dir = &config.data_dir;
    let place = dir.display().to_string();
    let storage = |source| StartError::Storage { place: place.clone(), source };
    create_private_dir(dir).map_err(storage)?;
    forgotten::check(dir)?;
    let stamp = Stamp { cluster: config.cluster.clone(), node: config.node.get() };
    let open_on_machine = || {
        let engine = (parts.engine)(&dir.join(LOG_DIR))?;
        let witness = match config.engine {
            Engine::Memory => None,
            Engine::Sled | Engine::Redb => Some(Witness::open(dir, engine.slot(Slot::Step)?.is_some())?),
        };
        LogStore::open(engine, witness, &stamp, config.on_disk_error)
    };
    let opened = match &config.environment {
        Environment::Machine => {
            engine_stamp::check(dir, &dir.join(LOG_DIR), config.engine)?;
            ballast::with_ballast(dir, parts.ballast_bytes, open_on_machine)
        }
        Environment::Simulation { disk, .. } => LogStore::open_simulated(disk, &stamp, config.on_disk_error),
    };
    let log = opened.map_err(|error| match error {
        RecoveryError::Io(source) => storage(source),
        RecoveryError::Foreign { found_cluster, found_node, .. } => {
            StartError::ForeignDisk { place: place.clone(), found_node, found_cluster }
        }
        RecoveryError::Damaged { place: what, reason } => StartError::Damaged { place: place.clone(), what, reason },
    })?;
    let snapshots = (parts.snapshots)(dir.join(SNAPSHOT_DIR)).map_err(storage)?;
    let machine = Machine::open(state, Arc::new(snapshots), config.on_disk_error).map_err(storage)?;
    // The log must reach back to the state, or entries between them are lost.
    let purged = log.known().purged.map(|at| at.index);
    let applied = machine.applied().map(|at| at.index);
    if purged > applied {
        return Err(StartError::Damaged {
            place,
            what: "the snapshots".to_owned(),
            reason: format!("the newest sound one reaches entry {applied:?}, the log starts after {purged:?}"),
        });
    }
    Ok((log, machine))
}

/// The engine of that name over a directory.
pub(crate) fn open_engine(engine: Engine, dir: &Path) -> io::Result<Arc<dyn LogEngine>> {
    Ok(match engine {
        Engine::Sled => Arc::new(SledEngine::open(dir)?),
        Engine::Redb => Arc::new(RedbEngine::open(dir)?),
        Engine::Memory => Arc::new(MemoryEngine::default()),
    })
}

/// The log names every model and node of the cluster: only this user may read it.
fn create_private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
