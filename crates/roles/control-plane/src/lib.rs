//! The role that runs in every scheduler process beside the dispatch runtime. It agrees with the other replicas on the
//! cluster state, serves `symphony.v1.Control`, and detects dead replicas.
//!
//! ```text
//! start(config, listeners) ─▶ ControlPlane { view, leadership, propose, metrics, shutdown }
//! ```

mod api;
mod config;
mod error;
mod failure_detector;
mod group;
mod initiatives;
mod metrics;
mod plane;
mod planning;
mod vital;

pub use api::explain::Remembers;
pub use config::{ControlPlaneConfig, Liveness, ReplicaAddrs, Timing, WallClock, unix_ms};
pub use error::{CallError, Fatal, StartError};
pub use failure_detector::failure_detection::HeartbeatListener;
#[cfg(feature = "fuzz")]
pub use failure_detector::fuzz;
pub use group::propose::Accepted;
pub use group::restoration::{RestoreError, restore};
pub use metrics::{METRIC_NAMES, Metrics};
pub use plane::{ControlPlane, Listeners};
pub use planning::{
    EpochMode, EpochSettings, FleetSettings, LoadReports, SCALING_METRIC_NAMES, ScalingCollector, ScalingSettings,
};
pub use symphony_cluster_state::{
    BACKUP_BYTES_MAX, Backup, BackupError, ClusterState, Command, IDS_SKIPPED_MAX, IDS_SKIPPED_MIN, LeadReport,
    PolicyFailure, Refusal,
};
pub use symphony_consensus::{Engine, Environment, Leadership, OnDiskError, SimulatedDisk, SnapshotEvery};
pub use symphony_controllers::{AutoscalerSettings, TriggerSettings};
