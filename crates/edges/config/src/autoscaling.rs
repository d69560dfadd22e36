//! `[scheduler.autoscaling]`: the advice on numbers of GPUs.

/// Limits of the control law (docs/adr/0017), and what GPUs cost.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscalingConfig {
    /// The fewest GPUs of each kind that a sub-cluster is advised to have; without effect where there is a budget.
    pub gpus_min: u32,
    /// The most.
    pub gpus_max: u32,
    /// The share of the GPUs that is kept idle for a rise, in per cent; half of it is the least before GPUs are asked
    /// for.
    pub reserve_percent: u32,
    /// GPUs that were asked for are counted on for this long, in seconds.
    pub order_stands_s: u64,
    /// What the GPUs of each sub-cluster may cost; 0: kinds are not chosen by their prices.
    pub budget_per_hour: f64,
    /// What one GPU of each kind costs, in the currency of the budget.
    pub prices: Vec<PriceConfig>,
}

/// What a GPU costs.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Its kind, as in `backend.gpus`.
    pub kind: String,
    /// The price of one GPU of the kind.
    pub per_hour: f64,
}
