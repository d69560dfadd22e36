//! Liveness of replicas: beats over plain TCP from threads of their own, and the detector that judges them.

mod addresses;
mod detector;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod herald;
mod inputs;
mod listener;
mod message;
mod mute;
mod priority;
mod progress;
mod sender;
mod wait;

pub(crate) use addresses::BeatAddresses;
pub(crate) use detector::{Action, Detector, Input};
pub(crate) use herald::{Facts, Herald, Standing};
pub(crate) use inputs::{Heard, Inputs};
pub(crate) use listener::{CONNECTIONS_MAX, Listener, Roll};
pub(crate) use message::{ACK_BYTES, BEAT_BYTES, Beat, cluster_hash};
pub use mute::{Mute, Muted};
pub(crate) use priority::raise as raise_priority;
pub(crate) use progress::Progress;
pub(crate) use sender::{Sender, refuses};
pub(crate) use wait::wait_until;
