//! What travels between processes: rkyv frames for requests, plans and results, protobuf for control.

pub mod data;
pub mod dispatch;
pub mod execute;
mod frame;
pub mod journal;
pub mod view;

pub use frame::{Echo, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message};

/// `symphony.v1`: the control surface.
#[allow(missing_docs, clippy::all, unreachable_pub, missing_debug_implementations)]
pub mod control {
    tonic::include_proto!("symphony.v1");
}

/// `inference`: the Open Inference Protocol v2 with Triton's extensions, the public surface.
#[allow(missing_docs, clippy::all, unreachable_pub, missing_debug_implementations)]
pub mod inference {
    tonic::include_proto!("inference");
}
