//! ℓ(b) as it really is: quantiles of execution times of one model on one GPU kind.

use symphony_types::{LatencyProfile, Nanos, Time};

use crate::isotonic::rising;
use crate::sample_ring::SampleRing;
use crate::stretch::in_proportion;

/// Batch sizes up to this one are looked at one by one; above, eight groups for each doubling.
const SINGLE_BATCHES: u32 = 16;
/// Execution times beyond these multiples of the given profile are taken for them: clocks and counters go wrong.
const RATIO_RANGE: (f64, f64) = (1.0 / 16.0, 16.0);
/// The weight of a batch size that was not measured, when the order is repaired: next to nothing against any that was.
const UNMEASURED_WEIGHT: f64 = 1e-3;

/// What a profile that learns holds to.
#[derive(Clone, Debug, PartialEq)]
pub struct OnlineProfileSettings {
    /// The quantile of execution times that plans are made with. Nine of ten batches are then on time by themselves;
    /// what the others need comes off deadlines as measured lateness.
    pub quantile: f64,
    /// A batch size counts when it was measured so often.
    pub samples_min: usize,
    /// Samples that are older than this, with none since, say nothing any more.
    pub stale_after: Nanos,
    /// A profile is published when it differs by this share at some measured batch size from the one in force.
    pub change_min: f64,
    /// And not more often than this.
    pub publish_every: Nanos,
    /// A model drifts when its median execution time is off the given profile by this share.
    pub drift_min: f64,
}

impl Default for OnlineProfileSettings {
    fn default() -> Self {
        Self {
            quantile: 0.9,
            samples_min: 20,
            stale_after: Nanos::from_millis(3_600_000),
            change_min: 0.05,
            publish_every: Nanos::from_millis(30_000),
            drift_min: 0.1,
        }
    }
}

/// A profile that should replace the one in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The profile.
    pub profile: LatencyProfile,
    /// The largest difference to the one before at a measured batch size, as a share of it.
    pub change: f64,
    /// Batch sizes, or groups of them, that were measured.
    pub measured: usize,
}

/// What is learnt of one model on one GPU kind. At most 80 groups of batch sizes with 64 samples each: 22 KB.
#[derive(Clone, Debug)]
pub struct OnlineProfile {
    settings: OnlineProfileSettings,
    /// What the model was loaded with: the shape between measured batch sizes.
    given: LatencyProfile,
    in_force: LatencyProfile,
    published_at: Option<Time>,
    /// The largest batch size at which the profile in force is as measured.
    measured_max: Option<u32>,
    /// Real over given time, by group; grows to the largest group that was seen.
    groups: Vec<SampleRing>,
}

impl OnlineProfile {
    /// Begins with the given profile.
    #[must_use]
    pub fn new(given: LatencyProfile, settings: OnlineProfileSettings) -> Self {
        Self { settings, in_force: given.clone(), given, published_at: None, measured_max: None, groups: Vec::new() }
    }

    /// The profile that plans are to be made with.
    #[must_use]
    pub const fn in_force(&self) -> &LatencyProfile {
        &self.in_force
    }

    /// The profile that the model was loaded with.
    #[must_use]
    pub const fn given(&self) -> &LatencyProfile {
        &self.given
    }

    /// A batch took `latency`. One that the given profile does not know, or that took no time, says nothing.
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

    /// The profile to publish, if what was measured differs enough from the one in force. It is in force from then on.
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

    /// The largest batch size up to which the profile in force is what was measured, to within a change that would be
    /// published, as of the last look: also where that is the given one. None before enough was measured.
    #[must_use]
    pub const fn measured_max(&self) -> Option<u32> {
        self.measured_max
    }

    /// How many times as long as given batches take, in the median, if that is far enough from one to be told.
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

    /// A quantile of real over given time for each group that was measured well enough, in order.
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

    /// The given profile, stretched: at measured batch sizes as measured, between them in proportion, beyond them like
    /// the nearest one.
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

/// What was measured of one group of batch sizes.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    group: usize,
    /// The middle of the group's batch sizes.
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

/// A group's smallest batch size, and how many there are in it.
const fn extent(at: usize) -> (u32, u32) {
    let singles = (SINGLE_BATCHES - 1) as usize;
    if at < singles {
        return (at as u32 + 1, 1);
    }
    let (doublings, eighth) = ((at - singles) / 8, (at - singles) % 8);
    let width = (SINGLE_BATCHES / 8) << doublings;
    (width * (8 + eighth as u32), width)
}

/// A group's largest batch size.
const fn last(at: usize) -> u32 {
    let (first, width) = extent(at);
    first + width - 1
}

/// The middle of a group's batch sizes.
fn centre(at: usize) -> f64 {
    let (first, width) = extent(at);
    f64::from(first) + f64::from(width - 1) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_types::PROFILE_BATCH_MAX;

    use super::*;

    /// Groups of batch sizes that a profile can have.
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
        // What is not published is measured nevertheless, if it is often and lately enough.
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
                        // Repairing the order moves a value towards its neighbours, at most as far as they are.
                        prop_assert!((1.0 / 16.0 / 14.0..=16.0 * 14.0).contains(&ratio), "{ratio}");
                    }
                }
            }
            prop_assert!(online.groups.len() <= GROUPS_MAX);
        }
    }
}
