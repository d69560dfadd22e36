//! The duals and the matching that a search begins with, and ends with.

use crate::problem::Problem;

/// No row, or no column.
pub(crate) const NONE: usize = usize::MAX;
/// How often prices of columns that no row takes are dropped before all are: each time costs a pass over the matrix,
/// and a cold start is a few times that.
const PASSES_MAX: usize = 4;

/// Which row has which column, with the proof that it is cheapest: for each pair, row dual + column dual ≤ cost, equal
/// where matched; column duals ≤ 0, zero where free; row duals ≤ the price of a row without a column, equal where
/// unmatched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Duals {
    pub(crate) row_dual: Vec<f64>,
    pub(crate) column_dual: Vec<f64>,
    pub(crate) column_of: Vec<usize>,
    pub(crate) row_of: Vec<usize>,
}

impl Duals {
    /// Forgets the last answer; keeps the memory.
    pub(crate) fn forget(&mut self) {
        self.column_dual.clear();
        self.column_of.clear();
    }

    /// Feasible duals, and a part of the matching that fits them, from what is remembered of the last answer. What is
    /// left to the search: rows without a column.
    pub(crate) fn begin(&mut self, problem: &Problem) {
        self.column_dual.resize(problem.columns, 0.0);
        self.row_dual.resize(problem.rows, 0.0);
        self.column_of.resize(problem.rows, NONE);
        self.row_of.resize(problem.columns, NONE);
        for pass in 0.. {
            if pass == PASSES_MAX {
                self.column_dual.fill(0.0);
            }
            self.match_cheapest(problem);
            if !self.drop_prices_of_free_columns() {
                return;
            }
        }
    }

    /// Each row takes its cheapest column at today's prices, if it is still free; of equally cheap ones, its last.
    fn match_cheapest(&mut self, problem: &Problem) {
        self.row_of.fill(NONE);
        for row in 0..problem.rows {
            let last = self.column_of[row];
            let (mut cheapest, mut least) = (NONE, problem.unmatched);
            for (column, (cost, dual)) in problem.row(row).iter().zip(&self.column_dual).enumerate() {
                let reduced = cost - dual;
                if reduced < least || (reduced == least && column == last) {
                    (cheapest, least) = (column, reduced);
                }
            }
            self.row_dual[row] = least;
            self.column_of[row] = NONE;
            if cheapest != NONE && self.row_of[cheapest] == NONE {
                self.column_of[row] = cheapest;
                self.row_of[cheapest] = row;
            }
        }
    }

    /// Whether there were any.
    fn drop_prices_of_free_columns(&mut self) -> bool {
        let mut dropped = false;
        for (dual, row) in self.column_dual.iter_mut().zip(&self.row_of) {
            if *row == NONE && *dual != 0.0 {
                *dual = 0.0;
                dropped = true;
            }
        }
        dropped
    }
}
