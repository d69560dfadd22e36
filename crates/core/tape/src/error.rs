//! Why bytes are no tape.

use symphony_types::ProfileError;

use crate::TAPE_VERSION;

/// Why bytes are no tape, or a tape makes no sense. Offsets count from the beginning of the tape.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TapeError {
    /// Something else than a tape.
    #[error(
        "no tape: {bytes} bytes that do not begin with `SYMT`; expected a file that a scheduler wrote to scheduler.tape_dir"
    )]
    NoTape {
        /// Bytes there are.
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
    /// The bytes changed since they were written.
    #[error(
        "byte {offset}: a chunk of {bytes} bytes with checksum {got:#010x}, computed {computed:#010x}: the tape was damaged"
    )]
    Checksum {
        /// Where the chunk begins.
        offset: usize,
        /// Its length.
        bytes: usize,
        /// The checksum it carries.
        got: u32,
        /// The checksum of what is there.
        computed: u32,
    },
    /// The tape ends before its header does.
    #[error("byte {offset}: the tape ends within its header; it was cut when it had hardly begun")]
    NoHeader {
        /// Where it ends.
        offset: usize,
    },
    /// A record ends within a value.
    #[error("byte {offset}: the chunk ends within {what}")]
    Short {
        /// Where the value was expected.
        offset: usize,
        /// What was expected.
        what: &'static str,
    },
    /// A value out of range.
    #[error("byte {offset}: {got} is no {what}")]
    NoSuch {
        /// Where it stands.
        offset: usize,
        /// What was expected.
        what: &'static str,
        /// What is there.
        got: u64,
    },
    /// Text that is none.
    #[error("byte {offset}: the name of the worker is not UTF-8")]
    NotText {
        /// Where it stands.
        offset: usize,
    },
    /// A profile that no model can have.
    #[error("byte {offset}: {source}")]
    Profile {
        /// Where it stands.
        offset: usize,
        /// What is wrong with it.
        source: ProfileError,
    },
    /// A step of an object that the tape never spoke of, or of the other kind.
    #[error("byte {offset}: a step of object {object} as {kind}, which the tape does not know as such")]
    UnknownObject {
        /// Where the record begins.
        offset: usize,
        /// The object.
        object: u32,
        /// What the record takes it for.
        kind: &'static str,
    },
    /// More objects than any thread hosts.
    #[error("byte {offset}: more than {max} objects at a time")]
    TooManyObjects {
        /// Where the record begins.
        offset: usize,
        /// The limit.
        max: usize,
    },
    /// A thread has one ranker for life.
    #[error("byte {offset}: a second ranker; a tape has one at most")]
    SecondRanker {
        /// Where the record begins.
        offset: usize,
    },
    /// Records behind the end.
    #[error("byte {offset}: something follows the end of the tape")]
    AfterEnd {
        /// Where it stands.
        offset: usize,
    },
}
