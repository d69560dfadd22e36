//! The costs of all pairs.

use crate::Refused;

/// The most rows, and the most columns: the matrix has 128 MiB then, and the worst case takes minutes.
pub const SIDE_MAX: usize = 4096;
/// The largest finite cost, and as a negative number the smallest: sums over [`SIDE_MAX`] rows stay finite.
pub const COST_MAX: f64 = 1e100;
/// The cost of a pair that must not be matched.
pub const FORBIDDEN: f64 = f64::INFINITY;

/// The costs of all pairs of rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct Costs<'a> {
    rows: usize,
    columns: usize,
    values: &'a [f64],
}

impl<'a> Costs<'a> {
    /// `values[row * columns + column]` is the cost of a pair, in any unit; [`FORBIDDEN`] where it must not be matched.
    ///
    /// # Errors
    /// The length is not `rows * columns`, a side is too long, or a cost is NaN, −∞ or beyond [`COST_MAX`].
    pub fn new(rows: usize, columns: usize, values: &'a [f64]) -> Result<Self, Refused> {
        if rows > SIDE_MAX || columns > SIDE_MAX {
            return Err(Refused::TooLarge { rows, columns });
        }
        if values.len() != rows * columns {
            return Err(Refused::Shape { rows, columns, values: values.len() });
        }
        let refused = |value: &f64| !(value.abs() <= COST_MAX || *value == FORBIDDEN);
        if let Some(at) = values.iter().position(refused) {
            return Err(Refused::Cost { row: at / columns, column: at % columns, value: values[at] });
        }
        Ok(Self { rows, columns, values })
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The cost of a pair.
    ///
    /// # Panics
    /// There is no such row or column.
    #[must_use]
    pub fn cost(&self, row: usize, column: usize) -> f64 {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.values[row * self.columns + column]
    }

    /// All costs, row by row.
    #[must_use]
    pub fn values(&self) -> &'a [f64] {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_matrix_of_costs_is_refused_with_its_place() {
        assert_eq!(Costs::new(2, 2, &[1.0; 3]).unwrap_err(), Refused::Shape { rows: 2, columns: 2, values: 3 });
        assert!(matches!(Costs::new(SIDE_MAX + 1, 0, &[]), Err(Refused::TooLarge { .. })));
        assert!(matches!(Costs::new(0, usize::MAX, &[]), Err(Refused::TooLarge { .. })));
        for bad in [f64::NAN, f64::NEG_INFINITY, 1e101, -1e101] {
            let costs = [0.0, 0.0, 0.0, 0.0, bad, 0.0];
            let refused = Costs::new(2, 3, &costs).unwrap_err();
            assert!(matches!(refused, Refused::Cost { row: 1, column: 1, .. }), "{refused}");
        }
        let text = Costs::new(1, 1, &[f64::NAN]).unwrap_err().to_string();
        assert!(text.contains("row 0, column 0 is NaN"), "{text}");
        assert!(Costs::new(1, 2, &[FORBIDDEN, -COST_MAX]).is_ok());
        assert!(Costs::new(0, 7, &[]).is_ok());
        assert!(Costs::new(7, 0, &[]).is_ok());
    }
}
