//! Jobs and models drawn from the zoo, for experiments that pack them.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_packing::Session;
use symphony_types::{LatencyProfile, Nanos};

use crate::data::{self, ZooRow};

/// The largest batch of a profile.
const BATCH_MAX: u32 = 64;

/// A job: a model under an SLO with a rate.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) profile: LatencyProfile,
    pub(super) slo: Nanos,
    /// Items per second.
    pub(super) rate_rps: f64,
    /// Items per second that one GPU does alone.
    pub(super) alone_rps: f64,
}

impl Job {
    /// Of a model under an SLO, without a rate. Fails if the line makes no profile.
    pub(super) fn new(row: &ZooRow, slo_ms: f64) -> anyhow::Result<Self> {
        let profile = LatencyProfile::from_line(row.alpha_ms, row.beta_ms, BATCH_MAX)?;
        let slo = Nanos::from_millis_f64(slo_ms);
        // Two batches fit into the SLO (the Nexus paper, section 4.1).
        let fits = |batch: &u32| profile.latency(*batch).saturating_mul(2) <= slo;
        let batch = (1..=BATCH_MAX).rev().find(fits).unwrap_or(1);
        let alone_rps = f64::from(batch) / profile.latency(batch).as_secs_f64();
        Ok(Self { profile, slo, rate_rps: 0.0, alone_rps })
    }

    /// As packings take it, with this many times its rate.
    pub(super) fn session(&self, factor: f64) -> Session<'_> {
        Session { profile: &self.profile, slo: self.slo, rate_per_second: self.rate_rps * factor }
    }
}

/// As packings take them.
pub(super) fn sessions(jobs: &[Job]) -> Vec<Session<'_>> {
    jobs.iter().map(|job| job.session(1.0)).collect()
}

/// Jobs of models that are drawn from the zoo with the SLOs of its table; rates up to this many GPUs' each.
pub(super) fn drawn(count: usize, gpus_max: f64, seed: u64) -> anyhow::Result<Vec<Job>> {
    let zoo = data::zoo_1080ti();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = || -> anyhow::Result<Job> {
        let row = &zoo[random.random_range(0..zoo.len())];
        let job = Job::new(row, row.slo_ms)?;
        Ok(Job { rate_rps: random.random_range(0.0..gpus_max) * job.alone_rps, ..job })
    };
    (0..count).map(|_| draw()).collect()
}
