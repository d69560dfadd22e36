//! What a cluster is asked for to serve a model, by options of a command or by keys of a file.

use std::path::Path;

use symphony_executor::default_signature;
use symphony_executor::profile::ProfileFile;
use symphony_policy::ModelPolicy;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_repository::read_transforms;
use symphony_types::{LatencyProfile, Nanos, RequestValue, SLO_MAX, Transforms};

use crate::exit::bad_input;

/// A profile file's GPU kinds as the cluster stores them.
pub(crate) fn kind_profiles(profile: &ProfileFile) -> std::collections::BTreeMap<String, KindProfile> {
    let kind = |(kind, gpu): (&String, &symphony_executor::profile::GpuProfile)| {
        let profile = KindProfile {
            latency: gpu.latency.clone(),
            static_memory_bytes: gpu.static_memory_bytes,
            dynamic_memory_bytes: gpu.dynamic_memory_bytes,
        };
        (kind.clone(), profile)
    };
    profile.gpus.iter().map(kind).collect()
}

/// How messages call what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As `--slo-ms`.
    Options,
    /// As `slo_ms`.
    Keys,
}

impl Spelling {
    fn of(self, key: &str) -> String {
        match self {
            Self::Options => format!("--{}", key.replace('_', "-")),
            Self::Keys => key.to_owned(),
        }
    }

    /// A latency objective.
    pub(super) fn slo(self, slo_ms: f64) -> anyhow::Result<Nanos> {
        let (slo, key) = (Nanos::from_millis_f64(slo_ms), self.of("slo_ms"));
        if slo == Nanos::ZERO {
            return Err(bad_input(format!("{key} {slo_ms}: expected a positive number of milliseconds")));
        }
        if slo > SLO_MAX {
            let most = SLO_MAX.as_millis_f64();
            return Err(bad_input(format!("{key} {slo_ms}: expected at most {most} ms")));
        }
        Ok(slo)
    }

    /// What a request is worth.
    pub(super) fn value(self, number: f64) -> anyhow::Result<RequestValue> {
        RequestValue::from_number(number).ok_or_else(|| {
            let (key, min, max) = (self.of("value"), RequestValue::MIN, RequestValue::MAX);
            bad_input(format!("{key} {number}: expected a number from {min} to {max}"))
        })
    }
}

/// A model that is not of a repository.
#[derive(Debug)]
pub(super) struct RequestedModel<'a> {
    pub(super) spelling: Spelling,
    pub(super) name: &'a str,
    pub(super) onnx: Option<&'a Path>,
    pub(super) emulated: bool,
    /// It is to share its trunk with no other model.
    pub(super) own_trunk: bool,
    pub(super) profile: Option<&'a Path>,
    /// Latency by item and fixed, in place of a profile.
    pub(super) line_ms: (Option<f64>, Option<f64>),
    pub(super) batch_max: u32,
    pub(super) gpu_kind: &'a str,
    pub(super) transforms: Option<&'a Path>,
    pub(super) slo_ms: f64,
    pub(super) subcluster: &'a str,
    pub(super) policy: ModelPolicy,
    pub(super) value: f64,
    /// Its value counts whatever the policy is, as with a federation.
    pub(super) values_count_anyway: bool,
}

impl RequestedModel<'_> {
    /// What the cluster is asked for.
    ///
    /// # Errors
    /// If something is missing, wrong, or does not fit something else.
    pub(super) fn spec(&self) -> anyhow::Result<ModelSpec> {
        let (key, slo_ms) = (|key| self.spelling.of(key), self.slo_ms);
        let slo = self.spelling.slo(slo_ms)?;
        let source = match self.onnx {
            Some(path) if self.own_trunk => ModelSource::OnnxUnshared(self.absolute(path)?),
            Some(path) => ModelSource::Onnx(self.absolute(path)?),
            None if self.own_trunk => {
                return Err(bad_input(format!("{} is for models of {} FILE", key("own_trunk"), key("onnx"))));
            }
            None if self.emulated || self.line_ms.0.is_some() => ModelSource::Emulated,
            None => {
                let (onnx, emulated) = (key("onnx"), key("emulated"));
                return Err(bad_input(format!("give {onnx} FILE, or {emulated} for emulated GPUs")));
            }
        };
        let (signature, profiles) = match (self.profile, self.line_ms) {
            (Some(file), _) => {
                let profile = ProfileFile::read(file).map_err(bad_input)?;
                (profile.signature.clone(), kind_profiles(&profile))
            }
            (None, (Some(alpha), Some(beta))) => {
                let latency = LatencyProfile::from_line(alpha, beta, self.batch_max).map_err(bad_input)?;
                let profile = KindProfile { latency, static_memory_bytes: 0, dynamic_memory_bytes: 0 };
                (default_signature(), [(self.gpu_kind.to_owned(), profile)].into())
            }
            _ => {
                let (profile, alpha, beta) = (key("profile"), key("alpha_ms"), key("beta_ms"));
                return Err(bad_input(format!("give {profile} FILE (see `symphony profile`), or {alpha} and {beta}")));
            }
        };
        let fastest = profiles.values().map(|profile: &KindProfile| profile.latency.latency(1)).min();
        let fastest = fastest.unwrap_or_default();
        if slo < fastest {
            let (slo_key, latency_ms) = (key("slo_ms"), fastest.as_millis_f64());
            return Err(bad_input(format!(
                "{slo_key} {slo_ms}: one item alone takes {latency_ms} ms; expected more than that"
            )));
        }
        let (value, policy) = (self.spelling.value(self.value)?, self.policy);
        if value != RequestValue::ONE && !policy.looks_at_values() && !self.values_count_anyway {
            let (number, value_key, policy_key) = (self.value, key("value"), key("policy"));
            return Err(bad_input(format!(
                "{value_key} {number}: policy {policy} looks at no values; expected {policy_key} auto, or one with shed = \"proportional\", beside it"
            )));
        }
        let transforms = match self.transforms {
            Some(file) => read_transforms(file, &signature)
                .map_err(|error| bad_input(format!("{} {error}", key("transforms"))))?,
            None => Transforms::default(),
        };
        let (name, subcluster) = (self.name.to_owned(), self.subcluster.to_owned());
        Ok(ModelSpec { name, subcluster, slo, source, signature, transforms, profiles, policy, value })
    }

    /// Backends have other working directories, so they are sent an absolute path.
    fn absolute(&self, path: &Path) -> anyhow::Result<String> {
        let at = |problem: &dyn std::fmt::Display| {
            bad_input(format!("{} {}: {problem}", self.spelling.of("onnx"), path.display()))
        };
        let path = std::path::absolute(path).map_err(|error| at(&error))?;
        path.to_str().map(str::to_owned).ok_or_else(|| at(&"not valid UTF-8"))
    }
}
