//! The production decision objects in virtual time: how would this policy serve this load on these GPUs?
//!
//! Pure: a scenario, a seed and a rate go in, and a result comes out, the same bytes every time. The caller reads
//! files, starts threads and reads the clock.

mod added_policy;
#[cfg(test)]
mod added_policy_tests;
mod build_policy;
mod capacity;
mod error;
mod explained;
mod failures;
mod find_goodput;
mod goodput;
mod gpu_reports;
mod gpus;
mod grant_check;
mod histogram;
mod hosted;
mod learner_host;
mod open_requests;
mod oracle;
mod pipelines;
#[cfg(test)]
mod planted_faults;
mod policy_facts;
#[cfg(test)]
mod preemption_tests;
mod preflight;
mod queues_and_ranker;
mod referee;
mod result;
mod rules;
mod scaling;
mod scaling_trace;
mod simulate;
mod slow_gpus;
mod spin_trap;
mod tally;
mod tap;
mod timeline;
mod timeline_svg;
mod timeline_trace;
mod watch;
mod world;

pub use capacity::{fluid_bound_rps, fluid_gpus};
pub use error::Error;
pub use explained::{Ask, EXPLAINED_MAX};
pub use find_goodput::find_goodput;
pub use goodput::{GOODPUT_RESOLUTION, Goodput, GoodputSearch, Trial};
pub use oracle::oracle_rps;
pub use policy_facts::{ModelFacts, PolicyFacts};
pub use preflight::{PreflightError, RateLimit, preflight};
pub use result::{LearningResult, ModelResult, PipelineResult, Queueing, RunResult, SimulationResult};
pub use scaling_trace::{CourseStep, ModelCounts, ScalingResult};
pub use simulate::{Verdict, meets_slo, simulate, simulate_explained, simulate_timeline};
pub use spin_trap::SPIN_STEPS_MIN;
pub use timeline::{TIMELINE_EVENTS_MAX, Timeline, TimelineRange};
pub use timeline_trace::{TraceSpan, spans_to_trace_json};
