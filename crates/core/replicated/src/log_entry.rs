//! A command as it is in the log.

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

use crate::envelope::{self, CodecError, Enveloped};

/// What the time adds to a command's bytes, with its padding.
const TIME_BYTES: usize = 16;

/// Largest encoding of a command that fits an entry of this many bytes.
#[must_use]
pub const fn command_bytes_max(entry_bytes_max: usize) -> usize {
    entry_bytes_max - TIME_BYTES
}

/// A command and the time at which it was proposed.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct LogEntry<C> {
    /// By the Raft leader's clock, in milliseconds since 1970. Shown to people; nothing depends on it.
    pub at_unix_ms: u64,
    /// What was proposed.
    pub command: C,
}

impl<C: Enveloped> Enveloped for LogEntry<C>
where
    Self: Archive<
            Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
                          + Deserialize<Self, HighDeserializer<rancor::Error>>,
        > + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    const MAGIC: &'static str = C::MAGIC;
    const VERSION: u16 = C::VERSION;
    const OLDEST: u16 = C::OLDEST;
    const KIND: u16 = 4;
    const WHAT: &'static str = "log entry";
    const BYTES_MAX: usize = C::BYTES_MAX + TIME_BYTES;
}

impl<C> LogEntry<C>
where
    Self: Enveloped,
{
    /// The entry as bytes for the log, in the newest version.
    ///
    /// # Errors
    /// If it takes more than [`Enveloped::BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        envelope::encode(self)
    }

    /// The entry as bytes for the log, in one of the versions that are read here.
    ///
    /// # Errors
    /// If it takes more than [`Enveloped::BYTES_MAX`].
    pub fn encode_in(&self, version: u16) -> Result<Vec<u8>, CodecError> {
        envelope::encode_in(self, version)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        envelope::decode(bytes)
    }

    /// As [`decode`](Self::decode), for a process that reads no version above `newest`.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode_to(bytes: &[u8], newest: u16) -> Result<Self, CodecError> {
        envelope::decode_to(bytes, newest)
    }
}
