//! The header that every encoded value of a replicated state carries: magic, version, kind, checksum.
//!
//! ```text
//! 0       4         6      8          12        16
//! | "SYCS" | version | kind | CRC32C   | length  | rkyv …
//! ```
//!
//! `SYCS` is the state of a cluster. Another state has another magic and counts its own versions.

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

const HEADER_BYTES: usize = 16;

/// Why decoding or encoding failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// There is no header.
    #[error("{what} of {bytes} bytes; expected a header of {HEADER_BYTES} bytes that starts with `{magic}`")]
    NoHeader {
        /// The expected kind.
        magic: &'static str,
        /// The expected kind.
        what: &'static str,
        /// Number of bytes.
        bytes: usize,
    },
    /// Written by another release.
    #[error("{what} of version {got}; this release reads version {reads}: run the same release on every replica")]
    Version {
        /// Version that this release reads.
        reads: u16,
        /// The expected kind.
        what: &'static str,
        /// Version in the header.
        got: u16,
    },
    /// Another kind of the same state.
    #[error("bytes of kind {got} where {what} was expected")]
    Kind {
        /// The expected kind.
        what: &'static str,
        /// Kind in the header.
        got: u16,
    },
    /// Larger than allowed, or the length in the header is wrong.
    #[error("{what} of {bytes} bytes, by its header {header}; at most {bytes_max} are allowed and both must agree")]
    Length {
        /// The expected kind.
        what: &'static str,
        /// Actual number of bytes.
        bytes: usize,
        /// Length in the header.
        header: usize,
        /// Largest allowed number of bytes.
        bytes_max: usize,
    },
    /// The checksum is wrong: the bytes have changed.
    #[error("{what} with checksum {got:#010x}, computed {computed:#010x}: the bytes were damaged")]
    Checksum {
        /// The expected kind.
        what: &'static str,
        /// Checksum in the header.
        got: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// The checksum is right but the bytes are not a valid value.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// The expected kind.
        what: &'static str,
        /// The error of rkyv's validation.
        reason: String,
    },
}

/// A value with an envelope of its own.
pub trait Enveloped:
    Sized
    + Archive<
        Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
                      + Deserialize<Self, HighDeserializer<rancor::Error>>,
    > + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>
{
    /// Magic: four bytes that identify the state.
    const MAGIC: &'static str;
    /// Incremented whenever the format of a command, a reply or the state changes.
    const VERSION: u16;
    /// Number of the kind in the header.
    const KIND: u16;
    /// The kind in words.
    const WHAT: &'static str;
    /// Largest encoding, header included.
    const BYTES_MAX: usize;
}

/// A value as bytes.
///
/// # Errors
/// If it takes more than [`Enveloped::BYTES_MAX`].
pub fn encode<T: Enveloped>(value: &T) -> Result<Vec<u8>, CodecError> {
    let body = rkyv::to_bytes::<rancor::Error>(value)
        .map_err(|e| CodecError::Malformed { what: T::WHAT, reason: e.to_string() })?;
    let bytes = HEADER_BYTES + body.len();
    if bytes > T::BYTES_MAX {
        return Err(CodecError::Length { what: T::WHAT, bytes, header: bytes, bytes_max: T::BYTES_MAX });
    }
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(T::MAGIC.as_bytes());
    out.extend_from_slice(&T::VERSION.to_le_bytes());
    out.extend_from_slice(&T::KIND.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(out)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// If the bytes are anything else.
pub fn decode<T: Enveloped>(bytes: &[u8]) -> Result<T, CodecError> {
    let what = T::WHAT;
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(CodecError::NoHeader { magic: T::MAGIC, what, bytes: bytes.len() });
    };
    if header[..4] != *T::MAGIC.as_bytes() {
        return Err(CodecError::NoHeader { magic: T::MAGIC, what, bytes: bytes.len() });
    }
    let u16_at = |i: usize| u16::from_le_bytes([header[i], header[i + 1]]);
    let u32_at = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    if u16_at(4) != T::VERSION {
        return Err(CodecError::Version { reads: T::VERSION, what, got: u16_at(4) });
    }
    if u16_at(6) != T::KIND {
        return Err(CodecError::Kind { what, got: u16_at(6) });
    }
    let told = HEADER_BYTES + u32_at(12) as usize;
    if told != bytes.len() || bytes.len() > T::BYTES_MAX {
        return Err(CodecError::Length { what, bytes: bytes.len(), header: told, bytes_max: T::BYTES_MAX });
    }
    let computed = crc32c::crc32c(body);
    if u32_at(8) != computed {
        return Err(CodecError::Checksum { what, got: u32_at(8), computed });
    }
    // rkyv reads in place and requires alignment, which the caller's bytes may lack.
    let mut aligned = AlignedVec::<16>::with_capacity(body.len());
    aligned.extend_from_slice(body);
    rkyv::from_bytes::<T, rancor::Error>(&aligned).map_err(|e| CodecError::Malformed { what, reason: e.to_string() })
}
