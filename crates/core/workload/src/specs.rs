//! GPUs and models of a scenario, as data.

use std::sync::Arc;

use symphony_types::{FamilyProfile, GpuClass, LatencyProfile, Nanos, RequestValue};

use crate::rate_profile::RateProfile;
use crate::value_distribution::ValueDistribution;

/// GPUs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuSpec {
    /// The kind's name in profiles.
    pub kind: String,
    /// Their number.
    pub count: u32,
    /// Memory of each in MB, if stated.
    pub memory_mb: Option<f64>,
    /// The price of each per hour, in any currency, if stated.
    pub price_per_hour: Option<f64>,
    /// The GPU class, for models' profiles.
    pub class: GpuClass,
}

/// The variants of a family, served by one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// The family's profiles by class of GPU.
    pub profiles: Arc<[FamilyProfile]>,
    /// Which variant a request calls.
    pub of_requests: ValueDistribution,
}

/// One model, after `count` is expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its name: as written, or `name-0`, `name-1`, … where `count` is given.
    pub name: String,
    /// ℓ(b) by class of GPU; of a family, what its batches take at worst.
    pub profiles: Arc<[LatencyProfile]>,
    /// The variants that share its trunk and its queue, if it is a family.
    pub variants: Option<Variants>,
    /// The SLO, from arrival to the answer at the client; the scheduler plans batch sizes for it.
    pub slo: Nanos,
    /// The distribution of request deadlines in nanoseconds; by default the SLO.
    pub deadline: ValueDistribution,
    /// The distribution of items per request.
    pub items: ValueDistribution,
    /// Its share of the total rate; all shares add up to one.
    pub share: f64,
    /// The value of its requests, for policies that use it.
    pub value: RequestValue,
    /// The factor of its rate over time, if it changes: its own profile times that of the workload.
    pub rate_profile: Option<Arc<RateProfile>>,
}

impl ModelSpec {
    /// Whether batches take as long on GPUs of one kind as on those of another, while profiles are by kind.
    pub(crate) fn is_alike_on(&self, one: usize, other: usize) -> bool {
        let same_family = self.variants.as_ref().is_none_or(|v| v.profiles[one] == v.profiles[other]);
        same_family && self.profiles[one] == self.profiles[other]
    }

    /// For GPUs of one class, where each batch takes as long as on the slowest.
    pub(crate) fn slowest(&mut self) {
        let profile = match &mut self.variants {
            Some(variants) => {
                let (first, others) = (variants.profiles[0].clone(), &variants.profiles[1..]);
                let slowest = others.iter().fold(first, |a, b| a.slower_of(b));
                let worst = slowest.worst().clone();
                variants.profiles = Arc::from([slowest]);
                worst
            }
            None => self.profiles.iter().skip(1).fold(self.profiles[0].clone(), |a, b| a.slower_of(b)),
        };
        self.profiles = Arc::from([profile]);
    }
}
