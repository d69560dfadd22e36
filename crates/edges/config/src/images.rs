//! `[frontend.images]`: pictures that clients send instead of tensors.

/// Pictures that clients send instead of tensors, to models that declare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesConfig {
    /// Pictures that are decoded at once; 0 for half of the machine's cores.
    pub threads: u32,
    /// Pictures that are decoded or wait for that, at most.
    pub waiting_max: u32,
    /// The largest picture, in pixels by what its header says.
    pub pixels_max: u64,
    /// The tensors that pictures become, of all requests together, in MB of 2^20 bytes: counted from before they are
    /// decoded until their request has its outcome.
    pub decoded_mb_max: u64,
}

impl ImagesConfig {
    /// The tensors that pictures become, of all requests together, in bytes.
    #[must_use]
    pub const fn decoded_bytes_max(&self) -> u64 {
        self.decoded_mb_max.saturating_mul(1 << 20)
    }

    /// Pictures that are decoded at once on this machine, at least 1.
    #[must_use]
    pub fn threads(&self) -> usize {
        let half = || std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        if self.threads == 0 { half() } else { self.threads as usize }
    }
}
