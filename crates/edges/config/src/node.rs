//! The configuration of one process.

use crate::{
    BackendConfig, ClusterConfig, FederationConfig, FramesConfig, FrontendConfig, LogConfig, NetworkConfig,
    SchedulerConfig, SecurityConfig, TelemetryConfig,
};

/// The configuration of one process.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The cluster it belongs to.
    pub cluster: ClusterConfig,
    /// As a scheduler replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerConfig>,
    /// As a frontend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendConfig>,
    /// As a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendConfig>,
    /// As a part of a federation: a replica of its top-level group, or a frontend of all its clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<FederationConfig>,
    /// How the others are reached.
    pub network: NetworkConfig,
    /// What carries frames between this process and others.
    pub frames: FramesConfig,
    /// What it logs, and where to.
    pub log: LogConfig,
    /// Traces of requests.
    pub telemetry: TelemetryConfig,
    /// Who may talk to it.
    pub security: SecurityConfig,
}

impl NodeConfig {
    /// The whole configuration as TOML, defaults included: what `--dump-config` prints. Reading it gives `self` again.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("strings, numbers, lists and tables are always TOML")
    }
}
