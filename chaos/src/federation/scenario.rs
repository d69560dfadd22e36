//! What a scenario of several clusters is: data, in `chaos/scenarios/`.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use symphony_config::Timing;

use super::fault::{FederationFault, TopTarget};
use crate::scenario::{Load, Model, Promise, Round, check_noise};

/// Names and texts. Their files begin with `federation-`, so that a name says which kind of scenario it is.
const ALL: &[(&str, &str)] = &[
    ("federation-cluster-killed", include_str!("../../scenarios/federation-cluster-killed.toml")),
    ("federation-cluster-paused", include_str!("../../scenarios/federation-cluster-paused.toml")),
    ("federation-cluster-and-top-killed", include_str!("../../scenarios/federation-cluster-and-top-killed.toml")),
    ("federation-top-killed", include_str!("../../scenarios/federation-top-killed.toml")),
    ("federation-top-paused", include_str!("../../scenarios/federation-top-paused.toml")),
    ("federation-leader-killed", include_str!("../../scenarios/federation-leader-killed.toml")),
];

/// Their names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// What a name of such a scenario begins with.
#[cfg(test)]
pub(crate) const PREFIX: &str = "federation-";

/// A scenario of several clusters as its file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationScenario {
    /// Its name, and its file's.
    pub name: String,
    /// What a passing run proves, for people.
    pub proves: String,
    /// The default number of rounds.
    pub(crate) repeat: u32,
    /// The clusters and the group above them.
    #[serde(default)]
    pub(crate) federation: FederationShape,
    /// The specification of every model.
    #[serde(default)]
    pub(crate) model: Model,
    /// The load on each model that has load; writes and admin clients are those of each cluster.
    #[serde(default)]
    pub(crate) load: Load,
    /// A round's shape.
    #[serde(default)]
    pub(crate) round: Round,
    /// What happens in a round.
    pub(crate) fault: Vec<FederationFault>,
    /// What must hold besides the invariants.
    #[serde(default)]
    pub(crate) promise: Promise,
}

/// Clusters, all alike, and the group above them.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FederationShape {
    /// The timing profile of all processes.
    pub(crate) timing: Timing,
    /// Clusters, of one sub-cluster with one backend each.
    pub(crate) clusters: u32,
    /// Scheduler replicas of each.
    pub(crate) replicas: u32,
    /// Emulated GPUs of each.
    pub(crate) gpus: u32,
    /// By how much their batches miss their profiles; as backend.noise.
    pub(crate) noise: f64,
    /// Replicas of the group above them.
    pub(crate) top: u32,
    /// Frontends, each of all clusters; requests take turns on them.
    pub(crate) frontends: u32,
    /// Models with load, dealt out to the clusters in turn. A request for one is worth two of the others.
    pub(crate) models: u32,
    /// In each cluster a model without load is said to need so many requests per second; 0: none. It takes GPU time, so
    /// that not everything of a lost cluster has room elsewhere.
    pub(crate) heavy_rps: f64,
    /// For so long no quorum of a cluster may answer until it counts as lost.
    pub(crate) unreachable_ms: u64,
}

impl Default for FederationShape {
    fn default() -> Self {
        Self {
            timing: Timing::Lan,
            clusters: 2,
            replicas: 3,
            gpus: 2,
            noise: 0.0,
            top: 3,
            frontends: 1,
            models: 4,
            heavy_rps: 0.0,
            unreachable_ms: 3000,
        }
    }
}

/// Most of everything but clusters: replicas, GPUs, frontends, models.
const EACH_MAX: u32 = 16;
/// Most clusters.
const CLUSTERS_MAX: u32 = 4;

impl FederationScenario {
    /// The scenario of that name, if it is one of several clusters.
    ///
    /// # Errors
    /// If its file makes no sense.
    pub fn named(name: &str) -> Result<Option<Self>> {
        let Some((_, text)) = ALL.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        Self::parse(text).with_context(|| format!("chaos/scenarios/{name}.toml")).map(Some)
    }

    /// All of them.
    ///
    /// # Errors
    /// If one of the files makes no sense.
    pub fn all() -> Result<Vec<Self>> {
        let named = ALL.iter().map(|(name, _)| Self::named(name));
        Ok(named.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        let shape = &scenario.federation;
        for (key, value, least, most) in [
            ("clusters", shape.clusters, 2, CLUSTERS_MAX),
            ("replicas", shape.replicas, 1, EACH_MAX),
            ("gpus", shape.gpus, 1, EACH_MAX),
            ("top", shape.top, 1, EACH_MAX),
            ("frontends", shape.frontends, 1, EACH_MAX),
            ("models", shape.models, shape.clusters, EACH_MAX),
        ] {
            ensure!((least..=most).contains(&value), "federation.{key} = {value}: expected {least} to {most}");
        }
        ensure!(shape.heavy_rps >= 0.0, "federation.heavy_rps = {}: expected at least 0", shape.heavy_rps);
        check_noise("federation.noise", shape.noise)?;
        scenario.round.check()?;
        ensure!(!scenario.fault.is_empty(), "no [[fault]]: nothing would happen");
        for lost in scenario.fault.iter().filter(|fault| matches!(fault, FederationFault::LoseCluster(_))) {
            let ends_ms = lost.ends_ms();
            let without_top = scenario.fault.iter().any(|fault| {
                let is_all = matches!(fault, FederationFault::Top(top) if top.who == TopTarget::All);
                is_all && (fault.times_ms().0..=fault.ends_ms()).contains(&ends_ms)
            });
            let never = "when no group above the clusters finds new homes; expected a later end";
            ensure!(!without_top, "fault.for_ms of a lose-cluster: it would end after {ends_ms} ms, {never}");
        }
        let unused = scenario.round.apart || scenario.round.pick.is_some() || scenario.round.spread_ms > 0;
        ensure!(!unused, "round.apart, round.pick and round.spread_ms: only scenarios of one cluster have them");
        ensure!(scenario.promise.obeyed_ms.is_none(), "promise.obeyed_ms: no leader is cut off here");
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_compiled_in_parses_and_is_named_after_itself() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = std::fs::read_dir(dir).unwrap().filter_map(Result::ok);
        assert_eq!(files.filter(|file| file.file_name().to_string_lossy().starts_with(PREFIX)).count(), ALL.len());
        for (scenario, (name, _)) in FederationScenario::all().unwrap().iter().zip(ALL) {
            assert_eq!(scenario.name, *name);
            assert!(name.starts_with(PREFIX) && !scenario.proves.trim().is_empty());
        }
        assert!(FederationScenario::named("overlap").unwrap().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        let base = "name = 'x'\nproves = 'x'\nrepeat = 1\n";
        let lose = "[[fault]]\nkind = 'lose-cluster'\nhow = 'kill'\nfor_ms = 5\n";
        let top = "[[fault]]\nkind = 'top'\nwho = 'all'\nhow = 'kill'\nfor_ms = 5\n";
        for faults in [lose.to_owned(), format!("{lose}{}", top.replace("for_ms = 5", "for_ms = 4"))] {
            assert!(FederationScenario::parse(&format!("{base}{faults}")).is_ok());
        }
        for (text, words) in [
            (format!("{base}{lose}[federation]\nclusters = 1"), "federation.clusters = 1"),
            (format!("{base}{lose}[federation]\nmodels = 1"), "federation.models = 1"),
            (format!("{base}{lose}[round]\npick = 1"), "round.pick"),
            (format!("{base}{lose}[round]\nwatch_ms = 0"), "round.watch_ms = 0"),
            (format!("{base}fault = []"), "nothing would happen"),
            (format!("{base}{lose}who = 'backend'"), "who"),
            (format!("{base}{lose}{top}"), "fault.for_ms of a lose-cluster: it would end after 5 ms"),
        ] {
            let error = format!("{:#}", FederationScenario::parse(&text).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
