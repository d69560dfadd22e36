//! The problem: kinds with prices, models with SLOs and sizes, a budget.

use crate::latency::LatencyTable;

/// Models on one fleet: what the bound of several models is meant for, and a microsecond each.
pub const FLEET_MODELS_MAX: usize = 100;

/// A kind of GPU (or of instance) that can be rented.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The name by which a fleet counts it.
    pub name: String,
    /// Of one, in the currency of the budget.
    pub price_per_hour: f64,
    /// How many may be rented.
    pub count_max: u32,
}

/// A model that the fleet serves.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetModel {
    /// Its name, for messages.
    pub name: String,
    /// From arrival to answer.
    pub slo_ms: f64,
    /// Its share of the requests; all shares add up to one.
    pub share: f64,
    /// Shares of its requests by items, in rising order; they add up to one.
    pub sizes: Vec<(u32, f64)>,
    /// Latencies by kind.
    pub latencies: Vec<LatencyTable>,
}

impl FleetModel {
    /// The most items of a request.
    #[must_use]
    pub fn items_max(&self) -> u32 {
        self.sizes.last().map_or(0, |size| size.0)
    }

    /// The largest request that this kind answers within the SLO.
    #[must_use]
    pub fn items_within(&self, kind: usize) -> u32 {
        self.latencies[kind].items_within(self.slo_ms)
    }

    /// Mean latency in seconds of the requests of at most `items` on a kind, and their share of all.
    #[must_use]
    pub fn mean_s(&self, kind: usize, items: u32) -> (f64, f64) {
        let upto = self.sizes.iter().take_while(|size| size.0 <= items);
        let (weighted, share) = upto.fold((0.0, 0.0), |(weighted, shares), &(size, share)| {
            (weighted + share * self.latencies[kind].latency_ms(size) / 1e3, shares + share)
        });
        (weighted / share, share)
    }
}

/// Which kinds may be rented, for which models, within which budget.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetProblem {
    /// What may be spent.
    pub budget_per_hour: f64,
    /// What can be rented.
    pub kinds: Vec<Kind>,
    /// The models, at least one.
    pub models: Vec<FleetModel>,
}

impl FleetProblem {
    /// What this fleet costs per hour.
    #[must_use]
    pub fn price_per_hour(&self, counts: &[u32]) -> f64 {
        self.kinds.iter().zip(counts).map(|(kind, &count)| kind.price_per_hour * f64::from(count)).sum()
    }

    /// Whether a fleet of these counts is within the budget; a rounding error above still is.
    #[must_use]
    pub fn affordable(&self, counts: &[u32]) -> bool {
        self.price_per_hour(counts) <= self.budget_per_hour * (1.0 + 1e-9)
    }

    /// The base kind (Kairos, section 4): of those that answer every request of every model within its SLO, the one
    /// that costs least per request. `None` if no kind answers all.
    #[must_use]
    pub fn base(&self) -> Option<usize> {
        let answers_all = |&kind: &usize| self.models.iter().all(|model| model.items_within(kind) >= model.items_max());
        let cost = |kind: usize| {
            let mean_s = self.models.iter().map(|model| model.share * model.mean_s(kind, model.items_max()).0);
            self.kinds[kind].price_per_hour * mean_s.sum::<f64>()
        };
        (0..self.kinds.len()).filter(answers_all).min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
    }
}
