//! The replicated state of a federation as a pure value: its clusters, its models, and the home cluster of each model.
//!
//! [`FederationState::apply`] takes a log index and a [`Command`] and returns the reply and the effects. It reads no
//! clock, no randomness and no map with unstable order, so that equal commands give equal bytes on every replica
//! (invariant C6). The README has the rules of its decisions.

mod apply;
mod command;
mod format;
mod invariants;
mod limits;
mod move_history;
mod moves;
mod operate;
mod refusal;
mod restored;
mod snapshot;
mod state;
mod validate;

pub use command::{Action, Command, HomeMove, LogEntry, Operation};
pub use invariants::{Violation, check, check_step};
pub use limits::*;
pub use refusal::{Outcome, Refusal, Reply, decode_outcome, encode_outcome};
pub use snapshot::RestoreError;
pub use state::{
    Cause, Cluster, Event, FederatedPlan, FederationState, Home, KindCapacity, Model, Move, PlannedMove, Progress,
};
