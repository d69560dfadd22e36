//! What a query of a model will take on each class.

use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuClasses, Nanos};

use super::heterogeneity::{Heterogeneity, largest_query};
use super::learnt::Learnt;
use crate::cluster::model::ClusterModel;

/// Latencies and coefficients of one model: by its profiles, or by what was measured since.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    heterogeneity: Heterogeneity,
    /// By class; empty where profiles are believed.
    learnt: Vec<Learnt>,
}

impl Forecast {
    /// Of a model that nothing is known of yet.
    pub(super) fn new(learns: bool) -> Self {
        let classes = if learns { GPU_CLASSES_MAX } else { 0 };
        Self { heterogeneity: Heterogeneity::default(), learnt: vec![Learnt::default(); classes] }
    }

    /// The model or the present classes have changed.
    pub(super) fn update(&mut self, model: &ClusterModel, classes: GpuClasses) {
        for (class, profile) in model.profiles.iter() {
            if let Some(learnt) = self.learnt.get_mut(class.index()) {
                learnt.reserve(profile.batch_max());
            }
        }
        self.weigh(model, classes);
    }

    fn weigh(&mut self, model: &ClusterModel, classes: GpuClasses) {
        self.heterogeneity = if self.learnt.is_empty() {
            Heterogeneity::of_profiles(model, classes)
        } else {
            let largest = largest_query(model, classes);
            let there = |class: &GpuClass| classes.has(*class) && model.profiles.get(*class).is_some();
            Heterogeneity::new(|class| {
                Some(class).filter(there).and_then(|class| self.learnt[class.index()].latency(largest))
            })
        };
    }

    /// A query of this many items took this long on a class.
    pub(super) fn measured(
        &mut self,
        model: &ClusterModel,
        classes: GpuClasses,
        (class, items, latency): (GpuClass, u32, Nanos),
    ) {
        if let Some(learnt) = self.learnt.get_mut(class.index()) {
            learnt.measured(items, latency);
            self.weigh(model, classes);
        }
    }

    /// What a query of this many items takes on a class; `None` if it does not run there. A class of which nothing was
    /// learnt yet seems to take no time, so that it is tried.
    pub(super) fn latency(&self, model: &ClusterModel, class: GpuClass, items: u32) -> Option<Nanos> {
        if items > model.batch_max(class) {
            return None;
        }
        Some(match self.learnt.get(class.index()) {
            None => model.latency(class, items),
            Some(learnt) => learnt.latency(items).unwrap_or(Nanos::ZERO),
        })
    }

    /// The heterogeneity coefficient of a class.
    pub(super) fn coefficient(&self, class: GpuClass) -> f64 {
        self.heterogeneity.of(class)
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::LatencyProfile;

    use super::*;
    use crate::ClassProfiles;

    #[test]
    fn without_a_profile_a_class_is_tried_and_then_known() {
        let class = |number| GpuClass::new(number).unwrap();
        let profile = |alpha_ms| LatencyProfile::from_line(alpha_ms, 0.0, 10).unwrap();
        let profiles: ClassProfiles = [(class(0), profile(1.0)), (class(1), profile(4.0))].into_iter().collect();
        let (model, classes) = (ClusterModel::new(profiles, Nanos::from_millis(50)), GpuClass::all().collect());
        let mut believes = Forecast::new(false);
        believes.update(&model, classes);
        assert_eq!(believes.latency(&model, class(1), 5), Some(Nanos::from_millis(20)));
        assert_eq!((believes.latency(&model, class(1), 11), believes.latency(&model, class(2), 1)), (None, None));
        assert_eq!((believes.coefficient(class(0)), believes.coefficient(class(1))), (1.0, 0.25));
        let mut learns = Forecast::new(true);
        learns.update(&model, classes);
        assert_eq!((learns.latency(&model, class(1), 5), learns.coefficient(class(1))), (Some(Nanos::ZERO), 0.0));
        for (number, millis) in [(0, 8), (1, 16)] {
            learns.measured(&model, classes, (class(number), 10, Nanos::from_millis(millis)));
        }
        assert_eq!(learns.latency(&model, class(1), 10), Some(Nanos::from_millis(16)));
        assert_eq!((learns.coefficient(class(0)), learns.coefficient(class(1))), (1.0, 0.5));
    }
}
