//! `[frames]`: what carries requests, plans and reports between this process and others.

use std::time::Duration;

/// What carries the frames of this process's links: requests, plans, reports, and with shared payloads results.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesConfig {
    /// The carrier.
    pub transport: FrameTransportKind,
    /// Whether a pair that cannot use it is refused, instead of using TCP.
    pub required: bool,
    /// How long a reader of shared memory that finds nothing looks again and again before it sleeps, in microseconds.
    pub spin_us: u32,
}

impl Default for FramesConfig {
    fn default() -> Self {
        Self { transport: FrameTransportKind::Auto, required: false, spin_us: 0 }
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
}

impl FramesConfig {
    /// Whether shared memory is tried at all.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.transport != FrameTransportKind::Tcp
    }

    /// Whether somebody asked for shared memory by name, so that going without is worth a warning.
    #[must_use]
    pub fn expects_sharing(&self) -> bool {
        self.transport == FrameTransportKind::SharedMemory
    }

    /// Whether a pair that cannot share memory is refused.
    #[must_use]
    pub fn must_share(&self) -> bool {
        self.required && self.expects_sharing()
    }

    /// How long a reader looks before it sleeps.
    #[must_use]
    pub const fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us as u64)
    }
}
