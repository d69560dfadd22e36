//! Errors of reading a tape.

use symphony_types::{ProfileError, SubclusterId, Token};

use crate::TAPE_VERSION;

/// Why bytes are not a valid tape. Offsets count from the start of the tape.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TapeError {
    /// The first bytes are not those of a tape.
    #[error(
        "no tape: {bytes} bytes that do not begin with `SYMT`; expected a file that a scheduler wrote to scheduler.tape_dir"
    )]
    NoTape {
        /// Number of bytes.
        bytes: usize,
    },
    /// Written by another release.
    #[error(
        "a tape of version {got}; this release reads version {TAPE_VERSION}: replay it with the release that recorded it"
    )]
    Version {
        /// The version of the tape.
        got: u16,
    },
    /// The checksum is wrong: the bytes have changed.
    #[error(
        "byte {offset}: a chunk of {bytes} bytes with checksum {got:#010x}, computed {computed:#010x}: the tape was damaged"
    )]
    Checksum {
        /// Offset of the chunk.
        offset: usize,
        /// Its length.
        bytes: usize,
        /// Checksum in the chunk.
        got: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// The tape ends within its header.
    #[error("byte {offset}: the tape ends within its header; it was cut when it had hardly begun")]
    NoHeader {
        /// Length of the tape.
        offset: usize,
    },
    /// A record ends within a value.
    #[error("byte {offset}: the chunk ends within {what}")]
    Short {
        /// Offset of the value.
        offset: usize,
        /// What was expected.
        what: &'static str,
    },
    /// A value out of range.
    #[error("byte {offset}: {got} is no {what}")]
    NoSuch {
        /// Where the value begins.
        offset: usize,
        /// What was expected.
        what: &'static str,
        /// What was found.
        got: u64,
    },
    /// Invalid UTF-8 text.
    #[error("byte {offset}: a name is not UTF-8")]
    NotText {
        /// Where the name begins.
        offset: usize,
    },
    /// An invalid profile.
    #[error("byte {offset}: {source}")]
    Profile {
        /// Where the profile begins.
        offset: usize,
        /// What is wrong with it.
        source: ProfileError,
    },
    /// The policy of a cluster that this program does not have, or whose options it refuses.
    #[error("byte {offset}: {problem}")]
    Policy {
        /// Offset of the record.
        offset: usize,
        /// Why, with the names that are known.
        problem: String,
    },
    /// A step of an object that was never introduced, or is of another kind.
    #[error("byte {offset}: a step of object {object} as {kind}, which the tape does not know as such")]
    UnknownObject {
        /// Offset of the record.
        offset: usize,
        /// The object's number on the tape.
        object: u32,
        /// The kind that the record assumes.
        kind: &'static str,
    },
    /// More objects than a thread can host.
    #[error("byte {offset}: more than {max} objects at a time")]
    TooManyObjects {
        /// Offset of the record.
        offset: usize,
        /// The limit.
        max: usize,
    },
    /// A second ranker, although a thread has only one.
    #[error("byte {offset}: a second ranker; a tape has one at most")]
    SecondRanker {
        /// Offset of the record.
        offset: usize,
    },
    /// Tapes of different leads.
    #[error(
        "a tape of {got_subcluster} under token {got_token}, beside those of {subcluster} under token {token}: their times \
         cannot be compared; expected the tapes of one lead"
    )]
    AnotherLead {
        /// The sub-cluster of the first tape.
        subcluster: SubclusterId,
        /// The token of that lead.
        token: Token,
        /// The sub-cluster of this tape.
        got_subcluster: SubclusterId,
        /// The token of that lead.
        got_token: Token,
    },
    /// Records after the end.
    #[error("byte {offset}: something follows the end of the tape")]
    AfterEnd {
        /// Where the first of them begins.
        offset: usize,
    },
}
