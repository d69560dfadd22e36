//! Proofs of infeasibility, and explanations of an unsuccessful search.

use std::collections::BTreeMap;

use crate::instance::{Barred, Instance, barred};
use crate::problem::Problem;
use crate::state::{SLACK, State};
use crate::unsolved::{Limit, Reason, Unsolved, list, megabytes};

/// The most models named in a reason.
const LARGEST_SHOWN: usize = 3;
/// The most sets of parts, to which models are confined, that are compared with each other.
const CONFINED_MAX: usize = 64;

/// Looks for a direct proof that there is no plan.
///
/// # Errors
/// [`Unsolved::Infeasible`] with every proof found.
pub(crate) fn hopeless(problem: &Problem, of: &Instance) -> Result<(), Unsolved> {
    let nowhere = (0..of.models).filter(|&model| (0..of.parts).all(|part| !of.allows(model, part)));
    let mut reasons: Vec<_> = nowhere.map(|model| no_part(problem, model)).collect();
    if reasons.is_empty() {
        reasons = too_much(problem, of);
    }
    if reasons.is_empty() { Ok(()) } else { Err(Unsolved::Infeasible(reasons)) }
}

pub(crate) fn no_part(problem: &Problem, model: usize) -> Reason {
    let mut because: Vec<(String, Vec<String>)> = Vec::new();
    for (part, place) in problem.parts.iter().enumerate() {
        let Some(barred) = barred(problem, model, part) else { continue };
        let words = words(problem, model, part, &barred);
        match because.iter_mut().find(|(known, _)| *known == words) {
            Some((_, parts)) => parts.push(place.name.clone()),
            None => because.push((words, vec![place.name.clone()])),
        }
    }
    let because = because.into_iter().map(|(words, parts)| format!("{words} (in {})", list(&parts)));
    Reason::NoPart { model: problem.models[model].name.clone(), because: because.collect() }
}

fn words(problem: &Problem, model: usize, part: usize, barred: &Barred) -> String {
    let (of, place) = (&problem.models[model], &problem.parts[part]);
    let kind_name = |kind: usize| problem.kinds[kind].name.as_str();
    let memory = |kind: usize, max: u64, of_what: &str| {
        let (held, dynamic) =
            of.needs[kind].as_ref().map_or((0, 0), |need| (need.static_memory_bytes, need.dynamic_memory_bytes));
        let needed = (held + dynamic) as f64;
        format!(
            "it needs {} on {} ({} static, {} dynamic), {} more than {of_what} has",
            megabytes(needed),
            kind_name(kind),
            megabytes(held as f64),
            megabytes(dynamic as f64),
            megabytes(needed - max as f64)
        )
    };
    match *barred {
        Barred::PinnedElsewhere => "it is pinned to another part".to_owned(),
        Barred::OtherKinds { only } => format!("it is pinned to {}, and there are other GPUs too", kind_name(only)),
        Barred::NoProfile { kind } => format!("it has no profile for {}", kind_name(kind)),
        Barred::SloOutOfReach { kind } => {
            let alone = of.needs[kind].as_ref().map_or(0.0, |need| need.profile.latency(1).as_millis_f64());
            let slo = of.slo.as_millis_f64();
            format!("one request takes {alone} ms on {}, {:.3} ms more than its SLO", kind_name(kind), alone - slo)
        }
        Barred::LargerThanGpu { kind } => memory(kind, problem.kinds[kind].memory_bytes, "one GPU"),
        Barred::LargerThanPart { kind } => {
            let own = place.kinds.iter().find(|own| own.kind == kind);
            memory(kind, own.map_or(0, |own| own.memory_max_bytes), "the part")
        }
        Barred::RateAbovePart => format!(
            "its rate of {:.1} r/s is {:.1} r/s above what the rank worker takes",
            of.rate_rps,
            of.rate_rps - place.rate_max_rps
        ),
    }
}

/// Models that are confined to some parts by pins, kinds or otherwise, and need more than these have.
fn too_much(problem: &Problem, of: &Instance) -> Vec<Reason> {
    let mut confined: BTreeMap<Vec<bool>, Vec<usize>> = BTreeMap::new();
    for model in 0..of.models {
        confined.entry(of.allowed[model * of.parts..][..of.parts].to_vec()).or_default().push(model);
    }
    // Small sets first: the cause is most likely there.
    let mut sets: Vec<_> = confined.keys().collect();
    sets.sort_by_key(|set| set.iter().filter(|&&in_it| in_it).count());
    let everywhere = vec![true; of.parts];
    if !confined.contains_key(&everywhere) {
        sets.push(&everywhere);
    }
    if sets.len() > CONFINED_MAX {
        sets.drain(CONFINED_MAX - 1..sets.len() - 1);
    }
    let mut reasons = Vec::new();
    for set in sets {
        let within = |other: &Vec<bool>| other.iter().zip(set).all(|(&other, &own)| own || !other);
        let members = confined.iter().filter(|(other, _)| within(other)).flat_map(|(_, models)| models);
        let models: Vec<usize> = members.copied().collect();
        let parts: Vec<usize> = (0..of.parts).filter(|&part| set[part]).collect();
        reasons.extend(over_rate(problem, of, &models, &parts));
        reasons.extend((0..problem.kinds.len()).filter_map(|kind| over_memory(problem, of, kind, &models, &parts)));
        if !reasons.is_empty() {
            return reasons;
        }
    }
    reasons
}

fn over_rate(problem: &Problem, of: &Instance, models: &[usize], parts: &[usize]) -> Option<Reason> {
    let needed: f64 = models.iter().map(|&model| of.rate[model]).sum();
    let max: f64 = parts.iter().map(|&part| of.rate_max[part]).sum();
    let exceeds = needed > max * (1.0 + SLACK);
    exceeds.then(|| reason(problem, Limit::Rate, parts, models, &of.rate, needed, max))
}

fn over_memory(problem: &Problem, of: &Instance, kind: usize, models: &[usize], parts: &[usize]) -> Option<Reason> {
    let max_of = |&part: &usize| of.memory_max[part].iter().find(|&&(own, _)| own == kind).map(|&(_, max)| max);
    let max: f64 = parts.iter().map(max_of).sum::<Option<f64>>()?;
    let mut needed: f64 = models.iter().map(|&model| of.held[kind][model]).sum();
    if parts.len() == 1 {
        needed += models.iter().map(|&model| of.dynamic[kind][model]).fold(0.0, f64::max);
    }
    let limit = Limit::Memory(problem.kinds[kind].name.clone());
    (needed > max).then(|| reason(problem, limit, parts, models, &of.held[kind], needed, max))
}

fn reason(
    problem: &Problem,
    limit: Limit,
    parts: &[usize],
    models: &[usize],
    amounts: &[f64],
    needed: f64,
    max: f64,
) -> Reason {
    Reason::TooMuch {
        limit,
        parts: parts.iter().map(|&part| problem.parts[part].name.clone()).collect(),
        needed,
        max,
        models: models.len(),
        largest: largest(problem, models, amounts),
    }
}

fn largest(problem: &Problem, models: &[usize], amounts: &[f64]) -> Vec<(String, f64)> {
    let mut sorted = models.to_vec();
    sorted.sort_by(|&a, &b| amounts[b].total_cmp(&amounts[a]).then(a.cmp(&b)));
    let first = sorted.into_iter().take(LARGEST_SHOWN);
    first.map(|model| (problem.models[model].name.clone(), amounts[model])).collect()
}

/// The limit of rate or memory with the largest relative violation; `None` if there is no violation.
pub(crate) fn worst(problem: &Problem, of: &Instance, part_of: &[u32]) -> Option<Reason> {
    let state = State::new(of, vec![crate::instance::NOWHERE; of.models], f64::INFINITY).with(part_of);
    let mut worst: Option<(f64, Reason)> = None;
    for part in 0..of.parts {
        let models: Vec<usize> = state.members[part].iter().map(|&model| model as usize).collect();
        let mut look = |limit: Limit, amounts: &[f64], needed: f64, max: f64| {
            let over = needed / max.max(1e-300) - 1.0;
            if over > SLACK && worst.as_ref().is_none_or(|(most, _)| over > *most) {
                let (part, largest) = (problem.parts[part].name.clone(), largest(problem, &models, amounts));
                worst = Some((over, Reason::NotFound { part, limit, needed, max, largest }));
            }
        };
        let sum = |amounts: &[f64]| models.iter().map(|&model| amounts[model]).sum::<f64>();
        look(Limit::Rate, &of.rate, sum(&of.rate), of.rate_max[part]);
        for &(kind, max) in &of.memory_max[part] {
            let dynamic = models.iter().map(|&model| of.dynamic[kind][model]).fold(0.0, f64::max);
            let limit = Limit::Memory(problem.kinds[kind].name.clone());
            look(limit, &of.held[kind], sum(&of.held[kind]) + dynamic, max);
        }
    }
    worst.map(|(_, reason)| reason)
}
