//! A replica of a federation's top-level group: assigns each model a home cluster, and carries the assignment out.

mod cluster_poller;
mod config;
mod copies;
mod decide;
mod error;
mod founding;
mod frontends;
mod metrics;
mod places;
mod plane;
mod problem;
mod propose;
mod rates;
mod rebalance;
mod reconciler;
mod restoration;
#[cfg(test)]
mod scene;
mod service;
mod state_machine;
mod view;
#[cfg(test)]
mod world_tests;

pub use config::{ClusterAccess, FederationConfig};
pub use error::StartError;
pub use metrics::METRIC_NAMES;
pub use plane::Federation;
pub use rebalance::{BalanceMode, BalanceSettings};
pub use restoration::{RestoreError, open, restore};
pub use symphony_controllers::TriggerSettings;
pub use symphony_federation_state::FederationState;
