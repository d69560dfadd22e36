//! Equal costs, rows and columns without partners, nothing at all.

use symphony_assignment::{Assigner, Costs, FORBIDDEN};

const INF: f64 = FORBIDDEN;

#[test]
fn nothing_has_no_pairs() {
    for (rows, columns) in [(0, 0), (0, 3), (3, 0)] {
        let mut assigner = Assigner::new();
        let answer = assigner.solve(Costs::new(rows, columns, &[]).unwrap());
        assert_eq!((answer.pairs, answer.cost), (0, 0.0));
        assert_eq!(answer.column_of, vec![None; rows]);
        assert_eq!(answer.column_dual, vec![0.0; columns]);
    }
}

#[test]
fn equal_costs_are_matched_all_the_same() {
    for equal in [0.0, -3.0, 2.0_f64.powi(60)] {
        let mut assigner = Assigner::new();
        let answer = assigner.solve(Costs::new(30, 40, &[equal; 1200]).unwrap());
        assert_eq!((answer.pairs, answer.cost), (30, 30.0 * equal));
    }
}

#[test]
fn forbidden_rows_stay_alone_and_cost_nothing() {
    let mut assigner = Assigner::new();
    let answer = assigner.solve(Costs::new(3, 3, &[1.0, 3.0, 3.0, INF, INF, INF, 4.0, 5.0, 9.0]).unwrap());
    assert_eq!(answer.column_of, [Some(0), None, Some(1)]);
    assert_eq!(answer.cost, 6.0);
    assert_eq!(assigner.solve(Costs::new(2, 2, &[INF; 4]).unwrap()).pairs, 0);
}

#[test]
fn one_column_for_several_rows_goes_to_the_cheapest_whatever_their_order() {
    // In the second case, a row that was matched gives its column up for one that comes later.
    for (values, expected) in [([1.0, INF, 10.0, INF], [Some(0), None]), ([10.0, INF, 1.0, INF], [None, Some(0)])] {
        let mut assigner = Assigner::new();
        assert_eq!(assigner.solve(Costs::new(2, 2, &values).unwrap()).column_of, expected);
    }
}

#[test]
fn a_pair_more_is_worth_any_cost() {
    // Row 1 can have column 0 only. Row 0 would be far cheaper there.
    let mut assigner = Assigner::new();
    let answer = assigner.solve(Costs::new(2, 2, &[0.0, 1e6, 1e6, INF]).unwrap());
    assert_eq!((answer.pairs, answer.cost), (2, 2e6));
}

#[test]
fn what_is_refused_leaves_the_solver_as_it_was() {
    let mut assigner = Assigner::new();
    let values = [3.0, 1.0, 2.0, 2.0];
    let before = assigner.solve(Costs::new(2, 2, &values).unwrap()).column_of.to_vec();
    assert!(Costs::new(2, 2, &[f64::NAN; 4]).is_err());
    assert_eq!(assigner.solve_warm(Costs::new(2, 2, &values).unwrap()).column_of, before);
}

#[test]
fn a_tie_keeps_the_last_column() {
    let mut assigner = Assigner::new();
    // Row 0 has column 1, then both cost the same.
    assert_eq!(assigner.solve(Costs::new(1, 2, &[5.0, 1.0]).unwrap()).column_of, [Some(1)]);
    assert_eq!(assigner.solve_warm(Costs::new(1, 2, &[1.0, 1.0]).unwrap()).column_of, [Some(1)]);
    assert_eq!(assigner.solve(Costs::new(1, 2, &[1.0, 1.0]).unwrap()).column_of, [Some(0)], "cold");
}
