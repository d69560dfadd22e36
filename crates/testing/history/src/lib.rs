//! Histories of operations on a replicated service, and whether they are linearizable: whether every operation can be
//! thought to have happened at one moment between its call and its return (invariant I4).
//!
//! [`check`] is the search of Wing and Gong with Lowe's memory of where it has been, one part of the history per key
//! (Horn and Kroening's P-compositionality). [`admin`] says what the control plane's API means; [`Recorder`] writes
//! histories down, [`text`] keeps them.

pub mod admin;
mod checker;
mod history;
mod recorder;
mod specification;
pub mod text;

pub use checker::{Limits, Verdict, Violation, check};
pub use history::{End, History, HistoryError, Operation};
pub use recorder::{OperationId, Recorder};
pub use specification::Specification;
