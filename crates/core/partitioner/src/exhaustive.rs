//! Exhaustive search of a tiny problem: an oracle for tests that is simple enough to trust.

use crate::change::homes;
use crate::explain;
use crate::instance::Instance;
use crate::instance::NOWHERE;
use crate::partition_plan::PartitionPlan;
use crate::problem::Problem;
use crate::solve::left_of;
use crate::state::{SLACK, balance_of};
use crate::unsolved::Unsolved;

/// The most divisions; 4^10 are about a million.
pub const DIVISIONS_MAX: u64 = 1 << 21;

/// The best division: the part of each model, and its objective (equation 4 over R̄).
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The part of each model.
    pub division: Vec<usize>,
    /// ΔR/R̄ + w·ΔS/S̄.
    pub objective: f64,
}

/// The best division that satisfies equations 5, 6 and 11; `None` if there is none. GPUs are left out: they follow the
/// models.
///
/// # Errors
/// [`Unsolved::Bad`] if the problem is invalid or has more than [`DIVISIONS_MAX`] divisions.
pub fn optimum(problem: &Problem, previous: Option<&PartitionPlan>) -> Result<Option<Optimum>, Unsolved> {
    problem.check()?;
    let of = Instance::new(problem);
    let divisions = (of.parts as u64).checked_pow(of.models as u32).filter(|&count| count <= DIVISIONS_MAX);
    let Some(divisions) = divisions else {
        let what = format!("{} models in {} parts; expected at most {DIVISIONS_MAX} divisions", of.models, of.parts);
        return Err(Unsolved::Bad(what));
    };
    let home = previous.map_or_else(|| vec![NOWHERE; of.models], |plan| homes(problem, plan));
    let left = left_of(problem, 0.0);
    let mut best: Option<Optimum> = None;
    for number in 0..divisions {
        let mut rest = number;
        let part_of: Vec<u32> = (0..of.models)
            .map(|_| {
                let part = rest % of.parts as u64;
                rest /= of.parts as u64;
                part as u32
            })
            .collect();
        if part_of.iter().enumerate().any(|(model, &part)| !of.allows(model, part as usize)) {
            continue;
        }
        let moved = (0..of.models).filter(|&model| home[model] != NOWHERE && home[model] != part_of[model]);
        let cost: f64 = moved.map(|model| of.cost[model]).sum();
        if cost > left * (1.0 + SLACK) {
            continue;
        }
        let objective = balance_of(&of, &part_of).objective;
        if best.as_ref().is_some_and(|best| best.objective <= objective)
            || explain::worst(problem, &of, &part_of).is_some()
        {
            continue;
        }
        best = Some(Optimum { division: part_of.iter().map(|&part| part as usize).collect(), objective });
    }
    Ok(best)
}
