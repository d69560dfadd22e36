//! Well-known architectures as ONNX files with random weights, made from a shape and a seed.
//!
//! Real weights matter for answers, not for speed: a batch takes as long with random ones. So models for profiling and
//! load tests are generated where they are needed, without a download, and never committed.

mod architecture;
mod bert;
mod fault;
mod graph;
mod layer;
mod mlp;
mod mobilenet;
mod resnet;

pub use architecture::{Architecture, ShapeError};
pub use bert::Bert;
pub use fault::{Fault, endless_above, hungry, hungry_as_asked, mingled_head};
pub use graph::OnnxModel;
pub use layer::{Precision, layer};
pub use mlp::Mlp;
pub use mobilenet::MobileNet;
pub use resnet::ResNet;
