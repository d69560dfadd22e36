//! Shared by all replicated states: encoding, hash, record of operations, model specification, and validation of
//! fields.

pub mod envelope;
pub mod fields;
mod hash;
mod limits;
mod log_entry;
mod model_spec;
pub mod operation_book;

pub use envelope::CodecError;
pub use fields::InvalidField;
pub use hash::Fnv1a;
pub use limits::*;
pub use log_entry::{LogEntry, command_bytes_max};
pub use model_spec::{KindProfile, ModelSource, ModelSpec};
pub use operation_book::KeptOperation;
