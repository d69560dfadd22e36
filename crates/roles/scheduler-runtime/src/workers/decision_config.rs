//! How sub-clusters decide.

use symphony_controllers::LearningSettings;
use symphony_explain::RecorderLimits;
use symphony_types::Nanos;

use crate::threads::worker::ThreadPolicy;
use crate::workers::delivery::REDRIVE_WAIT;

/// The configuration of sub-clusters' decisions.
#[derive(Clone, Debug)]
pub struct DecisionConfig {
    /// Model threads of each lead, beside one for its rank worker; 0 lets all leads share threads.
    pub model_threads: u32,
    /// Shared threads; 0 for one per core, at most eight.
    pub shared_threads: u32,
    /// How the threads wait.
    pub threads: ThreadPolicy,
    /// The first core that pinned threads use.
    pub first_core: usize,
    /// The size of each model worker's flight recorder; none switches recording off, to measure its cost.
    pub recorder: Option<RecorderLimits>,
    /// What is learnt from ended batches.
    pub learning: LearningSettings,
    /// How long redriven requests wait for backends that have not answered the seal.
    pub redrive_wait: Nanos,
}

impl Default for DecisionConfig {
    fn default() -> Self {
        let threads = ThreadPolicy::default();
        let learning = LearningSettings::default();
        Self {
            model_threads: 0,
            shared_threads: 0,
            threads,
            first_core: 0,
            recorder: Some(RecorderLimits::WORKER),
            learning,
            redrive_wait: REDRIVE_WAIT,
        }
    }
}
