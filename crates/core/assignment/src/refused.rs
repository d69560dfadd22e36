//! Why costs are refused.

use crate::costs::{COST_MAX, SIDE_MAX};

/// Why costs are refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The slice is no matrix of this shape.
    #[error("{values} costs: expected {rows} rows of {columns}")]
    Shape {
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        columns: usize,
        /// Length of the slice.
        values: usize,
    },
    /// A side is longer than [`SIDE_MAX`].
    #[error("{rows} rows, {columns} columns: expected at most {SIDE_MAX} of each")]
    TooLarge {
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A cost is not a number, −∞, or finite and beyond [`COST_MAX`].
    #[error(
        "the cost of row {row}, column {column} is {value}: expected a number from -{COST_MAX:e} to {COST_MAX:e}, or \
         infinity where the pair is forbidden"
    )]
    Cost {
        /// Row of the cost.
        row: usize,
        /// Column of the cost.
        column: usize,
        /// The cost.
        value: f64,
    },
}
