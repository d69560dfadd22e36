//! All fleets within the budget.

use crate::problem::FleetProblem;

/// The most fleets that are examined, those without a base included: 4 bytes per kind and a bound for each fit 100 MB.
pub const CONFIGURATIONS_MAX: usize = 1_000_000;

/// Counts by kind of every fleet within the budget and the kinds' limits in which each model has a kind that answers
/// its largest requests, in lexical order. `useful` says which kinds may be rented at all.
///
/// # Errors
/// If there are more than [`CONFIGURATIONS_MAX`].
pub fn candidates(problem: &FleetProblem, useful: &[bool]) -> Result<Vec<Vec<u32>>, String> {
    let mut found = Vec::new();
    let mut counts = vec![0; problem.kinds.len()];
    for _ in 0..CONFIGURATIONS_MAX {
        if serves(problem, &counts) {
            found.push(counts.clone());
        }
        if !advance(problem, useful, &mut counts) {
            return Ok(found);
        }
    }
    Err(format!("more than {CONFIGURATIONS_MAX} fleets are within it (CONFIGURATIONS_MAX)"))
}

/// Whether each model has a kind here that answers its largest requests in time.
fn serves(problem: &FleetProblem, counts: &[u32]) -> bool {
    problem.models.iter().all(|model| {
        let answers = |(kind, &count): (usize, &u32)| count > 0 && model.items_within(kind) >= model.items_max();
        counts.iter().enumerate().any(answers)
    })
}

/// The next fleet within the budget, the last kind first; false after the last one.
fn advance(problem: &FleetProblem, useful: &[bool], counts: &mut [u32]) -> bool {
    for kind in (0..counts.len()).rev() {
        let more = counts[kind] < problem.kinds[kind].count_max && useful.get(kind).is_none_or(|&useful| useful);
        if more {
            counts[kind] += 1;
            // Whatever more of the kinds behind it would cost, too: they are zero here.
            if problem.affordable(counts) {
                return true;
            }
        }
        counts[kind] = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencyTable;
    use crate::problem::{FleetModel, Kind};

    fn problem(budget_per_hour: f64) -> FleetProblem {
        let kind = |name: &str, price_per_hour, count_max| Kind { name: name.to_owned(), price_per_hour, count_max };
        let table = |points: &[(u32, f64)]| LatencyTable::from_points(points).unwrap();
        FleetProblem {
            budget_per_hour,
            kinds: vec![kind("base", 0.5, 3), kind("small", 0.2, 10)],
            models: vec![FleetModel {
                name: "m".to_owned(),
                slo_ms: 100.0,
                share: 1.0,
                sizes: vec![(1, 0.5), (10, 0.5)],
                latencies: vec![table(&[(1, 10.0), (10, 50.0)]), table(&[(1, 40.0), (10, 200.0)])],
            }],
        }
    }

    #[test]
    fn every_affordable_fleet_with_a_base_is_listed_once() {
        let found = candidates(&problem(1.0), &[true, true]).unwrap();
        assert_eq!(found, [vec![1, 0], vec![1, 1], vec![1, 2], vec![2, 0]]);
        assert_eq!(candidates(&problem(1.0), &[true, false]).unwrap(), [vec![1, 0], vec![2, 0]]);
        assert_eq!(candidates(&problem(0.4), &[true, true]).unwrap(), Vec::<Vec<u32>>::new());
    }
}
