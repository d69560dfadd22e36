//! The production decision objects in virtual time: what would this policy do with this load on these GPUs?
//!
//! Pure: a scenario, a seed and a rate go in, a result comes out, the same bytes every time. The caller reads files, starts
//! threads and looks at the clock.

mod capacity;
mod error;
mod goodput;
mod histogram;
mod open_requests;
#[cfg(test)]
mod planted_faults;
mod policy;
mod referee;
mod result;
mod tally;
mod tap;
mod world;

pub use capacity::fluid_bound_rps;
pub use error::Error;
pub use goodput::{GOODPUT_RESOLUTION, GoodputSearch, Trial, find_goodput};
pub use policy::scheduler_policy;
pub use result::{ModelResult, Queueing, RunResult, SimulationResult};
pub use world::{SPIN_STEPS_MIN, Verdict, meets_slo, simulate};
