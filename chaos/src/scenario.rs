//! What a scenario is: data, in `chaos/scenarios/`.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use symphony_config::Timing;

/// Every scenario, compiled in, so that the program needs no files of its own.
const SCENARIOS: [(&str, &str); 2] = [
    ("kill-subcluster-leader", include_str!("../scenarios/kill-subcluster-leader.toml")),
    ("kill-raft-leader", include_str!("../scenarios/kill-raft-leader.toml")),
];

/// A scenario as its file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// What a passing run proves, for people.
    pub(crate) proves: String,
    pub(crate) victim: Victim,
    pub(crate) cluster: ClusterShape,
    pub(crate) model: Model,
    pub(crate) load: Load,
    pub(crate) promise: Promise,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// The replica that leads the sub-cluster.
    SubclusterLeader,
    /// The replica that leads the control group.
    RaftLeader,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterShape {
    pub(crate) timing: Timing,
    /// Emulated GPUs of the one backend.
    pub(crate) gpus: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
    pub(crate) batch_max: u32,
    pub(crate) slo_ms: f64,
    pub(crate) policy: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) rate_rps: f64,
    pub(crate) connections: usize,
    pub(crate) lag_p99_ms: f64,
    pub(crate) lag_max_ms: f64,
}

/// What must hold besides the invariants.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promise {
    /// The longest time without a good answer around any kill.
    pub(crate) dispatch_gap_max_ms: f64,
}

impl Scenario {
    /// The scenario of that name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let Some((_, text)) = SCENARIOS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = SCENARIOS.iter().map(|(known, _)| *known).collect();
            bail!("no scenario `{name}`; expected one of {}", known.join(", "));
        };
        toml::from_str(text).with_context(|| format!("chaos/scenarios/{name}.toml"))
    }

    /// All scenarios.
    pub(crate) fn all() -> Result<Vec<Self>> {
        SCENARIOS.iter().map(|(name, _)| Self::named(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_compiled_in_parses_and_is_named_after_itself() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = std::fs::read_dir(dir).unwrap().count();
        let all = Scenario::all().unwrap();
        assert_eq!(all.len(), files);
        for (scenario, (name, _)) in all.iter().zip(SCENARIOS) {
            assert_eq!(scenario.name, name);
            assert!(!scenario.proves.is_empty());
        }
        assert!(Scenario::named("kill-everybody").unwrap_err().to_string().contains("expected one of kill-"));
    }
}
