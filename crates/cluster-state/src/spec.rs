//! A model as an operator asks for it.

use std::collections::BTreeMap;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{Nanos, RequestValue, Signature, TensorSpec, Transforms};

use crate::refusal::Refusal;

/// Where a model comes from.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// An ONNX file at a path that every backend of the sub-cluster can read.
    Onnx(String),
    /// No file: the emulated executor takes the profile's time.
    Emulated,
}

/// A model on one kind of GPU.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct KindProfile {
    /// ℓ(1), ℓ(2), … in nanoseconds: positive and monotone.
    pub latency_ns: Vec<u64>,
    /// Memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// Further memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

/// A model with everything that its placement and its execution need.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, unique among the loaded models.
    pub name: String,
    /// Name of its sub-cluster; in a command it may be empty, which means the only one there is.
    pub subcluster: String,
    /// Latency objective from arrival to answer.
    pub slo_ns: u64,
    /// Where it comes from.
    pub source: ModelSource,
    /// Inputs and outputs.
    pub signature: Signature,
    /// What frontends do with them for clients; apart, since it is large and mostly empty.
    pub transforms: Box<Transforms>,
    /// Profile per GPU kind.
    pub profiles: BTreeMap<String, KindProfile>,
    /// Name of its scheduling policy; empty for the default.
    pub policy: String,
    /// What a request of it is worth against those of other models.
    pub value: RequestValue,
}

impl ModelSpec {
    /// The objective as a duration.
    #[must_use]
    pub const fn slo(&self) -> Nanos {
        Nanos::new(self.slo_ns)
    }

    /// Checks everything that can be checked without a cluster, as loading it will.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), Refusal> {
        crate::validate::model(self)
    }

    /// Bytes that this specification takes in a snapshot, within a few dozen per list.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        const PER_LIST: usize = 64;
        let tensor = |t: &TensorSpec| PER_LIST + t.name.len() + 4 * t.item_shape.len();
        let signature: usize = self.signature.inputs.iter().chain(&self.signature.outputs).map(tensor).sum();
        let profile = |(kind, p): (&String, &KindProfile)| PER_LIST + kind.len() + 8 * p.latency_ns.len();
        let profiles: usize = self.profiles.iter().map(profile).sum();
        let source = if let ModelSource::Onnx(path) = &self.source { path.len() } else { 0 };
        let labels: usize = self.transforms.labels.values().map(|labels| PER_LIST + 16 * labels.len()).sum();
        let image = if self.transforms.image.is_some() { 4 * PER_LIST } else { 0 };
        let transforms = labels + self.transforms.label_bytes() + image;
        let words = self.name.len() + self.subcluster.len() + self.policy.len();
        2 * PER_LIST + words + source + signature + transforms + profiles
    }
}
