//! Runs batches on NVIDIA GPUs: the next batch's inputs are copied while this one is computed.
//!
//! - [`overlap`] decides which buffers a batch uses, and the order of copies and computations. It knows no GPU, and is
//!   tested on a fake device.
//! - [`gemm`] decides which matrix products take as long as a profile says. It measures nothing itself.
//! - [`StagedModel`] is the executor over both: a [`symphony_executor::ModelExecutor`] whose batches can be staged.
//! - [`Cuda`] is a device: streams, events, pinned and device memory by `cudarc`, products by cuBLASLt, models by ONNX
//!   Runtime.
//! - [`CudaPart`] is a part of a family's models on it: suffixes take the trunk's rows from the device's memory.
//!
//! No part of CUDA is needed to build it. The driver and the libraries are loaded at run time; the error of
//! [`Cuda::open`] names what is missing.

mod cuda;
pub mod gemm;
pub mod overlap;
mod staged_model;

pub use cuda::{
    Cuda, CudaLoader, CudaPart, GemmModel, GpuLoadError, NoCuda, OnnxOnCuda, OnnxPart, PartProgram, PinnedPool,
    cuda_provider_is_there,
};
pub use staged_model::{Answers, StagedModel, Turn};
