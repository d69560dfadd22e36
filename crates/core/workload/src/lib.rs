//! The workload of a cluster: scenarios, arrival processes, popularity, latency profiles from files.
//!
//! Pure: text comes in, values go out. The caller reads files, randomness comes from seeds, and nothing here reads the
//! time.

mod arrivals;
mod autoscale;
mod by_kind_text;
mod check;
mod error;
mod execution;
mod failure;
mod item_law;
mod learning;
mod limits;
mod memory;
mod model_distributions;
mod noise;
mod override_key;
mod pipelines;
mod popularity;
mod profile_csv;
mod profile_toml;
mod rate_profile;
mod recorded;
mod request_stream;
mod scenario;
mod seed;
mod slowdown;
mod specs;
mod text;
mod trace;
mod value_distribution;
mod variants;

pub use arrivals::{ArrivalStream, arrival_streams, pipeline_streams};
pub use autoscale::Autoscale;
pub use error::ScenarioError;
pub use execution::{Execution, LOGNORMAL_SIGMA_MAX};
pub use failure::{FAILURES_MAX, Failure};
pub use item_law::{GAUSSIAN_SIGMA_MAX, ItemLaw, ItemLawError, LOGNORMAL_ITEMS_SIGMA_MAX, item_shares, items_from_csv};
pub use learning::QUARANTINED_PERCENT_MAX;
pub use limits::{DURATION_S_MAX, PRICE_MAX, RATE_RPS_MAX, SCENARIO_GPUS_MAX, SCENARIO_MODELS_MAX, SEEDS_MAX};
pub use noise::{NoiseStream, noise_streams};
pub use override_key::{override_at_fault, override_key};
pub use pipelines::{FanOut, FanOutLaw, PipelineLoad, SCENARIO_PIPELINES_MAX, SplitRule, result_rng};
pub use popularity::Popularity;
pub use profile_csv::{profile_from_batches, profile_from_csv};
pub use profile_toml::profile_from_toml;
pub use rate_profile::{RATE_STEPS_MAX, RateProfile};
pub use recorded::{
    ARRIVALS_MAX, ModelMap, RecordedArrival, RecordedArrivals, Rest, SOURCES_MAX, Spread, SpreadSeed, TRACE_S_MAX,
    Window,
};
pub use request_stream::{Arriving, RequestStream, request_streams};
pub use scenario::{Arrival, Network, Scenario};
pub use slowdown::{SLOWDOWNS_MAX, Slowdown};
pub use specs::{GpuSpec, ModelSpec, Variants};
pub use symphony_policy::{AutoRule, PolicySpec, SimulatedPolicy, UnmergedPolicy};
pub use trace::{TRACE_ROWS_MAX, Trace, TraceRow};
pub use value_distribution::{DISTRIBUTION_ENTRIES_MAX, ValueDistribution};
