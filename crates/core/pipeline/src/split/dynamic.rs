//! The dynamic program f(u, t) of the Nexus paper, section 6.2, over the parts of a shape.
//!
//! f of a part at t is the fewest GPUs that run its stages within t steps of the time grid. Of parts in series it is
//! the minimum over all divisions of t, of parts in parallel the sum at t. All functions fall with t.

use crate::shape::{Part, Shape};

/// f of a stage: the fewest GPUs by budget in steps, falling; infinite where no batch fits.
pub(crate) type Table = Vec<f64>;

/// The budget of each stage in steps; `None` if no division of `steps` has a batch for every stage. Steps that no stage
/// needs go to the last ones, so that each path uses all steps.
pub(crate) fn divide(shape: &Shape, stages: &[Table], steps: usize) -> Option<Vec<usize>> {
    let mut tables: Vec<Table> = Vec::with_capacity(shape.parts().len());
    for part in shape.parts() {
        tables.push(match *part {
            Part::Stage(stage) => stages[stage].clone(),
            Part::Parallel(one, two) => tables[one].iter().zip(&tables[two]).map(|(one, two)| one + two).collect(),
            Part::Series(one, two) => in_series(&tables[one], &tables[two], steps),
        });
    }
    let whole = tables.len().checked_sub(1)?;
    if !tables[whole][steps].is_finite() {
        return None;
    }
    let mut budgets = vec![0; stages.len()];
    let mut open = vec![(whole, steps)];
    while let Some((part, within)) = open.pop() {
        match shape.parts()[part] {
            Part::Stage(stage) => budgets[stage] = within,
            Part::Parallel(one, two) => open.extend([(one, within), (two, within)]),
            Part::Series(one, two) => {
                let first = division(&tables[one], &tables[two], within);
                open.extend([(one, first), (two, within - first)]);
            }
        }
    }
    Some(budgets)
}

/// The first budget with an answer.
fn least(table: &[f64]) -> Option<usize> {
    table.iter().position(|gpus| gpus.is_finite())
}

/// The convolution with minimum and plus.
fn in_series(one: &[f64], two: &[f64], steps: usize) -> Table {
    let mut both = vec![f64::INFINITY; steps + 1];
    let (Some(from), Some(rest)) = (least(one), least(two)) else { return both };
    for first in from..=steps.saturating_sub(rest) {
        // On a plateau the other part had rather have the time.
        if first > from && one[first] >= one[first - 1] {
            continue;
        }
        // Sums in this order have no dependency on each other: the compiler makes wide instructions of them.
        for (sum, gpus) in both[first + rest..].iter_mut().zip(&two[rest..]) {
            let candidate = one[first] + gpus;
            if candidate < *sum {
                *sum = candidate;
            }
        }
    }
    both
}

/// The smallest share of the first part with which both need fewest GPUs within `within` steps.
fn division(one: &[f64], two: &[f64], within: usize) -> usize {
    let gpus = |&first: &usize| one[first] + two[within - first];
    (0..=within).reduce(|best, first| if gpus(&first) < gpus(&best) { first } else { best }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_divides_where_the_sum_is_least_and_parallel_parts_share() {
        let infinite = f64::INFINITY;
        let one = vec![infinite, 5.0, 3.0, 3.0, 2.9];
        let two = vec![infinite, 4.0, 4.0, 1.0, 1.0];
        let chain = Shape::of(2, &[(0, 1)]).unwrap();
        assert_eq!(divide(&chain, &[one.clone(), two.clone()], 4), Some(vec![1, 3]));
        assert_eq!(divide(&chain, &[one.clone(), two.clone()], 3), Some(vec![2, 1]));
        assert_eq!(divide(&chain, &[one.clone(), two.clone()], 1), None);
        let fork = Shape::of(3, &[(0, 1), (0, 2)]).unwrap();
        assert_eq!(divide(&fork, &[one.clone(), two, one], 4), Some(vec![1, 3, 3]));
    }
}
