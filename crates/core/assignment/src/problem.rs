//! The matrix as it is solved.

use crate::costs::{Costs, FORBIDDEN};

/// Costs with rows ≤ columns; transposed if the caller's are not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Whether rows here are columns of the caller.
    pub(crate) transposed: bool,
    /// What it costs to leave a row without a column: more than all columns can save.
    pub(crate) unmatched: f64,
    values: Vec<f64>,
}

impl Problem {
    pub(crate) fn set(&mut self, costs: &Costs<'_>) {
        self.transposed = costs.rows() > costs.columns();
        self.values.clear();
        if self.transposed {
            (self.rows, self.columns) = (costs.columns(), costs.rows());
            for row in 0..self.rows {
                self.values.extend((0..self.columns).map(|column| costs.cost(column, row)));
            }
        } else {
            (self.rows, self.columns) = (costs.rows(), costs.columns());
            self.values.extend_from_slice(costs.values());
        }
        let largest = |sofar: f64, &cost: &f64| if cost == FORBIDDEN { sofar } else { sofar.max(cost.abs()) };
        let largest = self.values.iter().fold(0.0, largest);
        // An augmenting path takes up to `rows` pairs and gives up one less. The one more makes zero costs count, too.
        self.unmatched = largest * (2 * self.rows + 1) as f64 + if largest > 0.0 { largest } else { 1.0 };
    }

    /// The costs of one row.
    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }
}
