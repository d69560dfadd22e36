//! `symphony sim`: scenarios in virtual time.

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget};
use symphony_simulator::{GoodputSearch, RunResult, SimulationResult, Trial, meets_slo, simulate};
use symphony_workload::Scenario;

use super::{table, timeline};
use crate::cli::{Output, SimArgs};
use crate::exit::bad_input;

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    timeline::check(args)?;
    let scenario = read(args)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.unwrap_or(cores).max(1);
    let begun = Instant::now();
    let mut requests = 0;
    let goodput = if args.find_goodput { Some(search(&scenario, threads, &mut requests)?) } else { None };
    let rate = goodput.unwrap_or(scenario.rate_rps);
    let runs = in_parallel(&scenario.seeds, threads, |&seed| simulate(&scenario, seed, rate))?;
    requests += runs.iter().map(|run| run.simulated_requests).sum::<u64>();
    let result = SimulationResult::new(&scenario, runs, goodput, requests, begun.elapsed().as_secs_f64());
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&result)?),
        Output::Table => show(&result),
    }
    timeline::write_if_asked(args, &scenario, goodput)
}

fn read(args: &SimArgs) -> anyhow::Result<Scenario> {
    let file = args.scenario.display().to_string();
    let text = std::fs::read_to_string(&args.scenario).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let mut overrides = args.set.clone();
    overrides.extend(args.policy.as_ref().map(|policy| format!("policy={policy}")));
    let folder = args.scenario.parent().unwrap_or(Path::new("."));
    let read_csv = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    Scenario::parse(&file, &text, &overrides, &read_csv).map_err(bad_input)
}

/// Runs the trials of the search on all cores until it has found the goodput.
fn search(scenario: &Scenario, threads: usize, requests: &mut u64) -> anyhow::Result<f64> {
    let mut search = GoodputSearch::new(scenario);
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    loop {
        if let Some(goodput) = search.goodput_rps() {
            bar.finish_and_clear();
            return Ok(goodput);
        }
        let trials = search.needed();
        let verdicts = in_parallel(&trials, threads, |trial: &Trial| meets_slo(scenario, trial.seed, trial.rate_rps))?;
        for (trial, verdict) in trials.iter().zip(verdicts) {
            *requests += verdict.simulated_requests;
            search.record(*trial, verdict.passed);
            let word = if verdict.passed { "meets" } else { "misses" };
            bar.set_message(format!("{:.0} r/s {word} the SLOs (seed {})", trial.rate_rps, trial.seed));
            bar.tick();
        }
    }
}

/// Calls `work` for every item, `threads` at a time; results keep the order of the items.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R, symphony_simulator::Error> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R, _>>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(results.into_iter().flatten().collect::<Result<Vec<_>, _>>()?)
}

fn show(result: &SimulationResult) {
    println!("{} with policy {}", result.scenario, result.policy);
    if let Some(goodput) = result.goodput_rps {
        println!(
            "goodput: {goodput:.0} r/s (highest rate at which every model's p99 meets its SLO, median of the seeds)"
        );
    }
    let rows: Vec<_> = result
        .runs
        .iter()
        .flat_map(|run: &RunResult| {
            run.models.iter().map(move |m| {
                let ms = |value: Option<f64>| value.map_or_else(|| "inf".to_owned(), |v| format!("{v:.1}"));
                vec![
                    run.seed.to_string(),
                    m.name.clone(),
                    m.offered.to_string(),
                    m.good.to_string(),
                    m.late.to_string(),
                    m.dropped.to_string(),
                    ms(m.p50_ms),
                    ms(m.p99_ms),
                    m.mean_batch.map_or_else(|| "-".to_owned(), |b| format!("{b:.1}")),
                ]
            })
        })
        .collect();
    table::print(&["SEED", "MODEL", "OFFERED", "GOOD", "LATE", "DROPPED", "P50 MS", "P99 MS", "BATCH"], &rows);
    for run in &result.runs {
        println!(
            "seed {}: {:.0} r/s good of {:.0} offered, bad {:.3} %, GPUs used {}, utilisation {:.1} %",
            run.seed,
            run.good_rps,
            run.offered_rps,
            100.0 * run.bad_rate,
            run.gpus_used,
            100.0 * run.gpu_utilization
        );
    }
    println!("{:.2} million simulated requests per second", result.sim_requests_per_second / 1e6);
}
