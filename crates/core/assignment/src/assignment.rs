//! The answer.

/// Which row has which column, and why no cheaper matching exists. Borrowed from the [`Assigner`](crate::Assigner).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment<'a> {
    /// The column of each row.
    pub column_of: &'a [Option<usize>],
    /// The sum of the costs of matched pairs, in their unit.
    pub cost: f64,
    /// The number of matched pairs.
    pub pairs: usize,
    /// Dual of each row. For all pairs that are not forbidden: row dual + column dual ≤ cost; equal if matched.
    pub row_dual: &'a [f64],
    /// Dual of each column. The duals of the longer side (of the columns, if both are equal) are at most zero, and zero
    /// if unmatched.
    pub column_dual: &'a [f64],
    /// The cost of leaving one of the shorter side unmatched. Its duals are at most that, and exactly that if
    /// unmatched.
    pub unmatched_cost: f64,
}
