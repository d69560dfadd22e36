//! Tapes: the inputs and actions of decision objects as bytes, and their replay (docs/adr/0009-tapes.md).
//!
//! A recording host writes a [`TapeHeader`] and then [`Chunk`]s of records. [`Tape`] reads them without trusting them;
//! [`replay()`] feeds the recorded inputs to fresh objects, and the first action that is not byte for byte the recorded
//! one is a [`Difference`].

mod chunk;
mod codec;
mod encodings;
mod error;
mod header;
mod outcomes;
mod reader;
mod record;
mod recorded;
mod recorded_load;
mod replay;
mod summary;

pub use chunk::Chunk;
pub use error::TapeError;
pub use header::{TapeHeader, TapeOrigin, WORKER_BYTES_MAX};
pub use reader::{Records, Tape};
pub use record::{MODEL_NAME_BYTES_MAX, ObjectConfig, Record, TapeEnd};
pub use recorded::{RecordedBatch, RecordedModel, RecordedOutcome, RecordedRequest};
pub use recorded_load::RecordedLoad;
pub use replay::{Difference, OBJECTS_MAX, Replay, replay, replay_among};
pub use summary::{Ending, Summary};

/// Incremented whenever the encoding of a record changes, or an object's decisions change for equal inputs.
pub const TAPE_VERSION: u16 = 18;

/// The largest tape that is written or read: 1 GiB, ten seconds at a million requests per second.
pub const TAPE_BYTES_MAX: u64 = 1 << 30;
