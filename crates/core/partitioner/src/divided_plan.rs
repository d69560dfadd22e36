//! The plan for a division of the models.

use crate::gpus;
use crate::instance::{Instance, NOWHERE, load_of};
use crate::partition_plan::{PartGpus, PartPlan, PartitionPlan, total};
use crate::problem::Problem;
use crate::state::balance_of;

impl PartitionPlan {
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
