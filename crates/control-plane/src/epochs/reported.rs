//! Everything that the Raft leader makes of the leads' reports.

use std::collections::BTreeMap;
use std::time::Instant;

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;
use symphony_types::ModelId;

use super::learnt_profiles::LearntProfiles;
use super::load_book::LoadBook;
use super::scaling::Scaling;
use super::set_aside::SetAside;
use super::settings::EpochSettings;

/// What the leads have had to do, what they have learnt, and how many GPUs they should have.
#[derive(Debug)]
pub(crate) struct Reported {
    book: LoadBook,
    learnt: LearntProfiles,
    pub(crate) scaling: Scaling,
    pub(crate) set_aside: SetAside,
}

/// What an epoch is planned by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Items per second of every model.
    pub(crate) rates: BTreeMap<ModelId, f64>,
    /// How long batches take, as far as that is not what the given profiles say.
    pub(crate) profiles: LearntProfiles,
}

impl Measured {
    /// What the models have to do, in items per second times by how much longer than given they take: a model that becomes slow
    /// needs as much more of GPUs as one that is asked for more.
    pub(crate) fn work(&self) -> BTreeMap<ModelId, f64> {
        self.rates.iter().map(|(&model, rate)| (model, rate * self.profiles.largest(model))).collect()
    }
}

impl Reported {
    pub(crate) fn new(settings: &EpochSettings) -> Self {
        Self {
            book: LoadBook::new(settings.rate_over),
            learnt: LearntProfiles::default(),
            scaling: Scaling::new(settings.scaling.clone()),
            set_aside: SetAside::default(),
        }
    }

    /// Takes what one replica says of its leads.
    pub(crate) fn take(&mut self, now: Instant, state: &ClusterState, subclusters: &[pb::SubclusterLoad]) {
        self.learnt.forget_gone(state);
        for load in subclusters {
            if self.book.take(now, load) {
                self.learnt.take(state, load);
                self.set_aside.take(state, load);
            }
        }
        self.scaling.take(now, state, subclusters);
    }

    /// What an epoch would be planned by; none before the rates are known.
    pub(crate) fn measured(&self, now: Instant, state: &ClusterState) -> Option<Measured> {
        let rates = self.book.rates(now, state)?;
        Some(Measured { rates, profiles: self.learnt.clone() })
    }

    /// Forgets all: somebody else leads the group.
    pub(crate) fn clear(&mut self) {
        self.book.clear();
        self.learnt.clear();
        self.scaling.clear();
        self.set_aside.clear();
    }
}

#[cfg(test)]
mod tests {
    use symphony_epochs::{Learner, LearningSettings, OnlineProfileSettings, Run};
    use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

    use super::*;
    use crate::epochs::problem::pose;
    use crate::epochs::problem::tests::{cluster, loaded};

    const SLOW: ModelId = ModelId::new(1);

    /// What a lead learns of the first model if its batches take so many times as long as given, in the words that travel.
    fn learns(given: &LatencyProfile, factor: f64) -> Vec<pb::LearntProfile> {
        let settings = LearningSettings { profiles: Some(OnlineProfileSettings::default()), stragglers: None };
        let (mut learner, mut now) = (Learner::new(settings), Time::ZERO);
        learner.add_gpu(0, GpuId::new(1), GpuClass::FIRST);
        learner.add_model(SLOW, GpuClass::FIRST, given.clone());
        for _ in 0..100 {
            now += Nanos::from_millis(20);
            let took = Nanos::new((given.latency(4).get() as f64 * factor) as u64);
            learner.ran(now, Run { gpu: 0, model: SLOW, items: 4, took });
            learner.look(now);
        }
        let said = learner.learnt().map(|(model, _, stretch)| {
            let point = |&(batch, factor): &(u32, f64)| pb::StretchPoint { batch, factor: factor as f32 };
            let points = stretch.points().iter().map(point).collect();
            pb::LearntProfile { model: model.get(), gpu_kind: "gpu".into(), points }
        });
        said.collect()
    }

    #[test]
    fn a_new_lead_that_finds_the_given_profile_right_takes_back_what_the_one_before_had_learnt() {
        let mut state = cluster(&["left", "right"]);
        loaded(&mut state, "slow", "left");
        loaded(&mut state, "other", "right");
        let (settings, start) = (EpochSettings::default(), Instant::now());
        let mut reported = Reported::new(&settings);
        let mut report = |token: u64, learnt: Vec<pb::LearntProfile>| {
            // One report begins the rates, and one knows them.
            for at in [start, start + settings.rate_over] {
                let load = |subcluster, learnt| {
                    let models = vec![pb::ModelLoad { model: subcluster, ..Default::default() }];
                    pb::SubclusterLoad { subcluster, token, models, learnt, ..Default::default() }
                };
                reported.take(at, &state, &[load(1, learnt.clone()), load(2, vec![])]);
            }
            let measured = reported.measured(start + settings.rate_over, &state).unwrap();
            let posed = pose(&state, &measured, &settings).unwrap();
            let slow = posed.problem.models.into_iter().find(|model| model.name == "slow").unwrap();
            slow.needs[0].as_ref().unwrap().profile.clone()
        };
        let given = report(1, vec![]);
        let twice = report(1, learns(&given, 2.0));
        assert!((twice.latency(4).get() as f64 / given.latency(4).get() as f64 - 2.0).abs() < 0.01, "{twice:?}");
        assert_eq!(report(2, vec![]), twice, "somebody else leads, and has learnt nothing yet");
        assert_eq!(report(2, learns(&given, 1.0)), given, "in truth it runs as given");
    }
}
