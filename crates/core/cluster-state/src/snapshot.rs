//! Encoding of the state.

use rkyv::rancor;
use rkyv::util::AlignedVec;
use symphony_types::Level;

use crate::format::{MAGIC, OLDEST, VERSION};
use crate::invariants::{self, Violation};
use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::state::{ClusterState, StateOfVersion9, StateOfVersion10};
use symphony_replicated::envelope::{self, CodecError, Enveloped};
use symphony_replicated::{Fnv1a, InvalidField};

/// The last versions in which the state has no level, and no policies of sub-clusters.
const WITHOUT_LEVEL: u16 = 9;
const WITHOUT_POLICIES: u16 = 10;

/// Why bytes are not a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// They cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// They decode to a state that no sequence of commands produces.
    #[error("the snapshot breaks {0}")]
    Impossible(#[from] Violation),
    /// They contain a model that would have been refused.
    #[error("the snapshot holds a model that no command may load: {0}")]
    Model(#[from] InvalidField),
}

impl Enveloped for ClusterState {
    const MAGIC: &'static str = MAGIC;
    const VERSION: u16 = VERSION;
    const OLDEST: u16 = OLDEST;
    const KIND: u16 = 3;
    const WHAT: &'static str = "snapshot";
    const BYTES_MAX: usize = SNAPSHOT_BYTES_MAX;

    fn body(&self, version: u16) -> Result<AlignedVec, rancor::Error> {
        match version {
            ..=WITHOUT_LEVEL => rkyv::to_bytes::<rancor::Error>(&StateOfVersion9::from(self.clone())),
            WITHOUT_POLICIES => rkyv::to_bytes::<rancor::Error>(&StateOfVersion10::from(self.clone())),
            _ => rkyv::to_bytes::<rancor::Error>(self),
        }
    }

    fn read(version: u16, body: &[u8]) -> Result<Self, rancor::Error> {
        match version {
            ..=WITHOUT_LEVEL => Ok(rkyv::from_bytes::<StateOfVersion9, rancor::Error>(body)?.into()),
            WITHOUT_POLICIES => Ok(rkyv::from_bytes::<StateOfVersion10, rancor::Error>(body)?.into()),
            _ => rkyv::from_bytes::<Self, rancor::Error>(body),
        }
    }
}

impl ClusterState {
    /// Encodes the whole state in the format of its level: equal states give equal bytes (invariant C6), also where
    /// replicas of two releases do it.
    ///
    /// # Panics
    /// If the state exceeded [`SNAPSHOT_BYTES_MAX`], which the limits on its parts rule out.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        envelope::encode_in(self, self.level.formats().state)
            .expect("the limits on its parts keep a state within the bytes of a snapshot")
    }

    /// Decodes what [`snapshot`](Self::snapshot) wrote, here or on another replica.
    ///
    /// # Errors
    /// If the bytes are anything else, or a state that commands cannot produce.
    pub fn restore(bytes: &[u8]) -> Result<Self, RestoreError> {
        Self::restore_to(bytes, Level::NEWEST)
    }

    /// As [`restore`](Self::restore), for a process that knows no level above `newest`.
    ///
    /// # Errors
    /// If the bytes are anything else, or a state that commands cannot produce.
    pub fn restore_to(bytes: &[u8], newest: Level) -> Result<Self, RestoreError> {
        let state: Self = envelope::decode_to(bytes, newest.formats().state)?;
        invariants::check(&state)?;
        state.models.values().try_for_each(|model| model.spec.validate())?;
        Ok(state)
    }

    /// A hash of the whole state, equal on every machine: FNV-1a of the snapshot, 64 bits.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        Fnv1a::default().over(&self.snapshot()).get()
    }
}
