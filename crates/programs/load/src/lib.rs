//! The open-loop load generator.
//!
//! ```text
//! LoadPlan ─▶ schedule (seeded or recorded, all models) ─▶ pacing thread ─▶ one task per request ─▶ Target
//!                                                                              │ lag, latency, answer, check
//!                                                           Report ◀── Tally ◀─┘
//! ```
//!
//! Requests are sent when the schedule says, whether or not earlier ones were answered: a slow server meets the same
//! load as a fast one. Latency counts from the scheduled time, so a lagging generator cannot hide it. If it lags more
//! than the plan allows, the run fails whatever the server did: such numbers measure the generator.

mod access;
mod arrivals;
mod canvas_inputs;
mod engine;
mod inputs;
mod load_plan;
mod native;
mod oip;
mod oip_grpc;
mod oip_rest;
#[cfg(test)]
mod oip_tests;
mod report;
mod tally;
mod target;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use arrivals::{ArrivalKind, Arrivals, DueRequest};
pub use canvas_inputs::CanvasInputs;
pub use engine::run;
pub use inputs::{DigitInputs, EmulatedInputs, InputSet, OutputCheck, RandomInputs, Sample};
pub use load_plan::{IN_FLIGHT_MAX, LagLimits, LoadPlan, MODELS_MAX, ModelLoad, PlanError, RATE_RPS_MAX};
pub use native::NativeTarget;
pub use oip_grpc::GrpcTarget;
pub use oip_rest::RestTarget;
pub use report::{LagReport, ModelReport, Report, Verdict};
pub use tally::{GOOD_TIMES_MAX, Gap, REASONS_MAX, Tally};
pub use target::{
    Answer, ConnectError, DescribeModel, EncodedPictures, End, ModelDescription, OutputTensor, Request, Target,
};
