//! Models whose rates drift.

// Each test file takes what it needs.
#![allow(dead_code)]

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use symphony_packing::Session;
use symphony_types::{LatencyProfile, Nanos};

pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.0.next_u64() % count as u64) as usize
    }
}

/// Models with their SLO, and a rate that fills a part of a GPU or more than one.
pub(crate) struct Workload {
    profiles: Vec<LatencyProfile>,
    slos: Vec<Nanos>,
    usual: Vec<f64>,
    rates: Vec<f64>,
}

impl Workload {
    pub(crate) fn new(random: &mut Random, models: usize) -> Self {
        let mut workload = Self { profiles: vec![], slos: vec![], usual: vec![], rates: vec![] };
        for _ in 0..models {
            let line = (random.between(0.2, 3.0), random.between(1.0, 15.0));
            let profile = LatencyProfile::from_line(line.0, line.1, 32).unwrap();
            let slo = Nanos::from_millis_f64(random.between(40.0, 250.0));
            let fits = |batch: &u32| profile.latency(*batch).saturating_mul(2) <= slo;
            let batch = (1..=32).rev().find(fits).unwrap_or(1);
            let alone = f64::from(batch) / profile.latency(batch).as_secs_f64();
            workload.usual.push(random.between(0.05, 1.5) * alone);
            workload.profiles.push(profile);
            workload.slos.push(slo);
        }
        workload.rates = workload.usual.clone();
        workload
    }

    /// Each rate becomes up to 1.3 times as large, or as small, within a fifth and five times the usual one.
    pub(crate) fn drift(&mut self, random: &mut Random) {
        let most = 1.3_f64.ln();
        for (rate, usual) in self.rates.iter_mut().zip(&self.usual) {
            *rate = (*rate * random.between(-most, most).exp()).clamp(usual / 5.0, usual * 5.0);
        }
    }

    pub(crate) fn sessions(&self) -> Vec<Session<'_>> {
        let session =
            |at: usize| Session { profile: &self.profiles[at], slo: self.slos[at], rate_per_second: self.rates[at] };
        (0..self.rates.len()).map(session).collect()
    }
}
