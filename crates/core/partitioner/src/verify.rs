//! Checks a plan by names and numbers alone, independently of the solver's sums.

use std::collections::{BTreeMap, BTreeSet};

use crate::gpu_need::gpu_need;
use crate::partition_plan::{PartPlan, PartitionPlan};
use crate::problem::{Model, Part, Pin, Problem};
use crate::unsolved::megabytes;

/// The relative rounding difference between two summations of the same numbers.
const ROUNDING: f64 = 1e-6;

/// A violation in a plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    /// The parts do not match those of the problem, each once.
    #[error("the plan's parts are not those of the problem: {0}")]
    Parts(String),
    /// It names a model that the problem lacks.
    #[error("model {0} is in the plan but not in the problem")]
    UnknownModel(String),
    /// A model is in no part, or in several (equations 9 and 10).
    #[error("equation 9: model {model} is in {parts} parts; expected exactly one")]
    PartsOfModel {
        /// Name of the model.
        model: String,
        /// The number of parts that have it.
        parts: usize,
    },
    /// A model is in a part where it may not be.
    #[error("model {model} may not be in {part}: {why}")]
    NotAllowed {
        /// Name of the model.
        model: String,
        /// Name of the part.
        part: String,
        /// Why not.
        why: String,
    },
    /// Equation 5.
    #[error("equation 5: {part} gets {rate_rps:.3} r/s; its rank worker takes {max_rps:.3} r/s")]
    Rate {
        /// Name of the part.
        part: String,
        /// The sum of its models' rates.
        rate_rps: f64,
        /// R_max.
        max_rps: f64,
    },
    /// The models of a part need more memory than a GPU has (equation 6).
    #[error(
        "equation 6: the models of {part} need {} on {kind}; there are {}",
        megabytes(*.needed_bytes as f64), megabytes(*.max_bytes as f64)
    )]
    Memory {
        /// Name of the part.
        part: String,
        /// The GPU kind.
        kind: String,
        /// Σ static + max dynamic.
        needed_bytes: u64,
        /// S_max, in bytes.
        max_bytes: u64,
    },
    /// Equations 4, 7 and 8: the stated balance is wrong.
    #[error("equation {equation}: the plan states a {what} of {stated}; it is {actual}")]
    Balance {
        /// Its number in the paper: 4, 7 or 8.
        equation: u8,
        /// Which number.
        what: &'static str,
        /// The stated value.
        stated: f64,
        /// The actual value.
        actual: f64,
    },
    /// Equation 11.
    #[error("equation 11: moving {models} models costs {cost}; at most {max} is allowed")]
    Disruption {
        /// The models that move.
        models: usize,
        /// The cost of their moves.
        cost: f64,
        /// The rest of C_max.
        max: f64,
    },
    /// A GPU is missing, duplicated, unknown, of a kind that its part may not have, or not in the part to which it is
    /// fixed.
    #[error("GPU {gpu}: {why}")]
    Gpu {
        /// Name of the GPU.
        gpu: String,
        /// What is wrong.
        why: String,
    },
    /// Equations 2 and 3: the stated needs or loads are wrong.
    #[error("equation 3: {part} states {what} of {stated}; it is {actual}")]
    GpusNeeded {
        /// Name of the part.
        part: String,
        /// Which number.
        what: String,
        /// The stated value; infinite for none.
        stated: f64,
        /// The actual value.
        actual: f64,
    },
}

/// All violations in a plan for this problem, with `previous` in force.
///
/// Too few GPUs are no violation: a plan must exist even if the cluster is too small;
/// [`PartitionPlan::short_of_gpus`] reports it. Empty for every plan that [`solve`](crate::solve()) returns.
#[must_use]
pub fn verify(problem: &Problem, previous: Option<&PartitionPlan>, plan: &PartitionPlan) -> Vec<Violation> {
    let stated: Vec<_> = plan.parts.iter().map(|part| part.name.as_str()).collect();
    let expected: Vec<_> = problem.parts.iter().map(|part| part.name.as_str()).collect();
    if stated != expected {
        return vec![Violation::Parts(format!("expected {}, got {}", expected.join(", "), stated.join(", ")))];
    }
    let models: BTreeMap<&str, &Model> = problem.models.iter().map(|model| (model.name.as_str(), model)).collect();
    let mut found = placed_once(problem, plan, &models);
    for (part, of) in plan.parts.iter().zip(&problem.parts) {
        let members: Vec<&Model> = part.models.iter().filter_map(|name| models.get(name.as_str()).copied()).collect();
        limits(problem, of, &members, &mut found);
        needs(problem, part, of, &members, &mut found);
    }
    balance(problem, plan, &models, &mut found);
    disruption(problem, previous, plan, &mut found);
    gpus(problem, plan, &mut found);
    found
}

fn placed_once(problem: &Problem, plan: &PartitionPlan, models: &BTreeMap<&str, &Model>) -> Vec<Violation> {
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    plan.parts.iter().flat_map(|part| &part.models).for_each(|name| *parts.entry(name).or_default() += 1);
    let unknown = parts.keys().filter(|name| !models.contains_key(*name));
    let mut found: Vec<_> = unknown.map(|&name| Violation::UnknownModel(name.to_owned())).collect();
    for model in &problem.models {
        let parts = parts.get(model.name.as_str()).copied().unwrap_or(0);
        if parts != 1 {
            found.push(Violation::PartsOfModel { model: model.name.clone(), parts });
        }
    }
    found
}

/// Equations 5 and 6, and whether each model can run here at all.
fn limits(problem: &Problem, of: &Part, members: &[&Model], found: &mut Vec<Violation>) {
    let rate_rps: f64 = members.iter().map(|model| model.rate_rps).sum();
    if rate_rps > of.rate_max_rps * (1.0 + ROUNDING) {
        found.push(Violation::Rate { part: of.name.clone(), rate_rps, max_rps: of.rate_max_rps });
    }
    for model in members {
        let mut refuse = |why: String| {
            found.push(Violation::NotAllowed { model: model.name.clone(), part: of.name.clone(), why });
        };
        match model.pin {
            Some(Pin::Part(part)) if problem.parts[part].name != of.name => {
                refuse(format!("it is pinned to {}", problem.parts[part].name));
            }
            Some(Pin::Kind(kind)) if of.kinds.iter().any(|own| own.kind != kind) => {
                refuse(format!("it is pinned to {}", problem.kinds[kind].name));
            }
            _ => {}
        }
        for own in &of.kinds {
            let kind = &problem.kinds[own.kind];
            match &model.needs[own.kind] {
                None => refuse(format!("it has no profile for {}", kind.name)),
                Some(need) => {
                    if need.profile.latency(1) > model.slo {
                        refuse(format!("its SLO is out of reach on {}", kind.name));
                    }
                    if need.static_memory_bytes + need.dynamic_memory_bytes > kind.memory_bytes {
                        refuse(format!("it does not fit one {}", kind.name));
                    }
                }
            }
        }
    }
    for own in &of.kinds {
        let needs = || members.iter().filter_map(|model| model.needs[own.kind].as_ref());
        let held: u64 = needs().map(|need| need.static_memory_bytes).sum();
        let needed_bytes = held + needs().map(|need| need.dynamic_memory_bytes).max().unwrap_or(0);
        if needed_bytes > own.memory_max_bytes {
            let (part, kind) = (of.name.clone(), problem.kinds[own.kind].name.clone());
            found.push(Violation::Memory { part, kind, needed_bytes, max_bytes: own.memory_max_bytes });
        }
    }
}

/// Equations 2 and 3: the part's stated needs and loads.
fn needs(problem: &Problem, part: &PartPlan, of: &Part, members: &[&Model], found: &mut Vec<Violation>) {
    let need_of = |model: &Model, kind: usize| {
        let need = model.needs[kind].as_ref().and_then(|need| gpu_need(&need.profile, model.rate_rps, model.slo));
        need.map_or(f64::INFINITY, |need| need.gpus)
    };
    let mut differ = |what: String, stated: f64, actual: f64| {
        if !close(stated, actual) {
            found.push(Violation::GpusNeeded { part: part.name.clone(), what, stated, actual });
        }
    };
    let stated = |kind: usize| part.gpus.iter().find(|gpus| gpus.kind == problem.kinds[kind].name);
    for own in &of.kinds {
        let actual: f64 = members.iter().map(|model| need_of(model, own.kind)).sum();
        let needed = stated(own.kind).map_or(0.0, |gpus| gpus.needed);
        differ(format!("a need of {}", problem.kinds[own.kind].name), needed, actual);
    }
    // Each model is spread over the kinds such that it keeps all equally busy.
    let load = |model: &&Model| {
        let kinds = of.kinds.iter().map(|own| own.kind);
        let served: f64 = kinds
            .filter_map(|kind| stated(kind).map(|gpus| gpus.names.len() as f64 / need_of(model, kind)))
            .filter(|served| !served.is_nan())
            .sum();
        if model.rate_rps > 0.0 { 1.0 / served } else { 0.0 }
    };
    let actual: f64 = members.iter().map(load).sum();
    differ("a load".to_owned(), part.load.unwrap_or(f64::INFINITY), actual);
}

/// Equations 4, 7 and 8.
fn balance(problem: &Problem, plan: &PartitionPlan, models: &BTreeMap<&str, &Model>, found: &mut Vec<Violation>) {
    let shares: f64 = problem.parts.iter().map(|part| part.share).sum();
    let off = |amount: &dyn Fn(&Model) -> f64| {
        let total: f64 = problem.models.iter().map(amount).sum();
        let of_part = |(part, of): (&PartPlan, &Part)| {
            let here: f64 =
                part.models.iter().filter_map(|name| models.get(name.as_str())).map(|model| amount(model)).sum();
            if total > 0.0 { (here / (total * of.share / shares) - 1.0).abs() } else { 0.0 }
        };
        plan.parts.iter().zip(&problem.parts).map(of_part).fold(0.0, f64::max)
    };
    let rate = off(&|model| model.rate_rps);
    let memory = off(&|model| model.static_memory_bytes() as f64);
    let stated = plan.balance;
    for (equation, what, stated, actual) in [
        (7, "rate deviation", stated.rate_deviation, rate),
        (8, "memory deviation", stated.memory_deviation, memory),
        (4, "objective", stated.objective, rate + problem.memory_weight * memory),
    ] {
        if !close(stated, actual) {
            found.push(Violation::Balance { equation, what, stated, actual });
        }
    }
}

/// Equation 11.
fn disruption(problem: &Problem, previous: Option<&PartitionPlan>, plan: &PartitionPlan, found: &mut Vec<Violation>) {
    let (Some(previous), Some(max)) = (previous, problem.disruption_max) else { return };
    let parts: BTreeSet<&str> = problem.parts.iter().map(|part| part.name.as_str()).collect();
    let place = |plan: &PartitionPlan| -> BTreeMap<String, String> {
        let each =
            plan.parts.iter().flat_map(|part| part.models.iter().map(|model| (model.clone(), part.name.clone())));
        each.collect()
    };
    let (before, after) = (place(previous), place(plan));
    let moves = |model: &&Model| match (before.get(&model.name), after.get(&model.name)) {
        (Some(from), Some(to)) => from != to && parts.contains(from.as_str()),
        _ => false,
    };
    let moved: Vec<&Model> = problem.models.iter().filter(moves).collect();
    let cost: f64 = moved.iter().map(|model| model.move_cost).sum();
    let spent = if previous.problem == problem.fingerprint() { previous.disruption_spent } else { 0.0 };
    let left = (max - spent).max(0.0);
    if cost > left * (1.0 + ROUNDING) {
        found.push(Violation::Disruption { models: moved.len(), cost, max: left });
    }
}

fn gpus(problem: &Problem, plan: &PartitionPlan, found: &mut Vec<Violation>) {
    let mut wrong = |gpu: &str, why: String| found.push(Violation::Gpu { gpu: gpu.to_owned(), why });
    let known: BTreeMap<&str, _> = problem.gpus.iter().map(|gpu| (gpu.name.as_str(), gpu)).collect();
    let mut seen = BTreeSet::new();
    for (at, part) in plan.parts.iter().enumerate() {
        for gpus in &part.gpus {
            for name in &gpus.names {
                let Some(gpu) = known.get(name.as_str()) else {
                    wrong(name, "it is in the plan but not in the problem".to_owned());
                    continue;
                };
                if !seen.insert(name.as_str()) {
                    wrong(name, "it is in the plan twice".to_owned());
                }
                if gpus.kind != problem.kinds[gpu.kind].name || !problem.part_has_kind(at, gpu.kind) {
                    wrong(
                        name,
                        format!("{} has it as {}, and it is another kind or has none of it", part.name, gpus.kind),
                    );
                }
                if let Some(own) = gpu.part.filter(|&own| own != at) {
                    wrong(name, format!("it belongs to {} and is in {}", problem.parts[own].name, part.name));
                }
            }
        }
    }
    for gpu in &problem.gpus {
        let usable = (0..problem.parts.len()).any(|part| problem.part_has_kind(part, gpu.kind));
        if usable && !seen.contains(gpu.name.as_str()) {
            wrong(&gpu.name, "it is in no part".to_owned());
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_finite() && b.is_finite() && (a - b).abs() <= ROUNDING * (1.0 + a.abs().max(b.abs())))
}
