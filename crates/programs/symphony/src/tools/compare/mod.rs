//! `symphony compare`: a recorded load under other policies and numbers of GPUs, simulated, beside what really
//! happened.

mod policies;
mod recorded;
mod scenario;
mod show_comparison;

use std::sync::Arc;

use anyhow::Context as _;
use symphony_paper::{ComparedModel, ComparedRun, comparison_page};
use symphony_scheduler::PolicyRegistry;
use symphony_simulator::{RunResult, preflight};
use symphony_sweep::{Run, Sweep};
use symphony_tape::RecordedLoad;
use symphony_workload::{Arrival, Scenario, ScenarioError};

use super::tape;
use crate::cli::{CompareArgs, Output};
use crate::exit::bad_input;
use policies::split;
use recorded::{Recorded, recorded};
use scenario::RecordedScenario;

/// Runs of one comparison: more do not fit on a page.
const RUNS_MAX: usize = 64;
/// Arrivals are recorded, so chance has no part in most policies.
const SEED: u64 = 1;

pub(crate) fn run(args: &CompareArgs, registry: &PolicyRegistry) -> anyhow::Result<()> {
    let policies = split(&args.policies)?;
    let runs = policies.len() * args.gpus.len().max(1);
    if runs > RUNS_MAX {
        return Err(bad_input(format!(
            "expected at most {RUNS_MAX} runs (policies times numbers of GPUs), got {runs}"
        )));
    }
    let load = tape::load(&args.tapes)?;
    let mut arrivals = tape::arrivals(&load)?;
    args.part.apply(&mut arrivals)?;
    let of_tape = RecordedScenario::new(&load, &arrivals)?;
    let gpus = match args.gpus.as_slice() {
        [] => vec![of_tape.recorded_gpus()?],
        some => some.iter().map(|&gpus| of_tape.gpus(gpus)).collect::<anyhow::Result<_>>()?,
    };
    let mut scenarios: Vec<Scenario> = Vec::with_capacity(runs);
    for gpus in &gpus {
        for policy in &policies {
            let text = of_tape.text(gpus);
            let mut set = args.set.clone();
            set.push(format!("policy={policy}"));
            let read_csv = |name: &str| of_tape.csv(name);
            let scenario = Scenario::parse_among("the tapes", &text, &set, &read_csv, registry);
            let mut scenario = scenario.map_err(|error| in_words(error, policy))?;
            share_arrivals(&mut scenario, scenarios.first());
            preflight(&scenario).map_err(|error| bad_input(format!("--policy {policy}: {error}")))?;
            scenarios.push(scenario);
        }
    }
    let runs: Vec<_> =
        scenarios.iter().map(|scenario| Run { scenario, seed: SEED, rate_rps: scenario.rate_rps }).collect();
    let results = Sweep::new(args.threads).runs(&runs, &|_| {})?;
    let compared: Vec<_> = scenarios.iter().zip(&results).map(|(scenario, run)| compared(scenario, run)).collect();
    let lasts_s = arrivals.rows.last().map_or(0.0, |row| row.at.as_secs_f64());
    let of_tapes = show_comparison::OfTapes { requests: arrivals.rows.len(), models: of_tape.models(), lasts_s };
    let happened = happened(args, &load, scenarios.first())?;
    if let Some(path) = &args.html {
        // Without the number of its GPUs it has no place in the plots.
        let happened = happened.as_ref().map(|happened| happened.run.clone()).filter(|run| run.gpus > 0);
        let subtitle = match &happened {
            Some(run) => format!("{of_tapes}; {} is what happened, as far as the lead knew", run.policy),
            None => of_tapes.to_string(),
        };
        let all: Vec<_> = happened.into_iter().chain(compared.iter().cloned()).collect();
        let page = comparison_page("A recorded load under other policies", &subtitle, &all);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.output {
        Output::Table => show_comparison::table(&of_tapes, happened.as_ref(), &compared),
        Output::Json => {
            let whole = show_comparison::json(&of_tapes, happened.as_ref(), &compared);
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
    }
    Ok(())
}

/// The recorded outcomes, if the requests came as fast as they are played.
fn happened(args: &CompareArgs, load: &RecordedLoad, simulated: Option<&Scenario>) -> anyhow::Result<Option<Recorded>> {
    let Some(simulated) = simulated.filter(|_| args.part.speed == 1.0) else { return Ok(None) };
    let gpus = load.gpus().map(|(_, gpus)| gpus).sum();
    Ok(recorded(load, args.part.window()?, gpus, simulated.duration))
}

/// Every run has the same arrivals, which may be millions: they are held once.
fn share_arrivals(scenario: &mut Scenario, first: Option<&Scenario>) {
    if let Some(Scenario { arrival: Arrival::Trace(first), .. }) = first
        && let Arrival::Trace(own) = &mut scenario.arrival
        && **own == **first
    {
        *own = Arc::clone(first);
    }
}

/// The error of a policy as it was given.
fn in_words(error: ScenarioError, policy: &str) -> anyhow::Error {
    match error {
        ScenarioError::Set { assignment, message } if assignment == format!("policy={policy}") => {
            bad_input(format!("--policy {policy}: {message}"))
        }
        error => bad_input(error),
    }
}

fn compared(scenario: &Scenario, run: &RunResult) -> ComparedRun {
    let sum = |of: fn(&ComparedModel) -> u64, models: &[ComparedModel]| -> u64 { models.iter().map(of).sum() };
    let models: Vec<_> = run
        .models
        .iter()
        .map(|model| ComparedModel {
            name: model.name.clone(),
            offered: model.offered,
            good: model.good,
            late: model.late,
            dropped: model.dropped,
            p50_ms: model.p50_ms,
            p99_ms: model.p99_ms,
        })
        .collect();
    let gpus = scenario.gpu_count();
    ComparedRun {
        policy: scenario.policy.to_string(),
        gpus,
        offered: sum(|model| model.offered, &models),
        good: sum(|model| model.good, &models),
        late: sum(|model| model.late, &models),
        dropped: sum(|model| model.dropped, &models),
        gpu_s: run.gpu_utilization * f64::from(gpus) * scenario.duration.as_secs_f64(),
        gpu_utilization: run.gpu_utilization,
        models,
    }
}
