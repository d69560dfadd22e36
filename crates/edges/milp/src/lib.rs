//! The exact solver: hands the program of equations 4 to 11 ([`symphony_partitioner::milp`]) to HiGHS.
//!
//! Without the feature `highs` everything is here but the solver itself: [`divide`] then says so.

#[cfg(not(feature = "highs"))]
use symphony_partitioner::milp::Milp;

/// How long and how exactly to solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Seconds of real time.
    pub time_s: f64,
    /// The share of its value by which an answer may be above the proven bound and count as optimal.
    pub gap: f64,
    /// Threads of the solver.
    pub threads: u32,
    /// Of the solver's random numbers.
    pub seed: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time_s: 10.0, gap: 1e-6, threads: 1, seed: 1 }
    }
}

/// What the solver found.
#[derive(Clone, Debug, PartialEq)]
pub struct Divided {
    /// The part of each model.
    pub division: Vec<usize>,
    /// The value of the program's objective there.
    pub objective: f64,
    /// No division has less: proven.
    pub bound: f64,
    /// The objective is within the gap of the bound.
    pub proven: bool,
}

/// The solver has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// This program was built without it.
    #[error(
        "this build has no HiGHS; build with `--features highs`, after deploy/setup/highs.sh, or use the local solver"
    )]
    NotBuilt,
    /// It proved that there is none.
    #[error("HiGHS proves that no division keeps all limits")]
    Infeasible,
    /// It found none in time.
    #[error("HiGHS found no division within its limits ({0})")]
    NoneFound(String),
    /// It refused the program, or returned something that is no division.
    #[error("HiGHS: {0}")]
    Failed(String),
}

/// Whether this build has the solver.
#[must_use]
pub const fn is_built() -> bool {
    cfg!(feature = "highs")
}

/// The best division within the limits, from `start` if one is given.
///
/// # Errors
/// If there is none, none was found, or this build has no solver.
#[cfg(not(feature = "highs"))]
pub fn divide(_milp: &Milp, _start: Option<&[usize]>, _limits: &Limits) -> Result<Divided, NoAnswer> {
    Err(NoAnswer::NotBuilt)
}

#[cfg(feature = "highs")]
pub use with_highs::divide;

#[cfg(feature = "highs")]
mod with_highs;
