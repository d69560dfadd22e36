//! What a request adds to the demand of a sub-cluster that one policy decides for.

use symphony_scheduler::ClusterModel;
use symphony_types::{GPU_CLASSES_MAX, GpuClass, LatencyProfile, Nanos};

/// How many GPUs of each class the policy has.
pub(super) type GpusByClass = [u32; GPU_CLASSES_MAX];

/// What requests of one model cost.
#[derive(Debug)]
pub(super) struct RequestCost {
    /// What an item costs in the largest batch that may wait for another one and meet the SLO, and the most items that
    /// a GPU takes; none where requests do not share batches.
    per_item: Option<Vec<(GpuClass, Nanos, u32)>>,
}

impl RequestCost {
    pub(super) fn new(known: &ClusterModel, merges: bool) -> Self {
        let per_item = |profile: &LatencyProfile| {
            let fits = |&batch: &u32| profile.latency(batch) + profile.latency(batch) <= known.slo;
            let batch = (1..=profile.batch_max()).rev().find(fits).unwrap_or(1);
            Nanos::new(profile.latency(batch).get() / u64::from(batch))
        };
        let of = |(class, profile): (GpuClass, &LatencyProfile)| (class, per_item(profile), profile.batch_max());
        let all = || known.profiles.iter().map(of).collect();
        Self { per_item: merges.then(all) }
    }

    /// GPU time of a request: the harmonic mean over the GPUs that can take it, since a fast one takes more of them.
    /// Without any, that of the fastest class.
    pub(super) fn of(&self, known: &ClusterModel, items: u32, gpus: &GpusByClass) -> Nanos {
        let mut fastest = None;
        let (mut able, mut requests_per_ns) = (0, 0.0);
        let mut add = |class: GpuClass, time: Nanos| {
            fastest = Some(fastest.map_or(time, |fastest: Nanos| fastest.min(time)));
            able += gpus[class.index()];
            requests_per_ns += f64::from(gpus[class.index()]) / time.get().max(1) as f64;
        };
        match &self.per_item {
            Some(costs) => {
                let fitting = costs.iter().filter(|&&(.., most)| items <= most);
                fitting.for_each(|&(class, cost, _)| add(class, cost.saturating_mul(items.into())));
            }
            None => {
                let fitting = known.profiles.iter().filter(|(_, profile)| items <= profile.batch_max());
                fitting.for_each(|(class, profile)| add(class, profile.latency(items)));
            }
        }
        match able {
            0 => fastest.unwrap_or(Nanos::ZERO),
            able => Nanos::new((f64::from(able) / requests_per_ns) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_scheduler::ClassProfiles;

    use super::*;

    #[test]
    fn requests_that_share_no_batch_cost_what_they_take_on_the_gpus_that_are_there() {
        // b + 5 ms up to 64, and 3b + 15 up to 16.
        let profiles = [(1.0, 5.0, 64), (3.0, 15.0, 16)];
        let profiles = profiles.map(|(alpha, beta, most)| LatencyProfile::from_line(alpha, beta, most).unwrap());
        let profiles: ClassProfiles = GpuClass::all().zip(profiles).collect();
        let known = ClusterModel::new(profiles, Nanos::from_millis(60));
        let ms = Nanos::from_millis_f64;
        let gpus = |fast, slow| [fast, slow, 0, 0, 0, 0, 0, 0];
        let alone = RequestCost::new(&known, false);
        assert_eq!(alone.of(&known, 1, &gpus(1, 0)), ms(6.0));
        assert_eq!(alone.of(&known, 1, &gpus(0, 2)), ms(18.0));
        // In 18 ms three on the fast one, and one on the slow one.
        assert_eq!(alone.of(&known, 1, &gpus(1, 1)), ms(9.0));
        assert_eq!(alone.of(&known, 20, &gpus(1, 1)), ms(25.0), "the slow one does not take it");
        assert_eq!(alone.of(&known, 1, &gpus(0, 0)), ms(6.0), "nothing is there yet");
        assert_eq!(alone.of(&known, 100, &gpus(1, 1)), Nanos::ZERO, "nobody takes it");
        // Twenty-five in 30 ms; five in 30.
        let shared = RequestCost::new(&known, true);
        assert_eq!(shared.of(&known, 1, &gpus(2, 0)), ms(1.2));
        assert_eq!(shared.of(&known, 2, &gpus(0, 3)), ms(12.0));
        assert_eq!(shared.of(&known, 1, &gpus(1, 1)), ms(2.0));
        assert_eq!(shared.of(&known, 20, &gpus(1, 1)), ms(24.0));
    }
}
