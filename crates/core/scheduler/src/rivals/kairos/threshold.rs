//! DeepRecSys's threshold, found by hill climbing.

use symphony_types::Nanos;

use super::heterogeneity::Heterogeneity;
use crate::cluster::model::ClusterModel;

/// Queries between two moves: at the share of late queries that counts, one in a hundred, some ten of them are lost.
const EPOCH_QUERIES: u32 = 1000;
/// The first move, as a part of the largest query that an auxiliary GPU serves in time.
const FIRST_MOVE: i64 = 8;

/// The largest query that goes to auxiliary GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Threshold {
    items: u32,
    /// The largest query that some auxiliary class can serve in time.
    most: u32,
    /// The next move; zero once it has settled, or where the threshold is given.
    step: i64,
    /// Of this epoch.
    ended: u32,
    lost: u32,
    /// Of the epoch before, if any were lost.
    lost_before: Option<u32>,
}

impl Threshold {
    /// A fixed threshold.
    pub(super) fn fixed(items: u32) -> Self {
        Self { items, ..Self::default() }
    }

    /// A climbing threshold, from the largest query that an auxiliary class of the model can serve in time.
    pub(super) fn climbing(model: &ClusterModel, values: &Heterogeneity) -> Self {
        let auxiliary = model.profiles.iter().filter(|(class, _)| values.is_auxiliary(*class));
        let in_time = |latency: &&Nanos| **latency <= model.slo;
        // Latencies do not fall with size.
        let most = auxiliary.map(|(_, profile)| profile.table().iter().take_while(in_time).count()).max().unwrap_or(0);
        let step = -(most as i64 / FIRST_MOVE).max(1);
        Self { items: most as u32, most: most as u32, step, ..Self::default() }
    }

    /// The largest query that goes to auxiliary GPUs.
    pub(super) fn items(&self) -> u32 {
        self.items
    }

    /// Whether both climb up to the same size.
    pub(super) fn has_range_of(&self, other: &Self) -> bool {
        self.most == other.most
    }

    /// A query was sent, or lost.
    pub(super) fn ended(&mut self, is_lost: bool) {
        self.ended += 1;
        self.lost += u32::from(is_lost);
        if self.ended == EPOCH_QUERIES {
            self.climb();
            (self.ended, self.lost) = (0, 0);
        }
    }

    /// On while it gets better; back with half the step where it got worse. Where nothing is lost, there is nothing to
    /// gain, and nothing to compare with.
    fn climb(&mut self) {
        if self.lost == 0 {
            self.lost_before = None;
            return;
        }
        if self.lost_before.is_some_and(|before| self.lost > before) {
            self.step = -self.step / 2;
        }
        self.lost_before = Some(self.lost);
        let items = i64::from(self.items) + self.step;
        self.items = items.clamp(0, i64::from(self.most.max(self.items))) as u32;
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{GpuClass, LatencyProfile};

    use super::*;
    use crate::ClassProfiles;

    /// An epoch with this many lost queries.
    fn epoch(threshold: &mut Threshold, lost: u32) -> u32 {
        (0..EPOCH_QUERIES).for_each(|query| threshold.ended(query < lost));
        threshold.items()
    }

    #[test]
    fn it_begins_at_what_auxiliaries_serve_in_time_and_climbs_while_less_is_lost() {
        let class = |number| GpuClass::new(number).unwrap();
        let profile = |alpha_ms| LatencyProfile::from_line(alpha_ms, 0.0, 100).unwrap();
        let profiles: ClassProfiles = [(class(0), profile(1.0)), (class(1), profile(5.0))].into_iter().collect();
        let model = ClusterModel::new(profiles, Nanos::from_millis(400));
        let values = Heterogeneity::of_profiles(&model, GpuClass::all().collect());
        let mut threshold = Threshold::climbing(&model, &values);
        assert_eq!(threshold.items(), 80, "80 items take 400 ms on the slower class");
        // Ten down each time, until that is worse; then half of it back.
        assert_eq!([0, 90, 50, 70, 60].map(|lost| epoch(&mut threshold, lost)), [80, 70, 60, 65, 70]);
        // Of few sizes it is one at a time.
        let model = ClusterModel::new(model.profiles, Nanos::from_millis(25));
        let mut small = Threshold::climbing(&model, &values);
        assert_eq!([0, 90, 50, 70].map(|lost| epoch(&mut small, lost)), [5, 4, 3, 3]);
        let mut fixed = Threshold::fixed(7);
        assert_eq!([0, 90, 50].map(|lost| epoch(&mut fixed, lost)), [7, 7, 7]);
    }
}
