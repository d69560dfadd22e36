//! Converts models between messages and the replicated states.

use symphony_cluster_state as state;

use crate::control as pb;
use crate::view::{ModelSource, ModelSpec, ViewError};

impl From<ModelSpec> for state::ModelSpec {
    fn from(spec: ModelSpec) -> Self {
        let source = match spec.source {
            ModelSource::Onnx(path) => state::ModelSource::Onnx(path),
            ModelSource::OnnxUnshared(path) => state::ModelSource::OnnxUnshared(path),
            ModelSource::Emulated => state::ModelSource::Emulated,
        };
        let profiles = spec.profiles.into_iter().map(|(kind, profile)| {
            let profile = state::KindProfile {
                latency_ns: profile.latency.table().iter().map(|l| l.get()).collect(),
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            };
            (kind, profile)
        });
        Self {
            name: spec.name,
            subcluster: spec.subcluster,
            slo_ns: spec.slo.get(),
            source,
            signature: spec.signature,
            transforms: Box::new(spec.transforms),
            profiles: profiles.collect(),
            policy: spec.policy,
            value: spec.value,
        }
    }
}

/// Refuses invalid specifications: no source, unknown data types, profiles that are not monotone.
impl TryFrom<pb::ModelSpec> for state::ModelSpec {
    type Error = ViewError;

    fn try_from(spec: pb::ModelSpec) -> Result<Self, ViewError> {
        ModelSpec::try_from(spec).map(Self::from)
    }
}

impl From<&state::ModelSpec> for pb::ModelSpec {
    fn from(spec: &state::ModelSpec) -> Self {
        let source = match spec.source.onnx_path() {
            Some(path) => pb::model_spec::Source::OnnxPath(path.to_owned()),
            None => pb::model_spec::Source::Emulated(true),
        };
        let profiles = spec.profiles.iter().map(|(kind, profile)| pb::Profile {
            gpu_kind: kind.clone(),
            latency_ns: profile.latency_ns.clone(),
            static_memory_bytes: profile.static_memory_bytes,
            dynamic_memory_bytes: profile.dynamic_memory_bytes,
        });
        Self {
            name: spec.name.clone(),
            subcluster: spec.subcluster.clone(),
            slo_ns: spec.slo_ns,
            source: Some(source),
            inputs: crate::view::tensors_to_pb(&spec.signature.inputs),
            outputs: crate::view::tensors_to_pb(&spec.signature.outputs),
            profiles: profiles.collect(),
            policy: spec.policy.to_string(),
            value_thousandths: spec.value.thousandths(),
            own_trunk: matches!(spec.source, state::ModelSource::OnnxUnshared(_)),
            transforms: crate::transforms::to_pb(&spec.transforms),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use symphony_types::{DataType, Nanos, RequestValue, Signature, TensorSpec, Transforms};

    use super::*;

    #[test]
    fn a_model_of_a_state_survives_the_wire_and_a_policy_that_is_none_does_not() {
        let tensor = |name: &str| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![2, 3] };
        let profile = state::KindProfile { latency_ns: vec![5, 7], static_memory_bytes: 11, dynamic_memory_bytes: 13 };
        let spec = state::ModelSpec {
            name: "m".into(),
            subcluster: "s".into(),
            slo_ns: Nanos::from_millis(3).get(),
            source: state::ModelSource::Onnx("m.onnx".into()),
            signature: Signature { inputs: vec![tensor("x")], outputs: vec![tensor("y")] },
            transforms: Box::new(Transforms {
                labels: [("y".into(), vec!["l".into()])].into(),
                ..Transforms::default()
            }),
            profiles: BTreeMap::from([("cpu".to_owned(), profile)]),
            policy: "{ name = \"timeout\", share = 0.1, drop = \"window\" }".parse().unwrap(),
            value: RequestValue::from_thousandths(2_500).unwrap(),
        };
        assert_eq!(state::ModelSpec::try_from(pb::ModelSpec::from(&spec)), Ok(spec.clone()));
        let unshared = state::ModelSpec { source: state::ModelSource::OnnxUnshared("m.onnx".into()), ..spec.clone() };
        assert_eq!(state::ModelSpec::try_from(pb::ModelSpec::from(&unshared)), Ok(unshared));
        let emulated = pb::ModelSpec {
            source: Some(pb::model_spec::Source::Emulated(true)),
            own_trunk: true,
            ..pb::ModelSpec::from(&spec)
        };
        let refused = state::ModelSpec::try_from(emulated).unwrap_err().to_string();
        assert!(refused.contains("model `m`: own_trunk"), "{refused}");

        let with = |policy: &str| {
            state::ModelSpec::try_from(pb::ModelSpec { policy: policy.into(), ..pb::ModelSpec::from(&spec) })
        };
        assert_eq!(with("").map(|spec| spec.policy), Ok(symphony_policy::ModelPolicy::default()));
        for (policy, words) in [
            ("magic", "model `m`: policy: expected one of \"symphony\""),
            ("clockwork", "`symphony subcluster policy` sets it"),
            (
                "{ name = 'auto', ready_order = 'start' }",
                "model `m`: policy: key `ready_order`: expected only trigger, drop",
            ),
            ("{ name = 'timeout', share = 2 }", "model `m`: policy: key `share`: expected a share of the SLO"),
        ] {
            let refused = with(policy).unwrap_err().to_string();
            assert!(refused.contains(words), "{policy}: {refused}");
        }
    }
}
