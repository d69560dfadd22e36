//! The storage of one replica without Raft above it, for the crash suite: the same log store, writer, engines and
//! snapshots as in a running group, opened the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::RaftSnapshotBuilder;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftStateMachine};
use symphony_types::NodeId;

use crate::config::{Engine, GroupConfig};
use crate::disk::{self, Parts};
use crate::error::StartError;
use crate::fault::OnDiskError;
use crate::limits::BALLAST_BYTES;
use crate::log::engine::LogEngine;
use crate::log::faulty::FaultyEngine;
use crate::log::sled::SledEngine;
use crate::log::store::LogStore;
use crate::log::writer::Done;
use crate::raft_state_machine::Machine;
use crate::raft_types;
use crate::record::{Ballot, Body, Position, Record};
use crate::snapshot::snapshot_store::SnapshotStore;
use crate::state_machine::StateMachine;

pub use crate::plant::Plant;

/// The place of an entry: the term of its leader, which is always node 1 here, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The term in which its leader was elected.
    pub term: u64,
    /// Its place in the log.
    pub index: u64,
}

/// What a replica has voted last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The term of the election.
    pub term: u64,
    /// The node voted for.
    pub node: u64,
    /// Whether a quorum granted it.
    pub committed: bool,
}

/// The contents of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The last vote.
    pub vote: Option<Vote>,
    /// Everything up to here was purged.
    pub purged: Option<LogPosition>,
    /// The last entry, or the purged place.
    pub last: Option<LogPosition>,
    /// What the newest snapshot covers.
    pub snapshot: Option<LogPosition>,
}

const LEADER: u64 = 1;

impl From<LogPosition> for Position {
    fn from(place: LogPosition) -> Self {
        Self { term: place.term, node: LEADER, index: place.index }
    }
}

impl From<Position> for LogPosition {
    fn from(at: Position) -> Self {
        Self { term: at.term, index: at.index }
    }
}

/// How a directory is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// What to do when the disk fails.
    pub on_disk_error: OnDiskError,
    /// The bug to plant.
    pub plant: Option<Plant>,
    /// Whether disk space is reserved for a full disk; that takes time, and most crashes do not need it.
    pub with_ballast: bool,
}

/// The log, the votes and the snapshots of one replica.
pub struct Storage {
    log: LogStore,
    machine: Machine,
    plant: Option<Plant>,
    late_ack: Arc<Mutex<LateAck>>,
}

/// An acknowledgement that a planted bug withholds until after the next one.
#[derive(Default)]
struct LateAck {
    under_way: usize,
    held: Option<(Done, io::Result<()>)>,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("log", &self.log).field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Storage {
    /// Opens a directory as a starting replica would. Blocks on the disk; starts the writer thread.
    ///
    /// # Errors
    /// As [`ControlGroup::start`](crate::ControlGroup::start).
    pub fn open(dir: &Path, opening: Opening, state: impl StateMachine) -> Result<Self, StartError> {
        let mut config = GroupConfig::new("crash", NodeId::new(LEADER), BTreeMap::new(), dir.to_owned());
        config.engine = opening.engine;
        config.on_disk_error = opening.on_disk_error;
        let engine = |dir: &Path| -> io::Result<Arc<dyn LogEngine>> {
            match opening.plant {
                None => disk::open_engine(opening.engine, dir),
                Some(Plant::SledFlushOnly) if opening.engine == Engine::Sled => {
                    Ok(Arc::new(SledEngine::open(dir)?.without_own_sync()))
                }
                Some(plant) => Ok(Arc::new(FaultyEngine::new(disk::open_engine(opening.engine, dir)?, plant))),
            }
        };
        let snapshots = |dir| {
            let snapshots = SnapshotStore::open(dir, config.cluster.clone())?;
            Ok(if opening.plant == Some(Plant::SnapshotNameUnsynced) {
                snapshots.without_synced_names()
            } else {
                snapshots
            })
        };
        let ballast_bytes = if opening.with_ballast { BALLAST_BYTES } else { 0 };
        let parts = Parts { ballast_bytes, engine: &engine, snapshots: &snapshots };
        let (log, machine) = disk::open_with(&config, Box::new(state), &parts)?;
        Ok(Self { log, machine, plant: opening.plant, late_ack: Arc::default() })
    }

    /// The present contents.
    #[must_use]
    pub fn known(&self) -> Known {
        let known = self.log.known();
        let vote = known.vote.map(|b| Vote { term: b.term, node: b.node, committed: b.committed });
        let snapshot = self.machine.applied().map(Into::into);
        Known { vote, purged: known.purged.map(Into::into), last: known.last.map(Into::into), snapshot }
    }

    /// Entries `first..next` that exist: some, in order.
    ///
    /// # Errors
    /// The disk fails, or holds something else than entries.
    pub async fn read(&mut self, first: u64, next: u64) -> io::Result<Vec<(LogPosition, Bytes)>> {
        let entries = self.log.limited_get_log_entries(first, next).await?;
        let command = |entry: raft_types::EntryOf| match entry.payload {
            EntryPayload::Normal(command) => Ok((Position::from(entry.log_id).into(), command.0)),
            other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("entry {} is {other}", entry.log_id))),
        };
        entries.into_iter().map(command).collect()
    }

    /// Appends commands from `first` on; `done` is called on the writer's thread once they are durable.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn append(
        &self,
        first: LogPosition,
        commands: Vec<Vec<u8>>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<()> {
        let records = (first.index..).zip(commands).map(|(index, command)| Record {
            at: LogPosition { index, ..first }.into(),
            body: Body::Command(command.into()),
        });
        let done: Done =
            if self.plant == Some(Plant::ReorderedAcks) { self.one_ack_late(Box::new(done)) } else { Box::new(done) };
        self.log.push(records.collect(), done).await
    }

    /// A planted bug: an acknowledgement comes after the next one, if there is one.
    fn one_ack_late(&self, done: Done) -> Done {
        let late = self.late_ack.clone();
        late.lock().unwrap_or_else(PoisonError::into_inner).under_way += 1;
        Box::new(move |result| {
            let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
            late.under_way -= 1;
            match late.held.take() {
                None if late.under_way > 0 => late.held = Some((done, result)),
                None => done(result),
                Some((before, before_result)) => {
                    done(result);
                    before(before_result);
                }
            }
        })
    }

    /// Votes; durable when this returns.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn vote(&mut self, vote: Vote) -> io::Result<()> {
        let ballot = Ballot { term: vote.term, node: vote.node, committed: vote.committed };
        self.log.save_vote(&ballot.into()).await
    }

    /// Removes everything after `last`.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn truncate_after(&mut self, last: Option<LogPosition>) -> io::Result<()> {
        self.log.truncate_after(last.map(|place| Position::from(place).into())).await
    }

    /// Removes everything up to `through`, which a snapshot covers.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn purge(&mut self, through: LogPosition) -> io::Result<()> {
        self.log.purge(Position::from(through).into()).await
    }

    /// Notes how far the log is committed: a hint.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn committed(&mut self, at: LogPosition) -> io::Result<()> {
        self.log.save_committed(Some(Position::from(at).into())).await
    }

    /// Applies commands to the state.
    ///
    /// # Errors
    /// The state machine has failed.
    pub async fn apply(&mut self, commands: Vec<(LogPosition, Bytes)>) -> io::Result<()> {
        let entries = commands.into_iter().map(|(place, command)| {
            let entry = raft_types::entry(Record { at: place.into(), body: Body::Command(command) });
            entry.map(|entry| (entry, None)).map_err(io::Error::other)
        });
        self.machine.apply(futures::stream::iter(entries.collect::<Vec<_>>())).await
    }

    /// Compacts the state into a snapshot; durable on return.
    ///
    /// # Errors
    /// The disk has failed.
    pub async fn snapshot(&mut self) -> io::Result<()> {
        self.machine.get_snapshot_builder().await.build_snapshot().await.map(|_| ())
    }

    /// Writes what is queued and releases the files.
    pub async fn close(self) {
        self.log.close().await;
    }
}
