//! The header that every encoded value of a replicated state carries: magic, version, kind, checksum.
//!
//! ```text
//! 0       4         6      8          12        16
//! | "SYCS" | version | kind | CRC32C   | length  | rkyv …
//! ```
//!
//! `SYCS` is the state of a cluster. Another state has another magic and counts its own versions.

use std::fmt;

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
    #[error("{what} of version {got}; this release reads {reads}: run the release that wrote it, or one beside it")]
    Version {
        /// Versions that are read here.
        reads: Versions,
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

/// The versions that a process reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first.
    pub oldest: u16,
    /// The last.
    pub newest: u16,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { oldest, newest } if oldest == newest => write!(f, "version {newest}"),
            Self { oldest, newest } => write!(f, "versions {oldest} to {newest}"),
        }
    }
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
    /// The newest version; incremented whenever the format of a command, a reply or the state changes.
    const VERSION: u16;
    /// The oldest version that is read, and that can be written.
    const OLDEST: u16 = Self::VERSION;
    /// Number of the kind in the header.
    const KIND: u16;
    /// The kind in words.
    const WHAT: &'static str;
    /// Largest encoding, header included.
    const BYTES_MAX: usize;

    /// The value in the layout of a version from [`OLDEST`](Self::OLDEST) to [`VERSION`](Self::VERSION). To be
    /// overridden, like [`read`](Self::read), where the layouts differ.
    ///
    /// # Errors
    /// If rkyv cannot write it.
    fn body(&self, _version: u16) -> Result<AlignedVec, rancor::Error> {
        rkyv::to_bytes::<rancor::Error>(self)
    }

    /// Reads what [`body`](Self::body) wrote in that version; the bytes are aligned as rkyv wants them.
    ///
    /// # Errors
    /// If the bytes are anything else.
    fn read(_version: u16, body: &[u8]) -> Result<Self, rancor::Error> {
        rkyv::from_bytes::<Self, rancor::Error>(body)
    }
}

/// A value as bytes, in the newest version.
///
/// # Errors
/// If it takes more than [`Enveloped::BYTES_MAX`].
pub fn encode<T: Enveloped>(value: &T) -> Result<Vec<u8>, CodecError> {
    encode_in(value, T::VERSION)
}

/// A value as bytes, in one of the versions that are read here.
///
/// # Errors
/// If it takes more than [`Enveloped::BYTES_MAX`].
pub fn encode_in<T: Enveloped>(value: &T, version: u16) -> Result<Vec<u8>, CodecError> {
    debug_assert!((T::OLDEST..=T::VERSION).contains(&version), "{} of version {version}", T::WHAT);
    let body = value.body(version).map_err(|e| CodecError::Malformed { what: T::WHAT, reason: e.to_string() })?;
    let bytes = HEADER_BYTES + body.len();
    if bytes > T::BYTES_MAX {
        return Err(CodecError::Length { what: T::WHAT, bytes, header: bytes, bytes_max: T::BYTES_MAX });
    }
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(T::MAGIC.as_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&T::KIND.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(out)
}

/// The version in a header, whatever follows it; none if there is no header.
#[must_use]
pub fn version_of(bytes: &[u8]) -> Option<u16> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_le_bytes([header[4], header[5]]))
}

/// Reads what [`encode`] or [`encode_in`] wrote.
///
/// # Errors
/// If the bytes are anything else.
pub fn decode<T: Enveloped>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_to(bytes, T::VERSION)
}

/// As [`decode`], for a process that reads no version above `newest`.
///
/// # Errors
/// If the bytes are anything else.
pub fn decode_to<T: Enveloped>(bytes: &[u8], newest: u16) -> Result<T, CodecError> {
    let what = T::WHAT;
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(CodecError::NoHeader { magic: T::MAGIC, what, bytes: bytes.len() });
    };
    if header[..4] != *T::MAGIC.as_bytes() {
        return Err(CodecError::NoHeader { magic: T::MAGIC, what, bytes: bytes.len() });
    }
    let u16_at = |i: usize| u16::from_le_bytes([header[i], header[i + 1]]);
    let u32_at = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    let (version, reads) = (u16_at(4), Versions { oldest: T::OLDEST, newest: newest.min(T::VERSION) });
    if !(reads.oldest..=reads.newest).contains(&version) {
        return Err(CodecError::Version { reads, what, got: version });
    }
    if u16_at(6) != T::KIND {
        return Err(CodecError::Kind { what, got: u16_at(6) });
    }
    let declared = HEADER_BYTES + u32_at(12) as usize;
    if declared != bytes.len() || bytes.len() > T::BYTES_MAX {
        return Err(CodecError::Length { what, bytes: bytes.len(), header: declared, bytes_max: T::BYTES_MAX });
    }
    let computed = crc32c::crc32c(body);
    if u32_at(8) != computed {
        return Err(CodecError::Checksum { what, got: u32_at(8), computed });
    }
    // rkyv reads in place and requires alignment, which the caller's bytes may lack.
    let mut aligned = AlignedVec::<16>::with_capacity(body.len());
    aligned.extend_from_slice(body);
    T::read(version, &aligned).map_err(|e| CodecError::Malformed { what, reason: e.to_string() })
}
