//! One request on its way through its pipeline.

use symphony_pipeline::{PipelineRun, RunCheck};
use symphony_scheduler::Request;
use symphony_types::Time;

/// A stage request that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) stage: usize,
    pub(crate) at: Time,
    pub(crate) request: Request,
}

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) pipeline: usize,
    /// Its number among the requests of its pipeline, from zero.
    pub(crate) number: u64,
    pub(crate) arrived: Time,
    pub(crate) run: PipelineRun,
    pub(crate) check: RunCheck,
    /// By their numbers within the run.
    pub(crate) asks: Vec<Asked>,
}
