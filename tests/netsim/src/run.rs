//! One run: a calm beginning, trouble, healing, and the question whether the cluster serves again.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use symphony_history::End;

use crate::cluster::HOSTS;
use crate::faults::Faults;
use crate::plant::{Plant, Plants};
use crate::simulation::Simulation;

/// Simulated seconds of trouble if nothing else is asked for.
pub(crate) const TROUBLE_S: u64 = 20;
/// One of this many seeds has requests for a pipeline among the others.
const PIPELINES_EVERY: u64 = 3;
/// The beginning without trouble.
const QUIET: Duration = Duration::from_secs(2);
/// Once the cluster serves, how long links may take to open before every request has to be answered.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);
/// How long clients then go on; the requests of that time are waited for.
const AFTERWARDS: Duration = Duration::from_secs(1);
const WAITED_FOR: Duration = Duration::from_millis(2_200);

/// Runs a seed and reports the result.
pub(crate) fn run(
    seed: u64,
    trouble_s: u64,
    trace: Option<&Path>,
    plants: Plants,
    log: Option<tracing::Level>,
) -> ExitCode {
    let planted = plants.words();
    let needs_pipelines = [Plant::WithdrawsForgotten, Plant::CancelsUnsent].into_iter().any(|plant| plants.has(plant));
    let has_pipelines = seed.is_multiple_of(PIPELINES_EVERY) || needs_pipelines;
    let mut simulation = Simulation::new(seed, plants);
    *simulation.cluster.pipelines.borrow_mut() = has_pipelines;
    if let Some(level) = log {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .without_time()
            .init();
    }
    let outcome = simulate(seed, Duration::from_secs(trouble_s), &mut simulation);
    let (verdict, code) = match outcome {
        Ok(summary) => (format!("kept: {summary}"), ExitCode::SUCCESS),
        Err(reason) => (
            format!(
                "BROKEN: {reason}\nreproduce: cargo run -p symphony-netsim -- run --seed {seed} --trouble-s {trouble_s}{planted}"
            ),
            ExitCode::FAILURE,
        ),
    };
    let text = format!("{}seed {seed} {verdict}\n", simulation.cluster.trace.text());
    match trace {
        Some(path) => {
            if let Err(error) = std::fs::write(path, text) {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(3);
            }
            println!("seed {seed} {verdict}");
        }
        None => print!("{text}"),
    }
    code
}

fn simulate(seed: u64, trouble: Duration, simulation: &mut Simulation) -> Result<String, String> {
    let cluster = simulation.cluster.clone();
    let mut faults = Faults::new(cluster.clone(), seed, QUIET);
    // Safety: whatever happens, nothing is contradicted.
    while simulation.sim.elapsed() < QUIET + trouble {
        simulation.step()?;
        faults.step(simulation.sim.elapsed(), &mut simulation.sim);
    }
    // Liveness: when nothing is wrong any more, the cluster serves, and soon.
    faults.heal(simulation.sim.elapsed(), &mut simulation.sim);
    *cluster.asking.borrow_mut() = false;
    let served = simulation.until_it_serves(|simulation| faults.clear_away(&mut simulation.sim))?;
    let serves_since = simulation.sim.elapsed();
    *cluster.asking.borrow_mut() = true;
    simulation.pass(SETTLES_WITHIN)?;
    *cluster.peace.borrow_mut() = true;
    simulation.pass(AFTERWARDS)?;
    *cluster.peace.borrow_mut() = false;
    simulation.pass(WAITED_FOR)?;
    let down: Vec<_> = HOSTS.into_iter().filter(|name| faults.is_down(name)).collect();
    if !down.is_empty() {
        return Err(format!("the simulation left {down:?} down"));
    }

    let history = simulation.linearizable()?;
    let answered = history.operations().iter().filter(|o| matches!(o.end, End::Answered { .. })).count();
    let calls = history.operations().len();
    let afterwards = history.operations().iter().filter(|o| {
        let after = u128::from(o.called_at) >= serves_since.as_nanos();
        after && matches!(o.end, End::Answered { .. })
    });
    if afterwards.count() == 0 {
        return Err("I8: no operator was answered after everything healed".to_owned());
    }
    let ledger = *cluster.ledger.borrow();
    let planned: u64 = cluster.planned.borrow().values().sum();
    if ledger.dropped_in_peace > 0 {
        return Err(format!("I8: requests were not answered after everything healed: {ledger:?}"));
    }
    let judge = &simulation.judge;
    Ok(format!(
        "{} s, {} troubles, {} leaders, {} leads, {} entries, {} unsynced writes lost, {answered} of {calls} calls and {} of \
         {} requests answered, {} again, {planned} planned by policies of sub-clusters, served {} ms after healing",
        simulation.sim.elapsed().as_secs(),
        faults.count(),
        judge.leaders(),
        judge.leads(),
        judge.last_index(),
        cluster.replicas.borrow().lost(),
        ledger.answered,
        ledger.submitted,
        ledger.again,
        served.as_millis(),
    ))
}
