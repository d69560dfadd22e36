//! Divides models among parts: sub-clusters of a cluster, or clusters of a federation (the Symphony paper, section 4.7
//! and Appendix A).
//!
//! [`solve()`] takes a problem, the plan in force and a budget, and returns a plan or explains why there is none.
//! [`verify()`] checks a plan independently of the solver. [`exhaustive`] and [`milp`] are exact: the first for tiny
//! problems, the second as input for an external solver of mixed-integer programs.
//!
//! Pure: budgets are counted in moves of the search, not in time, so equal inputs give equal plans.

mod anneal;
mod arrange;
mod balance;
mod change;
mod divided_plan;
mod dynamic_max;
mod enumeration;
mod exchange;
pub mod exhaustive;
mod explain;
mod fingerprint;
mod furthest;
mod gpu_need;
mod gpus;
mod greedy;
mod instance;
pub mod milp;
mod partition_plan;
mod polish;
mod problem;
mod problem_file;
mod problem_text;
mod solve;
mod state;
mod unplaceable;
mod unsolved;
mod verify;

pub use arrange::{Arranged, Unit, UnitGpu, arrange};
pub use balance::Balance;
pub use change::{Change, MovedGpu, MovedModel};
pub use fingerprint::Fingerprint;
pub use gpu_need::{GpuNeed, gpu_need};
pub use instance::LOAD_MAX;
pub use partition_plan::{PartGpus, PartPlan, PartitionPlan};
pub use problem::{
    Gpu, GpuKind, KIND_PAIRS_MAX, KINDS_MAX, KindNeed, MODELS_MAX, MOVE_BYTES_LEAST, Model, NO_LIMIT_BYTES, PARTS_MAX,
    POOL_GPUS_MAX, Part, PartKind, Pin, Problem, Steadiness,
};
pub use problem_file::ProblemError;
pub use solve::{Budget, adopt, solve};
pub use unplaceable::UnplaceableModel;
pub use unsolved::{Reason, Unsolved};
pub use verify::{Violation, verify};
