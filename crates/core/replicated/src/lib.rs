//! What every replicated state shares: the encoding of its values, a hash, the book of operators' commands, the
//! specification of a model, and the checks of fields.

pub mod envelope;
pub mod fields;
mod hash;
mod limits;
mod model_spec;
pub mod operation_book;

pub use envelope::CodecError;
pub use fields::InvalidField;
pub use hash::Fnv1a;
pub use limits::*;
pub use model_spec::{KindProfile, ModelSource, ModelSpec};
pub use operation_book::KeptOperation;
