//! What pipelines plan for at given rates: the budget of each stage, and by it what policies are told of its model.

use std::sync::Arc;

use symphony_pipeline::{
    BatchOption, Cost, Pipeline, RunPlan, StageBudget, Unsplittable, even_split, split_options, spread_takes,
};
use symphony_types::{LatencyProfile, Nanos};
use symphony_workload::{ModelSpec, PipelineLoad, Scenario, SplitRule};

/// Steps of the time grid in an SLO: a split costs some 10^5 sums per stage, and is off by 0.2 % of the SLO at most.
const STEPS: u64 = 500;

/// A pipeline with what is known of its load.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) rate_rps: f64,
    /// With γ as expected or measured.
    pub(crate) pipeline: Pipeline,
}

impl Known {
    /// The scenario's own, at this total rate.
    pub(crate) fn all(scenario: &Scenario, rate_rps: f64) -> Vec<Self> {
        let known = |load: &PipelineLoad| Self { rate_rps: rate_rps * load.share, pipeline: load.pipeline.clone() };
        scenario.pipelines.iter().map(known).collect()
    }
}

/// All pipelines of a scenario, planned.
#[derive(Clone, Debug)]
pub(crate) struct PipelinePlans {
    /// By pipeline.
    pub(crate) runs: Vec<Arc<RunPlan>>,
    /// By pipeline: GPUs that its stages keep busy; infinite if its budget cannot be split.
    pub(crate) gpus: Vec<f64>,
    /// By model: the shortest budget of the stages that ask it.
    budgets: Vec<Option<Nanos>>,
    /// By model: its stage requests per second.
    rates: Vec<f64>,
}

impl PipelinePlans {
    /// By the scenario's own rates and fan-outs, at this total rate.
    pub(crate) fn new(scenario: &Scenario, rate_rps: f64) -> Self {
        Self::known(scenario, rate_rps, &Known::all(scenario, rate_rps))
    }

    /// By what is known of each pipeline. Where a budget cannot be split, each stage has what it needs at least in
    /// proportion: requests are then dropped when they arrive, or at a hop.
    pub(crate) fn known(scenario: &Scenario, rate_rps: f64, known: &[Known]) -> Self {
        let rates = stage_rates(scenario, known);
        let mut plans = Self {
            runs: Vec::with_capacity(known.len()),
            gpus: Vec::with_capacity(known.len()),
            budgets: vec![None; scenario.models.len()],
            rates,
        };
        for (load, known) in scenario.pipelines.iter().zip(known) {
            let split = split(scenario, rate_rps, load, known, &plans.rates);
            let (budgets, gpus) = split.unwrap_or_else(|_| {
                let least = known.pipeline.stages().iter().map(|stage| stage.profile.latency(1));
                (least.collect(), f64::INFINITY)
            });
            for (&model, &budget) in load.models.iter().zip(&budgets) {
                let shortest = &mut plans.budgets[model as usize];
                *shortest = Some(shortest.map_or(budget, |other| other.min(budget)));
            }
            // There are as many budgets as stages.
            if let Ok(plan) = RunPlan::new(&known.pipeline, &budgets, load.hop) {
                plans.runs.push(Arc::new(if load.resplit { plan } else { plan.with_fixed_deadlines() }));
                plans.gpus.push(gpus);
            }
        }
        plans
    }

    /// The SLO of a model for policies: the shortest budget, and its own SLO if that is shorter and it has requests of
    /// its own.
    pub(crate) fn slo(&self, model: usize, own: &ModelSpec) -> Nanos {
        match self.budgets[model] {
            None => own.slo,
            Some(budget) if own.share > 0.0 => budget.min(own.slo),
            Some(budget) => budget,
        }
    }

    /// Stage requests of a model per second.
    pub(crate) fn stage_rate(&self, model: usize) -> f64 {
        self.rates[model]
    }
}

/// The first pipeline whose budget cannot be split at the scenario's own rate, and why.
pub(crate) fn unsplittable(scenario: &Scenario) -> Option<(String, Unsplittable)> {
    let known = Known::all(scenario, scenario.rate_rps);
    let rates = stage_rates(scenario, &known);
    scenario.pipelines.iter().zip(&known).find_map(|(load, known)| {
        let refused = split(scenario, scenario.rate_rps, load, known, &rates).err()?;
        Some((known.pipeline.name().to_owned(), refused))
    })
}

/// Stage requests per second, by model, over all pipelines.
fn stage_rates(scenario: &Scenario, known: &[Known]) -> Vec<f64> {
    let mut rates = vec![0.0; scenario.models.len()];
    for (load, known) in scenario.pipelines.iter().zip(known) {
        for (&model, requests) in load.models.iter().zip(known.pipeline.requests_per_request()) {
            rates[model as usize] += known.rate_rps * requests;
        }
    }
    rates
}

/// The budget of each stage, and the GPUs that all of them keep busy.
fn split(
    scenario: &Scenario,
    rate_rps: f64,
    load: &PipelineLoad,
    known: &Known,
    stage_rates: &[f64],
) -> Result<(Vec<Nanos>, f64), Unsplittable> {
    let pipeline = &known.pipeline;
    let stages = load.models.iter().zip(pipeline.stages()).zip(pipeline.requests_per_request());
    let options = stages.map(|((&model, stage), requests)| {
        let spec = &scenario.models[model as usize];
        // Batches gather all requests for the model.
        let all_rps = stage_rates[model as usize] + rate_rps * spec.share * spec.items.mean();
        let rates = (known.rate_rps * requests, all_rps);
        stage_options(&spec.profiles, &stage.profile, cost(load.split), rates)
    });
    let options: Vec<Vec<BatchOption>> = options.collect();
    if load.split != SplitRule::Even {
        let step = Nanos::new((pipeline.slo().get() / STEPS).max(1));
        let split = split_options(pipeline, &options, step, load.hop)?;
        // What no batch needs is spread, as the leader of a cluster does.
        let takes = |(stage, options): (&StageBudget, &Vec<BatchOption>)| {
            let batch = options.iter().find(|option| option.batch == stage.batch);
            batch.map_or(stage.budget, |option| option.takes.min(stage.budget))
        };
        let takes: Vec<Nanos> = split.stages.iter().zip(&options).map(takes).collect();
        return Ok((spread_takes(pipeline, &takes, load.hop), split.gpus));
    }
    let even = even_split(pipeline, known.rate_rps, Cost::Execution, load.hop)?;
    let budgets: Vec<Nanos> = even.stages.iter().map(|stage| stage.budget).collect();
    let gpus = options.iter().zip(&budgets).map(|(options, &budget)| {
        let within = options.iter().filter(|option| option.takes <= budget);
        within.map(|option| option.gpus).fold(f64::INFINITY, f64::min)
    });
    let gpus = gpus.sum();
    Ok((budgets, gpus))
}

/// What a batch takes of a budget. Equal shares need none; what they cost is counted as queues will run it.
const fn cost(rule: SplitRule) -> Cost {
    match rule {
        SplitRule::Deferred | SplitRule::Even => Cost::Deferred,
        SplitRule::Waiting => Cost::Waiting,
        SplitRule::Execution => Cost::Execution,
    }
}

/// Batch sizes of a stage, on the slowest GPU: each takes what `cost` says and the delays of the network, which are in
/// `with_delays`. It is asked at the first rate, and its model at the second.
fn stage_options(
    profiles: &[LatencyProfile],
    with_delays: &LatencyProfile,
    cost: Cost,
    (stage_rps, all_rps): (f64, f64),
) -> Vec<BatchOption> {
    let option = |batch: u32| {
        let latency = |profile: &LatencyProfile| profile.latency(batch);
        let slowest = profiles.iter().map(latency).max().unwrap_or(Nanos::MAX);
        let takes = match cost {
            Cost::Waiting => with_delays.latency(batch) + slowest,
            cost => cost.takes(with_delays, all_rps, batch),
        };
        BatchOption { batch, takes, gpus: stage_rps * slowest.as_secs_f64() / f64::from(batch) }
    };
    (1..=with_delays.batch_max()).map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_batch_needs_is_spread_over_all_stages() {
        let text = "
            name = 'spread'
            policy = 'auto'
            duration_s = 1
            gpu = [{ kind = 'x', count = 1 }]
            workload = { rate_rps = 1, arrival = 'poisson' }
            [[pipeline]]
            slo_ms = 100
            stage = [{ name = 'a', alpha_ms = 1, beta_ms = 5 }, { name = 'b', alpha_ms = 1, beta_ms = 1 }]
            edge = [{ from = 'a', to = 'b' }]";
        let scenario = Scenario::parse("spread.toml", text, &[], &|_| Err("no files".to_owned())).unwrap();
        let plans = PipelinePlans::new(&scenario, scenario.rate_rps);
        let budgets = [0, 1].map(|model| plans.slo(model, &scenario.models[model]));
        // Alone they take 6 and 2 ms. A first stage with 6 ms and no more would lose all that wait for a GPU.
        assert_eq!(budgets, [75, 25].map(Nanos::from_millis));
    }
}
