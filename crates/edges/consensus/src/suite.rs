//! The Raft library's own storage suite, run against every engine.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::fault::OnDiskError;
use crate::log::engine::LogEngine;
use crate::log::frame::Stamp;
use crate::log::memory::MemoryEngine;
use crate::log::redb::RedbEngine;
use crate::log::sled::SledEngine;
use crate::log::store::LogStore;
use crate::raft_state_machine::Machine;
use crate::raft_types::TypeConfig;
use crate::snapshot::snapshot_store::SnapshotStore;
use crate::state_machine::StateMachine;

/// Remembers the commands that it applied.
struct Notes(Vec<u8>);

impl StateMachine for Notes {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Vec<u8>, String> {
        self.0.extend_from_slice(command);
        Ok(index.to_le_bytes().to_vec())
    }
    fn snapshot(&self) -> Vec<u8> {
        self.0.clone()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0 = bytes.to_vec();
        Ok(())
    }
}

struct Builder(fn(&TempDir) -> Arc<dyn LogEngine>);

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = TempDir::new().expect("temporary directory");
        let stamp = Stamp { cluster: "suite".into(), node: 0 };
        let store = LogStore::open((self.0)(&dir), None, &stamp, OnDiskError::Stop).expect("log store opens");
        let snapshots = SnapshotStore::open(dir.path().join("snapshots"), "suite".into()).expect("store opens");
        let machine = Machine::open(Box::new(Notes(Vec::new())), Arc::new(snapshots), OnDiskError::Stop);
        Ok((dir, store, machine.expect("machine opens")))
    }
}

fn run(engine: fn(&TempDir) -> Arc<dyn LogEngine>) {
    // The suite sleeps eight seconds for stores that purge in the background; this one has purged when it says so.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("runtime");
    runtime.block_on(Suite::test_all(Builder(engine))).expect("the suite passes");
}

#[test]
fn memory_engine_passes_the_suite() {
    run(|_| Arc::new(MemoryEngine::default()));
}

#[test]
fn sled_engine_passes_the_suite() {
    run(|dir| Arc::new(SledEngine::open(&dir.path().join("log")).expect("sled opens")));
}

#[test]
fn redb_engine_passes_the_suite() {
    run(|dir| Arc::new(RedbEngine::open(&dir.path().join("log")).expect("redb opens")));
}
