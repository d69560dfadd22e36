//! The shortest augmenting path from a row.

use crate::problem::Problem;
use crate::start::{Duals, NONE};

/// What a search needs; kept for the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// The distance of each column from the row where the search began, in reduced costs.
    distance: Vec<f64>,
    /// The row before each column on its shortest path.
    before: Vec<usize>,
    /// Columns whose distance is not final.
    open: Vec<usize>,
    /// Rows with final distances.
    reached: Vec<(usize, f64)>,
}

/// Where a path ends.
enum End {
    /// At a column without a row.
    Free(usize),
    /// At a row, which gives up its column.
    Unmatched(usize),
}

impl Search {
    /// Room for a problem.
    pub(crate) fn begin(&mut self, problem: &Problem) {
        self.distance.resize(problem.columns, 0.0);
        self.before.resize(problem.columns, NONE);
        self.open.clear();
        self.open.reserve(problem.columns);
        self.reached.clear();
        self.reached.reserve(problem.rows);
    }

    /// Matches a row that has no column, or finds that it is cheapest to leave it, or another one, without.
    pub(crate) fn augment(&mut self, problem: &Problem, duals: &mut Duals, root: usize) {
        let (end, length) = self.shortest(problem, duals, root);
        for &(row, distance) in &self.reached {
            duals.row_dual[row] += length - distance;
            // The root has no column.
            if let Some(dual) = duals.column_dual.get_mut(duals.column_of[row]) {
                *dual -= length - distance;
            }
        }
        let mut column = match end {
            End::Free(column) => column,
            End::Unmatched(row) if row == root => return,
            End::Unmatched(row) => std::mem::replace(&mut duals.column_of[row], NONE),
        };
        loop {
            let row = self.before[column];
            duals.row_of[column] = row;
            column = std::mem::replace(&mut duals.column_of[row], column);
            if row == root {
                return;
            }
        }
    }

    /// Dijkstra over reduced costs.
    fn shortest(&mut self, problem: &Problem, duals: &Duals, root: usize) -> (End, f64) {
        self.distance.fill(f64::INFINITY);
        self.open.clear();
        self.open.extend(0..problem.columns);
        self.reached.clear();
        let (mut row, mut distance) = (root, 0.0_f64);
        let (mut dropped, mut least_dropped) = (root, f64::INFINITY);
        loop {
            self.reached.push((row, distance));
            // The path may end here: the row stays without a column.
            let left = distance + (problem.unmatched - duals.row_dual[row]).max(0.0);
            if left < least_dropped {
                (dropped, least_dropped) = (row, left);
            }
            let Some(at) = self.relax(problem, duals, row, distance) else {
                return (End::Unmatched(dropped), least_dropped);
            };
            let column = self.open[at];
            if self.distance[column] >= least_dropped {
                return (End::Unmatched(dropped), least_dropped);
            }
            self.open.swap_remove(at);
            // Not less because of rounding: column duals must not rise.
            distance = distance.max(self.distance[column]);
            row = duals.row_of[column];
            if row == NONE {
                return (End::Free(column), distance);
            }
        }
    }

    /// Shortens the ways over a row at a distance. Returns the nearest open column, a free one if there is, by its
    /// index among the open ones.
    fn relax(&mut self, problem: &Problem, duals: &Duals, row: usize, distance: f64) -> Option<usize> {
        let costs = problem.row(row);
        let base = distance - duals.row_dual[row];
        let (mut nearest, mut least, mut is_free) = (None, f64::INFINITY, false);
        for (at, &column) in self.open.iter().enumerate() {
            let way = base + (costs[column] - duals.column_dual[column]);
            if way < self.distance[column] {
                self.distance[column] = way;
                self.before[column] = row;
            }
            let known = self.distance[column];
            let free = duals.row_of[column] == NONE;
            if known < least || (known == least && nearest.is_some() && free && !is_free) {
                (nearest, least, is_free) = (Some(at), known, free);
            }
        }
        nearest
    }
}
