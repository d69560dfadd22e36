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
}

impl ImagesConfig {
    /// Pictures that are decoded at once on this machine, at least 1.
    #[must_use]
    pub fn threads(&self) -> usize {
        let half = || std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        if self.threads == 0 { half() } else { self.threads as usize }
    }
}
