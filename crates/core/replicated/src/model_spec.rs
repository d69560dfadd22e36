//! The specification of a model.

use std::collections::BTreeMap;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_policy::ModelPolicy;
use symphony_types::{
    LatencyProfile, Nanos, RequestValue, SLO_MAX, Signature, TENSOR_DIMENSIONS_MAX, TENSOR_ITEM_BYTES_MAX, TensorSpec,
    Transforms,
};

use crate::fields::{InvalidField, count, invalid, name, text};
use crate::limits::{PATH_BYTES_MAX, PROFILE_KINDS_MAX, TENSORS_MAX};

/// Where a model comes from.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// An ONNX file at a path that every backend of the sub-cluster can read.
    Onnx(String),
    /// No file: the emulated executor takes the profile's time.
    Emulated,
    /// As `Onnx`, for a model that must not share its trunk. From level 3 of a cluster on.
    OnnxUnshared(String),
}

impl ModelSource {
    /// The path of its file, if it has one.
    #[must_use]
    pub fn onnx_path(&self) -> Option<&str> {
        match self {
            Self::Onnx(path) | Self::OnnxUnshared(path) => Some(path),
            Self::Emulated => None,
        }
    }
}

/// A model on one kind of GPU.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct KindProfile {
    /// ℓ(1), ℓ(2), … in nanoseconds: positive and monotone.
    pub latency_ns: Vec<u64>,
    /// Memory of the loaded model, in bytes.
    pub static_memory_bytes: u64,
    /// Additional memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

/// A model, with everything needed for its placement and execution.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, unique among the loaded models.
    pub name: String,
    /// Name of its sub-cluster; empty in a command for the only one.
    pub subcluster: String,
    /// Latency objective from arrival to answer.
    pub slo_ns: u64,
    /// Where it comes from.
    pub source: ModelSource,
    /// Inputs and outputs.
    pub signature: Signature,
    /// How frontends transform them for clients; separate, since it is large and mostly empty.
    pub transforms: Box<Transforms>,
    /// Profile per GPU kind.
    pub profiles: BTreeMap<String, KindProfile>,
    /// How its requests are scheduled.
    pub policy: ModelPolicy,
    /// The value of its requests relative to those of other models.
    pub value: RequestValue,
}

impl ModelSpec {
    /// The objective as a duration.
    #[must_use]
    pub const fn slo(&self) -> Nanos {
        Nanos::new(self.slo_ns)
    }

    /// Validates everything that needs no cluster.
    ///
    /// # Errors
    /// [`InvalidField`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), InvalidField> {
        model(self)
    }

    /// As [`validate`](Self::validate), plus limits only for models that are not loaded yet: the SLO is at most
    /// [`SLO_MAX`].
    ///
    /// # Errors
    /// [`InvalidField`] with the field, what was found and what was expected.
    pub fn validate_new(&self) -> Result<(), InvalidField> {
        new_model(self)
    }

    /// Bytes of this specification in a snapshot, accurate to 256.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        const PER_LIST: usize = 64;
        let tensor = |t: &TensorSpec| PER_LIST + t.name.len() + 4 * t.item_shape.len();
        let signature: usize = self.signature.inputs.iter().chain(&self.signature.outputs).map(tensor).sum();
        let profile = |(kind, p): (&String, &KindProfile)| PER_LIST + kind.len() + 8 * p.latency_ns.len();
        let profiles: usize = self.profiles.iter().map(profile).sum();
        let source = self.source.onnx_path().map_or(0, str::len);
        let labels = |(output, labels): (&String, &Vec<String>)| PER_LIST + output.len() + 16 * labels.len();
        let labels: usize = self.transforms.labels.iter().map(labels).sum();
        let image = if self.transforms.image.is_some() { 4 * PER_LIST } else { 0 };
        let transforms = labels + self.transforms.label_bytes() + image;
        let words = self.name.len() + self.subcluster.len();
        2 * PER_LIST + words + source + signature + transforms + profiles
    }
}

/// A specification that is in no state yet.
fn new_model(spec: &ModelSpec) -> Result<(), InvalidField> {
    model(spec)?;
    if spec.slo() > SLO_MAX {
        let (got, most) = (spec.slo_ns.div_ceil(1_000_000), SLO_MAX.get() / 1_000_000);
        return Err(invalid("spec.slo_ns", &format!("{got} ms; expected at most {most} ms")));
    }
    Ok(())
}

fn model(spec: &ModelSpec) -> Result<(), InvalidField> {
    name("spec.name", &spec.name)?;
    if !spec.subcluster.is_empty() {
        name("spec.subcluster", &spec.subcluster)?;
    }
    spec.policy.check().map_err(|error| invalid("spec.policy", &error.to_string()))?;
    if spec.slo_ns == 0 {
        return Err(invalid("spec.slo_ns", "0; expected a positive time"));
    }
    if let Some(path) = spec.source.onnx_path() {
        text("spec.onnx_path", path, 0..=PATH_BYTES_MAX)?;
        if path.is_empty() {
            return Err(invalid("spec.onnx_path", "empty; expected a path that every backend can read"));
        }
    }
    tensors("spec.inputs", &spec.signature.inputs)?;
    tensors("spec.outputs", &spec.signature.outputs)?;
    spec.transforms.check(&spec.signature).map_err(|reason| invalid("spec.transforms", &reason))?;
    count("spec.profiles", spec.profiles.len(), 1..=PROFILE_KINDS_MAX)?;
    for (kind, profile) in &spec.profiles {
        name("spec.profiles.gpu_kind", kind)?;
        let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
        LatencyProfile::from_table(&table)
            .map_err(|e| invalid("spec.profiles.latency_ns", &format!("GPU kind `{kind}`: {e}")))?;
    }
    Ok(())
}

fn tensors(field: &str, tensors: &[TensorSpec]) -> Result<(), InvalidField> {
    count(field, tensors.len(), 0..=TENSORS_MAX)?;
    for tensor in tensors {
        name(&format!("{field}.name"), &tensor.name)?;
        let shape = format!("{field}.item_shape");
        count(&shape, tensor.item_shape.len(), 0..=TENSOR_DIMENSIONS_MAX)?;
        let width = tensor.data_type.size_bytes();
        let bytes = tensor.item_shape.iter().try_fold(width, |bytes, &d| bytes.checked_mul(d as usize));
        if !matches!(bytes, Some(1..=TENSOR_ITEM_BYTES_MAX)) {
            let (name, dims) = (&tensor.name, &tensor.item_shape);
            let reason =
                format!("tensor `{name}` of shape {dims:?}; expected 1 to {TENSOR_ITEM_BYTES_MAX} bytes per item");
            return Err(invalid(&shape, &reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rkyv::rancor;
    use symphony_types::{DataType, Finite, ImageInput};

    use super::*;

    /// The most bytes of a specification beyond its own count: its fixed part and unused slots of its maps.
    const BEYOND_MAX: usize = 256;

    fn tensors(count: usize, name_bytes: usize, dimensions: usize) -> Vec<TensorSpec> {
        let name = |n: usize| format!("{n:0name_bytes$}");
        let tensor = |n| TensorSpec { name: name(n), data_type: DataType::Fp32, item_shape: vec![1; dimensions] };
        (0..count).map(tensor).collect()
    }

    fn image(input: String) -> ImageInput {
        let numbers = vec![Finite::ONE; 3];
        let (width, height, crop_share, scale) = (1, 1, Finite::ONE, Finite::ONE);
        let (colour, layout, fit, filter) = Default::default();
        let (mean, deviation) = (numbers.clone(), numbers);
        ImageInput { input, width, height, colour, layout, fit, crop_share, filter, scale, mean, deviation }
    }

    /// With this many outputs, bytes per label, and profiled kinds.
    fn spec(outputs: Vec<TensorSpec>, label_bytes: Option<usize>, kinds: usize, batches: u64) -> ModelSpec {
        let label = |output: &TensorSpec| Some((output.name.clone(), vec!["a".repeat(label_bytes?)]));
        let labels = outputs.iter().filter_map(label).collect();
        let inputs = tensors(1, 128, 3);
        let image = label_bytes.map(|_| image(inputs[0].name.clone()));
        let profile = KindProfile { latency_ns: (1..=batches).collect(), ..KindProfile::default() };
        ModelSpec {
            name: "n".repeat(128),
            subcluster: "s".repeat(128),
            slo_ns: 1,
            source: ModelSource::Onnx("p".repeat(1024)),
            transforms: Box::new(Transforms { image, labels }),
            signature: Signature { inputs, outputs },
            profiles: (0..kinds).map(|n| (format!("{n:0128}"), profile.clone())).collect(),
            policy: ModelPolicy::default(),
            value: RequestValue::ONE,
        }
    }

    #[test]
    fn whatever_a_specification_holds_it_takes_what_it_counts_for() {
        for (outputs, name_bytes, dimensions) in [(0, 0, 0), (1, 2, 0), (64, 2, 0), (64, 128, 8)] {
            for label_bytes in [None, Some(0), Some(8), Some(9), Some(256)] {
                for (kinds, batches) in [(1, 1), (1, 4096), (16, 1), (16, 4096)] {
                    let spec = spec(tensors(outputs, name_bytes, dimensions), label_bytes, kinds, batches);
                    let (counts, takes) = (spec.weight_bytes(), rkyv::to_bytes::<rancor::Error>(&spec).unwrap().len());
                    let what = (outputs, name_bytes, label_bytes, kinds, batches);
                    assert!(takes <= counts + BEYOND_MAX, "{what:?} takes {takes}, counts {counts}");
                }
            }
        }
    }
}
