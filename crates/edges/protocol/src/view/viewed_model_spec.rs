//! A model as an operator asks for it.

use std::collections::BTreeMap;

use symphony_policy::ModelPolicy;
use symphony_types::{LatencyProfile, Nanos, RequestValue, Signature, TensorSpec, Transforms};

use super::ViewError;
use crate::control as pb;

/// A model as an operator asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The name under which clients ask for it, with its version if it has one.
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
    /// The same of a model that is to share its trunk with no other one.
    OnnxUnshared(String),
    /// The profile alone.
    Emulated,
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
#[derive(Clone, Debug, PartialEq)]
pub struct KindProfile {
    /// ℓ(b).
    pub latency: LatencyProfile,
    /// Memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// Further memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

impl TryFrom<pb::ModelSpec> for ModelSpec {
    type Error = ViewError;
    fn try_from(spec: pb::ModelSpec) -> Result<Self, ViewError> {
        let missing = |field| ViewError::Missing { what: format!("model `{}`", spec.name), field };
        let source = match &spec.source {
            Some(pb::model_spec::Source::OnnxPath(path)) if spec.own_trunk => ModelSource::OnnxUnshared(path.clone()),
            Some(pb::model_spec::Source::OnnxPath(path)) => ModelSource::Onnx(path.clone()),
            Some(pb::model_spec::Source::Emulated(_)) if spec.own_trunk => {
                return Err(ViewError::OwnTrunk { model: spec.name.clone() });
            }
            Some(pb::model_spec::Source::Emulated(_)) => ModelSource::Emulated,
            None => return Err(missing("source")),
        };
        let mut profiles = BTreeMap::new();
        for profile in &spec.profiles {
            let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
            let latency = LatencyProfile::from_table(&table).map_err(|source| ViewError::Profile {
                model: spec.name.clone(),
                kind: profile.gpu_kind.clone(),
                source,
            })?;
            let kind = KindProfile {
                latency,
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            };
            profiles.insert(profile.gpu_kind.clone(), kind);
        }
        let signature =
            Signature { inputs: tensors(spec.inputs, &spec.name)?, outputs: tensors(spec.outputs, &spec.name)? };
        let value = match spec.value_thousandths {
            0 => RequestValue::ONE,
            got => {
                RequestValue::from_thousandths(got).ok_or_else(|| ViewError::Value { model: spec.name.clone(), got })?
            }
        };
        let policy = match spec.policy.as_str() {
            "" => ModelPolicy::default(),
            text => {
                let refuse = |source| ViewError::Policy { model: spec.name.clone(), source };
                text.parse().map_err(refuse)?
            }
        };
        let transforms = crate::transforms::from_pb(spec.transforms, &spec.name)?;
        Ok(Self {
            name: spec.name,
            subcluster: spec.subcluster,
            slo: Nanos::new(spec.slo_ns),
            source,
            signature,
            transforms,
            profiles,
            policy,
            value,
        })
    }
}

impl From<&ModelSpec> for pb::ModelSpec {
    fn from(spec: &ModelSpec) -> Self {
        let source = match spec.source.onnx_path() {
            Some(path) => pb::model_spec::Source::OnnxPath(path.to_owned()),
            None => pb::model_spec::Source::Emulated(true),
        };
        let profiles = spec
            .profiles
            .iter()
            .map(|(kind, profile)| pb::Profile {
                gpu_kind: kind.clone(),
                latency_ns: profile.latency.table().iter().map(|l| l.get()).collect(),
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            })
            .collect();
        Self {
            name: spec.name.clone(),
            subcluster: spec.subcluster.clone(),
            slo_ns: spec.slo.get(),
            source: Some(source),
            inputs: tensors_to_pb(&spec.signature.inputs),
            outputs: tensors_to_pb(&spec.signature.outputs),
            profiles,
            policy: spec.policy.to_string(),
            value_thousandths: spec.value.thousandths(),
            own_trunk: matches!(spec.source, ModelSource::OnnxUnshared(_)),
            transforms: crate::transforms::to_pb(&spec.transforms),
        }
    }
}

fn tensors(specs: Vec<pb::TensorSpec>, model: &str) -> Result<Vec<TensorSpec>, ViewError> {
    specs
        .into_iter()
        .map(|spec| {
            let data_type = spec.data_type.parse().map_err(|source| ViewError::Tensor {
                model: model.to_owned(),
                tensor: spec.name.clone(),
                source,
            })?;
            Ok(TensorSpec { name: spec.name, data_type, item_shape: spec.item_shape })
        })
        .collect()
}

pub(crate) fn tensors_to_pb(specs: &[TensorSpec]) -> Vec<pb::TensorSpec> {
    specs
        .iter()
        .map(|spec| pb::TensorSpec {
            name: spec.name.clone(),
            data_type: spec.data_type.name().to_owned(),
            item_shape: spec.item_shape.clone(),
        })
        .collect()
}
