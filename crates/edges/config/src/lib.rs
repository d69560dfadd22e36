//! The configuration of a node: loaded in layers, checked, and refused with an explanation.
//!
//! A configuration is TOML. [`NodeConfig::load`] lays the file over [`DEFAULTS`], the environment
//! (`SYMPHONY__SECTION__KEY`) over the file, and command-line overrides (`section.key=value`) over both; unknown keys
//! and wrong types are refused by name, and [`NodeConfig::validate`] refuses combinations that cannot work, saying
//! which key, which value, and what to try. Nothing here opens a socket, starts a thread, or looks at a clock.

mod address;
mod autoscaling;
mod backend;
mod cluster;
mod defaults;
mod empty_is_none;
mod error;
mod federation;
mod frames;
mod frontend;
mod images;
mod layers;
mod learning;
mod load;
mod log;
mod network;
mod node;
mod origin;
mod payloads;
mod removed_keys;
mod repository;
mod role;
mod scheduler;
mod security;
mod telemetry;
mod tenants;
mod tls;
mod validate;

pub use address::{Address, AddressError};
pub use autoscaling::{AutoscalingConfig, PriceConfig};
pub use backend::{BackendConfig, DeviceKind, ExecutorKind, GpuConfig};
pub use cluster::{ClusterConfig, ReplicaConfig, Timing};
pub use defaults::DEFAULTS;
pub use error::{Error, Problem};
pub use federation::{FederatedClusterConfig, FederationBalanceConfig, FederationConfig, FederationReplicaConfig};
pub use frames::{FrameTransportKind, FramesConfig};
pub use frontend::FrontendConfig;
pub use images::ImagesConfig;
pub use layers::ENV_PREFIX;
pub use learning::LearningConfig;
pub use log::{LogConfig, LogFormat};
pub use network::{NetworkConfig, RouteConfig};
pub use node::NodeConfig;
pub use origin::{CONFIG_BYTES_MAX, Origin};
pub use payloads::{PayloadTransportKind, PayloadsConfig};
pub use removed_keys::{REMOVED_KEYS, RemovedKey};
pub use repository::RepositoryConfig;
pub use role::Role;
pub use scheduler::{DelaysConfig, EpochMode, EpochsConfig, Idle, LogEngine, SchedulerConfig};
pub use security::SecurityConfig;
pub use telemetry::TelemetryConfig;
pub use tenants::{KEY_HASH_PREFIX, KeyHash, Right, Rights, TenantConfig, TenantsError, TenantsFile};
pub use tls::TlsConfig;
pub use validate::limits;
