//! What the figures of the Kairos paper share: models with measured latencies on four kinds, policies, evaluations.

mod gaussian_process;
mod improvement;
mod searches;
mod sizes;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use symphony_fleet::{
    Bound, Evaluator, FleetModel, FleetProblem, Found, Kind, LatencyTable, RankedFleet, Ranking, Trial, rank, search,
};
use symphony_simulator::oracle_rps;

pub(super) use improvement::{Variant, report as improvement_report};
pub(super) use searches::{bayesian, genetic, random};
pub(super) use sizes::{GAUSSIAN, MIX, Sizes};

use crate::lab::Lab;
use crate::plot::{Axis, Bar, Bars, Panel, Style};
use crate::system::{AUTO, CLKWRK, DRS, KAIROS, ORACLE, RIBBON, System};

/// Table 4: kinds and their prices in dollars per hour; the first is the base. The artifact's largest counts.
pub(super) const KINDS: [(&str, f64, u32); 4] =
    [("g4dn.xlarge", 0.526, 5), ("c5n.2xlarge", 0.432, 6), ("r5n.large", 0.149, 17), ("t3.xlarge", 0.1664, 15)];
/// Section 7.
pub(super) const BUDGET_PER_HOUR: f64 = 2.5;
/// Table 3: those of its models whose latencies are in the data, with their QoS targets in milliseconds.
pub(super) const MODELS: [(&str, &str, f64); 3] = [("ncf", "NCF", 5.0), ("rm2", "RM2", 350.0), ("wnd", "WND", 25.0)];
/// The paper's policies that run in practice, and ours.
pub(super) const SYSTEMS: [System; 5] = [RIBBON, DRS, CLKWRK, KAIROS, AUTO];
/// All of them, and the oracle, which knows the future and is no policy.
pub(super) const ALL_SYSTEMS: [System; 6] = [RIBBON, DRS, CLKWRK, KAIROS, AUTO, ORACLE];

/// Where reasons come from, as seen from the pages.
const RUNS: &str = "../internals/lab/2026-11-27-paper-pages.md#kairos";
/// Requests of a run at the highest bound.
const REQUESTS: (f64, f64) = (20_000.0, 2_000.0);
/// Fleets that a search tries at most.
const EVALUATIONS_MAX: (usize, usize) = (331, 4);

/// One model on the paper's kinds.
pub(super) struct Study {
    /// Its name in the data.
    pub(super) name: &'static str,
    /// Its name in plots.
    pub(super) label: &'static str,
    /// The name of its sizes.
    law: &'static str,
    pub(super) problem: FleetProblem,
    /// Fleets by the paper's bound.
    pub(super) ranking: Ranking,
    /// Further keys of its scenarios, as TOML.
    more: &'static str,
}

#[derive(Deserialize)]
struct LatencyRow {
    model: String,
    instance: String,
    batch: u32,
    total_mean_ms: f64,
}

/// All models as in section 7.
pub(super) fn studies(lab: &Lab<'_>) -> Result<Vec<Study>> {
    studies_with(lab, &MIX, BUDGET_PER_HOUR, 1.0, "")
}

/// All models with other sizes, another budget, other SLOs, and further keys of their scenarios.
pub(super) fn studies_with(
    lab: &Lab<'_>,
    sizes: &Sizes,
    budget_per_hour: f64,
    slo_factor: f64,
    more: &'static str,
) -> Result<Vec<Study>> {
    const FILE: &str = "kairos_latency.csv";
    let text = lab.data_file(FILE)?;
    let mut points: BTreeMap<(String, String), Vec<(u32, f64)>> = BTreeMap::new();
    for row in csv::Reader::from_reader(text.as_bytes()).into_deserialize::<LatencyRow>() {
        let LatencyRow { model, instance, batch, total_mean_ms } = row.context(FILE)?;
        points.entry((model, instance)).or_default().push((batch, total_mean_ms));
    }
    let study = |&(name, label, slo_ms): &(&'static str, &'static str, f64)| -> Result<Study> {
        let latency = |kind: &(&str, f64, u32)| -> Result<LatencyTable> {
            let found = points.get(&(name.to_owned(), kind.0.to_owned()));
            let found = found.with_context(|| format!("{FILE} has no rows of {name} on {}", kind.0))?;
            LatencyTable::from_points(found).map_err(|message| anyhow::anyhow!("{FILE}: {name}, {}: {message}", kind.0))
        };
        let model = FleetModel {
            name: name.to_owned(),
            slo_ms: slo_ms * slo_factor,
            share: 1.0,
            sizes: sizes.shares(),
            latencies: KINDS.iter().map(latency).collect::<Result<_>>()?,
        };
        // A larger budget buys more of each kind.
        let times = (budget_per_hour / BUDGET_PER_HOUR).max(1.0);
        let kind = |&(name, price_per_hour, count_max): &(&str, f64, u32)| Kind {
            name: name.to_owned(),
            price_per_hour,
            count_max: (f64::from(count_max) * times) as u32,
        };
        let problem = FleetProblem { budget_per_hour, kinds: KINDS.iter().map(kind).collect(), models: vec![model] };
        let ranking = rank(&problem, Bound::Kairos)?;
        Ok(Study { name, label, law: sizes.name, problem, ranking, more })
    };
    MODELS.iter().map(study).collect()
}

/// One of the models.
pub(super) fn only(studies: Vec<Study>, name: &str) -> Result<Study> {
    studies.into_iter().find(|study| study.name == name).with_context(|| format!("no model {name}"))
}

impl Study {
    fn trial(&self, lab: &Lab<'_>, system: &System) -> Trial {
        let highest_rps = self.ranking.fleets.first().map_or(1.0, |fleet| fleet.bound_rps);
        Trial {
            policy: system.policy.to_owned(),
            // Rounded, so that the same run has the same key.
            duration_s: (lab.pick(REQUESTS.0, REQUESTS.1) / highest_rps).clamp(3.0, 600.0).ceil(),
            seeds: lab.pick(vec![1, 2, 3], vec![1]),
            arrival: "\"poisson\"".to_owned(),
            more: self.more.to_owned(),
        }
    }

    /// The goodput of each fleet with a policy, in requests per second; with the oracle, what it computes.
    pub(super) fn goodputs(&self, lab: &Lab<'_>, wanted: &[(Vec<u32>, System)]) -> Result<Vec<f64>> {
        let policies: Vec<_> = wanted.iter().filter(|(_, system)| *system != ORACLE).cloned().collect();
        let mut simulated = self.simulated(lab, &policies)?.into_iter();
        let rate = |(counts, system): &(Vec<u32>, System)| {
            if *system == ORACLE {
                return self.oracle_rps(lab, counts);
            }
            simulated.next().context("each policy has a goodput")
        };
        wanted.iter().map(rate).collect()
    }

    /// What the oracle serves on a fleet, in requests per second.
    fn oracle_rps(&self, lab: &Lab<'_>, counts: &[u32]) -> Result<f64> {
        let scenario = self.problem.scenario(counts, &self.trial(lab, &ORACLE))?;
        oracle_rps(&scenario).context("a study has one model")
    }

    fn simulated(&self, lab: &Lab<'_>, wanted: &[(Vec<u32>, System)]) -> Result<Vec<f64>> {
        let slo_ms = self.problem.models[0].slo_ms;
        let key = |(counts, system): &(Vec<u32>, System)| {
            format!("fleet {} {slo_ms} {} {counts:?} {:?}", self.name, self.law, self.trial(lab, system))
        };
        let keys: Vec<String> = wanted.iter().map(key).collect();
        lab.goodputs_by_key(&keys, |at| {
            let (counts, system) = &wanted[at];
            Ok(self.problem.scenario(counts, &self.trial(lab, system))?)
        })
    }

    /// The goodput of one fleet.
    pub(super) fn goodput(&self, lab: &Lab<'_>, counts: &[u32], system: &System) -> Result<f64> {
        let found = self.goodputs(lab, &[(counts.to_vec(), *system)])?;
        Ok(found.first().copied().unwrap_or(0.0))
    }

    /// The fleet chosen without trying any, by the bound for how the policy runs requests: `auto` merges them.
    pub(super) fn in_one_shot(&self, system: &System) -> Result<RankedFleet> {
        if *system == AUTO {
            return Ok(rank(&self.problem, Bound::Together)?.chosen().clone());
        }
        Ok(self.ranking.chosen().clone())
    }

    /// As many of the base as the budget allows.
    pub(super) fn homogeneous(&self) -> Vec<u32> {
        let bases = (self.problem.budget_per_hour / KINDS[0].1).floor() as u32;
        vec![bases, 0, 0, 0]
    }

    /// The goodput of the base alone with the policy that serves equal GPUs, scaled up to the whole budget as the paper
    /// does, to the advantage of equal GPUs.
    pub(super) fn homogeneous_rps(&self, lab: &Lab<'_>, system: &System) -> Result<f64> {
        let counts = self.homogeneous();
        let scale = self.problem.budget_per_hour / self.problem.price_per_hour(&counts);
        Ok(self.goodput(lab, &counts, system)? * scale)
    }

    /// The search of Kairos+ for a policy's best fleet, by a bound that no fleet exceeds with it.
    pub(super) fn best(&self, lab: &Lab<'_>, system: &System) -> Result<(Ranking, Found)> {
        self.best_by(lab, system, if *system == AUTO { Bound::Together } else { Bound::Alone })
    }

    /// The same search by another bound.
    pub(super) fn best_by(&self, lab: &Lab<'_>, system: &System, bound: Bound) -> Result<(Ranking, Found)> {
        let ranking = rank(&self.problem, bound)?;
        let found =
            search(&ranking, &mut Trying { study: self, lab, system }, lab.pick(EVALUATIONS_MAX.0, EVALUATIONS_MAX.1))?;
        Ok((ranking, found))
    }

    /// The goodput of a policy's best fleet, and how many fleets were tried for it.
    pub(super) fn best_rps(&self, lab: &Lab<'_>, system: &System) -> Result<(f64, usize)> {
        let (_, found) = self.best(lab, system)?;
        let best = found.best.map_or(0.0, |best| found.evaluations[best].rate_rps);
        Ok((best, found.evaluations.len()))
    }
}

/// Simulates fleets for a search.
struct Trying<'a> {
    study: &'a Study,
    lab: &'a Lab<'a>,
    system: &'a System,
}

impl Evaluator for Trying<'_> {
    type Error = anyhow::Error;

    fn rate_rps(&mut self, counts: &[u32]) -> Result<f64> {
        self.study.goodput(self.lab, counts, self.system)
    }
}

/// A fleet as the paper writes it.
pub(super) fn words(counts: &[u32]) -> String {
    let numbers: Vec<String> = counts.iter().map(ToString::to_string).collect();
    format!("({})", numbers.join(", "))
}

/// A panel of bars with values from zero.
pub(super) fn bars(title: &str, axis: &str, bars: Vec<Bar>) -> Panel {
    Panel::Bars(Bars { title: title.to_owned(), axis: Axis::from_zero(axis), bars, rules: Vec::new() })
}

/// One bar with its number behind it.
pub(super) fn bar(style: Style, value: Option<f64>, decimals: usize, theirs: Option<(f64, f64)>) -> Bar {
    let text = value.map_or_else(|| "not in this build".to_owned(), |value| super::cell(value, decimals));
    Bar { style, value, text, theirs }
}

/// The style of a system under another name.
pub(super) fn labelled(system: &System, label: &str) -> Style {
    Style { label: label.to_owned(), ..system.style() }
}

/// What was run, for every page.
pub(super) fn setup(lab: &Lab<'_>) -> String {
    let requests = lab.pick(REQUESTS.0, REQUESTS.1);
    format!(
        "Latencies of the paper's artifact ([MIT licence](https://github.com/boringlee24/hpdc23-kairos), `kairos_latency.csv`) for three \
         of the paper's five models on the four kinds of Table 4; sizes by the law of the artifact's sampler; Poisson arrivals; goodput: p99 \
         within the QoS target. Each run has {requests:.0} requests at the highest bound, {}.",
        lab.pick("seeds 1 to 3, median", "quick: seed 1")
    )
}

/// Why ours differ, for pages with the oracle.
pub(super) fn differences_with_oracle() -> Vec<String> {
    let mut differences = differences();
    differences.push(
        "The oracle is computed, not simulated (`symphony_simulator::oracle_rps`). It merges no requests, so `auto` can be above it; a goodput also lets \
         one request in a hundred be late."
            .to_owned(),
    );
    differences
}

/// How `auto` gets its fleet in one shot.
pub(super) fn fleet_of_auto() -> String {
    "`auto` merges requests, so its fleet in one shot is chosen by the bound for policies that do (`--bound together`)."
        .to_owned()
}

/// Where `auto` is below `kairos`, and why.
pub(super) fn auto_below_kairos() -> String {
    format!(
        "`auto` is below `kairos` with RM2. There a batch takes as long as its requests one by one (5 ms for 10 items, 0.26 ms for each further one), so waiting for \
         others gains nothing, and costs the largest requests, which only the base answers and which have about 100 ms to spare. With `trigger = \"eager\"` and \
         `shed = \"none\"` `auto` serves as much as `kairos` ([runs]({RUNS}))."
    )
}

/// Why Ribbon and DRS are nearer to Kairos than in the paper.
pub(super) fn rivals_are_in_time() -> String {
    "Ribbon and DRS serve more here than in the paper: on each kind a profile ends at the largest request that is in time there, so \
     larger ones wait for the base, and what would be late is dropped; the paper's serve late, which takes time from others. First come, \
     first served as the artifact has it answers 19 requests/s of RM2 on (1, 0, 13, 0) (`kairos_reference_throughput.csv`), ours 112."
        .to_owned()
}

/// Why ours differ, for every page.
pub(super) fn differences() -> Vec<String> {
    vec![
        "Latencies are means of 100 measurements, straight lines between sizes; a request takes exactly that, with no network. The paper ran \
         on rented machines."
            .to_owned(),
        "Two of the paper's models, MT-WND and DIEN, are not in the data.".to_owned(),
        "`kairos` knows latencies from the beginning here; the paper's learns them in each run, as `learn = true` does.".to_owned(),
    ]
}
