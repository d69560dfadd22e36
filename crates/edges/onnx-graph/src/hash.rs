//! Merkle hashes: equal only if two values compute the same from the same inputs.
//!
//! An input is its position among all inputs with their types and shapes; an initializer its shape, element type and
//! elements; a node its operator with version, attributes and the hashes of what it uses. Names do not count. The hash
//! is conservative: what computes the same and is written differently (commuted operands, a default that one model
//! spells out) may differ.

mod graph;
mod node;
mod sum;
mod tensor;
mod types;
mod versions;

pub(crate) use graph::{Context, of_graph};
pub(crate) use sum::Sum;
pub use sum::ValueHash;
pub(crate) use tensor::inside;
pub(crate) use types::batch_may_come_first;
pub(crate) use versions::{Versions, domain};
