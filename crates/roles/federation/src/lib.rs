//! A replica of a federation's top-level group: keeps which cluster is home to which model, and brings it about.

mod config;
mod copies;
mod decide;
mod error;
mod frontends;
mod host;
mod looks;
mod metrics;
mod places;
mod plane;
mod problem;
mod propose;
mod rates;
mod rebalance;
#[cfg(test)]
mod scene;
mod service;
mod steward;
mod view;
#[cfg(test)]
mod world_tests;

pub use config::{ClusterAccess, FederationConfig};
pub use error::StartError;
pub use metrics::METRIC_NAMES;
pub use plane::Federation;
pub use rebalance::{BalanceMode, BalanceSettings};
pub use symphony_controllers::TriggerSettings;
