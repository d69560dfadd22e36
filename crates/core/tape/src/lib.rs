//! Tapes: what decision objects were told and what they ordered, as bytes; and their replay (DESIGN section 5).
//!
//! A host that records writes a [`Chunk`] of records after another behind a [`TapeHeader`]. [`Tape`] reads them back
//! and trusts none of them; [`replay()`] feeds the recorded inputs to fresh objects, and the first action that is not
//! byte for byte the recorded one is a [`Difference`].

mod chunk;
mod codec;
mod error;
mod header;
mod reader;
mod record;
mod replay;
mod summary;
mod words;

pub use chunk::Chunk;
pub use error::TapeError;
pub use header::{TAPE_VERSION, TapeHeader, TapeOrigin, WORKER_BYTES_MAX};
pub use reader::{Records, Tape};
pub use record::{ObjectConfig, Record, TapeEnd};
pub use replay::{Difference, OBJECTS_MAX, Replay, replay};
pub use summary::{Ending, Summary};

/// The largest tape that is written or read: 1 GiB, ten seconds at a million requests per second.
pub const TAPE_BYTES_MAX: u64 = 1 << 30;
