//! Runs batches of one model on one GPU, measures how long they take, and keeps the measurements in files.
//!
//! [`ModelExecutor`] is the port. Two executors stand behind it: [`EmulatedExecutor`] takes exactly ℓ(b), so that
//! clusters of hundreds of GPUs run on one machine, and [`OnnxExecutor`] runs ONNX models on the CPU by ONNX Runtime.
//! The contract that both keep is a test suite, `tests/contract.rs`.

pub mod digits;
mod element;
mod emulated;
mod emulated_memory;
mod model_signature;
mod onnx;
mod port;
pub mod profile;
mod runtime;
mod wait;

pub use emulated::{EmulatedExecutor, Pace, default_signature, item_checksum};
pub use emulated_memory::{EmulatedMemory, OutOfMemory, TakenMemory};
pub use onnx::{LoadError, OnnxExecutor, OnnxOptions};
pub use port::{BatchInputs, ExecuteError, ModelExecutor};
pub use runtime::{ONNXRUNTIME_VERSION_MIN, ONNXRUNTIME_VERSION_TESTED, Runtime, RuntimeError, load_runtime};
pub use wait::wait_until;
