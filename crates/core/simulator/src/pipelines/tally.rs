//! Outcomes of the requests of a pipeline.

use symphony_types::{Nanos, Outcome, Time};
use symphony_workload::PipelineLoad;

use crate::histogram::{Histogram, quantile};
use crate::result::PipelineResult;

#[derive(Debug)]
pub(crate) struct PipelineTally {
    slo: Nanos,
    after: Nanos,
    pub(crate) offered: u64,
    pub(crate) good: u64,
    /// Of the good ones, those that lack something.
    incomplete: u64,
    late: u64,
    dropped: u64,
    latency: Histogram,
}

impl PipelineTally {
    pub(crate) fn new(load: &PipelineLoad) -> Self {
        let (slo, after) = (load.slo, load.after);
        Self { slo, after, offered: 0, good: 0, incomplete: 0, late: 0, dropped: 0, latency: Histogram::new() }
    }

    pub(crate) const fn bad(&self) -> u64 {
        self.late + self.dropped
    }

    /// A request that arrived then has its outcome now, complete or not; an answer leaves after the last
    /// post-processing.
    pub(crate) fn ended(&mut self, now: Time, arrived: Time, (outcome, is_complete): (Outcome, bool)) {
        match outcome {
            Outcome::InTime => {
                self.good += 1;
                self.incomplete += u64::from(!is_complete);
            }
            Outcome::Late => self.late += 1,
            _ => {
                self.dropped += 1;
                return;
            }
        }
        self.latency.record((now + self.after).since(arrived));
    }

    pub(crate) fn result(&self, name: &str) -> PipelineResult {
        let ms =
            |q: f64| quantile(&self.latency, (self.offered, self.good), Some(self.slo), q).map(Nanos::as_millis_f64);
        PipelineResult {
            name: name.to_owned(),
            offered: self.offered,
            good: self.good,
            incomplete: self.incomplete,
            late: self.late,
            dropped: self.dropped,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
        }
    }
}
