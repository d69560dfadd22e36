//! The backend: holds GPUs, loads models, runs batch plans at their planned times, and obeys exactly one leader per
//! GPU.

mod accepted_plan;
mod backend;
mod batch;
mod counts;
mod engine;
mod executor_in_use;
mod gpu_fence;
mod gpu_memory;
mod gpu_thread;
mod gpu_time;
mod journal;
mod leader_connections;
mod load_meter;
mod metrics;
mod mixed;
mod model_loader;
#[cfg(test)]
mod model_loader_tests;
mod model_states;
mod order_queue;
mod pace_file;
mod plan_intake;
#[cfg(test)]
mod plan_intake_tests;
mod registration;
mod stay_registered;
mod steps;
mod trunk_reports;
mod trunks;
mod unresponsive_frontends;

pub use backend::{Backend, PINNED_BYTES_MAX, StartError};
pub use engine::{Engine, OnnxEngine};
pub use gpu_fence::{Connection, GpuFence};
pub use metrics::{GPU_METRIC_NAMES, METRIC_NAMES, MODEL_METRIC_NAMES, PAYLOAD_METRIC_NAMES, register_metrics};
pub use plan_intake::BackendIdentity;
