//! The header of a tape.

use symphony_types::{BootId, NodeId, SubclusterId, Token};

use crate::codec::{Coded, Source, coded_struct, put_text, take_text};
use crate::{TAPE_VERSION, TapeError};

/// The longest name of a worker.
pub const WORKER_BYTES_MAX: usize = 64;

const MAGIC: [u8; 4] = *b"SYMT";
pub(crate) const PREAMBLE_BYTES: usize = 8;

/// The lead that was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeOrigin {
    /// The replica that led.
    pub node: NodeId,
    /// The boot of that replica.
    pub boot: BootId,
    /// The sub-cluster.
    pub subcluster: SubclusterId,
    /// The assignment under which it led.
    pub token: Token,
}

/// The origin of a tape. Objects come and go with their models, so each is introduced by a record with its
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeHeader {
    /// The lead.
    pub origin: TapeOrigin,
    /// The worker, for instance `model-0` or `rank`; cut to [`WORKER_BYTES_MAX`].
    pub worker: String,
}

coded_struct!(TapeOrigin { node, boot, subcluster, token });

impl TapeHeader {
    /// The bytes before the first chunk of records.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        self.origin.put(&mut fields);
        put_text(&self.worker, WORKER_BYTES_MAX, &mut fields);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&TAPE_VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&crate::chunk::sealed(&fields));
        out
    }

    /// Checks magic and version.
    pub(crate) fn check_preamble(bytes: &[u8]) -> Result<(), TapeError> {
        let Some(preamble) = bytes.first_chunk::<PREAMBLE_BYTES>().filter(|bytes| bytes.starts_with(&MAGIC)) else {
            return Err(TapeError::NoTape { bytes: bytes.len() });
        };
        let got = u16::from_le_bytes([preamble[4], preamble[5]]);
        if got == TAPE_VERSION { Ok(()) } else { Err(TapeError::Version { got }) }
    }

    /// Parses the fields from their chunk.
    pub(crate) fn read(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let origin = TapeOrigin::take(from)?;
        Ok(Self { origin, worker: take_text(from, WORKER_BYTES_MAX)? })
    }
}
