//! Fault scenarios against real processes: `symphony-chaos run kill-subcluster-leader --repeat 20 --seed 1`.

mod checker;
mod cluster;
mod report;
mod run;
mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use symphony_config::Timing;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::Outcome;
use crate::scenario::Scenario;

/// Kills per run, at most: beyond it a run takes more than an hour.
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
    /// Runs a scenario. Exit code 0: pass; 1: violation; 3: the run itself went wrong; 2: bad usage.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Its name; see `list`.
    scenario: String,
    /// How often the fault is injected.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=REPEAT_MAX))]
    repeat: u32,
    /// Everything random comes from it: inputs, arrivals, and when the faults strike.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timing profile of the cluster, instead of the scenario's.
    #[arg(long, value_enum)]
    timing: Option<Profile>,
    /// The `symphony` program; the one beside this program if not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// For people or for programs.
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
enum Output {
    Table,
    Json,
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
    let scenario = match Scenario::named(&args.scenario) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    };
    let timing = match args.timing {
        Some(Profile::Lan) => Timing::Lan,
        Some(Profile::Relaxed) => Timing::Relaxed,
        None => scenario.cluster.timing,
    };
    let binary = match args.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => std::env::current_exe()?.parent().context("a program lies in a folder")?.join("symphony"),
    };
    // Told to stop, the run is dropped, and its processes die with it.
    let report = tokio::select! {
        report = run::run(&scenario, &binary, timing, args.repeat, args.seed) => report?,
        stopped = told_to_stop() => return stopped.and_then(|()| bail!("told to stop")),
    };
    match args.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(report.outcome)
}

async fn told_to_stop() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
