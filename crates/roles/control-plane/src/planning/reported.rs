//! Everything that the Raft leader derives from the reports of leads and frontends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;
use symphony_quotas::QuotaBook;
use symphony_types::{ModelId, Nanos};

use crate::config::WallClock;
use crate::planning::last_loads::LastLoads;
use crate::planning::learnt_profiles::LearntProfiles;
use crate::planning::load_book::LoadBook;
use crate::planning::pipeline_book::PipelineBook;
use crate::planning::scaling::Scaling;
use crate::planning::settings::EpochSettings;
use crate::planning::slow_gpus::SlowGpuEvents;
use crate::planning::splits::{Question, questions};

/// The loads of the leads, their profile corrections, and the advice on numbers of GPUs.
#[derive(Debug)]
pub(crate) struct Reported {
    book: LoadBook,
    learnt: LearntProfiles,
    pub(crate) scaling: Scaling,
    pub(crate) slow_gpus: SlowGpuEvents,
    pub(crate) last: LastLoads,
    /// What frontends have counted of pipelines.
    pub(crate) pipelines: PipelineBook,
    /// What tenants ask of frontends, under a lock of its own: many tenants take long, and loads must not wait.
    pub(crate) quotas: Arc<Mutex<QuotaBook>>,
}

/// The measured input of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Items per second of every model.
    pub(crate) rates: BTreeMap<ModelId, f64>,
    /// Batch latencies, where they differ from the given profiles.
    pub(crate) profiles: LearntProfiles,
}

impl Measured {
    /// The work of each model: items per second times the ratio of measured to given latency. A model that becomes
    /// slower needs as many more GPUs as one with more requests.
    pub(crate) fn work(&self) -> BTreeMap<ModelId, f64> {
        self.rates.iter().map(|(&model, rate)| (model, rate * self.profiles.largest(model))).collect()
    }
}

impl Reported {
    pub(crate) fn new(settings: &EpochSettings, wall_clock: WallClock) -> Self {
        Self {
            book: LoadBook::new(settings.rate_over),
            learnt: LearntProfiles::default(),
            scaling: Scaling::new(settings.scaling.clone()),
            slow_gpus: SlowGpuEvents::new(wall_clock),
            last: LastLoads::default(),
            pipelines: PipelineBook::new(settings.rate_over),
            quotas: Arc::default(),
        }
    }

    /// Takes one replica's report on its leads.
    pub(crate) fn take(&mut self, now: Instant, state: &ClusterState, subclusters: &[pb::SubclusterLoad]) {
        self.learnt.forget_gone(state);
        self.last.forget_gone(state);
        for load in subclusters {
            if self.book.take(now, load) {
                self.learnt.take(state, load);
                self.slow_gpus.take(state, load);
                self.last.take(now, load);
            }
        }
        self.scaling.take(now, state, subclusters);
    }

    /// The input of an epoch; none before the rates are known.
    pub(crate) fn measured(&self, now: Instant, state: &ClusterState) -> Option<Measured> {
        let rates = self.book.rates(now, state)?;
        Some(Measured { rates, profiles: self.learnt.clone() })
    }

    /// What the splits of all pipelines follow from, with the delays of every request besides its batch.
    pub(crate) fn questions(&self, now: Instant, state: &ClusterState, delays: Nanos) -> Vec<Question> {
        questions(now, state, &self.pipelines, &self.learnt, delays)
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        self.book.clear();
        self.learnt.clear();
        self.scaling.clear();
        self.slow_gpus.clear();
        self.last.clear();
        self.pipelines.clear();
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use symphony_controllers::{Learner, LearningSettings, OnlineProfileSettings, Run};
    use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

    use super::*;
    use crate::planning::problem::pose;
    use crate::planning::problem::tests::{cluster, loaded};

    const SLOW: ModelId = ModelId::new(1);

    /// The report of a lead that runs batches of this size of the first model, which take `factor` times as long as
    /// given.
    fn learns(given: &LatencyProfile, items: u32, factor: f64) -> Vec<pb::LearntProfile> {
        let settings = LearningSettings { profiles: Some(OnlineProfileSettings::default()), stragglers: None };
        let (mut learner, mut now) = (Learner::new(settings), Time::ZERO);
        learner.add_gpu(0, GpuId::new(1), GpuClass::FIRST);
        learner.add_model(SLOW, GpuClass::FIRST, given.clone());
        for _ in 0..100 {
            now += Nanos::from_millis(20);
            let took = Nanos::new((given.latency(items).get() as f64 * factor) as u64);
            learner.ran(now, Run { gpu: 0, model: SLOW, items, took: Some(took) });
            learner.due_corrections(now);
        }
        let profiles = learner.learnt().map(|(model, _, learnt)| {
            let point = |&(batch, factor): &(u32, f64)| pb::StretchPoint { batch, factor: factor as f32 };
            let points = learnt.stretch.points().iter().map(point).collect();
            pb::LearntProfile { model: model.get(), gpu_kind: "gpu".into(), points, measured_max: learnt.measured_max }
        });
        profiles.collect()
    }

    /// A cluster whose first model is planned by its leads' reports.
    struct Scene {
        state: ClusterState,
        settings: EpochSettings,
        start: Instant,
        reported: Reported,
    }

    impl Scene {
        fn new() -> Self {
            let mut state = cluster(&["left", "right"]);
            loaded(&mut state, "slow", "left");
            loaded(&mut state, "other", "right");
            let settings = EpochSettings::default();
            Self { state, start: Instant::now(), reported: Reported::new(&settings, || 0), settings }
        }

        /// The profile used for planning after this report of the lead under this token.
        fn after(&mut self, token: u64, learnt: &[pb::LearntProfile]) -> LatencyProfile {
            // The first report begins the rates, the second one completes them.
            for at in [self.start, self.start + self.settings.rate_over] {
                let load = |subcluster, learnt| {
                    let models = vec![pb::ModelLoad { model: subcluster, ..Default::default() }];
                    pb::SubclusterLoad { subcluster, token, models, learnt, ..Default::default() }
                };
                self.reported.take(at, &self.state, &[load(1, learnt.to_vec()), load(2, vec![])]);
            }
            let measured = self.reported.measured(self.start + self.settings.rate_over, &self.state).unwrap();
            let posed = pose(&self.state, &measured, &self.settings).unwrap();
            let slow = posed.problem.models.into_iter().find(|model| model.name == "slow").unwrap();
            slow.needs[0].as_ref().unwrap().profile.clone()
        }
    }

    /// The ratio of planned to given latency, to one part in a hundred.
    fn factor(planned: &LatencyProfile, given: &LatencyProfile, batch: u32) -> f64 {
        (100.0 * planned.latency(batch).get() as f64 / given.latency(batch).get() as f64).round() / 100.0
    }

    #[test]
    fn a_new_lead_that_finds_the_given_profile_right_takes_back_what_the_one_before_had_learnt() {
        let mut scene = Scene::new();
        let given = scene.after(1, &[]);
        let twice = scene.after(1, &learns(&given, 4, 2.0));
        assert_eq!(factor(&twice, &given, 4), 2.0);
        assert_eq!(scene.after(2, &[]), twice, "somebody else leads, and has learnt nothing yet");
        assert_eq!(scene.after(2, &learns(&given, 4, 1.0)), given, "in truth it runs as given");
    }

    #[test]
    fn a_new_lead_that_measured_small_batches_only_takes_back_nothing_of_larger_ones() {
        let mut scene = Scene::new();
        let given = scene.after(1, &[]);
        let large = given.batch_max();
        assert!(large >= 8, "{given:?}");
        scene.after(1, &learns(&given, large, 2.0));
        for small in [1.0, 1.2] {
            let planned = scene.after(2, &learns(&given, 2, small));
            let found = [1, 2, 3, large].map(|batch| factor(&planned, &given, batch));
            assert_eq!(found, [small, small, 2.0, 2.0], "it has seen no batch above two");
        }
        assert_eq!(scene.after(2, &learns(&given, large, 1.0)), given, "now it has");
    }
}
