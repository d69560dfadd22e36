//! How many models have to be loaded.

use crate::placed::Placed;

/// Models that GPUs need after a change of the placement, and those that were loaded there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Pairs of a GPU and a model that it runs.
    pub needed: usize,
    /// Requests whose model the GPU had loaded.
    pub hits: usize,
}

impl Loads {
    /// From one placement to the next.
    #[must_use]
    pub fn between(previous: &Placed, placed: &Placed) -> Self {
        let mut loads = Self::default();
        for (at, gpu) in placed.gpus.iter().enumerate().filter(|(_, gpu)| gpu.node.is_some()) {
            let had = previous.gpus.get(at).map(|gpu| gpu.loaded.as_slice()).unwrap_or_default();
            loads.needed += gpu.loaded.len();
            loads.hits += gpu.loaded.iter().filter(|model| had.contains(model)).count();
        }
        loads
    }

    /// Models that have to be loaded.
    #[must_use]
    pub fn misses(self) -> usize {
        self.needed - self.hits
    }

    /// Over several changes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { needed: self.needed + other.needed, hits: self.hits + other.hits }
    }

    /// The share of hits; `None` if nothing is needed.
    #[must_use]
    pub fn hit_rate(self) -> Option<f64> {
        (self.needed > 0).then(|| self.hits as f64 / self.needed as f64)
    }
}
