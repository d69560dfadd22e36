//! The matching of queries to GPUs as an assignment problem (the Kairos paper, equations 1 to 8).

use symphony_assignment::{Assigner, Costs, FORBIDDEN, SIDE_MAX};
use symphony_types::{Nanos, Time};

use super::forecast::Forecast;
use super::line::{Line, Query};
use crate::rivals::cluster::{Cluster, GpuAvailability};
use crate::rivals::gpu_book::GpuBook;

/// Rows per column, as in the paper's artifact: later queries have more time, and more rows cost time for every
/// decision.
const ROWS_PER_INSTANCE: usize = 2;
/// The most columns: as many rows as go with them are what an [`Assigner`] takes.
const INSTANCES_MAX: usize = SIDE_MAX / ROWS_PER_INSTANCE;
/// ξ: what is predicted to end later than this share of the target counts as late.
const SAFE_SHARE: f64 = 0.98;
/// A late pair costs this many targets (equation 8).
const LATE_TARGETS: f64 = 10.0;
/// A pair that is late by [`SAFE_SHARE`] only; half of the penalty, as in the paper's artifact.
const DOUBTFUL_TARGETS: f64 = LATE_TARGETS / 2.0;

/// A GPU as the matching sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    /// Its free time, not before now.
    pub(super) gpu: GpuAvailability,
    /// Whether it takes one more plan.
    pub(super) has_room: bool,
}

/// Matches, and keeps its memory and the last prices.
#[derive(Clone, Debug, Default)]
pub(super) struct Matcher {
    instances: Vec<Instance>,
    costs: Vec<f64>,
    assigner: Assigner,
    pairs: Vec<(usize, usize)>,
}

/// What costs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights<'a> {
    pub(super) cluster: &'a Cluster,
    /// By model.
    pub(super) forecasts: &'a [Forecast],
    /// The QoS target; the longest, if models have several: a late pair is dearer than any that is in time.
    pub(super) target: Nanos,
}

impl Matcher {
    /// Takes the present GPUs.
    pub(super) fn update_instances(&mut self, now: Time, gpus: &GpuBook) {
        self.instances.clear();
        for slot in (0..gpus.len()).filter(|&slot| gpus.is_up(slot)) {
            let gpu = gpus.availability(slot);
            let gpu = GpuAvailability { free_at: gpu.free_at.max(now), ..gpu };
            let has_room = gpus.has_room(slot) && !gpus.is_overdue(slot, now);
            self.instances.push(Instance { gpu, has_room });
        }
        if self.instances.len() > INSTANCES_MAX {
            // Those that are free first; of the others none would be sent anything.
            self.instances.sort_unstable_by_key(|instance| (!instance.has_room, instance.gpu.free_at, instance.gpu.id));
            self.instances.truncate(INSTANCES_MAX);
        }
    }

    /// The GPUs at the last update.
    pub(super) fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// How many queries are matched at most.
    pub(super) fn rows(&self) -> usize {
        self.instances.len() * ROWS_PER_INSTANCE
    }

    /// Matches the first queries to the GPUs: equation 4 with the costs of equation 8.
    pub(super) fn solve(&mut self, now: Time, line: &Line, weights: Weights<'_>) {
        self.pairs.clear();
        self.costs.clear();
        let rows = line.len().min(self.rows());
        for query in line.first(rows) {
            self.costs.extend(self.instances.iter().map(|instance| weights.cost(now, query, instance.gpu)));
        }
        // The sides are within bounds, and costs are finite or forbidden.
        let Ok(costs) = Costs::new(rows, self.instances.len(), &self.costs) else { return };
        let columns = self.assigner.solve_warm(costs).column_of.iter().enumerate();
        self.pairs.extend(columns.filter_map(|(row, column)| Some((row, (*column)?))));
    }

    /// The pairs of row and column, by rising row.
    pub(super) fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }
}

impl Weights<'_> {
    /// C·L in milliseconds, or the penalty. Penalties are not weighted by C, as in the paper's artifact: a late query
    /// on a slow GPU is as late as on a fast one.
    fn cost(&self, now: Time, query: &Query, gpu: GpuAvailability) -> f64 {
        let (slot, items) = (query.model as usize, query.waiting.request.items);
        let (Some(known), Some(forecast)) = (self.cluster.get(slot), self.forecasts.get(slot)) else {
            return FORBIDDEN;
        };
        let Some(latency) = forecast.latency(known, gpu.class, items) else { return FORBIDDEN };
        let finish = known.start(now, gpu.free_at, items) + latency;
        let target_ms = self.target.as_millis_f64();
        let margin = Nanos::from_millis_f64(known.slo.as_millis_f64() * (1.0 - SAFE_SHARE));
        if finish > query.waiting.must_end_by {
            LATE_TARGETS * target_ms
        } else if finish + margin > query.waiting.must_end_by {
            DOUBTFUL_TARGETS * target_ms
        } else {
            forecast.coefficient(gpu.class) * finish.since(now).as_millis_f64()
        }
    }
}
