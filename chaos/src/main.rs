//! Fault scenarios against real processes: `symphony-chaos run kill-subcluster-leader --repeat 20 --seed 1`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use symphony_chaos::{Links, Outcome, Report, RunPlan, Scenario, Times, run};
use symphony_config::Timing;
use tokio::signal::unix::{SignalKind, signal};

/// Rounds per run, at most: beyond it a run takes hours.
const REPEAT_MAX: i64 = 1000;

/// Fault scenarios against real processes.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What there is, and what it proves.
    List,
    /// Runs a scenario, or all. Exit code 0: pass; 1: violation; 3: the run itself went wrong; 2: bad usage.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Its name, or `all`; see `list`.
    scenario: String,
    /// Rounds of faults; each scenario's own number if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=REPEAT_MAX))]
    repeat: Option<u32>,
    /// Everything random comes from it: inputs, arrivals, whom the faults strike and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timing profile of the cluster, instead of the scenario's.
    #[arg(long, value_enum)]
    timing: Option<Profile>,
    /// How links that must be cut are made, instead of network namespaces where root allows and the fault proxy elsewhere.
    #[arg(long, value_enum)]
    links: Option<Cut>,
    /// The `symphony` program; the one beside this program if not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Report times without judging them: for machines that others use as well.
    #[arg(long)]
    safety_only: bool,
    /// Keep configurations, logs, journals and the admin history of runs that passed, too.
    #[arg(long)]
    keep: bool,
    /// For people or for programs; of several scenarios, one JSON object per line.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    /// One data centre, cores to spare.
    Lan,
    /// Shared or small machines.
    Relaxed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cut {
    /// Network namespaces and nftables.
    Namespaces,
    /// The fault proxy.
    Proxied,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    /// What decides: outcome, faults, gaps, ledger.
    Json,
    /// Everything that is known of the run, each round and each fault, as JSON.
    Details,
}

#[tokio::main]
async fn main() -> ExitCode {
    match command(Cli::parse().command).await {
        Ok(Outcome::Pass) => ExitCode::SUCCESS,
        Ok(Outcome::Violation) => ExitCode::from(1),
        Ok(Outcome::Harness) => ExitCode::from(3),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

async fn command(command: Command) -> Result<Outcome> {
    let args = match command {
        Command::Run(args) => args,
        Command::List => {
            for scenario in Scenario::all()? {
                println!("{}\n{}\n", scenario.name, scenario.proves.trim());
            }
            return Ok(Outcome::Pass);
        }
    };
    let named = match args.scenario.as_str() {
        "all" => Scenario::all(),
        name => Scenario::named(name).map(|scenario| vec![scenario]),
    };
    let scenarios = match named {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    };
    let binary = match args.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => std::env::current_exe()?.parent().context("a program lies in a folder")?.join("symphony"),
    };
    let plan = RunPlan {
        binary,
        repeat: args.repeat,
        seed: args.seed,
        timing: args.timing.map(|profile| match profile {
            Profile::Lan => Timing::Lan,
            Profile::Relaxed => Timing::Relaxed,
        }),
        links: args.links.map(|links| match links {
            Cut::Namespaces => Links::Namespaces,
            Cut::Proxied => Links::Proxied,
        }),
        times: if args.safety_only { Times::Reported } else { Times::Judged },
        keep: args.keep,
    };
    // Told to stop, the run is dropped, and its processes and its network go with it.
    tokio::select! {
        outcome = run_each(&scenarios, &plan, args.output) => outcome,
        stopped = told_to_stop() => stopped.and_then(|()| bail!("told to stop")),
    }
}

/// Runs one scenario after the other; the worst of the outcomes.
async fn run_each(scenarios: &[Scenario], plan: &RunPlan, output: Output) -> Result<Outcome> {
    let mut worst = Outcome::Pass;
    for scenario in scenarios {
        let outcome = match run(scenario, plan).await {
            Ok(report) => {
                print(&report, output, scenarios.len())?;
                report.outcome
            }
            // The others may say something all the same.
            Err(error) if scenarios.len() > 1 => {
                eprintln!("error: {}: {error:#}", scenario.name);
                Outcome::Harness
            }
            Err(error) => return Err(error),
        };
        worst = worst.max(outcome);
    }
    Ok(worst)
}

fn print(report: &Report, output: Output, of: usize) -> Result<()> {
    match output {
        Output::Table => print!("{}", report.table()),
        Output::Json if of > 1 => println!("{}", serde_json::to_string(&report.brief())?),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report.brief())?),
        Output::Details if of > 1 => println!("{}", serde_json::to_string(report)?),
        Output::Details => println!("{}", serde_json::to_string_pretty(report)?),
    }
    Ok(())
}

async fn told_to_stop() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
