//! `[frames]`: the carrier of requests, plans and reports between this process and others.

use std::time::Duration;

/// The carrier of this process's links: requests, plans, reports, and with shared payloads also results.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesConfig {
    /// The carrier.
    pub transport: FrameTransportKind,
    /// Whether a pair that cannot use it is refused, instead of using TCP.
    pub required: bool,
    /// How long a reader of shared memory that finds nothing spins before it sleeps, in microseconds.
    pub spin_us: u32,
    /// The RDMA device; empty for the first with an active port.
    pub rdma_device: String,
}

impl Default for FramesConfig {
    fn default() -> Self {
        Self { transport: FrameTransportKind::Auto, required: false, spin_us: 0, rdma_device: String::new() }
    }
}

/// What carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameTransportKind {
    /// Shared memory between processes of one host, else TCP.
    Auto,
    /// TCP, always.
    Tcp,
    /// Shared memory. With a process of another host TCP, and a warning, unless it is required.
    SharedMemory,
    /// Shared memory between processes of one host, RDMA with others. Where neither can be had TCP, and a warning,
    /// unless that is required. Never chosen unasked: what travels between hosts so is not encrypted.
    Rdma,
}

impl FramesConfig {
    /// Whether shared memory is tried at all.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.transport != FrameTransportKind::Tcp
    }

    /// Whether RDMA is tried.
    #[must_use]
    pub fn wants_rdma(&self) -> bool {
        self.transport == FrameTransportKind::Rdma
    }

    /// Whether the configuration names another carrier than TCP, so that a fallback is worth a warning.
    #[must_use]
    pub fn expects_other_than_tcp(&self) -> bool {
        matches!(self.transport, FrameTransportKind::SharedMemory | FrameTransportKind::Rdma)
    }

    /// Whether a pair that has TCP only is refused.
    #[must_use]
    pub fn refuses_tcp(&self) -> bool {
        self.required && self.expects_other_than_tcp()
    }

    /// The RDMA device, if one is named.
    #[must_use]
    pub fn rdma_device(&self) -> Option<&str> {
        Some(self.rdma_device.as_str()).filter(|name| !name.is_empty())
    }

    /// How long a reader looks before it sleeps.
    #[must_use]
    pub const fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us as u64)
    }
}
