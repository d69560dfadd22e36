//! Larger matrices: duals prove that no cheaper matching exists.

use proptest::prelude::*;
use symphony_assignment::{Assigner, Assignment, Costs, FORBIDDEN};

/// Rounding that is tolerated, as a share of the largest sum.
const ROUNDING: f64 = 1e-12;

/// Dual feasibility and complementary slackness, hence optimality: any matching costs at least the sum of the duals.
fn certify(costs: Costs<'_>, answer: &Assignment<'_>) {
    let slack = ROUNDING * answer.unmatched_cost;
    let mut row_of = vec![None; costs.columns()];
    for (row, column) in answer.column_of.iter().enumerate() {
        if let Some(column) = *column {
            assert!(row_of[column].replace(row).is_none(), "column {column} twice");
            assert!(costs.cost(row, column) < FORBIDDEN);
        }
    }
    for row in 0..costs.rows() {
        for column in 0..costs.columns() {
            let reduced = costs.cost(row, column) - answer.row_dual[row] - answer.column_dual[column];
            assert!(reduced >= -slack, "{row}, {column}: {reduced}");
            assert!(row_of[column] != Some(row) || reduced <= slack, "{row}, {column}: {reduced}");
        }
    }
    let rows: Vec<_> = answer.column_of.iter().map(Option::is_some).zip(answer.row_dual.iter().copied()).collect();
    let columns: Vec<_> = row_of.iter().map(Option::is_some).zip(answer.column_dual.iter().copied()).collect();
    let (short, long) = if costs.rows() > costs.columns() { (columns, rows) } else { (rows, columns) };
    for (matched, dual) in short {
        assert!(dual <= answer.unmatched_cost + slack);
        assert!(matched || dual >= answer.unmatched_cost - slack);
    }
    for (matched, dual) in long {
        assert!(dual <= 0.0);
        assert!(matched || dual == 0.0);
    }
}

fn matrix() -> impl Strategy<Value = (usize, usize, Vec<f64>)> {
    let sides = (1_usize..60, 1_usize..60, prop_oneof![Just(0.0), Just(0.5), Just(0.95)]);
    sides.prop_flat_map(|(rows, columns, forbidden)| {
        let cost = (0.0..1.0_f64, -10.0..100.0_f64);
        let cost = cost.prop_map(move |(lot, cost)| if lot < forbidden { FORBIDDEN } else { cost });
        (Just(rows), Just(columns), prop::collection::vec(cost, rows * columns))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_answer_has_its_certificate_cold_and_warm(
        (rows, columns, mut values) in matrix(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0.0..100.0_f64), 0..40),
    ) {
        let mut assigner = Assigner::new();
        let costs = Costs::new(rows, columns, &values).unwrap();
        certify(costs, &assigner.solve(costs));
        for (at, cost) in changes {
            let at = at.index(values.len());
            values[at] = cost;
            let costs = Costs::new(rows, columns, &values).unwrap();
            certify(costs, &assigner.solve_warm(costs));
        }
    }

    #[test]
    fn a_warm_start_is_as_good_after_columns_and_rows_change(first in matrix(), second in matrix()) {
        let mut assigner = Assigner::new();
        for (rows, columns, values) in [&first, &second, &first] {
            let costs = Costs::new(*rows, *columns, values).unwrap();
            certify(costs, &assigner.solve_warm(costs));
        }
    }
}
