//! A model as an operator asks for it.

use std::collections::BTreeMap;

use symphony_policy::ModelPolicy;
use symphony_types::{LatencyProfile, Nanos, RequestValue, Signature, Transforms};

/// A model as an operator asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its name.
    pub name: String,
    /// Name of its sub-cluster; empty for the only one.
    pub subcluster: String,
    /// Latency objective from arrival to answer.
    pub slo: Nanos,
    /// Where it comes from.
    pub source: ModelSource,
    /// Inputs and outputs.
    pub signature: Signature,
    /// What frontends do with them for clients.
    pub transforms: Transforms,
    /// Profile per GPU kind.
    pub profiles: BTreeMap<String, KindProfile>,
    /// How it is scheduled.
    pub policy: ModelPolicy,
    /// What a request of it is worth against those of other models.
    pub value: RequestValue,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// An ONNX file at a path that the backends can read.
    Onnx(String),
    /// The profile alone.
    Emulated,
}

/// A model on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct KindProfile {
    /// ℓ(b).
    pub latency: LatencyProfile,
    /// Memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// Further memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}
