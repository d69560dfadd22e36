//! Whether the suite finds the bugs that are planted in the storage.

use std::path::PathBuf;

use anyhow::Result;
use symphony_consensus::Engine;
use symphony_consensus::storage::Plant;

use crate::faults::Faults;
use crate::power_loss::PowerLoss;
use crate::report::Report;

/// Cuts or faults after which a bug counts as not found.
const CYCLES_MAX: u64 = 2_000;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plants {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// Everything follows from it.
    pub seed: u64,
    /// Verifiers at a time.
    pub jobs: usize,
    /// Where to put files.
    pub work: PathBuf,
}

impl Plants {
    /// Looks for a bug; the report's violations are what was found of it.
    ///
    /// # Errors
    /// The suite itself fails.
    pub fn look_for(&self, plant: Plant) -> Result<Report> {
        let work = self.work.join(plant.name());
        if plant == Plant::SwallowedSyncError {
            let (engine, seed) = (self.engine, self.seed);
            return Faults { engine, cycles: CYCLES_MAX, seed, plant: Some(plant), work, until_found: true }.run();
        }
        PowerLoss {
            engine: self.engine,
            cycles: CYCLES_MAX,
            seed: self.seed,
            stride: 1,
            plant: Some(plant),
            jobs: self.jobs,
            work,
            until_found: true,
        }
        .run()
    }

    /// Whether a bug can be planted in this engine at all.
    #[must_use]
    pub fn applies(&self, plant: Plant) -> bool {
        plant != Plant::SledFlushOnly || self.engine == Engine::Sled
    }
}
