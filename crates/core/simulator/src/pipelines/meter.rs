//! What an epoch saw of a pipeline: its rate, and the rows that results brought.

use symphony_pipeline::{Edge, Pipeline};
use symphony_types::Nanos;

/// Counts since the last epoch.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    arrived: u64,
    /// Results, by stage.
    results: Vec<u64>,
    /// Rows, by edge.
    rows: Vec<u64>,
}

impl Meter {
    pub(crate) fn new(pipeline: &Pipeline) -> Self {
        Self { arrived: 0, results: vec![0; pipeline.stages().len()], rows: vec![0; pipeline.edges().len()] }
    }

    pub(crate) fn arrived(&mut self) {
        self.arrived += 1;
    }

    pub(crate) fn result(&mut self, stage: usize) {
        self.results[stage] += 1;
    }

    pub(crate) fn rows(&mut self, edge: usize, rows: u32) {
        self.rows[edge] += u64::from(rows);
    }

    /// The rate of the epoch in requests per second, if any arrived, and the pipeline with γ as measured; counting
    /// begins again. Edges whose stage had no result keep their γ.
    pub(crate) fn take(&mut self, epoch: Nanos, pipeline: &Pipeline) -> (Option<f64>, Pipeline) {
        let gamma = |(edge, &rows): (&Edge, &u64)| {
            // NaN without a result.
            rows as f64 / self.results[edge.from] as f64
        };
        let gammas: Vec<f64> = pipeline.edges().iter().zip(&self.rows).map(gamma).collect();
        let rate_rps = (self.arrived > 0).then(|| self.arrived as f64 / epoch.as_secs_f64());
        *self = Self::new(pipeline);
        (rate_rps, pipeline.with_gammas(&gammas))
    }
}
