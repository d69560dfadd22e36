//! `symphony sim`: scenarios in virtual time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget};
use symphony_scheduler::PolicyRegistry;
use symphony_simulator::{RunResult, SimulationResult, preflight};
use symphony_sweep::{Progress, Run, Sweep};
use symphony_workload::{Arrival, Scenario, ScenarioError, override_at_fault};

use super::{sim_explain, sim_timeline};
use crate::cli::{Output, SimArgs};
use crate::exit::bad_input;
use crate::inspect::table;

pub(crate) fn run(args: &SimArgs, policies: &PolicyRegistry) -> anyhow::Result<()> {
    let ask = sim_explain::ask(args)?;
    let scenario = read(args, policies)?;
    sim_timeline::check(args, &scenario)?;
    if !args.find_goodput {
        tell_uncounted(&scenario);
    }
    if args.find_goodput && scenario.autoscale.is_some() {
        let what = "--find-goodput: expected a fixed number of GPUs, got a scenario with [autoscale], whose GPUs follow any rate";
        return Err(bad_input(what));
    }
    let sweep = Sweep::new(args.threads);
    let begun = Instant::now();
    let requests = AtomicU64::new(0);
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let tell = |progress: Progress<'_>| {
        if let Progress::Trial { requests: more, .. } | Progress::Ran { requests: more, .. } = progress {
            requests.fetch_add(more, Ordering::Relaxed);
        }
        if let Progress::Trial { trial, passed, .. } = progress {
            let word = if passed { "meets" } else { "misses" };
            bar.set_message(format!("{:.0} r/s {word} the SLOs (seed {})", trial.rate_rps, trial.seed));
            bar.tick();
        }
    };
    let goodput = match args.find_goodput {
        true => sweep.goodputs_and_lower_rates(std::slice::from_ref(&scenario), &tell)?.pop(),
        false => None,
    };
    bar.finish_and_clear();
    // If no rate can be served, the scenario's own rate shows what happens instead.
    let rate_rps =
        goodput.as_ref().map(|goodput| goodput.rate_rps).filter(|&rate| rate > 0.0).unwrap_or(scenario.rate_rps);
    let runs: Vec<_> = scenario.seeds.iter().map(|&seed| Run { scenario: &scenario, seed, rate_rps }).collect();
    let runs = sweep.runs(&runs, &tell)?;
    let requests = requests.into_inner();
    let result = SimulationResult::new(&scenario, runs, goodput, requests, begun.elapsed().as_secs_f64());
    let explanations = sim_explain::explain(ask, &scenario, rate_rps)?;
    match args.output {
        Output::Json => println!("{}", sim_explain::to_json(&result, &explanations)?),
        Output::Table => {
            show(&result);
            sim_explain::show(&explanations);
        }
    }
    sim_timeline::write_if_asked(args, &scenario, rate_rps)
}

fn read(args: &SimArgs, policies: &PolicyRegistry) -> anyhow::Result<Scenario> {
    let file = args.scenario.display().to_string();
    let text = std::fs::read_to_string(&args.scenario).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let policy = args.policy.as_ref().map(|policy| format!("policy={policy}"));
    let mut overrides = args.set.clone();
    overrides.extend(policy.clone());
    let folder = args.scenario.parent().unwrap_or(Path::new("."));
    let read_csv = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let parse = |overrides: &[String]| Scenario::parse_among(&file, &text, overrides, &read_csv, policies);
    let parsed = parse(&overrides).and_then(|scenario| match preflight(&scenario) {
        Ok(()) => Ok(scenario),
        Err(error) => {
            let same = |others: &[String]| parse(others).is_ok_and(|other| preflight(&other).as_ref() == Err(&error));
            let (file, message) = (file.clone(), error.to_string());
            Err(match override_at_fault(&overrides, &same) {
                Some(assignment) => ScenarioError::Set { assignment: assignment.clone(), message },
                None => ScenarioError::Text { file, message },
            })
        }
    });
    parsed.map_err(|error| match error {
        // Said as it was given.
        ScenarioError::Set { assignment, message } if Some(&assignment) == policy.as_ref() => {
            bad_input(format!("--{}: {message}", assignment.replacen('=', " ", 1)))
        }
        error => bad_input(error),
    })
}

/// Says how much of a trace comes too late to count.
fn tell_uncounted(scenario: &Scenario) {
    let Arrival::Trace(trace) = &scenario.arrival else { return };
    let until = scenario.warmup + scenario.duration;
    let later = trace.count_from(until);
    if later > 0 {
        let (all, until_s) = (trace.rows.len(), until.as_secs_f64());
        eprintln!(
            "{later} of the trace's {all} arrivals come after {until_s} s, warmup_s + duration_s, and do not count"
        );
    }
}

fn show(result: &SimulationResult) {
    println!("{} with policy {}", result.scenario, result.policy);
    let judged = match result.runs.iter().any(|run| !run.pipelines.is_empty()) {
        true => "pipeline's",
        false => "model's",
    };
    if let Some(goodput) = result.goodput_rps {
        println!(
            "goodput: {goodput:.0} r/s (highest rate at which every {judged} p99 meets its SLO, median of the seeds)"
        );
        // As it is printed.
        if goodput < 0.5 {
            println!(
                "no rate that brought requests passed; one between those tried may: try --set workload.rate_rps=RATE"
            );
        }
    }
    if let Some(price) = result.price_per_hour {
        println!("price of the GPUs: {price:.3} per hour");
    }
    if let Some((last, others)) = result.fails_below_rps.as_deref().and_then(<[f64]>::split_last) {
        let others: String = others.iter().map(|rate_rps| format!("{rate_rps:.0} r/s and ")).collect();
        println!("but not every lower rate passes: at {others}{last:.0} r/s some {judged} p99 misses its SLO");
    }
    let ms = |value: Option<f64>| value.map_or_else(|| "inf".to_owned(), |v| format!("{v:.1}"));
    let rows: Vec<_> = result
        .runs
        .iter()
        .flat_map(|run: &RunResult| {
            run.pipelines.iter().map(move |p| {
                let counts = [p.offered, p.good, p.late, p.dropped].map(|count| count.to_string());
                let before = [run.seed.to_string(), p.name.clone()];
                before.into_iter().chain(counts).chain([ms(p.p50_ms), ms(p.p99_ms)]).collect::<Vec<_>>()
            })
        })
        .collect();
    if !rows.is_empty() {
        table::print(&["SEED", "PIPELINE", "OFFERED", "GOOD", "LATE", "DROPPED", "P50 MS", "P99 MS"], &rows);
    }
    let rows: Vec<_> = result
        .runs
        .iter()
        .flat_map(|run: &RunResult| {
            run.models.iter().map(move |m| {
                vec![
                    run.seed.to_string(),
                    m.name.clone(),
                    m.offered.to_string(),
                    m.good.to_string(),
                    m.late.to_string(),
                    m.dropped.to_string(),
                    m.shed.to_string(),
                    ms(m.p50_ms),
                    ms(m.p99_ms),
                    m.mean_batch.map_or_else(|| "-".to_owned(), |b| format!("{b:.1}")),
                ]
            })
        })
        .collect();
    table::print(&["SEED", "MODEL", "OFFERED", "GOOD", "LATE", "DROPPED", "SHED", "P50 MS", "P99 MS", "BATCH"], &rows);
    for run in &result.runs {
        let demand = run.demand_fraction.map(|demand| format!(", demand {:.1} %", 100.0 * demand)).unwrap_or_default();
        println!(
            "seed {}: {:.0} r/s good of {:.0} offered, bad {:.3} %, GPUs used {}, utilisation {:.1} %{demand}",
            run.seed,
            run.good_rps,
            run.offered_rps,
            100.0 * run.bad_rate,
            run.gpus_used,
            100.0 * run.gpu_utilization
        );
        if let Some(scaling) = &run.autoscale {
            let (least, most) = scaling.gpus_range.unwrap_or_default();
            println!(
                "seed {}: {:.1} GPUs there in the mean, {least} to {most}; ordered {} times, given back {} times",
                run.seed, scaling.gpus_mean, scaling.ups, scaling.downs
            );
        }
    }
    println!("{:.2} million simulated requests per second", result.sim_requests_per_second / 1e6);
}
