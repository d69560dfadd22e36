//! A backup of the state, and the state with which a restored cluster begins (ADR 42).

use std::collections::BTreeSet;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_types::{Epoch, NodeId, Token};

use crate::effect::MoveTrigger;
use crate::invariants::{self, Violation};
use crate::limits::{BACKUP_BYTES_MAX, EVENTS_MAX};
use crate::snapshot::RestoreError;
use crate::state::{ClusterState, Event};

/// Incremented whenever the format of a backup changes; the state in it has a version of its own.
const VERSION: u16 = 1;

/// Log entries, elections and epochs per second since 1970: a hundred times what a disk takes. So a number made from
/// the time of a restore is above all numbers of groups that were founded or restored before it, also of one that was
/// restored from the same backup. The bits below a second are drawn at random, so two restores differ, also within one
/// second: equal numbers pass for the same log. Until 2242 such numbers are exact in JSON and Prometheus (2^53).
const NUMBERS_PER_SECOND: u64 = 1 << 20;

/// Numbers from here on are not exact everywhere.
const NUMBERS_END: u64 = 1 << 53;

/// Ids of each kind that a restore leaves out: at least as many as a cluster may have given since the backup.
pub const IDS_SKIPPED_MIN: u32 = 1 << 20;

/// In addition at most this many, drawn at random: then a second restore from one backup does not give an id again that
/// the first one gave, to a model that a backend still holds. There are enough ids for 31 restores at least.
pub const IDS_SKIPPED_MAX: u32 = 1 << 27;

/// A backup: the state, and where it is from. The backup of a federation's top group has the same form, with its own
/// state.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The name of the cluster, or of the federation.
    pub cluster: String,
    /// The release that took it.
    pub release: String,
    /// Milliseconds since 1970 by the clock of the replica that took it.
    pub taken_at_unix_ms: u64,
    /// The replica that took it.
    pub node: NodeId,
    /// Log index of the last command in the state.
    pub index: u64,
    /// The Raft term in which it was taken.
    pub term: u64,
    /// The state's snapshot.
    pub state: Vec<u8>,
    /// Whether a quorum confirmed that nothing newer was agreed on.
    pub confirmed: bool,
}

impl Enveloped for Backup {
    const MAGIC: &'static str = "SYBK";
    const VERSION: u16 = VERSION;
    const KIND: u16 = 1;
    const WHAT: &'static str = "backup";
    const BYTES_MAX: usize = BACKUP_BYTES_MAX;
}

/// Why a backup is not restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// Its state cannot be read, for example because another release wrote it.
    #[error("its state, written by release {release}, cannot be read by this one: {source}")]
    State {
        /// The release that took the backup.
        release: String,
        /// The state's error.
        source: RestoreError,
    },
    /// It contradicts itself.
    #[error("it says that its state is of log index {said}, the state says {index}")]
    Index {
        /// By the backup.
        said: u64,
        /// By the state.
        index: u64,
    },
    /// It is another cluster's.
    #[error("it is of cluster `{found}`, and cluster.name is `{expected}`")]
    Foreign {
        /// Its cluster.
        found: String,
        /// The configured one.
        expected: String,
    },
    /// A replica of the new group was removed from the old one.
    #[error(
        "{node} was removed from the cluster, and ids are never given again: give this replica another one in cluster.scheduler"
    )]
    Removed {
        /// The replica.
        node: NodeId,
    },
    /// The machine's clock makes no number above those of the backup.
    #[error(
        "this machine's clock says {now_unix_ms} ms since 1970; expected at least {needed_unix_ms}, when the backup was taken or when the \
         numbers in it end (an earlier restore may have been made by a clock that was ahead), and a year before 2242: set the clock; numbers \
         that fence the former leaders are made from it"
    )]
    Clock {
        /// The machine's clock.
        now_unix_ms: u64,
        /// The earliest time that makes numbers above all of the backup.
        needed_unix_ms: u64,
    },
    /// The cluster was restored too often.
    #[error("no ids are left for another restore; found a new cluster, and load the models there")]
    NoIdsLeft,
    /// The state with which the new group would begin breaks an invariant.
    #[error("the restored state breaks {0}")]
    Impossible(#[from] Violation),
}

/// What a restore decides for the new group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Its first replicas.
    pub replicas: BTreeSet<NodeId>,
    /// The time of the restore, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Ids that are left out, [`IDS_SKIPPED_MIN`] to [`IDS_SKIPPED_MAX`].
    pub ids_skipped: u32,
    /// Any number, drawn at random. The low bits of the new group's number are of it.
    pub chance: u64,
}

impl Backup {
    /// As the bytes of a file.
    ///
    /// # Errors
    /// If it is larger than [`BACKUP_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        envelope::encode(self)
    }

    /// Reads what [`encode`](Self::encode) wrote; the checksum is right then. The state in it is not decoded.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        envelope::decode(bytes)
    }

    /// The state in it.
    ///
    /// # Errors
    /// If it cannot be read or is not the one that the backup says.
    pub fn open(&self) -> Result<ClusterState, BackupError> {
        let unreadable = |source| BackupError::State { release: self.release.clone(), source };
        let state = ClusterState::restore(&self.state).map_err(unreadable)?;
        if state.applied_index() != self.index {
            return Err(BackupError::Index { said: self.index, index: state.applied_index() });
        }
        Ok(state)
    }

    /// Whether it is of the cluster, or federation, of this name.
    ///
    /// # Errors
    /// If it is another one's.
    pub fn check_cluster(&self, name: &str) -> Result<(), BackupError> {
        if self.cluster == name {
            return Ok(());
        }
        Err(BackupError::Foreign { found: self.cluster.clone(), expected: name.to_owned() })
    }

    /// The log index and the term of a group that is founded from a backup at this time, in milliseconds since 1970,
    /// with this state: above all numbers that the former group can have given; `largest` is the largest in the state.
    /// `chance` is any number, drawn at random.
    ///
    /// # Errors
    /// [`BackupError::Clock`].
    pub fn number_above(&self, largest: u64, at_unix_ms: u64, chance: u64) -> Result<u64, BackupError> {
        let second = (at_unix_ms / 1000).saturating_add(1).saturating_mul(NUMBERS_PER_SECOND);
        let number = second.saturating_add(chance % NUMBERS_PER_SECOND);
        let largest = self.term.max(largest);
        let needed_unix_ms = self.taken_at_unix_ms.max(largest / NUMBERS_PER_SECOND * 1000);
        if at_unix_ms < needed_unix_ms || number >= NUMBERS_END {
            return Err(BackupError::Clock { now_unix_ms: at_unix_ms, needed_unix_ms });
        }
        Ok(number)
    }

    /// The state with which a new group of the same cluster begins, and the number that is its log index and its term.
    /// All numbers are above those that the former group can have given, and everything that depends on a process
    /// waits for its word: replicas and backends register again, and backends report their models.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn begin_anew(&self, cluster: &str, new: &NewGroup) -> Result<(ClusterState, u64), BackupError> {
        self.check_cluster(cluster)?;
        let mut state = self.open()?;
        if let Some(&node) = new.replicas.intersection(&state.removed_nodes).next() {
            return Err(BackupError::Removed { node });
        }
        let largest = state.applied_index.max(state.epoch.get());
        let number = self.number_above(largest, new.at_unix_ms, new.chance)?;
        state.skip_ids(new.ids_skipped).ok_or(BackupError::NoIdsLeft)?;
        state.forget_processes(number, &new.replicas);
        let what = format!("restored from a backup of log index {}; what was agreed on after it is lost", self.index);
        state.events.push(Event { index: number, at_unix_ms: new.at_unix_ms, what });
        let surplus = state.events.len().saturating_sub(EVENTS_MAX);
        state.events.drain(..surplus);
        invariants::check(&state)?;
        Ok((state, number))
    }
}

impl ClusterState {
    /// Raises the last id of each kind; none if that overflows.
    fn skip_ids(&mut self, count: u32) -> Option<()> {
        let last = &mut self.last;
        for id in [&mut last.subcluster, &mut last.backend, &mut last.gpu, &mut last.frontend, &mut last.model] {
            *id = id.checked_add(count)?;
        }
        Some(())
    }

    /// Makes this the state of a new group at `index`, as if all processes had just been declared down.
    fn forget_processes(&mut self, index: u64, replicas: &BTreeSet<NodeId>) {
        (self.applied_index, self.epoch) = (index, Epoch::new(index));
        self.policies_known.clear();
        // A known replica over an empty disk would be refused.
        let former = std::mem::take(&mut self.nodes);
        self.removed_nodes.extend(former.into_keys().filter(|node| !replicas.contains(node)));
        for subcluster in self.subclusters.values_mut() {
            (subcluster.leader, subcluster.successor, subcluster.token) = (None, None, Token::new(index));
            subcluster.standbys.clear();
        }
        // A running backend sees that it counts as down, registers again, and is bound under a new token.
        for backend in self.backends.values_mut() {
            backend.down_since.get_or_insert(index);
        }
        // Which models it has loaded may have changed since the backup.
        for model in self.models.values_mut() {
            model.holders.clear();
        }
        // Waiting moves may be given up for lack of backends; each command expects that none could go on.
        self.advance_all(index, MoveTrigger::Room, &mut Vec::new());
    }
}
