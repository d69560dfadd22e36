//! What is asked of a cluster: scenarios, arrival processes, popularity, latency profiles from files.
//!
//! Pure: text comes in, values go out. Files are read by the caller, randomness comes from seeds, and nothing here knows
//! the time of day.

mod arrivals;
mod error;
mod override_key;
mod policy;
mod popularity;
mod profile_csv;
mod scenario;
mod text;
mod trace;

pub use arrivals::{ArrivalStream, arrival_streams};
pub use error::ScenarioError;
pub use policy::{DropChoice, GpuOrder, PolicyName, PolicySpec, TriggerChoice};
pub use popularity::Popularity;
pub use profile_csv::profile_from_csv;
pub use scenario::{
    Arrival, DURATION_S_MAX, GpuSpec, ModelSpec, Network, RATE_RPS_MAX, SCENARIO_GPUS_MAX, SCENARIO_MODELS_MAX,
    SEEDS_MAX, Scenario,
};
pub use trace::{TRACE_ROWS_MAX, Trace};
