//! What a simulated lead learns: the production [`Learner`], connected to reports and to the objects that it corrects.

use symphony_controllers::{Correction, Learner, Run};
use symphony_types::{GpuClass, GpuId, LatencyProfile, ModelId, Nanos, Time};

use crate::policy_facts::PolicyFacts;
use crate::result::LearningResult;

/// The period of corrections, as in servers.
const CHECK_EVERY: Nanos = Nanos::from_millis(100);

/// The learner, and pending corrections.
#[derive(Debug)]
pub(crate) struct LearnerHost {
    learner: Learner,
    check_at: Time,
    /// Profiles that the referee does not have yet.
    corrected: Vec<(u32, GpuClass, LatencyProfile)>,
    result: LearningResult,
}

/// Corrections for the queues and the ranker.
#[derive(Debug)]
pub(crate) enum LearntChange {
    /// Plan with this profile.
    Profile(u32, GpuClass, LatencyProfile),
    /// Set the GPU aside, or use it again.
    Quarantine(GpuId, bool),
}

impl LearnerHost {
    /// `None` if learning is off.
    pub(crate) fn new(facts: &PolicyFacts) -> Option<Box<Self>> {
        if !facts.learning.is_on() {
            return None;
        }
        let mut learner = Learner::new(facts.learning.clone());
        for (model, spec) in (0_u32..).zip(&facts.models) {
            for (class, profile) in GpuClass::all().zip(spec.profiles.iter()) {
                learner.add_model(ModelId::new(model), class, profile.clone());
            }
        }
        let (corrected, result) = (Vec::new(), LearningResult::default());
        Some(Box::new(Self { learner, check_at: Time::ZERO + CHECK_EVERY, corrected, result }))
    }

    pub(crate) fn gpu_up(&mut self, gpu: GpuId, class: GpuClass) {
        self.learner.add_gpu(gpu.get(), gpu, class);
    }

    /// It is judged again when it is back.
    pub(crate) fn gpu_down(&mut self, gpu: GpuId) -> Vec<LearntChange> {
        let corrections = self.learner.remove_gpu(gpu.get());
        self.changes(corrections)
    }

    /// A batch has ended.
    pub(crate) fn ran(&mut self, now: Time, gpu: GpuId, model: u32, items: u32, took: Nanos) -> Vec<LearntChange> {
        let run = Run { gpu: gpu.get(), model: ModelId::new(model), items, took: Some(took) };
        let corrections = self.learner.ran(now, run).into_iter().collect();
        self.changes(corrections)
    }

    /// Returns the corrections that are due.
    pub(crate) fn due(&mut self, now: Time) -> Vec<LearntChange> {
        if now < self.check_at {
            return Vec::new();
        }
        self.check_at = now + CHECK_EVERY;
        let corrections = self.learner.due_corrections(now);
        self.changes(corrections)
    }

    pub(crate) fn corrected(&mut self) -> Option<(u32, GpuClass, LatencyProfile)> {
        self.corrected.pop()
    }

    pub(crate) const fn result(&self) -> LearningResult {
        self.result
    }

    fn changes(&mut self, corrections: Vec<Correction>) -> Vec<LearntChange> {
        let change = |correction| match correction {
            Correction::Profile { model, class, published } => {
                self.result.profiles_corrected += 1;
                self.corrected.push((model.get(), class, published.profile.clone()));
                Some(LearntChange::Profile(model.get(), class, published.profile))
            }
            Correction::Out { gpu, .. } => {
                self.result.quarantines += 1;
                Some(LearntChange::Quarantine(gpu, true))
            }
            Correction::Try { gpu, .. } => Some(LearntChange::Quarantine(gpu, false)),
            Correction::Passed { .. } => None,
        };
        corrections.into_iter().filter_map(change).collect()
    }
}
