//! Encoding of the state.

use symphony_replicated::Fnv1a;
use symphony_replicated::envelope::{self, CodecError, Enveloped};

use crate::format::{MAGIC, VERSION};
use crate::invariants::{self, Violation};
use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::state::FederationState;

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
    Model(#[from] symphony_replicated::InvalidField),
}

impl Enveloped for FederationState {
    const MAGIC: &'static str = MAGIC;
    const VERSION: u16 = VERSION;
    const KIND: u16 = 3;
    const WHAT: &'static str = "federation snapshot";
    const BYTES_MAX: usize = SNAPSHOT_BYTES_MAX;
}

impl FederationState {
    /// Encodes the whole state: equal states give equal bytes (invariant C6).
    ///
    /// # Panics
    /// If the state exceeded [`SNAPSHOT_BYTES_MAX`], which the limits on its parts rule out.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        envelope::encode(self).expect("the limits on its parts keep a state within the bytes of a snapshot")
    }

    /// Decodes what [`snapshot`](Self::snapshot) wrote, here or on another replica.
    ///
    /// # Errors
    /// If the bytes are anything else, or a state that commands cannot produce.
    pub fn restore(bytes: &[u8]) -> Result<Self, RestoreError> {
        let state: Self = envelope::decode(bytes)?;
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
