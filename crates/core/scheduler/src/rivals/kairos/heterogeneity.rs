//! What time on each class of GPU is worth to a model.

use std::array;

use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuClasses, LatencyProfile, Nanos};

use crate::cluster::model::ClusterModel;

/// The heterogeneity coefficients C of one model (the Kairos paper, definition 1): by class, the latency of the largest
/// query on the fastest class over the latency there, in (0, 1]; zero where the latency is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Heterogeneity([f64; GPU_CLASSES_MAX]);

impl Heterogeneity {
    /// From what the largest query takes on each class.
    pub(super) fn new(latency: impl Fn(GpuClass) -> Option<Nanos>) -> Self {
        let base = GpuClass::all().filter_map(&latency).min().unwrap_or(Nanos::ZERO);
        let share = |latency: Nanos| base.get() as f64 / latency.get().max(1) as f64;
        Self(array::from_fn(|class| GpuClass::new(class).and_then(&latency).map_or(0.0, share)))
    }

    /// By the model's profiles on the present classes.
    pub(super) fn of_profiles(model: &ClusterModel, classes: GpuClasses) -> Self {
        let largest = largest_query(model, classes);
        Self::new(|class| {
            let profile = model.profiles.get(class).filter(|_| classes.has(class));
            profile.map(|profile| extended(profile, largest))
        })
    }

    /// C of a class.
    pub(super) fn of(&self, class: GpuClass) -> f64 {
        self.0[class.index()]
    }

    /// Whether the class is the base: the one that serves the largest query fastest.
    pub(super) fn is_base(&self, class: GpuClass) -> bool {
        self.of(class) >= 1.0
    }

    /// Whether the class serves the model, but is not its base.
    pub(super) fn is_auxiliary(&self, class: GpuClass) -> bool {
        self.of(class) > 0.0 && !self.is_base(class)
    }
}

/// The largest query that one of these classes serves.
pub(super) fn largest_query(model: &ClusterModel, classes: GpuClasses) -> u32 {
    let there = model.profiles.iter().filter(|(class, _)| classes.has(*class));
    there.map(|(_, profile)| profile.batch_max()).max().unwrap_or(0)
}

/// ℓ of this many items; on the profile's line where it is shorter, as of a class that serves large queries too late.
fn extended(profile: &LatencyProfile, items: u32) -> Nanos {
    let last = profile.batch_max();
    let beyond = f64::from(items.saturating_sub(last));
    if beyond == 0.0 {
        return profile.latency(items);
    }
    profile.latency(last) + Nanos::from_millis_f64(profile.fit_line().alpha_ms * beyond)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassProfiles;

    #[test]
    fn the_coefficients_are_those_of_the_papers_example() {
        // Section 5.1: 100, 200 and 500 ms for the largest query give 1, 0.5 and 0.2.
        // The slowest one is too slow for queries of more than 40.
        let profile =
            |alpha_ms: f64| LatencyProfile::from_line(alpha_ms, 0.0, if alpha_ms < 5.0 { 100 } else { 40 }).unwrap();
        let classes = || GpuClass::all().zip([1.0, 2.0, 5.0]);
        let profiles: ClassProfiles = classes().map(|(class, alpha_ms)| (class, profile(alpha_ms))).collect();
        let model = ClusterModel::new(profiles, Nanos::from_millis(600));
        let all: GpuClasses = GpuClass::all().collect();
        let known = Heterogeneity::of_profiles(&model, all);
        let are = |known: &Heterogeneity, expected: [f64; 3]| {
            let same = classes().zip(expected).all(|((class, _), expected)| (known.of(class) - expected).abs() < 1e-6);
            assert!(same, "{known:?}, expected {expected:?}");
        };
        are(&known, [1.0, 0.5, 0.2]);
        assert!(known.is_base(GpuClass::FIRST) && classes().skip(1).all(|(class, _)| known.is_auxiliary(class)));
        // Without the base the next is the base.
        let others: GpuClasses = classes().skip(1).map(|(class, _)| class).collect();
        are(&Heterogeneity::of_profiles(&model, others), [0.0, 1.0, 0.4]);
    }
}
