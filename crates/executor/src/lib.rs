//! Runs batches of one model on one GPU, measures how long they take, and keeps the measurements in files.
//!
//! [`ModelExecutor`] is the port. Two executors stand behind it: [`EmulatedExecutor`] takes exactly ℓ(b), so that
//! clusters of hundreds of GPUs run on one machine, and [`OnnxExecutor`] runs ONNX models on the CPU by ONNX Runtime.
//! The contract that both keep is a test suite, `tests/contract.rs`.

mod batch_sizes;
pub mod digits;
mod element;
mod emulated;
mod model_signature;
mod onnx;
mod port;
pub mod profile;
mod resources;
mod runtime;
mod wait;

pub use batch_sizes::{BATCH_SIZES_KEY, BatchSizes};
pub use emulated::{EmulatedExecutor, Pace, default_signature, item_checksum};
pub use onnx::{LoadError, OnnxExecutor, OnnxOptions};
pub use port::{BatchInputs, ExecuteError, MemoryUse, ModelExecutor};
pub use runtime::{ONNXRUNTIME_VERSION_MIN, ONNXRUNTIME_VERSION_TESTED, Runtime, RuntimeError, load_runtime};
pub use wait::wait_until;
