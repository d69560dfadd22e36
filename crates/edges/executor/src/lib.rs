//! Runs batches of one model on one GPU, measures how long they take, and keeps the measurements in files.
//!
//! [`ModelExecutor`] is the port. This crate has two executors: [`EmulatedExecutor`] takes exactly ℓ(b), so that
//! clusters of hundreds of GPUs run on one machine, and [`OnnxExecutor`] runs ONNX models on the CPU with ONNX
//! Runtime. Those for GPUs are in `symphony-executor-gpu`. A test suite, `tests/contract/promises.rs`, is the contract
//! of all executors. [`FamilyExecutor`] runs models that share a trunk, beside the port; [`FamilyMember`] is one of
//! them behind it. Where their parts run, a [`PartLoader`] decides.

mod batch_memory;
mod batch_sizes;
pub mod canvas;
pub mod digits;
mod element;
mod element_types;
mod emulated;
mod family;
mod files;
mod heap;
mod model_signature;
mod onnx;
mod onnx_session;
mod port;
pub mod profile;
mod resources;
mod runtime;
mod stop;
mod wait;

pub use batch_sizes::{BATCH_SIZES_KEY, BatchSizes};
pub use emulated::{EmulatedExecutor, Noise, Pace, default_signature, item_checksum};
pub use family::{
    CpuLoader, CpuPart, FAMILY_FILE_BYTES_MAX, FamilyError, FamilyExecutor, FamilyFile, FamilyMember, FamilyPart,
    FamilyRunError, MemberOptions, PartLoader, SharedTrunk,
};
pub use files::{check_within, open_regular, read_text};
/// A number of half precision, as [`with_element_types`] names its type.
pub use half::f16;
pub use onnx::OnnxExecutor;
pub use onnx_session::{LoadError, OnnxInput, OnnxOptions, OnnxSession};
pub use port::{
    BatchInputs, ExecuteError, MemoryUse, ModelExecutor, PartShares, Segment, SharingExecutor, StagedExecutor,
};
pub use runtime::{ONNXRUNTIME_VERSION_MIN, ONNXRUNTIME_VERSION_TESTED, Runtime, RuntimeError, load_runtime};
pub use stop::{Stop, a_run_is_stuck};
pub use wait::{use_smallest_timer_slack, wait_until};
