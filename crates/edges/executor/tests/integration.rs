//! Executors: their contract, and ONNX models that are well, broken or share a trunk.

mod contract;
mod family;
mod onnx_faults;
mod onnx_models;
