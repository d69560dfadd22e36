//! The replicated state of a cluster as a pure value: its members, its models, and the leader of each sub-cluster.
//!
//! [`ClusterState::apply`] takes a log index and a [`Command`] and returns the reply and the effects. It reads no
//! clock, no randomness and no map with unstable order, so that equal commands give equal bytes on every replica
//! (invariant C6). The README has the rules of its decisions.

mod apply;
mod backends;
mod backup;
mod command;
mod cost;
mod duties;
mod effect;
mod epoch_plan;
mod epoch_plans;
mod families;
mod format;
mod frontends;
#[cfg(test)]
mod full_state_tests;
mod handover;
mod invariants;
mod lead_report;
mod leader_choice;
mod limits;
mod loaded_pipeline;
mod models;
mod moves;
mod nodes;
mod operate;
mod operation;
mod pipelines;
mod policies;
mod refusal;
mod reply;
mod snapshot;
mod state;
mod subcluster_policy;
mod traffic;
mod traffic_split;
mod trunk;
mod validate;

pub use apply::Applied;
pub use backup::{Backup, BackupError, IDS_SKIPPED_MAX, IDS_SKIPPED_MIN, NewGroup};
pub use command::{BackendRegistration, Command, FrontendRegistration, GpuOffer, LogEntry, NodeRegistration};
pub use effect::Effect;
pub use epoch_plan::{
    BackendMove, EpochPlan, LeftAlone, ModelMove, MoveCost, MoveProgress, Moved, PlanProposal, PlanStatus, PlannedMove,
    WantedMove,
};
pub use handover::LeadTransfer;
pub use invariants::{Violation, check, check_step};
pub use lead_report::{CEDE_WITHIN, LeadReport, LeadReportAction, LeadReportInput, LeadReporter};
pub use limits::*;
pub use loaded_pipeline::LoadedPipeline;
pub use operation::{Action, NewReplica, Operation};
pub use refusal::Refusal;
pub use reply::{Outcome, Reply, decode_outcome, encode_outcome};
pub use snapshot::RestoreError;
pub use state::{
    Backend, ClusterState, Event, Frontend, Gpu, Holder, HolderState, Leader, Model, Node, Standing, Subcluster,
    Successor,
};
pub use subcluster_policy::{FailedPolicy, POLICY_OF_MODELS, PolicyFailure, SubclusterPolicy};
pub use symphony_replicated::envelope::version_of;
pub use symphony_replicated::{CodecError, Fnv1a, InvalidField, KeptOperation, KindProfile, ModelSource, ModelSpec};
pub use traffic_split::{Shadow, Traffic};
pub use trunk::Trunk;
