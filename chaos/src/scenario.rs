//! What a scenario is: data, in `chaos/scenarios/`.

mod catalogue;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use symphony_config::Timing;
use symphony_config::limits::NOISE_MAX;
use symphony_policy::{ModelPolicy, ModelPolicyName};

use crate::fault::{DiskEffect, FaultSpec};

/// A scenario as its file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, and its file's.
    pub name: String,
    /// What a passing run proves, for people.
    pub proves: String,
    /// The default number of rounds.
    pub(crate) repeat: u32,
    /// The cluster.
    #[serde(default)]
    pub(crate) cluster: ClusterShape,
    /// The model that each sub-cluster serves.
    #[serde(default)]
    pub(crate) model: Model,
    /// A pipeline of two more such models, with load like each of the others.
    pub(crate) pipeline: Option<PipelineShape>,
    /// The load on each model.
    #[serde(default)]
    pub(crate) load: Load,
    /// A round's shape.
    #[serde(default)]
    pub(crate) round: Round,
    /// What happens in a round.
    pub(crate) fault: Vec<FaultSpec>,
    /// What must hold besides the invariants.
    #[serde(default)]
    pub(crate) promise: Promise,
    /// What is aimed at on a quiet machine: reported, not judged.
    #[serde(default)]
    pub(crate) aim: Aim,
}

/// The cluster of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterShape {
    /// How patient it is.
    pub(crate) timing: Timing,
    /// How its processes reach each other.
    pub(crate) links: Links,
    /// Scheduler replicas.
    pub(crate) replicas: u32,
    /// Sub-clusters, each with a model of its own.
    pub(crate) subclusters: u32,
    /// Backends of each sub-cluster.
    pub(crate) backends: u32,
    /// Emulated GPUs of each backend.
    pub(crate) gpus: u32,
    /// By how much their batches miss their profiles; as backend.noise.
    pub(crate) noise: f64,
    /// Frontends; requests take turns on them.
    pub(crate) frontends: u32,
    /// Decision threads that a replica's leads share; 0 for as many as the product chooses.
    pub(crate) decision_threads: u32,
}

/// How processes reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// Over loopback. Nothing can be cut.
    Direct,
    /// So that links can be cut: network namespaces where root and the machine allow it, else through the fault proxy.
    Cuttable,
    /// Each in a network namespace of its own; packets are dropped.
    Namespaces,
    /// Through the fault proxy, which delays, drips, resets and corrupts as well.
    Proxied,
}

/// A model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Model {
    /// Time per item.
    pub(crate) alpha_ms: f64,
    /// Time per batch.
    pub(crate) beta_ms: f64,
    /// Largest batch.
    pub(crate) batch_max: u32,
    /// Long against the gaps: what waits in the queue of a dead leader can still be answered in time by the next one.
    pub(crate) slo_ms: f64,
    /// Deferral makes gaps of its own, about as long as the SLO; `eager` makes none.
    pub(crate) policy: ModelPolicy,
}

/// A pipeline with a stage in each of the first two sub-clusters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineShape {
    /// Its latency budget.
    pub(crate) slo_ms: f64,
    /// Rows of each result of the first stage; the second one is asked for each of them.
    pub(crate) rows: u32,
}

/// The load on each model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Load {
    /// Requests per second, in equal gaps: so fine are gaps measured.
    pub(crate) rate_rps: f64,
    /// Connections to each frontend.
    pub(crate) connections: usize,
    /// Beyond these the figures measure the load generator, and the outcome is `harness`.
    pub lag_p99_ms: f64,
    /// The bound for the worst request.
    pub(crate) lag_max_ms: f64,
    /// Writes per second that measure gaps in commits.
    pub(crate) writes_rps: f64,
    /// Clients that load, unload and read models all the time, for the history of the admin API.
    pub(crate) admin_clients: u32,
}

/// A round's shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Round {
    /// The time from the first fault on in which the longest gaps are looked for.
    pub(crate) watch_ms: u64,
    /// Waits before the faults, in bounded time, until the leader of the control group leads no sub-cluster, as the
    /// cluster itself arranges it after a calm: else some faults would strike both at once.
    pub(crate) apart: bool,
    /// This many of the faults, drawn again each round, instead of all.
    pub(crate) pick: Option<u32>,
    /// Each picked fault begins at a random time within this, instead of at its own.
    pub(crate) spread_ms: u64,
}

/// What must hold besides the invariants, in every round unless stated otherwise; none is not judged.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Promise {
    /// The longest time without a good answer in a sub-cluster that was struck.
    pub(crate) dispatch_gap_ms: Option<f64>,
    /// The longest time without a good answer in the others.
    pub(crate) elsewhere_gap_ms: Option<f64>,
    /// The longest time without a commit.
    pub(crate) commit_gap_ms: Option<f64>,
    /// From the end of the last fault until every sub-cluster has answered something in time.
    pub(crate) serving_ms: Option<f64>,
    /// From the end of the last fault until the cluster's view is whole again.
    pub(crate) whole_ms: Option<f64>,
    /// From the first fault until the view shows every struck backend as down.
    pub(crate) down_ms: Option<f64>,
    /// Requests of a round that are sent after its faults have ended, and are not answered in time.
    pub(crate) bad_after_max: Option<u64>,
    /// From the first fault until no GPU takes plans any more of a leader that was cut off from a quorum.
    pub(crate) obeyed_ms: Option<f64>,
    /// For so long after the fault every sub-cluster goes on serving.
    pub(crate) serves_on_ms: Option<f64>,
    /// Requests that fail from the first fault on.
    pub(crate) failed_max: Option<u64>,
}

/// What is aimed at on a quiet machine.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Aim {
    /// Of all rounds' longest gaps in dispatch, where it was struck.
    pub dispatch_gap_p99_ms: Option<f64>,
    /// The worst of them.
    pub(crate) dispatch_gap_max_ms: Option<f64>,
    /// Of all rounds' longest gaps between commits.
    pub commit_gap_p99_ms: Option<f64>,
    /// The worst of them.
    pub(crate) commit_gap_max_ms: Option<f64>,
    /// Requests without a good answer in sub-clusters that were not struck, over all rounds.
    pub(crate) elsewhere_bad: Option<f64>,
}

impl Default for ClusterShape {
    fn default() -> Self {
        let (timing, links) = (Timing::Lan, Links::Direct);
        Self {
            timing,
            links,
            replicas: 3,
            subclusters: 2,
            backends: 1,
            gpus: 2,
            noise: 0.0,
            frontends: 1,
            decision_threads: 0,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            alpha_ms: 1.0,
            beta_ms: 5.0,
            batch_max: 64,
            slo_ms: 250.0,
            policy: ModelPolicy::of(ModelPolicyName::Eager),
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self {
            rate_rps: 200.0,
            connections: 2,
            lag_p99_ms: 50.0,
            lag_max_ms: 1000.0,
            writes_rps: 100.0,
            admin_clients: 2,
        }
    }
}

impl Default for Round {
    fn default() -> Self {
        Self { watch_ms: 1500, apart: false, pick: None, spread_ms: 0 }
    }
}

/// Replicas, sub-clusters, backends of one, GPUs of one, frontends, rows: each at most so many.
const EACH_MAX: u32 = 16;
/// The longest round that is watched.
const WATCH_MS_MAX: u64 = 120_000;

impl Round {
    pub(crate) fn check(&self) -> Result<()> {
        let watch_ms = self.watch_ms;
        ensure!((1..=WATCH_MS_MAX).contains(&watch_ms), "round.watch_ms = {watch_ms}: expected 1 to {WATCH_MS_MAX}");
        Ok(())
    }
}

/// Refuses noise that backends would refuse.
pub(crate) fn check_noise(key: &str, noise: f64) -> Result<()> {
    ensure!((0.0..=NOISE_MAX).contains(&noise), "{key} = {noise}: expected 0 to {NOISE_MAX}");
    Ok(())
}

impl Scenario {
    /// The scenario of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self> {
        let all = catalogue::ALL;
        let Some((_, text)) = all.iter().find(|(known, _)| *known == name) else {
            let known = all.iter().map(|(known, _)| *known).chain(crate::federation::names());
            let known: Vec<_> = known.collect();
            bail!("no scenario `{name}`; expected all, or one of {}", known.join(", "));
        };
        Self::parse(text).with_context(|| format!("chaos/scenarios/{name}.toml"))
    }

    /// All scenarios.
    ///
    /// # Errors
    /// If one of the files makes no sense.
    pub fn all() -> Result<Vec<Self>> {
        catalogue::ALL.iter().map(|(name, _)| Self::named(name)).collect()
    }

    fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        let shape = &scenario.cluster;
        for (key, value) in [
            ("replicas", shape.replicas),
            ("subclusters", shape.subclusters),
            ("backends", shape.backends),
            ("gpus", shape.gpus),
            ("frontends", shape.frontends),
        ] {
            ensure!((1..=EACH_MAX).contains(&value), "cluster.{key} = {value}: expected 1 to {EACH_MAX}");
        }
        let threads = shape.decision_threads;
        ensure!(threads <= EACH_MAX, "cluster.decision_threads = {threads}: expected 0 to {EACH_MAX}");
        check_noise("cluster.noise", shape.noise)?;
        if let Some(PipelineShape { slo_ms, rows }) = &scenario.pipeline {
            ensure!((1..=EACH_MAX).contains(rows), "pipeline.rows = {rows}: expected 1 to {EACH_MAX}");
            ensure!(*slo_ms > 0.0 && slo_ms.is_finite(), "pipeline.slo_ms = {slo_ms}: expected a positive number");
            let subclusters = shape.subclusters;
            ensure!(subclusters >= 2, "cluster.subclusters = {subclusters}: expected 2 or more for a [pipeline]");
        }
        scenario.round.check()?;
        ensure!(!scenario.fault.is_empty(), "no [[fault]]: nothing would happen");
        for fault in &scenario.fault {
            match fault {
                FaultSpec::Disk(disk) => {
                    let is_told = disk.room_kb > 0;
                    ensure!(
                        !is_told || disk.effect == DiskEffect::Full,
                        "fault.room_kb: only a disk that becomes full has room"
                    );
                }
                FaultSpec::RollBack(f) | FaultSpec::Wipe(f) => {
                    let kind = fault.kind();
                    ensure!(f.who.is_replica(), "fault.who of a {kind}: expected a replica, as others lose no state");
                }
                _ => {}
            }
        }
        if let Some(pick) = scenario.round.pick {
            let faults = scenario.fault.len();
            ensure!((1..=faults).contains(&(pick as usize)), "round.pick = {pick}: expected 1 to {faults}");
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_compiled_in_parses_and_is_named_after_itself() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        // Those of several clusters are another kind.
        let of_one =
            |file: &std::fs::DirEntry| !file.file_name().to_string_lossy().starts_with(crate::federation::PREFIX);
        let files = std::fs::read_dir(dir).unwrap().filter_map(Result::ok).filter(of_one).count();
        let all = Scenario::all().unwrap();
        assert_eq!(all.len(), files);
        for (scenario, (name, _)) in all.iter().zip(catalogue::ALL) {
            assert_eq!(scenario.name, *name);
            assert!(!scenario.proves.trim().is_empty());
            // A backend that is back before the bound need not be down at all.
            let Some(down_ms) = scenario.promise.down_ms else { continue };
            for fault in &scenario.fault {
                let (at_ms, for_ms) = fault.times_ms();
                assert!(for_ms as f64 > down_ms, "{name}: from {at_ms} for {for_ms} ms, and down only after {down_ms}");
            }
        }
        assert!(Scenario::named("kill-everybody").unwrap_err().to_string().contains("expected all, or one of kill-"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        let base = "name = 'x'\nproves = 'x'\nrepeat = 1\n";
        let kill = "[[fault]]\nkind = 'kill'\nwho = 'backend'\nfor_ms = 5\n";
        assert!(Scenario::parse(&format!("{base}{kill}")).is_ok());
        let wipe = kill.replace("'kill'", "'wipe'");
        assert!(Scenario::parse(&format!("{base}{}", wipe.replace("backend", "raft-leader"))).is_ok());
        let disk = "[[fault]]\nkind = 'disk'\nwho = 'replica'\neffect = 'stall'\nroom_kb = 1\nfor_ms = 5\n";
        assert!(Scenario::parse(&format!("{base}{}", disk.replace("stall", "full"))).is_ok());
        for (text, words) in [
            (format!("{base}{kill}[cluster]\nreplicas = 17"), "cluster.replicas = 17"),
            (format!("{base}{kill}[cluster]\ndecision_threads = 17"), "cluster.decision_threads = 17"),
            (format!("{base}{kill}[cluster]\nnoise = -0.1"), "cluster.noise = -0.1: expected 0 to 2"),
            (format!("{base}{kill}[cluster]\nnoise = nan"), "cluster.noise = NaN: expected 0 to 2"),
            (format!("{base}{kill}[pipeline]\nslo_ms = 500\nrows = 0"), "pipeline.rows = 0: expected 1 to 16"),
            (format!("{base}{kill}[pipeline]\nslo_ms = 0\nrows = 1"), "pipeline.slo_ms = 0"),
            (format!("{base}{kill}[pipeline]\nslo_ms = 9\nrows = 1\n[cluster]\nsubclusters = 1"), "expected 2 or more"),
            (format!("{base}{kill}[round]\npick = 2"), "round.pick = 2"),
            (format!("{base}{kill}[round]\nwatch_ms = 0"), "round.watch_ms = 0"),
            (format!("{base}fault = []"), "nothing would happen"),
            (format!("{base}{wipe}"), "fault.who of a wipe: expected a replica"),
            (
                format!("{base}{}", kill.replace("'kill'", "'roll-back'").replace("backend", "each-frontend")),
                "fault.who of a roll-back: expected a replica",
            ),
            (format!("{base}{disk}"), "fault.room_kb: only a disk that becomes full"),
            (format!("{base}{kill}how = 'slowly'"), "how"),
            (format!("{base}{kill}[load]\nrate = 5"), "rate"),
        ] {
            let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
