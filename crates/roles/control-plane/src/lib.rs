//! The role that runs in every scheduler process beside the dispatch runtime: it agrees with the other replicas on the
//! cluster's state, serves `symphony.v1.Control`, and notices which replicas are dead.
//!
//! ```text
//! start(config, listeners) ─▶ ControlPlane { view, leadership, propose, metrics, shutdown }
//! ```

mod authorize;
mod beat;
mod checkpoints;
mod config;
mod contact;
mod convert;
mod detection;
mod disk;
mod doorkeeper;
mod epochs;
mod error;
mod explain;
mod founding;
mod host;
mod initiative;
mod judgement;
mod liveness;
mod liveness_tasks;
mod lives;
mod membership;
mod metrics;
mod mover;
mod operations;
mod plane;
mod propose;
mod publish;
mod registrar;
mod server;
mod service;
mod status;
mod steward;
mod view;
mod vital;
mod watches;

#[cfg(feature = "fuzz")]
pub use beat::fuzz;
pub use beat::{Mute, Muted};
pub use config::{ControlPlaneConfig, Liveness, ReplicaAddrs, Timing, WallClock, unix_ms};
pub use epochs::{EpochMode, EpochSettings, LoadReports, SCALING_METRIC_NAMES, ScalingCollector, ScalingSettings};
pub use error::{CallError, Fatal, StartError};
pub use explain::Remembers;
pub use metrics::{METRIC_NAMES, Metrics};
pub use plane::{BeatListener, ControlPlane, Listeners, Proposals};
pub use propose::Accepted;
pub use symphony_cluster_state::{Command, Refusal};
pub use symphony_consensus::{Engine, Host, Leadership, OnDiskError, SimulatedDisk, SnapshotEvery};
pub use symphony_controllers::{AutoscalerSettings, TriggerSettings};
