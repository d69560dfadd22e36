//! The role that runs in every scheduler process beside the dispatch runtime: it agrees with the other replicas on the
//! cluster's state, serves `symphony.v1.Control`, and notices which replicas are dead.
//!
//! ```text
//! start(config, listeners) ─▶ ControlPlane { view, leadership, propose, metrics, shutdown }
//! ```

mod authorize;
mod beat;
mod config;
mod convert;
mod error;
mod explain;
mod host;
mod liveness;
mod metrics;
mod plane;
mod propose;
mod publish;
mod registrar;
mod server;
mod service;
mod status;
mod view;

pub use config::{ControlPlaneConfig, Liveness, ReplicaAddrs, Timing};
pub use error::{CallError, StartError};
pub use explain::Remembers;
pub use metrics::{METRIC_NAMES, Metrics};
pub use plane::{ControlPlane, Listeners};
pub use propose::Accepted;
pub use symphony_consensus::{Engine, Leadership, OnDiskError};
