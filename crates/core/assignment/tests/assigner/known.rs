//! Results that others have published or computed.

use symphony_assignment::{Assigner, Costs, FORBIDDEN};

const INF: f64 = FORBIDDEN;

fn solve(rows: usize, columns: usize, values: &[f64]) -> (Vec<Option<usize>>, f64) {
    let mut assigner = Assigner::new();
    let answer = assigner.solve(Costs::new(rows, columns, values).unwrap());
    (answer.column_of.to_vec(), answer.cost)
}

#[test]
fn the_matrices_that_scipy_is_tested_with() {
    // scipy.optimize, test_linear_sum_assignment.py: the costs of the pairs, by row.
    let square: &[f64] = &[400.0, 150.0, 400.0, 400.0, 450.0, 600.0, 300.0, 225.0, 300.0];
    assert_eq!(solve(3, 3, square).1, 150.0 + 400.0 + 300.0);
    let wide: &[f64] = &[400.0, 150.0, 400.0, 1.0, 400.0, 450.0, 600.0, 2.0, 300.0, 225.0, 300.0, 3.0];
    assert_eq!(solve(3, 4, wide).1, 150.0 + 2.0 + 300.0);
    assert_eq!(solve(3, 3, &[10.0, 10.0, 8.0, 9.0, 8.0, 1.0, 9.0, 7.0, 4.0]).1, 10.0 + 1.0 + 7.0);
    let ties: &[f64] = &[10.0, 10.0, 8.0, 11.0, 9.0, 8.0, 1.0, 1.0, 9.0, 7.0, 4.0, 10.0];
    assert_eq!(solve(3, 4, ties).1, 10.0 + 1.0 + 4.0);
    let forbidden: &[f64] = &[10.0, INF, INF, INF, INF, 1.0, INF, 7.0, INF];
    assert_eq!(solve(3, 3, forbidden), (vec![Some(0), Some(2), Some(1)], 18.0));
}

#[test]
fn products_of_row_and_column_pair_the_largest_with_the_smallest() {
    // Σ i · (n + 1 − i) = n (n + 1) (n + 2) / 6, by the rearrangement inequality. Many paths are long here.
    for n in [1_usize, 2, 10, 100] {
        let values: Vec<_> = (0..n * n).map(|at| ((at / n + 1) * (at % n + 1)) as f64).collect();
        let (column_of, cost) = solve(n, n, &values);
        assert_eq!(cost, (n * (n + 1) * (n + 2) / 6) as f64);
        assert!(column_of.iter().enumerate().all(|(row, column)| *column == Some(n - 1 - row)));
    }
}

#[test]
fn more_rows_than_columns_leave_the_dear_rows_out() {
    assert_eq!(solve(3, 1, &[7.0, 5.0, 6.0]), (vec![None, Some(0), None], 5.0));
    let tall: &[f64] = &[400.0, 400.0, 300.0, 150.0, 450.0, 225.0, 400.0, 600.0, 300.0, 1.0, 2.0, 3.0];
    assert_eq!(solve(4, 3, tall).1, 300.0 + 150.0 + 2.0);
}
