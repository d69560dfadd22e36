//! `[frontend]`: the settings of one frontend.

use std::path::PathBuf;

use symphony_types::Nanos;

use crate::{Address, ImagesConfig, PayloadsConfig, RepositoryConfig, TlsConfig};

/// `[frontend]`: a process that clients send requests to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontendConfig {
    /// Its name, unique in the cluster. No default: two frontends of one name would take each other's place.
    pub name: String,
    /// Where it serves the Open Inference Protocol over gRPC.
    pub grpc: Address,
    /// Where it serves the Open Inference Protocol over REST.
    pub rest: Address,
    /// Where it serves metrics, health and the console.
    pub metrics: Address,
    /// Where backends pull inputs from and push results to: an address by which they can reach it.
    pub data: Address,
    /// The largest request accepted, in bytes.
    pub request_bytes_max: u64,
    /// Requests that are read, wait, or run at a time, at most: over gRPC and REST together.
    pub requests_in_flight_max: u32,
    /// Connections at a time, over gRPC and over REST each.
    pub connections_max: u32,
    /// Of these from one address.
    pub connections_per_address_max: u32,
    /// How long after its deadline a request may still be answered (late) before it fails, in milliseconds.
    pub answer_grace_ms: u64,
    /// Whether each request gets a line in the access log.
    pub access_log: bool,
    /// Whether the statistics are shown under Triton's names, too.
    pub metrics_triton_names: bool,
    /// The file of tenants and their keys; none (an empty string) serves every caller, which takes loopback or
    /// `security.insecure_public`.
    #[serde(with = "crate::empty_is_none")]
    pub tenants: Option<PathBuf>,
    /// Whether `/metrics` needs a key with the right `status`, as `/api/view` does.
    pub metrics_need_key: bool,
    /// Origins whose pages browsers let call REST; none by default.
    pub cors_origins: Vec<String>,
    /// Whether clients of this host may have tensors in shared memory of theirs.
    pub shared_memory: bool,
    /// TLS at the public ports.
    pub tls: TlsConfig,
    /// How inputs and results travel.
    pub payloads: PayloadsConfig,
    /// Pictures that clients send instead of tensors.
    pub images: ImagesConfig,
    /// Models that clients may have loaded.
    pub repository: RepositoryConfig,
}

impl Default for FrontendConfig {
    /// The defaults; a name must be given.
    fn default() -> Self {
        let defaults = crate::defaults::defaults();
        let own = defaults.get("frontend").expect("the defaults have this section");
        own.clone().try_into().expect("the defaults have every key of it")
    }
}

impl FrontendConfig {
    /// The ports that clients and people call, with their keys.
    #[must_use]
    pub const fn public_ports(&self) -> [(&'static str, &Address); 3] {
        [("frontend.grpc", &self.grpc), ("frontend.rest", &self.rest), ("frontend.metrics", &self.metrics)]
    }

    /// How long after its deadline a request may still be answered before it fails.
    #[must_use]
    pub const fn answer_grace(&self) -> Nanos {
        Nanos::from_millis(self.answer_grace_ms)
    }
}
