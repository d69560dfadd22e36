//! Explanations of decisions: what was decided on a request, why, and its outcome. Recorded for a while, and put into
//! words.

mod explainer;
mod explanation;
mod explanation_text;
mod flight_recorder;
mod pipeline;
mod question;
mod records;
mod ring;

pub use explainer::{Explainer, Names, PolicyRules, Since};
pub use explanation::{Actual, BatchStory, DropStory, Explanation, GpuStory, InputsStory, Planned, RivalStory, Window};
pub use flight_recorder::{Finding, FlightRecorder, RecorderLimits};
pub use pipeline::{PipelineExplanation, StageExplanation};
pub use question::{LAST_BATCHES_MAX, Question};
pub use records::{BatchEnd, BatchRecord, DropRecord};
