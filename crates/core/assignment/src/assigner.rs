//! The solver.

use crate::assignment::Assignment;
use crate::costs::Costs;
use crate::problem::Problem;
use crate::search::Search;
use crate::start::{Duals, NONE};

/// Solves assignment problems, one after the other. Allocates only when a problem is larger than all before.
#[derive(Clone, Debug, Default)]
pub struct Assigner {
    problem: Problem,
    duals: Duals,
    search: Search,
    column_of: Vec<Option<usize>>,
}

impl Assigner {
    /// Without buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches as many rows and columns as forbidden pairs allow; of such matchings, one with the least sum of costs.
    /// Worst case: rows² · columns steps, where rows are the shorter side.
    pub fn solve(&mut self, costs: Costs<'_>) -> Assignment<'_> {
        self.duals.forget();
        self.solve_warm(costs)
    }

    /// The same, beginning with the prices and the matching of the last answer: fast if costs changed little, as good
    /// in any case. Columns (the longer side, in fact) should mean what they meant; rows may be others.
    pub fn solve_warm(&mut self, costs: Costs<'_>) -> Assignment<'_> {
        let transposed = self.problem.transposed;
        self.problem.set(&costs);
        if transposed != self.problem.transposed {
            self.duals.forget();
        }
        self.duals.begin(&self.problem);
        self.search.begin(&self.problem);
        for row in 0..self.problem.rows {
            if self.duals.column_of[row] == NONE {
                self.search.augment(&self.problem, &mut self.duals, row);
            }
        }
        self.answer(costs)
    }

    /// In the caller's rows and columns.
    fn answer(&mut self, costs: Costs<'_>) -> Assignment<'_> {
        let Duals { row_dual, column_dual, column_of, row_of } = &self.duals;
        let (columns, row_dual, column_dual) =
            if self.problem.transposed { (row_of, column_dual, row_dual) } else { (column_of, row_dual, column_dual) };
        self.column_of.clear();
        self.column_of.extend(columns.iter().map(|&column| (column != NONE).then_some(column)));
        let matched = || self.column_of.iter().enumerate().filter_map(|(row, column)| Some((row, (*column)?)));
        Assignment {
            cost: matched().map(|(row, column)| costs.cost(row, column)).sum(),
            pairs: matched().count(),
            column_of: &self.column_of,
            row_dual,
            column_dual,
            unmatched_cost: self.problem.unmatched,
        }
    }
}
