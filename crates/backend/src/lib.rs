//! The backend: holds GPUs, loads models, runs batch plans at their time, and obeys exactly one leader per GPU.

mod backend;
mod exec_server;
mod execution;
#[cfg(test)]
mod execution_tests;
mod gpu_gate;
mod gpu_memory;
mod gpu_thread;
mod journal;
mod load_meter;
mod metrics;
mod model_book;
mod model_loader;
#[cfg(test)]
mod model_loader_tests;
mod pace_file;
mod plan;

pub use backend::{Backend, StartError};
pub use execution::Identity;
pub use gpu_gate::{Connection, GpuGate};
pub use metrics::{METRIC_NAMES, MODEL_METRIC_NAMES, PAYLOAD_METRIC_NAMES, register_metrics};
pub use model_loader::Engine;
