//! `[frontend.payloads]`, `[backend.payloads]`: how inputs and results travel.

/// How inputs and results travel between this process and those at the other end of its data links.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayloadsConfig {
    /// What carries inputs and results where both ends can use it.
    pub transport: PayloadTransportKind,
    /// Whether a pair that cannot use it is refused, instead of using TCP.
    pub required: bool,
    /// The largest shared memory, in MB of 2^20 bytes: a frontend's for inputs, a backend's for the results of each
    /// frontend. With RDMA: a frontend's for inputs, a backend's for the inputs that it reads, all of which stays in
    /// memory.
    pub pool_mb: u64,
    /// The RDMA device; empty for the first with an active port.
    pub rdma_device: String,
}

/// How payloads travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadTransportKind {
    /// Shared memory between processes of one host, else TCP.
    Auto,
    /// TCP, always.
    Tcp,
    /// Shared memory. With a process of another host TCP, and a warning, unless it is required.
    SharedMemory,
    /// RDMA. Where it cannot be had TCP, and a warning, unless it is required. Never chosen unasked: what travels so is
    /// not encrypted.
    Rdma,
}

impl PayloadTransportKind {
    /// The name in configuration, logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcp => "tcp",
            Self::SharedMemory => "shared-memory",
            Self::Rdma => "rdma",
        }
    }
}

impl PayloadsConfig {
    /// Whether shared memory is tried at all.
    #[must_use]
    pub fn shares(&self) -> bool {
        matches!(self.transport, PayloadTransportKind::Auto | PayloadTransportKind::SharedMemory)
    }

    /// Whether the configuration names shared memory, so that a fallback is worth a warning.
    #[must_use]
    pub fn expects_sharing(&self) -> bool {
        self.transport == PayloadTransportKind::SharedMemory
    }

    /// Whether a pair that cannot share memory is refused.
    #[must_use]
    pub fn must_share(&self) -> bool {
        self.required && self.expects_sharing()
    }

    /// Whether RDMA is tried.
    #[must_use]
    pub fn wants_rdma(&self) -> bool {
        self.transport == PayloadTransportKind::Rdma
    }

    /// Whether a pair that cannot use RDMA is refused.
    #[must_use]
    pub fn must_use_rdma(&self) -> bool {
        self.required && self.wants_rdma()
    }

    /// The RDMA device, if one is named.
    #[must_use]
    pub fn rdma_device(&self) -> Option<&str> {
        Some(self.rdma_device.as_str()).filter(|name| !name.is_empty())
    }

    /// The largest shared memory, in bytes.
    #[must_use]
    pub const fn pool_bytes(&self) -> u64 {
        self.pool_mb.saturating_mul(1 << 20)
    }
}
