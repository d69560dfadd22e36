//! Control decisions for a running cluster, made from measurements: how many GPUs it needs, when to compute a new plan,
//! how long batches really take, and which GPU is too slow to be used.
//!
//! Pure: time and measurements come in, advice goes out. The host of these objects measures and acts.

mod advice;
mod autoscaler;
mod failures;
mod holds;
mod isotonic;
mod learner;
mod learnt;
mod online_profile;
mod sample_ring;
mod scaler_metric;
mod settings;
mod straggler;
mod stretch;
mod trigger;
mod window;

pub use advice::{Advice, KindAdvice, Reason};
pub use autoscaler::Autoscaler;
pub use holds::Holds;
pub use learner::{Correction, Learner, LearningSettings, Run, SlowGpu};
pub use learnt::{Learnt, LearntReports};
pub use online_profile::{OnlineProfile, OnlineProfileSettings, Published};
pub use scaler_metric::{ScalerMetric, scaler_metric};
pub use settings::{AutoscalerSettings, KindSettings, SCALED_GPUS_MAX, SettingsError};
pub use straggler::{GpuState, QUARANTINE_MAX, Quarantine, StragglerSettings, Stragglers};
pub use stretch::{STRETCH_POINTS_MAX, Stretch, StretchError};
pub use trigger::{Ended, EpochTrigger, Start, TriggerSettings, Why};
pub use window::{KindWindow, Window};
