//! A plan: models and GPUs by part.

use serde::{Deserialize, Serialize};

use crate::balance::Balance;
use crate::fingerprint::Fingerprint;

/// The models and GPUs of each part, by name, so that the plan outlives its problem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionPlan {
    /// The problem that it answers.
    pub problem: Fingerprint,
    /// The spent part of C_max since the plan that was in force when this problem was first solved: solving the same
    /// problem again does not reset it.
    pub disruption_spent: f64,
    /// The search was stopped before it had made all its moves: another run may find a better plan.
    pub cut_short: bool,
    /// How evenly rate and memory are divided.
    pub balance: Balance,
    /// The parts, in the problem's order.
    pub parts: Vec<PartPlan>,
}

/// What one part gets: its models and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartPlan {
    /// Name of the part, as in the problem.
    pub name: String,
    /// Names of its models, in the problem's order.
    pub models: Vec<String>,
    /// Total requests per second of its models.
    pub rate_rps: f64,
    /// Total static memory of its models, each on the kind where it is largest, in bytes.
    pub static_memory_bytes: u64,
    /// Its GPUs by kind, in the order of the problem's kinds, without kinds that it neither has nor needs.
    pub gpus: Vec<PartGpus>,
    /// The load of its GPUs by its models: above 1 there are too few. `None` if it has none and needs some.
    pub load: Option<f64>,
}

/// GPUs of one kind in one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartGpus {
    /// Name of the kind, as in the problem.
    pub kind: String,
    /// GPUs of this kind that the part's models would keep busy if it had no others (equations 2 and 3).
    pub needed: f64,
    /// Memory of the part's models on each of them: Σ static + max dynamic (equation 6), in bytes.
    pub memory_bytes: u64,
    /// Names of the GPUs, in the problem's order.
    pub names: Vec<String>,
}

impl PartitionPlan {
    /// Parts with too few GPUs, with their load; infinite if they have none.
    pub fn short_of_gpus(&self) -> impl Iterator<Item = (&PartPlan, f64)> {
        self.parts.iter().map(|part| (part, part.load.unwrap_or(f64::INFINITY))).filter(|&(_, load)| load > 1.0)
    }
}

/// The sum, with 0 for an empty one: [`Iterator::sum`] gives −0, which would be displayed.
pub(crate) fn total(amounts: impl Iterator<Item = f64>) -> f64 {
    amounts.fold(0.0, |sum, amount| sum + amount)
}
