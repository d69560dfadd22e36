//! Learns from the ends of a lead's batches: real execution times, and GPUs that are slower than their peers. Servers
//! and the simulator host the same object.

use std::collections::{BTreeMap, BTreeSet};

use symphony_types::{GpuClass, GpuId, LatencyProfile, ModelId, Nanos, Time};

use crate::learnt::Learnt;
use crate::online_profile::{OnlineProfile, OnlineProfileSettings, Published};
use crate::straggler::{Quarantine, StragglerSettings, Stragglers};
use crate::stretch::Stretch;

/// The period of corrections: each goes through all samples since the last one.
const CHECK_EVERY: Nanos = Nanos::from_millis(1000);

/// What a lead learns; by default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearningSettings {
    /// Settings of profile correction, if enabled.
    pub profiles: Option<OnlineProfileSettings>,
    /// Settings of the search for slow GPUs, if enabled.
    pub stragglers: Option<StragglerSettings>,
}

impl LearningSettings {
    /// Whether anything is learnt.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.profiles.is_some() || self.stragglers.is_some()
    }
}

/// The end of a batch as its model worker reports it. The GPU is an ordinal of the sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Ordinal of the GPU that ran the batch.
    pub gpu: u32,
    /// The model whose batch it was.
    pub model: ModelId,
    /// Batch size in items.
    pub items: u32,
    /// Execution time; `None` if the executor reported that the whole batch failed.
    pub took: Option<Nanos>,
}

/// Instructions for the workers.
#[derive(Clone, Debug, PartialEq)]
pub enum Correction {
    /// Plan with this profile for the model on GPUs of the class.
    Profile {
        /// The model that has the profile.
        model: ModelId,
        /// The class of GPUs that it is for.
        class: GpuClass,
        /// The profile, and its difference to the given one.
        published: Published,
    },
    /// Set the GPU aside: no model gets it.
    Out {
        /// Its id, for people.
        gpu: GpuId,
        /// Its ordinal, for the workers.
        ordinal: u32,
        /// Slowdown of its batches relative to the usual time, failed ones left out.
        slowdown: f64,
        /// Number of failed batches.
        failed: u32,
        /// How long it is set aside; `None` until its backend restarts.
        pause: Option<Nanos>,
    },
    /// Use the GPU again, on trial.
    Try {
        /// Its id, for people.
        gpu: GpuId,
        /// Its ordinal, for the workers.
        ordinal: u32,
    },
    /// The GPU runs like its peers again.
    Passed {
        /// Its id, for people.
        gpu: GpuId,
    },
}

/// A GPU that is set aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowGpu {
    /// Its id, for people.
    pub gpu: GpuId,
    /// Slowdown of its batches relative to the usual time, failed ones left out.
    pub slowdown: f64,
    /// Number of failed batches.
    pub failed: u32,
    /// How long it is set aside before its trial; `None` if it is lost, until its backend restarts.
    pub left: Option<Nanos>,
}

/// Why a GPU is set aside, and until when; `None` until its backend restarts.
#[derive(Clone, Copy, Debug)]
struct QuarantinedGpu {
    slowdown: f64,
    failed: u32,
    until: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct KnownGpu {
    gpu: GpuId,
    class: GpuClass,
}

/// What one lead has learnt. It is kept in memory only: a new leader learns it again (docs/adr/0019).
#[derive(Debug, Default)]
pub struct Learner {
    settings: LearningSettings,
    gpus: BTreeMap<u32, KnownGpu>,
    stragglers: BTreeMap<GpuClass, Stragglers>,
    profiles: BTreeMap<(ModelId, GpuClass), OnlineProfile>,
    slow: BTreeMap<GpuId, QuarantinedGpu>,
    /// Profiles with new measurements since the last correction.
    fresh: BTreeSet<(ModelId, GpuClass)>,
    /// The median relative deviation of batches from the given profile, where enough was measured.
    drifts: BTreeMap<(ModelId, GpuClass), f64>,
    /// The stretch from the given profile to the one in force, where something was measured, and the largest measured
    /// batch size. A neutral stretch counts, too: it overrides that of an earlier lead. Beyond the measured size the
    /// earlier lead's stretch still holds.
    learnt: BTreeMap<(ModelId, GpuClass), Learnt>,
    checked_at: Time,
}

impl Learner {
    /// Without GPUs and models.
    #[must_use]
    pub fn new(settings: LearningSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Adds a GPU of the sub-cluster by its ordinal.
    pub fn add_gpu(&mut self, ordinal: u32, gpu: GpuId, class: GpuClass) {
        self.gpus.insert(ordinal, KnownGpu { gpu, class });
        if let Some(settings) = &self.settings.stragglers {
            let of_class = self.stragglers.entry(class).or_insert_with(|| Stragglers::new(settings.clone()));
            of_class.add(gpu);
        }
    }

    /// The GPU is removed, or its backend restarts: its evidence is discarded.
    pub fn remove_gpu(&mut self, ordinal: u32) -> Vec<Correction> {
        let Some(KnownGpu { gpu, class }) = self.gpus.remove(&ordinal) else { return Vec::new() };
        let tries = self.stragglers.get_mut(&class).map(|of_class| of_class.remove(gpu)).unwrap_or_default();
        let was_out = self.slow.remove(&gpu).map(|_| Correction::Try { gpu, ordinal });
        let mut all: Vec<_> = was_out.into_iter().collect();
        all.extend(tries.into_iter().filter_map(|quarantine| self.correction(Time::ZERO, quarantine)));
        all
    }

    /// The model is served with this profile on GPUs of the class.
    pub fn add_model(&mut self, model: ModelId, class: GpuClass, given: LatencyProfile) {
        let settings = self.settings.profiles.clone().unwrap_or_default();
        self.profiles.insert((model, class), OnlineProfile::new(given, settings));
        self.drifts.remove(&(model, class));
        self.learnt.remove(&(model, class));
    }

    /// The model is no longer served here.
    pub fn remove_model(&mut self, model: ModelId) {
        self.profiles.retain(|(of, _), _| *of != model);
        self.drifts.retain(|(of, _), _| *of != model);
        self.learnt.retain(|(of, _), _| *of != model);
        self.fresh.retain(|(of, _)| *of != model);
        self.stragglers.values_mut().for_each(|of_class| of_class.forget(model));
    }

    /// A batch has ended. Batches of unknown GPUs or models are ignored.
    pub fn ran(&mut self, now: Time, run: Run) -> Option<Correction> {
        let Run { gpu: ordinal, model, items, took } = run;
        let KnownGpu { gpu, class } = *self.gpus.get(&ordinal)?;
        let profile = self.profiles.get_mut(&(model, class))?;
        if items == 0 || items > profile.given().batch_max() {
            return None;
        }
        let Some(took) = took else {
            let failed = self.stragglers.get_mut(&class).and_then(|of_class| of_class.failed(now, gpu));
            return self.correction(now, failed?);
        };
        // Compared with the given profile: the usual time of a model must not jump whenever its profile is corrected.
        let expected = profile.given().latency(items);
        let stragglers = self.stragglers.get_mut(&class);
        let (quarantine, suspect) = match stragglers {
            Some(of_class) => (of_class.ran(now, gpu, model, expected, took), of_class.is_suspect(gpu)),
            None => (None, false),
        };
        // Measurements of one sick GPU must not enter the profile.
        if !suspect {
            profile.ran(now, items, took);
            self.fresh.insert((model, class));
        }
        self.correction(now, quarantine?)
    }

    /// Its backend reports the GPU as lost: every batch will fail until the backend restarts. It is set aside even if
    /// nothing is to be learnt, and regardless of how many others are.
    pub fn lost(&mut self, ordinal: u32) -> Option<Correction> {
        let gpu = self.gpus.get(&ordinal)?.gpu;
        let lost = QuarantinedGpu { slowdown: 1.0, failed: 0, until: None };
        let before = self.slow.insert(gpu, lost);
        before.is_none_or(|before| before.until.is_some()).then_some(Correction::Out {
            gpu,
            ordinal,
            slowdown: lost.slowdown,
            failed: lost.failed,
            pause: None,
        })
    }

    /// Returns the corrections that are due.
    pub fn due_corrections(&mut self, now: Time) -> Vec<Correction> {
        if now.since(self.checked_at) < CHECK_EVERY {
            return Vec::new();
        }
        self.checked_at = now;
        let due: Vec<_> = self.stragglers.values_mut().flat_map(|of_class| of_class.tick(now)).collect();
        let mut all: Vec<_> = due.into_iter().filter_map(|quarantine| self.correction(now, quarantine)).collect();
        for (model, class) in std::mem::take(&mut self.fresh) {
            let Some(profile) = self.profiles.get_mut(&(model, class)) else { continue };
            match profile.drift(now) {
                Some(drift) => self.drifts.insert((model, class), drift),
                None => self.drifts.remove(&(model, class)),
            };
            if self.settings.profiles.is_none() {
                continue;
            }
            let published = profile.publish(now);
            if let Some(measured_max) = profile.measured_max() {
                let stretch = || Stretch::between(profile.given(), profile.in_force());
                let new = || Learnt { stretch: stretch(), measured_max };
                let learnt = self.learnt.entry((model, class)).or_insert_with(new);
                learnt.measured_max = measured_max;
                if published.is_some() {
                    learnt.stretch = stretch();
                }
            }
            all.extend(published.map(|published| Correction::Profile { model, class, published }));
        }
        all
    }

    /// GPUs that are set aside.
    #[must_use]
    pub fn slow(&self, now: Time) -> Vec<SlowGpu> {
        let slow = |(&gpu, &QuarantinedGpu { slowdown, failed, until }): (&GpuId, &QuarantinedGpu)| {
            let left = until.map(|until| until.since(now));
            SlowGpu { gpu, slowdown, failed, left }
        };
        self.slow.iter().map(slow).collect()
    }

    /// The median relative deviation of each model's batches from its given profile, where enough was measured.
    pub fn drifts(&self) -> impl Iterator<Item = (ModelId, GpuClass, f64)> {
        self.drifts.iter().map(|(&(model, class), &drift)| (model, class, drift))
    }

    /// The stretches from given profiles to those in force, where they were measured; neutral if the given one is
    /// right.
    pub fn learnt(&self) -> impl Iterator<Item = (ModelId, GpuClass, &Learnt)> {
        self.learnt.iter().map(|(&(model, class), learnt)| (model, class, learnt))
    }

    fn correction(&mut self, now: Time, quarantine: Quarantine) -> Option<Correction> {
        let (Quarantine::Out { gpu, .. } | Quarantine::Try(gpu) | Quarantine::Passed(gpu)) = quarantine;
        let ordinal = self.gpus.iter().find(|(_, known)| known.gpu == gpu).map(|(&ordinal, _)| ordinal)?;
        // A lost GPU has no trial.
        if self.slow.get(&gpu).is_some_and(|aside| aside.until.is_none()) {
            return None;
        }
        Some(match quarantine {
            Quarantine::Out { slowdown, failed, until, .. } => {
                self.slow.insert(gpu, QuarantinedGpu { slowdown, failed, until: Some(until) });
                Correction::Out { gpu, ordinal, slowdown, failed, pause: Some(until.since(now)) }
            }
            Quarantine::Try(_) => {
                self.slow.remove(&gpu);
                Correction::Try { gpu, ordinal }
            }
            Quarantine::Passed(_) => Correction::Passed { gpu },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId::new(9);
    const CLASS: GpuClass = GpuClass::FIRST;

    fn given() -> LatencyProfile {
        LatencyProfile::from_line(1.0, 5.0, 32).unwrap()
    }

    struct Scene {
        learner: Learner,
        now: Time,
    }

    impl Scene {
        /// Four GPUs, 10 to 13 with ordinals 0 to 3, and a model.
        fn new() -> Self {
            let settings = LearningSettings {
                profiles: Some(OnlineProfileSettings::default()),
                stragglers: Some(StragglerSettings::default()),
            };
            let mut learner = Learner::new(settings);
            (0..4).for_each(|ordinal| learner.add_gpu(ordinal, GpuId::new(10 + ordinal), CLASS));
            learner.add_model(MODEL, CLASS, given());
            Self { learner, now: Time::ZERO }
        }

        /// This many batches of 8 on each GPU, slower than given by the factor `slow` on the last GPU and `all` on the
        /// others.
        fn pass(&mut self, batches: usize, all: f64, slow: f64) -> Vec<Correction> {
            let mut corrections = Vec::new();
            for _ in 0..batches {
                self.now += Nanos::from_millis(20);
                for gpu in 0..4 {
                    let factor = if gpu == 3 { slow } else { all };
                    let took = Nanos::new((given().latency(8).get() as f64 * factor) as u64);
                    corrections
                        .extend(self.learner.ran(self.now, Run { gpu, model: MODEL, items: 8, took: Some(took) }));
                }
                corrections.extend(self.learner.due_corrections(self.now));
            }
            corrections
        }
    }

    #[test]
    fn a_slow_gpu_is_set_aside_tried_again_and_spoils_no_profile() {
        let mut scene = Scene::new();
        assert_eq!(scene.pass(100, 1.0, 1.0), []);
        let corrections = scene.pass(100, 1.0, 2.0);
        let [Correction::Out { gpu, ordinal: 3, slowdown, failed: 0, pause: Some(pause) }] = corrections.as_slice()
        else {
            panic!("{corrections:?}")
        };
        assert!(*gpu == GpuId::new(13) && (slowdown - 2.0).abs() < 0.05, "{corrections:?}");
        assert_eq!(*pause, StragglerSettings::default().pause);
        assert_eq!(scene.learner.slow(scene.now).iter().map(|slow| slow.gpu).collect::<Vec<_>>(), [GpuId::new(13)]);
        assert_eq!(scene.learner.drifts().count(), 0, "nine in ten batches were as given");

        scene.now += *pause;
        let corrections = scene.pass(60, 1.0, 1.0);
        assert_eq!(
            corrections,
            [Correction::Try { gpu: GpuId::new(13), ordinal: 3 }, Correction::Passed { gpu: GpuId::new(13) }]
        );
        assert_eq!(scene.learner.slow(scene.now), []);
    }

    #[test]
    fn what_is_slower_everywhere_is_a_profile_and_nobodys_fault() {
        let mut scene = Scene::new();
        let corrections = scene.pass(100, 1.5, 1.5);
        let [Correction::Profile { model: MODEL, class: CLASS, published }] = corrections.as_slice() else {
            panic!("{corrections:?}")
        };
        let ratio = published.profile.latency(8).get() as f64 / given().latency(8).get() as f64;
        assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
        let drifts: Vec<_> = scene.learner.drifts().collect();
        assert!(matches!(drifts.as_slice(), [(MODEL, CLASS, drift)] if (drift - 1.5).abs() < 0.01), "{drifts:?}");
        let learnt: Vec<_> = scene.learner.learnt().map(|(.., learnt)| learnt.stretch.over(&given())).collect();
        assert!(
            matches!(learnt.as_slice(), [entry] if (entry.latency(8).as_millis_f64() - 19.5).abs() < 0.1),
            "{learnt:?}"
        );
        scene.learner.remove_model(MODEL);
        assert_eq!((scene.pass(30, 3.0, 3.0), scene.learner.drifts().count()), (vec![], 0), "nobody serves it");
        assert_eq!(scene.learner.learnt().count(), 0);
    }

    #[test]
    fn a_given_profile_that_is_found_right_is_said_to_be() {
        let mut scene = Scene::new();
        assert_eq!(scene.pass(4, 1.0, 1.0), []);
        scene.now += CHECK_EVERY;
        assert_eq!(
            (scene.learner.due_corrections(scene.now), scene.learner.learnt().count()),
            (vec![], 0),
            "16 batches are few"
        );
        assert_eq!(scene.pass(100, 1.02, 1.02), [], "nothing is to be corrected");
        let learnt: Vec<_> = scene.learner.learnt().map(|(.., learnt)| learnt.clone()).collect();
        assert!(
            matches!(learnt.as_slice(), [entry] if entry.stretch.changes_nothing() && entry.measured_max == 8),
            "what is in force is told, and of which batches: {learnt:?}"
        );
        // Loaded again with any profile, the model starts without measurements.
        scene.learner.add_model(MODEL, CLASS, given());
        assert_eq!(scene.learner.learnt().count(), 0);
    }

    #[test]
    fn a_gpu_that_comes_back_with_a_new_boot_is_judged_anew() {
        let mut scene = Scene::new();
        let _ = scene.pass(100, 1.0, 1.0);
        assert_eq!(scene.pass(100, 1.0, 2.0).len(), 1);
        let corrections = scene.learner.remove_gpu(3);
        assert_eq!(corrections, [Correction::Try { gpu: GpuId::new(13), ordinal: 3 }], "its place is given again");
        assert_eq!((scene.learner.slow(scene.now), scene.learner.remove_gpu(3)), (vec![], vec![]));
    }

    #[test]
    fn a_lost_gpu_is_out_for_as_long_as_its_backend_lives_whatever_is_to_be_learnt() {
        let lost = Correction::Out { gpu: GpuId::new(13), ordinal: 3, slowdown: 1.0, failed: 0, pause: None };
        let mut scene = Scene::new();
        assert_eq!((scene.learner.lost(3), scene.learner.lost(3)), (Some(lost.clone()), None), "it is said once");
        assert_eq!(scene.learner.lost(9), None, "nobody knows it");
        let _ = scene.pass(100, 1.0, 1.0);
        scene.now += Nanos::from_millis(10_000_000);
        assert_eq!(scene.pass(100, 1.0, 2.0), [], "it is not tried again, and nothing more is found out about it");
        assert!(matches!(scene.learner.slow(scene.now)[..], [SlowGpu { left: None, .. }]));
        assert_eq!(scene.learner.remove_gpu(3), [Correction::Try { gpu: GpuId::new(13), ordinal: 3 }]);
        assert_eq!(scene.learner.slow(scene.now), []);

        let mut none = Learner::new(LearningSettings::default());
        none.add_gpu(3, GpuId::new(13), CLASS);
        assert_eq!(none.lost(3), Some(lost), "also where nothing is learnt, and it is the only one");
    }

    #[test]
    fn what_is_off_is_off() {
        let mut scene = Scene::new();
        scene.learner.settings.profiles = None;
        assert_eq!(scene.pass(200, 1.5, 1.5), []);
        let mut none = Learner::new(LearningSettings::default());
        none.add_gpu(0, GpuId::new(1), CLASS);
        none.add_model(MODEL, CLASS, given());
        let run = Run { gpu: 0, model: MODEL, items: 99, took: Some(Nanos::from_millis(1)) };
        assert_eq!((none.ran(Time::ZERO, run), none.ran(Time::ZERO, Run { gpu: 7, ..run })), (None, None));
    }
}
