//! Models that can be in no part: the others are planned without them.

use std::collections::BTreeMap;

use crate::explain::no_part;
use crate::instance::barred;
use crate::plan::Plan;
use crate::problem::{Model, Problem};
use crate::unsolved::Reason;

/// A model that can be in no part, even alone. It stays where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct SetAside {
    /// The model.
    pub model: Model,
    /// The part where the plan in force has it.
    pub part: Option<usize>,
    /// Why it can be nowhere, for people.
    pub why: Reason,
}

/// Takes the models that can be nowhere out of the problem.
pub(crate) fn set_aside(problem: &mut Problem, previous: &Plan) -> Vec<SetAside> {
    let by_name: BTreeMap<&str, usize> =
        problem.parts.iter().enumerate().map(|(at, part)| (part.name.as_str(), at)).collect();
    let in_force = previous.parts.iter().flat_map(|part| part.models.iter().map(|model| (model.as_str(), &part.name)));
    let home: BTreeMap<&str, usize> =
        in_force.filter_map(|(model, part)| Some((model, *by_name.get(part.as_str())?))).collect();
    let nowhere = |model: &usize| (0..problem.parts.len()).all(|part| barred(problem, *model, part).is_some());
    let aside: Vec<SetAside> = (0..problem.models.len())
        .filter(nowhere)
        .map(|at| {
            let model = problem.models[at].clone();
            SetAside { part: home.get(model.name.as_str()).copied(), why: no_part(problem, at), model }
        })
        .collect();
    problem.models.retain(|model| !aside.iter().any(|left| left.model.name == model.name));
    aside
}

impl SetAside {
    /// Keeps what it takes where it is from being given to others.
    pub(crate) fn reserve(&self, problem: &mut Problem) {
        let Some(part) = self.part else { return };
        let part = &mut problem.parts[part];
        // What is beyond a limit alone is not there, or not within it: that is no reason to move the others out.
        if self.model.rate_rps < part.rate_max_rps {
            part.rate_max_rps -= self.model.rate_rps;
        }
        for own in &mut part.kinds {
            let needed =
                self.model.needs[own.kind].as_ref().map_or(0, |n| n.static_memory_bytes + n.dynamic_memory_bytes);
            if needed < own.memory_max_bytes {
                own.memory_max_bytes -= needed;
            }
        }
    }
}
