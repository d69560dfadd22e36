//! A plan: models and GPUs by part.

use serde::{Deserialize, Serialize};

use crate::balance::Balance;
use crate::fingerprint::Fingerprint;
use crate::gpus;
use crate::instance::{Instance, NOWHERE, load_of};
use crate::problem::Problem;
use crate::state::balance_of;

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
    /// Its balance.
    pub balance: Balance,
    /// The parts, in the problem's order.
    pub parts: Vec<PartPlan>,
}

/// One part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartPlan {
    /// Its name.
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
    /// The kind.
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

    /// The plan for this division, with its GPUs.
    pub(crate) fn of(problem: &Problem, instance: &Instance, part_of: &[u32], previous: Option<&Self>) -> Self {
        let gpus = gpus::distribute(problem, instance, part_of, previous);
        let part_plan = |part: usize| {
            let members: Vec<usize> =
                (0..problem.models.len()).filter(|&model| part_of[model] as usize == part).collect();
            let by_kind = &gpus[part];
            let load = total(members.iter().map(|&model| {
                load_of(by_kind.iter().map(|names| names.len() as u32), |kind| instance.gpus[kind][model])
            }));
            let kinds = problem.parts[part].kinds.iter().map(|own| own.kind);
            let sum = |amounts: &[f64]| total(members.iter().map(|&model| amounts[model]));
            let mut part_gpus: Vec<_> = kinds
                .map(|kind| {
                    let largest = members.iter().map(|&model| instance.dynamic[kind][model]).fold(0.0, f64::max);
                    let memory_bytes = (sum(&instance.held[kind]) + largest) as u64;
                    let names = by_kind[kind].iter().map(|&gpu| problem.gpus[gpu].name.clone()).collect();
                    let gpus = PartGpus {
                        kind: problem.kinds[kind].name.clone(),
                        needed: sum(&instance.gpus[kind]),
                        memory_bytes,
                        names,
                    };
                    (kind, gpus)
                })
                .filter(|(_, gpus)| !gpus.names.is_empty() || gpus.memory_bytes > 0)
                .collect();
            part_gpus.sort_by_key(|&(kind, _)| kind);
            PartPlan {
                name: problem.parts[part].name.clone(),
                models: members.iter().map(|&model| problem.models[model].name.clone()).collect(),
                rate_rps: sum(&instance.rate),
                static_memory_bytes: sum(&instance.memory) as u64,
                gpus: part_gpus.into_iter().map(|(_, gpus)| gpus).collect(),
                load: load.is_finite().then_some(load),
            }
        };
        debug_assert!(part_of.iter().all(|&part| part != NOWHERE), "a plan has every model");
        Self {
            problem: problem.fingerprint(),
            disruption_spent: 0.0,
            cut_short: false,
            balance: balance_of(instance, part_of),
            parts: (0..problem.parts.len()).map(part_plan).collect(),
        }
    }
}

/// The sum, with 0 for an empty one: [`Iterator::sum`] gives −0, which would be displayed.
pub(crate) fn total(amounts: impl Iterator<Item = f64>) -> f64 {
    amounts.fold(0.0, |sum, amount| sum + amount)
}
