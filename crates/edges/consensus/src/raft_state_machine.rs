//! The replicated state as Raft sees it.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{BasicNode, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta};

use crate::environment::Blocking;
use crate::fault::OnDiskError;
use crate::raft_types::{self, LeaderIdOf, LogIdOf, Response, StoredMembershipOf, TypeConfig};
use crate::record::{Members, Position};
use crate::snapshot::image::{self, Image};
use crate::snapshot::snapshot_store::SnapshotStore;
use crate::state_machine::StateMachine;

type Meta = SnapshotMeta<LeaderIdOf, u64, BasicNode>;
pub(crate) type SnapshotOf = Snapshot<LeaderIdOf, u64, BasicNode, Bytes>;

/// The library's description of a snapshot.
pub(crate) fn snapshot_meta(image: &Image) -> Result<Meta, String> {
    let membership = raft_types::membership(image.members.clone())?;
    Ok(SnapshotMeta {
        last_log_id: image.at.map(Into::into),
        last_membership: StoredMembershipOf::new(image.members_at.map(Into::into), membership),
    })
}

fn invalid(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Applies committed entries to the state, in memory; the log and the last snapshot bring it back after a restart.
pub(crate) struct Machine {
    /// There is one user; the lock only makes the value shareable and is never contended.
    state: Mutex<Box<dyn StateMachine>>,
    applied: Option<LogIdOf>,
    membership: StoredMembershipOf,
    snapshots: Arc<SnapshotStore>,
    fault: OnDiskError,
    blocking: Blocking,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl Machine {
    /// Restores the newest intact snapshot, if there is one.
    pub(crate) fn open(
        state: Box<dyn StateMachine>,
        snapshots: Arc<SnapshotStore>,
        fault: OnDiskError,
    ) -> io::Result<Self> {
        let membership = StoredMembershipOf::default();
        let mut machine = Self {
            state: Mutex::new(state),
            applied: None,
            membership,
            snapshots,
            fault,
            blocking: Blocking::default(),
        };
        if let Some((image, _)) = machine.snapshots.newest()? {
            machine.take_over(image)?;
        }
        Ok(machine)
    }

    /// Sets where snapshots are written and read.
    pub(crate) const fn blocking(mut self, blocking: Blocking) -> Self {
        self.blocking = blocking;
        self
    }

    /// The last entry in the state.
    pub(crate) fn applied(&self) -> Option<Position> {
        self.applied.map(Into::into)
    }

    fn state(&mut self) -> &mut dyn StateMachine {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut()
    }

    fn take_over(&mut self, image: Image) -> io::Result<()> {
        let meta = snapshot_meta(&image).map_err(invalid)?;
        self.state().restore(&image.state).map_err(|reason| invalid(format!("state does not restore: {reason}")))?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership;
        Ok(())
    }

    fn report<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.fault.report("snapshots", error);
        }
        result
    }
}

/// A view of the state at one position, to be written while newer entries are applied.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    image: Image,
    snapshots: Arc<SnapshotStore>,
    fault: OnDiskError,
    blocking: Blocking,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotWriter {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf, io::Error> {
        let (image, snapshots) = (self.image.clone(), self.snapshots.clone());
        let meta = snapshot_meta(&image).map_err(invalid)?;
        let written = self.blocking.run(move || {
            let at = image.at;
            let bytes = image::encode(image, snapshots.cluster()).map_err(invalid)?;
            snapshots.put(at, &bytes)?;
            Ok::<_, io::Error>(bytes)
        });
        let written = written.await.flatten();
        if let Err(error) = &written {
            self.fault.report("snapshots", error);
        }
        Ok(Snapshot { meta, snapshot: written? })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotWriter;

    async fn applied_state(&mut self) -> Result<(Option<LogIdOf>, StoredMembershipOf), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        #[cfg(feature = "planted-faults")]
        let entries = crate::planted::order(entries).await;
        let mut entries = entries;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let response = match entry.payload {
                EntryPayload::Blank => Response::default(),
                EntryPayload::Normal(command) => {
                    let index = entry.log_id.index;
                    let response = self.state().apply(index, &command.0);
                    Response(response.map_err(|reason| io::Error::other(format!("log entry {index}: {reason}")))?)
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembershipOf::new(Some(entry.log_id), membership);
                    Response::default()
                }
            };
            self.applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(response);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotWriter {
        let image = Image {
            at: self.applied.map(Into::into),
            members_at: (*self.membership.log_id()).map(Into::into),
            members: Members::from(self.membership.membership()),
            state: self.state().snapshot(),
        };
        SnapshotWriter { image, snapshots: self.snapshots.clone(), fault: self.fault, blocking: self.blocking }
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Bytes) -> Result<(), io::Error> {
        let image = image::decode(&snapshot, self.snapshots.cluster()).map_err(invalid)?;
        if snapshot_meta(&image).map_err(invalid)? != *meta {
            return Err(invalid(format!("snapshot is of {:?}, it was announced as {meta}", image.at)));
        }
        let (at, snapshots) = (image.at, self.snapshots.clone());
        let stored = self.blocking.run(move || snapshots.put(at, &snapshot)).await;
        self.report(stored.flatten())?;
        self.take_over(image)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, io::Error> {
        let snapshots = self.snapshots.clone();
        let newest = self.blocking.run(move || snapshots.newest()).await;
        let newest = self.report(newest.flatten())?;
        match newest {
            Some((image, snapshot)) => Ok(Some(Snapshot { meta: snapshot_meta(&image).map_err(invalid)?, snapshot })),
            None => Ok(None),
        }
    }
}
