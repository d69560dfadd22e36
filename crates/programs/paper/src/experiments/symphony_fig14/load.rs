//! The workload of Figure 14: models, what each is asked for, and the GPUs that a moment of it needs.

use std::fmt::Write as _;

use anyhow::Result;
use symphony_simulator::{fluid_gpus, meets_slo};
use symphony_workload::Scenario;

use super::super::changing_rates::{STEP_S, factors};
use crate::data::zoo_1080ti;
use crate::lab::Lab;
use crate::setup::{Models, Setup};

/// Models of the zoo that are served.
pub(super) const MODELS: usize = 24;
/// The busiest moment needs this share of the fleet, by the staggered bound.
pub(super) const PEAK_SHARE: f64 = 0.86;
/// From an order to a GPU that serves, in seconds.
pub(super) const PROVISION_S: f64 = 10.0;
/// GPUs are released by the largest need of the last `DOWN_S` seconds, and not within that time after others were
/// ordered: on a day that is 17 times as short as a real one the default, a minute, is 3.5 s.
pub(super) const DOWN_S: f64 = 5.0;

/// The workload: models, and what each is asked for.
pub(super) struct Load {
    pub(super) seed: u64,
    pub(super) models: Vec<Models>,
    /// Requests per second by model, for each [`STEP_S`].
    pub(super) rates: Vec<Vec<f64>>,
    pub(super) gpus: u32,
    pub(super) duration_s: f64,
}

impl Load {
    pub(super) fn new(lab: &Lab<'_>, seed: u64) -> Result<Self> {
        let (gpus, duration_s) = lab.pick((512, 10_000.0), (64, 400.0));
        // Of the 35 models of Table 5, in the order of β/α, as many evenly spread.
        let rows = zoo_1080ti();
        let models: Vec<_> = (0..MODELS).map(|index| Models::of(&rows[index * rows.len() / MODELS])).collect();
        let mut load = Self { seed, models, rates: Vec::new(), gpus, duration_s };
        // Between equal rates, where the slowest model has most of the GPUs, and equal GPUs, where the fastest has most
        // of the requests.
        let weights: Vec<f64> = load.models.iter().map(|model| 1.0 / seconds_per_request(model).sqrt()).collect();
        // One day whatever the size: the quick variant sees the rise of the morning.
        let factors: Vec<_> = (0..MODELS as u64).map(|model| factors(seed, model, duration_s.max(1_500.0))).collect();
        let from = lab.pick(0, 100);
        let steps = (duration_s / STEP_S) as usize;
        load.rates = (from..from + steps)
            .map(|step| weights.iter().zip(&factors).map(|(weight, factors)| weight * factors[step]).collect())
            .collect();
        // Scaled until the busiest moment fits as meant. The need is nearly, not quite, in proportion.
        let scenario = load.at(0)?.scenario()?;
        let peak = |load: &Self| load.need(&scenario).into_iter().fold(0.0, f64::max);
        for _ in 0..20 {
            let scale = PEAK_SHARE * f64::from(gpus) / peak(&load);
            load.rates.iter_mut().flatten().for_each(|rate| *rate *= scale);
        }
        Ok(load)
    }

    /// GPUs that perfectly staggered batches would need, for each step.
    pub(super) fn need(&self, scenario: &Scenario) -> Vec<f64> {
        let of = |rates: &Vec<f64>| {
            let by_name: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).zip(rates).collect();
            fluid_gpus(scenario, |model| {
                by_name.iter().find(|(name, _)| *name == model.name).map_or(0.0, |pair| *pair.1)
            })
        };
        self.rates.iter().map(of).collect()
    }

    pub(super) fn total(&self, step: usize) -> f64 {
        self.rates[step].iter().sum()
    }

    /// The load of one step, held.
    pub(super) fn at(&self, step: usize) -> Result<Setup> {
        let mut setup = self.setup("a moment", |model| Ok(format!("weight = {:?}\n", self.rates[step][model])))?;
        setup.duration_s = 10.0;
        Ok(setup)
    }

    /// All of it, with GPUs that follow.
    pub(super) fn whole(&self, policy: &str, start: u32) -> Result<Setup> {
        let mut setup = self.setup("changing", |model| {
            let mut rows = String::new();
            for (step, rates) in self.rates.iter().enumerate() {
                write!(rows, "[{:?},{:?}],", step as f64 * STEP_S, rates[model])?;
            }
            // Factors are the rates themselves, against one request per second.
            Ok(format!("weight = 1\nrate_profile = [{rows}]\n"))
        })?;
        setup.duration_s = self.duration_s - 2.0;
        setup.more_of_gpus = format!("start = {start}\nmin = 1\n");
        setup.more = format!(
            "[autoscale]\nprovision_s = {PROVISION_S:?}\ndown_window_s = {DOWN_S:?}\ndown_after_up_s = {DOWN_S:?}\n"
        );
        Ok(setup.with_policy(policy))
    }

    fn setup(&self, name: &str, more: impl Fn(usize) -> Result<String>) -> Result<Setup> {
        let mut models = self.models.clone();
        for (index, model) in models.iter_mut().enumerate() {
            model.more = more(index)?;
        }
        Ok(Setup {
            name: name.to_owned(),
            policy: r#""symphony""#.to_owned(),
            gpus: self.gpus,
            models,
            arrival: r#""poisson""#.to_owned(),
            popularity: r#""weights""#.to_owned(),
            network: crate::setup::Network::default(),
            duration_s: self.duration_s,
            seeds: vec![self.seed],
            trace: String::new(),
            more_of_gpus: String::new(),
            more: String::new(),
        })
    }
}

/// The GPU time of one request in the largest batch that the SLO allows.
fn seconds_per_request(model: &Models) -> f64 {
    let batch = ((model.slo_ms - model.beta_ms) / model.alpha_ms).floor().max(1.0);
    (model.alpha_ms + model.beta_ms / batch) / 1e3
}

/// The offline ideal of one moment: the fewest GPUs on which its rates, held for ten seconds, meet every model's SLO.
pub(super) fn ideal_gpus(load: &Load, step: usize, need: f64) -> Result<u32> {
    let setup = load.at(step)?;
    let meets = |gpus: u32| -> Result<bool> {
        let scenario = Setup { gpus, ..setup.clone() }.scenario()?;
        Ok(meets_slo(&scenario, load.seed, load.total(step))?.passed)
    };
    let (mut low, mut high) = (need.floor() as u32, (1.1 * need).ceil() as u32 + 2);
    while !meets(high)? {
        (low, high) = (high, high + high / 8 + 1);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if meets(middle)? { high = middle } else { low = middle }
    }
    Ok(high)
}
