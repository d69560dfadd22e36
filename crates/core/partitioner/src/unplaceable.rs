//! Removes models that fit nowhere from a problem; the others are planned without them.

use std::collections::{BTreeMap, BTreeSet};

use crate::explain::no_part;
use crate::instance::barred;
use crate::partition_plan::PartitionPlan;
use crate::problem::{Model, PartKind, Problem};
use crate::unsolved::Reason;

/// A model that fits into no part, even alone. It stays where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct UnplaceableModel {
    /// The model, as in the problem.
    pub model: Model,
    /// Its part in the plan in force.
    pub part: Option<usize>,
    /// Why it fits nowhere, for display.
    pub why: Reason,
}

/// Removes the models that fit nowhere from the problem.
pub(crate) fn remove_unplaceable(problem: &mut Problem, previous: &PartitionPlan) -> Vec<UnplaceableModel> {
    let by_name: BTreeMap<&str, usize> =
        problem.parts.iter().enumerate().map(|(at, part)| (part.name.as_str(), at)).collect();
    let in_force = previous.parts.iter().flat_map(|part| part.models.iter().map(|model| (model.as_str(), &part.name)));
    let home: BTreeMap<&str, usize> =
        in_force.filter_map(|(model, part)| Some((model, *by_name.get(part.as_str())?))).collect();
    let nowhere = |model: &usize| (0..problem.parts.len()).all(|part| barred(problem, *model, part).is_some());
    let aside: Vec<UnplaceableModel> = (0..problem.models.len())
        .filter(nowhere)
        .map(|at| {
            let model = problem.models[at].clone();
            UnplaceableModel { part: home.get(model.name.as_str()).copied(), why: no_part(problem, at), model }
        })
        .collect();
    problem.models.retain(|model| !aside.iter().any(|left| left.model.name == model.name));
    aside
}

/// Reserves what they use where they are.
///
/// Dynamic memory is shared, which a limit cannot express. So the reservation leaves enough for the present models
/// beside them if these really fit, and a plan found under it has to be checked with [`fits`].
pub(crate) fn reserve(aside: &[UnplaceableModel], problem: &mut Problem, in_force: &PartitionPlan) {
    let Problem { models, parts, .. } = problem;
    for (at, part) in parts.iter_mut().enumerate() {
        // Usage beyond a limit cannot be reserved, and is no reason to move the other models away.
        for model in staying(aside, at) {
            if model.rate_rps < part.rate_max_rps {
                part.rate_max_rps -= model.rate_rps;
            }
        }
        for own in &mut part.kinds {
            let max = own.memory_max_bytes;
            let stay = held_aside(aside, at, own);
            let others = held_by(members(models, in_force, &part.name), own.kind);
            let apart = max - stay.together();
            own.memory_max_bytes =
                if stay.and(others).together() <= max { apart.max(others.together()) } else { apart };
        }
    }
}

/// Whether the plan's models fit beside those that stay, in a problem without reservations.
pub(crate) fn fits(aside: &[UnplaceableModel], problem: &Problem, plan: &PartitionPlan) -> bool {
    let mut parts = problem.parts.iter().enumerate().filter(|&(at, _)| staying(aside, at).next().is_some());
    parts.all(|(at, part)| {
        let mut kinds = part.kinds.iter();
        kinds.all(|own| {
            let others = held_by(members(&problem.models, plan, &part.name), own.kind);
            held_aside(aside, at, own).and(others).together() <= own.memory_max_bytes
        })
    })
}

/// Memory of models on one GPU, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Σ static, in bytes.
    static_bytes: u64,
    /// Max dynamic.
    dynamic_bytes: u64,
}

impl Held {
    fn and(self, other: Self) -> Self {
        Self {
            static_bytes: self.static_bytes + other.static_bytes,
            dynamic_bytes: self.dynamic_bytes.max(other.dynamic_bytes),
        }
    }

    fn together(self) -> u64 {
        self.static_bytes + self.dynamic_bytes
    }
}

fn staying(aside: &[UnplaceableModel], part: usize) -> impl Iterator<Item = &Model> {
    aside.iter().filter(move |left| left.part == Some(part)).map(|left| &left.model)
}

fn members<'a>(models: &'a [Model], plan: &PartitionPlan, part: &str) -> impl Iterator<Item = &'a Model> {
    let here = plan.parts.iter().find(|planned| planned.name == part);
    let names: BTreeSet<&str> = here.iter().flat_map(|here| &here.models).map(String::as_str).collect();
    models.iter().filter(move |model| names.contains(model.name.as_str()))
}

fn held_by<'a>(models: impl Iterator<Item = &'a Model>, kind: usize) -> Held {
    models.map(|model| held(model, kind)).fold(Held::default(), Held::and)
}

fn held(model: &Model, kind: usize) -> Held {
    model.needs[kind].as_ref().map_or_else(Held::default, |need| Held {
        static_bytes: need.static_memory_bytes,
        dynamic_bytes: need.dynamic_memory_bytes,
    })
}

/// Memory of the remaining models in the part, as far as it leaves some to others.
fn held_aside(aside: &[UnplaceableModel], part: usize, own: &PartKind) -> Held {
    staying(aside, part).map(|model| held(model, own.kind)).fold(Held::default(), |sum, next| {
        let more = sum.and(next);
        if more.together() < own.memory_max_bytes { more } else { sum }
    })
}
