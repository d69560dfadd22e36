//! The difference between two plans.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::balance::Balance;
use crate::instance::{Instance, NOWHERE};
use crate::partition_plan::{PartitionPlan, total};
use crate::problem::Problem;
use crate::state::balance_of;

/// The change from the plan in force to another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Models that change parts, in the problem's order.
    pub moved_models: Vec<MovedModel>,
    /// Models without a previous part.
    pub new_models: Vec<String>,
    /// Models that the problem no longer has.
    pub gone_models: Vec<String>,
    /// GPUs that change parts, in the problem's order.
    pub moved_gpus: Vec<MovedGpu>,
    /// The total cost of the moves (equation 11).
    pub cost: f64,
    /// C_max.
    pub cost_max: Option<f64>,
    /// The balance of the plan in force at today's rates; `None` if it lacks a model or has unknown parts.
    pub before: Option<Balance>,
    /// The balance of the new plan.
    pub after: Balance,
}

/// A model that changes parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MovedModel {
    /// Name of the model.
    pub name: String,
    /// The old part.
    pub from: String,
    /// The new part.
    pub to: String,
    /// The cost; zero if the old part no longer exists.
    pub cost: f64,
}

/// A GPU that changes parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MovedGpu {
    /// Name of the GPU.
    pub name: String,
    /// The old part.
    pub from: String,
    /// The new part.
    pub to: String,
}

impl Change {
    /// From `previous`, the plan in force, to `plan`, which answers `problem`.
    #[must_use]
    pub fn between(problem: &Problem, previous: &PartitionPlan, plan: &PartitionPlan) -> Self {
        let (old, new) = (models_of(previous), models_of(plan));
        let mut moved_models = Vec::new();
        let mut new_models = Vec::new();
        for model in &problem.models {
            match (old.get(model.name.as_str()), new.get(model.name.as_str())) {
                (Some(&from), Some(&to)) if from != to => moved_models.push(MovedModel {
                    name: model.name.clone(),
                    from: from.to_owned(),
                    to: to.to_owned(),
                    cost: if problem.parts.iter().any(|part| part.name == from) { model.move_cost } else { 0.0 },
                }),
                (None, Some(_)) => new_models.push(model.name.clone()),
                _ => {}
            }
        }
        let gone_models = old.keys().filter(|name| !new.contains_key(*name)).map(|&name| name.to_owned()).collect();
        let (had, has) = (gpus_of(previous), gpus_of(plan));
        let moved_gpus = problem.gpus.iter().filter_map(|gpu| {
            let (from, to) = (had.get(gpu.name.as_str())?, has.get(gpu.name.as_str())?);
            (from != to).then(|| MovedGpu { name: gpu.name.clone(), from: (*from).to_owned(), to: (*to).to_owned() })
        });
        let homes = homes(problem, previous);
        let complete = homes.iter().all(|&home| home != NOWHERE);
        Self {
            moved_gpus: moved_gpus.collect(),
            cost: total(moved_models.iter().map(|model| model.cost)),
            cost_max: problem.disruption_max,
            before: complete.then(|| balance_of(&Instance::new(problem), &homes)),
            after: plan.balance,
            moved_models,
            new_models,
            gone_models,
        }
    }

    /// Whether the plans have the same models and GPUs in the same parts.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.moved_models.is_empty()
            && self.new_models.is_empty()
            && self.gone_models.is_empty()
            && self.moved_gpus.is_empty()
    }
}

fn models_of(plan: &PartitionPlan) -> BTreeMap<&str, &str> {
    plan.parts.iter().flat_map(|part| part.models.iter().map(|model| (model.as_str(), part.name.as_str()))).collect()
}

fn gpus_of(plan: &PartitionPlan) -> BTreeMap<&str, &str> {
    plan.parts
        .iter()
        .flat_map(|part| part.gpus.iter().flat_map(|gpus| &gpus.names).map(|gpu| (gpu.as_str(), part.name.as_str())))
        .collect()
}

/// The part of each model in a plan; [`NOWHERE`] if the plan has none, or one unknown to the problem.
pub(crate) fn homes(problem: &Problem, plan: &PartitionPlan) -> Vec<u32> {
    let parts: BTreeMap<&str, u32> = (0..).zip(&problem.parts).map(|(at, part)| (part.name.as_str(), at)).collect();
    let models = models_of(plan);
    let home = |name: &str| models.get(name).and_then(|part| parts.get(part)).copied().unwrap_or(NOWHERE);
    problem.models.iter().map(|model| home(&model.name)).collect()
}
