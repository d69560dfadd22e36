//! The network side: our messages, the service that answers them and the clients that send them.

mod acknowledged;
mod addressing;
mod codec;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gate;
#[cfg(test)]
mod held_answers;
mod intake;
mod lanes;
mod numbers;
mod peer;
mod service;
mod stream;

pub(crate) use acknowledged::has_forgotten;
pub(crate) use addressing::Addressing;
pub(crate) use codec::Malformed;
pub(crate) use gate::Gate;
pub(crate) use lanes::Lanes;
pub(crate) use numbers::Received;
pub use service::RaftService;

/// Generated from `proto/symphony/v1/raft.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, missing_debug_implementations)]
pub(crate) mod pb {
    tonic::include_proto!("symphony.v1");
}
