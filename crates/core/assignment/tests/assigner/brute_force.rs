//! Thousands of small matrices: as many pairs as brute force finds, at the same cost.

use proptest::prelude::*;
use symphony_assignment::{Assigner, Costs, FORBIDDEN};

/// The largest number of pairs, and the least cost of that many: rows from `row` on, columns in `free`.
fn brute_force(costs: Costs<'_>, row: usize, free: u32) -> (usize, f64) {
    if row == costs.rows() {
        return (0, 0.0);
    }
    let mut best = brute_force(costs, row + 1, free);
    for column in (0..costs.columns()).filter(|column| (free >> column) & 1 == 1) {
        let cost = costs.cost(row, column);
        if cost == FORBIDDEN {
            continue;
        }
        let (pairs, rest) = brute_force(costs, row + 1, free & !(1 << column));
        if pairs + 1 > best.0 || (pairs + 1 == best.0 && rest + cost < best.1) {
            best = (pairs + 1, rest + cost);
        }
    }
    best
}

/// Whole numbers, of which many are equal, and forbidden pairs: sums are exact.
fn matrix() -> impl Strategy<Value = (usize, usize, Vec<f64>)> {
    let cost = prop_oneof![
        3 => (-9_i32..10).prop_map(f64::from),
        1 => (-1000_i32..1000).prop_map(f64::from),
        1 => Just(FORBIDDEN),
    ];
    (0_usize..=5, 0_usize..=5).prop_flat_map(move |(rows, columns)| {
        (Just(rows), Just(columns), prop::collection::vec(cost.clone(), rows * columns))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn as_good_as_brute_force_cold_and_after_another_problem(first in matrix(), second in matrix()) {
        let mut assigner = Assigner::new();
        for (rows, columns, values) in [&first, &second] {
            let costs = Costs::new(*rows, *columns, values).unwrap();
            let best = brute_force(costs, 0, u32::MAX);
            let warm = assigner.solve_warm(costs);
            prop_assert_eq!((warm.pairs, warm.cost), best);
            let mut columns: Vec<_> = warm.column_of.iter().flatten().collect();
            columns.sort_unstable();
            columns.dedup();
            prop_assert_eq!(columns.len(), warm.pairs, "no column twice");
            let cold = Assigner::new().solve(costs).cost;
            prop_assert_eq!(cold, best.1);
        }
    }
}
