//! What ONNX models compute: which of them begin alike, where they can be cut, and the parts between cuts.
//!
//! A [`Model`] is read whole, by the full schema, and refused with a reason if anything in it is unknown, ambiguous or
//! too large. Every value has a [`ValueHash`], the Merkle hash of what it computes. [`Cut`]s are the single values
//! through which every path from inputs to outputs passes; a [`Part`] is what lies between two of them, as a model
//! whose nodes have the very bytes that they had. [`families`] are models that share a trunk (Nexus, section 6.3).

mod cuts;
mod error;
mod family;
mod functions;
mod hash;
mod inspect;
mod limits;
mod model;
mod part;
mod random;
mod schema;
mod subgraph;
mod wire;
mod wiring;

pub use cuts::{Cut, evenly};
pub use error::Error;
pub use family::{Family, Variant, common_cut, families};
pub use hash::ValueHash;
pub use inspect::{CutReport, Report, inspect};
pub use limits::{
    CUTS_MAX, DECODED_BYTES_MAX, FUNCTIONS_MAX, INITIALIZERS_MAX, MESSAGE_DEPTH_MAX, MODEL_BYTES_MAX, NAME_BYTES_MAX,
    NODES_MAX, SUBGRAPH_DEPTH_MAX,
};
pub use model::Model;
pub use part::{End, Part};

/// The messages of `proto/onnx/onnx.proto`.
pub mod onnx {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}
