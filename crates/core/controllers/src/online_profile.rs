//! ℓ(b) as measured: quantiles of the execution times of one model on one GPU kind.

use symphony_types::{LatencyProfile, Nanos, Time};

use crate::isotonic::rising;
use crate::sample_ring::SampleRing;
use crate::stretch::in_proportion;

/// Up to this batch size each size is its own group; above, there are eight groups per doubling.
const SINGLE_BATCHES: u32 = 16;
/// Execution times are clamped to these multiples of the given profile: clocks and counters can be wrong.
const RATIO_RANGE: (f64, f64) = (1.0 / 16.0, 16.0);
/// The weight of an unmeasured batch size in the isotonic regression: negligible against a measured one.
const UNMEASURED_WEIGHT: f64 = 1e-3;

/// Nine of ten batches are on time by the profile itself; the rest is covered by the measured lateness, which is
/// subtracted from deadlines. A higher quantile follows the pauses that every machine has (docs/adr/0017).
const QUANTILE: f64 = 0.9;
/// Two samples above the quantile.
const SAMPLES_MIN: usize = 20;
/// A model that is not asked for an hour is measured again.
const STALE_AFTER: Nanos = Nanos::from_millis(3_600_000);
/// A share of the latency in force. Every publication changes plans everywhere, and measured lateness covers less.
const CHANGE_MIN: f64 = 0.05;
/// The least pause: what is published is seen in the measurements before it is corrected again.
const PUBLISH_EVERY: Nanos = Nanos::from_millis(30_000);
/// A tenth is worth a line for people.
const DRIFT_MIN: f64 = 0.1;

/// When a profile counts as learnt, as ready to publish, or as drifting.
#[derive(Clone, Debug, PartialEq)]
pub struct OnlineProfileSettings {
    /// The quantile of execution times used for plans.
    pub quantile: f64,
    /// Samples that a batch size needs to count as measured.
    pub samples_min: usize,
    /// Samples of a group expire this long after its newest one.
    pub stale_after: Nanos,
    /// A profile is published if it differs from the one in force by this share at some measured batch size.
    pub change_min: f64,
    /// The least time between two publications.
    pub publish_every: Nanos,
    /// A model drifts if its median execution time differs from the given profile by this share.
    pub drift_min: f64,
}

impl Default for OnlineProfileSettings {
    fn default() -> Self {
        Self {
            quantile: QUANTILE,
            samples_min: SAMPLES_MIN,
            stale_after: STALE_AFTER,
            change_min: CHANGE_MIN,
            publish_every: PUBLISH_EVERY,
            drift_min: DRIFT_MIN,
        }
    }
}

/// A profile that should replace the one in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// ℓ(b) for plans from now on.
    pub profile: LatencyProfile,
    /// The largest relative difference to the previous profile at a measured batch size.
    pub change: f64,
    /// Number of measured batch sizes or groups.
    pub measured: usize,
}

/// Measurements of one model on one GPU kind. At most 80 groups of batch sizes with 64 samples each: 22 KB.
#[derive(Clone, Debug)]
pub struct OnlineProfile {
    settings: OnlineProfileSettings,
    /// The given profile, with which the model was loaded: it determines the shape between measured batch sizes.
    given: LatencyProfile,
    in_force: LatencyProfile,
    published_at: Option<Time>,
    /// The largest batch size at which the profile in force agrees with the measurements.
    measured_max: Option<u32>,
    /// Ratios of real to given time, per group; grows up to the largest group seen.
    groups: Vec<SampleRing>,
}

impl OnlineProfile {
    /// Starts with the given profile.
    #[must_use]
    pub fn new(given: LatencyProfile, settings: OnlineProfileSettings) -> Self {
        Self { settings, in_force: given.clone(), given, published_at: None, measured_max: None, groups: Vec::new() }
    }

    /// The profile to plan with.
    #[must_use]
    pub const fn in_force(&self) -> &LatencyProfile {
        &self.in_force
    }

    /// The profile with which the model was loaded.
    #[must_use]
    pub const fn given(&self) -> &LatencyProfile {
        &self.given
    }

    /// A batch took `latency`. Ignored if the given profile does not cover its size or the time is zero.
    pub fn ran(&mut self, now: Time, batch: u32, latency: Nanos) {
        if batch == 0 || batch > self.given.batch_max() || latency == Nanos::ZERO {
            return;
        }
        let ratio = latency.get() as f64 / self.given.latency(batch).get() as f64;
        let at = group(batch);
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, SampleRing::new);
        }
        self.groups[at].push(now, ratio.clamp(RATIO_RANGE.0, RATIO_RANGE.1) as f32);
    }

    /// The profile to publish, if the measurements differ enough from the one in force, which it then replaces.
    pub fn publish(&mut self, now: Time) -> Option<Published> {
        if self.published_at.is_some_and(|at| now.since(at) < self.settings.publish_every) {
            return None;
        }
        let ratios = self.ratios(now, self.settings.quantile);
        let largest = ratios.last()?.group;
        let profile = self.profile_of(&ratios)?;
        self.measured_max = Some(last(largest).min(self.given.batch_max()));
        let off = |batch: u32| {
            let (was, is) = (self.in_force.latency(batch).get() as f64, profile.latency(batch).get() as f64);
            (is / was - 1.0).abs()
        };
        let batches = 1..=self.given.batch_max();
        let is_measured = |batch: &u32| ratios.iter().any(|ratio| ratio.group == group(*batch));
        let change = batches.filter(is_measured).map(off).fold(0.0, f64::max);
        if change < self.settings.change_min {
            return None;
        }
        self.published_at = Some(now);
        self.in_force = profile.clone();
        Some(Published { profile, change, measured: ratios.len() })
    }

    /// The largest batch size up to which the profile in force agrees with the measurements, within the threshold of
    /// publication, as of the last check; this may be the given profile. `None` before enough was measured.
    #[must_use]
    pub const fn measured_max(&self) -> Option<u32> {
        self.measured_max
    }

    /// The median factor by which batches take longer than given, if it differs enough from one.
    #[must_use]
    pub fn drift(&self, now: Time) -> Option<f64> {
        let ratios = self.ratios(now, 0.5);
        let weight: f64 = ratios.iter().map(|ratio| ratio.weight).sum();
        if weight <= 0.0 {
            return None;
        }
        let log: f64 = ratios.iter().map(|ratio| ratio.weight * ratio.value.ln()).sum();
        let factor = (log / weight).exp();
        ((factor - 1.0).abs() >= self.settings.drift_min).then_some(factor)
    }

    /// A quantile of real over given time for each sufficiently measured group, in order.
    fn ratios(&self, now: Time, quantile: f64) -> Vec<Ratio> {
        let ratio = |(at, ring): (usize, &SampleRing)| {
            let value = ring.quantile(quantile)?;
            Some(Ratio { group: at, centre: centre(at), value, weight: ring.len() as f64 })
        };
        self.groups.iter().enumerate().filter(|(_, ring)| self.counts(ring, now)).filter_map(ratio).collect()
    }

    fn counts(&self, ring: &SampleRing, now: Time) -> bool {
        ring.len() >= self.settings.samples_min.max(1) && now.since(ring.last()) < self.settings.stale_after
    }

    /// The given profile, stretched: by the measured ratio at measured batch sizes, interpolated between them, constant
    /// beyond.
    fn profile_of(&self, ratios: &[Ratio]) -> Option<LatencyProfile> {
        let (mut values, mut weights) = (Vec::new(), Vec::new());
        for (batch, given) in (1_u32..).zip(self.given.table()) {
            let points = ratios.iter().map(|ratio| (ratio.centre, ratio.value));
            let stretch = in_proportion(points, f64::from(batch))?;
            values.push(given.get() as f64 * stretch);
            let measured = ratios.iter().find(|ratio| ratio.group == group(batch));
            weights.push(measured.map_or(UNMEASURED_WEIGHT, |ratio| ratio.weight));
        }
        let table: Vec<_> = rising(&values, &weights).into_iter().map(|ns| Nanos::new((ns as u64).max(1))).collect();
        LatencyProfile::from_table(&table).ok()
    }
}

/// Measurements of one group of batch sizes.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    group: usize,
    /// The middle batch size of the group.
    centre: f64,
    value: f64,
    weight: f64,
}

/// The group of a batch size, which is at least one.
const fn group(batch: u32) -> usize {
    if batch < SINGLE_BATCHES {
        return (batch - 1) as usize;
    }
    let doublings = batch.ilog2();
    let eighth = (batch >> (doublings - 3)) & 7;
    (SINGLE_BATCHES - 1 + (doublings - SINGLE_BATCHES.ilog2()) * 8 + eighth) as usize
}

/// The smallest batch size of a group, and the number of sizes in it.
const fn extent(at: usize) -> (u32, u32) {
    let singles = (SINGLE_BATCHES - 1) as usize;
    if at < singles {
        return (at as u32 + 1, 1);
    }
    let (doublings, eighth) = ((at - singles) / 8, (at - singles) % 8);
    let width = (SINGLE_BATCHES / 8) << doublings;
    (width * (8 + eighth as u32), width)
}

/// The largest batch size of a group.
const fn last(at: usize) -> u32 {
    let (first, width) = extent(at);
    first + width - 1
}

/// The middle batch size of a group.
fn centre(at: usize) -> f64 {
    let (first, width) = extent(at);
    f64::from(first) + f64::from(width - 1) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_types::PROFILE_BATCH_MAX;

    use super::*;

    /// Number of groups in a profile.
    const GROUPS_MAX: usize = group(PROFILE_BATCH_MAX) + 1;

    #[test]
    fn groups_follow_each_other_and_hold_their_centre() {
        for batch in 1..PROFILE_BATCH_MAX {
            let step = group(batch + 1) - group(batch);
            assert!(step <= 1, "from {batch} to the next there are {step} groups");
        }
        for at in 0..GROUPS_MAX - 1 {
            assert_eq!(group(centre(at).floor() as u32), at, "centre {}", centre(at));
            assert_eq!((group(last(at)), group(last(at) + 1)), (at, at + 1), "last {}", last(at));
        }
        assert_eq!(GROUPS_MAX, 80);
    }

    fn line() -> LatencyProfile {
        LatencyProfile::from_line(1.0, 5.0, 64).unwrap()
    }

    fn at(second: u64) -> Time {
        Time::ZERO + Nanos::from_millis(1000 * second)
    }

    fn stretched(latency: Nanos, by: f64) -> Nanos {
        Nanos::new((latency.get() as f64 * by) as u64)
    }

    #[test]
    fn measured_sizes_are_as_measured_and_the_others_in_proportion() {
        let mut online = OnlineProfile::new(line(), OnlineProfileSettings::default());
        for _ in 0..50 {
            online.ran(at(1), 4, stretched(line().latency(4), 1.2));
            online.ran(at(1), 12, stretched(line().latency(12), 1.4));
        }
        let published = online.publish(at(1)).unwrap();
        assert!((published.change - 0.4).abs() < 1e-3 && published.measured == 2);
        let ratio = |batch| published.profile.latency(batch).get() as f64 / line().latency(batch).get() as f64;
        for (batch, expected) in [(1, 1.2), (4, 1.2), (8, 1.3), (12, 1.4), (64, 1.4)] {
            assert!((ratio(batch) - expected).abs() < 1e-3, "batch {batch}: {}", ratio(batch));
        }
        assert_eq!(online.in_force(), &published.profile);
        assert!((online.drift(at(1)).unwrap() - 1.296).abs() < 0.01);
    }

    #[test]
    fn what_is_too_little_too_small_too_soon_or_too_old_is_not_published() {
        let settings = OnlineProfileSettings::default();
        let ran = |online: &mut OnlineProfile, times: usize, by: f64| {
            (0..times).for_each(|_| online.ran(at(1), 8, stretched(line().latency(8), by)));
        };
        let mut few = OnlineProfile::new(line(), settings.clone());
        ran(&mut few, settings.samples_min - 1, 2.0);
        assert_eq!(few.publish(at(1)), None);
        let mut small = OnlineProfile::new(line(), settings.clone());
        ran(&mut small, 64, 1.04);
        assert_eq!((small.publish(at(1)), small.drift(at(1))), (None, None));
        let mut soon = OnlineProfile::new(line(), settings.clone());
        ran(&mut soon, 64, 1.5);
        assert!(soon.publish(at(1)).is_some());
        ran(&mut soon, 64, 2.0);
        assert_eq!(soon.publish(at(30)), None);
        assert!(soon.publish(at(31)).is_some());
        let mut old = OnlineProfile::new(line(), settings);
        ran(&mut old, 64, 1.5);
        assert_eq!((old.publish(at(3601)), old.drift(at(3601))), (None, None));
        // Measurements without a publication count as well, if there are enough recent ones.
        assert_eq!([small, few, old].map(|online| online.measured_max()), [Some(8), None, None]);
    }

    #[test]
    fn the_profile_in_force_is_as_measured_up_to_what_was_looked_at() {
        let mut online = OnlineProfile::new(line(), OnlineProfileSettings::default());
        let ran = |online: &mut OnlineProfile, batch: u32, by: f64| {
            (0..64).for_each(|_| online.ran(at(1), batch, stretched(line().latency(batch), by)));
        };
        ran(&mut online, 4, 1.5);
        assert!(online.publish(at(1)).is_some());
        assert_eq!(online.measured_max(), Some(4));
        ran(&mut online, 33, 3.0);
        assert_eq!((online.publish(at(2)), online.measured_max()), (None, Some(4)), "it is too soon to say so");
        assert!(online.publish(at(31)).is_some());
        assert_eq!(online.measured_max(), Some(35), "the largest of its group");
    }

    #[test]
    fn one_slow_batch_in_twelve_changes_nothing() {
        let mut online = OnlineProfile::new(line(), OnlineProfileSettings::default());
        for number in 0..1000 {
            online.ran(at(1), 8, stretched(line().latency(8), if number % 12 == 0 { 10.0 } else { 1.0 }));
        }
        assert_eq!((online.publish(at(1)), online.drift(at(1))), (None, None));
    }

    #[test]
    fn a_batch_that_measures_slower_than_a_larger_one_is_repaired() {
        let mut online = OnlineProfile::new(line(), OnlineProfileSettings::default());
        for _ in 0..64 {
            online.ran(at(1), 4, stretched(line().latency(4), 4.0));
            online.ran(at(1), 5, stretched(line().latency(5), 1.0));
        }
        let table = online.publish(at(1)).unwrap().profile.table().to_vec();
        assert!(table.is_sorted());
        // 36 and 10 ms meet in the middle.
        assert!((table[3].as_millis_f64() - 23.0).abs() < 0.1 && table[3] == table[4], "{:?}", &table[..6]);
    }

    proptest! {
        #[test]
        fn whatever_is_measured_the_profile_rises_and_stays_in_range(
            runs in prop::collection::vec((0_u32..80, 0_u64..u64::MAX), 0..400)
        ) {
            let settings = OnlineProfileSettings { samples_min: 1, change_min: 0.0, ..OnlineProfileSettings::default() };
            let mut online = OnlineProfile::new(line(), settings);
            for (second, (batch, latency)) in (0..).zip(runs) {
                online.ran(at(second), batch, Nanos::new(latency >> (latency % 64)));
                if let Some(published) = online.publish(at(second)) {
                    prop_assert!(published.profile.table().is_sorted());
                    prop_assert_eq!(published.profile.batch_max(), line().batch_max());
                    for (is, given) in published.profile.table().iter().zip(line().table()) {
                        let ratio = is.get() as f64 / given.get() as f64;
                        // Isotonic regression moves a value towards its neighbours, at most to their values.
                        prop_assert!((1.0 / 16.0 / 14.0..=16.0 * 14.0).contains(&ratio), "{ratio}");
                    }
                }
            }
            prop_assert!(online.groups.len() <= GROUPS_MAX);
        }
    }
}
