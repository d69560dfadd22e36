//! Fault scenarios against real processes: `symphony-chaos run kill-subcluster-leader --repeat 20 --seed 1`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use symphony_chaos::{
    FederationScenario, LedBy, Links, Outcome, Report, ReportSummary, RunPlan, Scenario, ThousandPlan, Times, play,
    run, run_federation, run_thousand,
};
use symphony_config::Timing;
use symphony_config::limits::NOISE_MAX;
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
    /// Lists the scenarios, and what each proves.
    List,
    /// Runs a scenario, or all. Exit code 0: pass; 1: violation; 3: the run itself went wrong; 2: bad usage.
    Run(RunArgs),
    /// What a thousand sub-clusters cost at rest, and how long they stand still when the replica that leads them is
    /// killed. Exit code as of `run`; times are reported and not judged.
    Thousand(ThousandArgs),
    /// Plays the backends of `thousand` in this process, until it is stopped.
    #[command(hide = true)]
    Play {
        /// What `thousand` has written.
        plan: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct ThousandArgs {
    /// Sub-clusters, each with a backend of one emulated GPU and a model; all backends are in one process.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    subclusters: u32,
    /// Of them, those with load.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    loaded: u32,
    /// How long the idle usage of all processes is measured.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    idle_secs: u64,
    /// Who leads before the kill.
    #[arg(long, value_enum, default_value_t = Led::One)]
    led_by: Led,
    /// Timing profile of the cluster.
    #[arg(long, value_enum, default_value_t = Profile::Lan)]
    timing: Profile,
    /// Inputs and arrivals come from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `symphony` program; the one beside this program if not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Keep configurations, logs and journals of a run that passed, too.
    #[arg(long)]
    keep: bool,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Led {
    /// One replica leads all, which does not lead the control group: the others are cordoned while the backends come.
    One,
    /// The leaders that the cluster chooses.
    Placement,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Table,
    Json,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Its name, or `all`; see `list`.
    scenario: String,
    /// Rounds of faults; each scenario's own number if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=REPEAT_MAX))]
    repeat: Option<u32>,
    /// Everything random derives from it: inputs, arrivals, and the faults' targets and times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timing profile of the cluster, instead of the scenario's.
    #[arg(long, value_enum)]
    timing: Option<Profile>,
    /// By how much batches of the emulated GPUs miss their profiles, instead of the scenario's: lognormal, of mean one,
    /// with this standard deviation of the logarithm.
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, value_parser = noise)]
    noise: Option<f64>,
    /// How links that must be cut are made, instead of network namespaces where root allows and the fault proxy
    /// elsewhere.
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

fn noise(text: &str) -> Result<f64, String> {
    let sigma = text.parse().ok().filter(|sigma| (0.0..=NOISE_MAX).contains(sigma));
    sigma.ok_or_else(|| format!("expected 0 to {NOISE_MAX}"))
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    /// One data centre, cores to spare.
    Lan,
    /// Shared or small machines.
    Relaxed,
}

impl From<Profile> for Timing {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Lan => Self::Lan,
            Profile::Relaxed => Self::Relaxed,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cut {
    /// Network namespaces, whose packets are dropped.
    Namespaces,
    /// The fault proxy.
    Proxied,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    /// What decides: outcome, faults, gaps, ledger, and why it is no pass.
    Json,
    /// Everything that is known of the run, each round and each fault, as JSON.
    Details,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(command(Cli::parse().command)).await {
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
        Command::Thousand(args) => return thousand(&args).await,
        Command::Play { plan } => return play(&plan).await.map(|()| Outcome::Pass),
        Command::List => {
            for scenario in all()? {
                let (name, proves) = scenario.words();
                println!("{name}\n{}\n", proves.trim());
            }
            return Ok(Outcome::Pass);
        }
    };
    let named = match args.scenario.as_str() {
        "all" => all(),
        name => named(name).map(|scenario| vec![scenario]),
    };
    let scenarios = match named {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    };
    let plan = RunPlan {
        binary: program(args.binary)?,
        repeat: args.repeat,
        seed: args.seed,
        timing: args.timing.map(Timing::from),
        links: args.links.map(|links| match links {
            Cut::Namespaces => Links::Namespaces,
            Cut::Proxied => Links::Proxied,
        }),
        noise: args.noise,
        times: if args.safety_only { Times::Reported } else { Times::Judged },
        keep: args.keep,
    };
    // Told to stop, the run is dropped, and its processes and its network go with it.
    tokio::select! {
        outcome = run_each(&scenarios, &plan, args.output) => outcome,
        stopped = told_to_stop() => stopped.and_then(|()| bail!("told to stop")),
    }
}

fn program(given: Option<PathBuf>) -> Result<PathBuf> {
    Ok(match given {
        Some(binary) => std::path::absolute(binary)?,
        None => std::env::current_exe()?.parent().context("a program lies in a folder")?.join("symphony"),
    })
}

async fn thousand(args: &ThousandArgs) -> Result<Outcome> {
    let plan = ThousandPlan {
        binary: program(args.binary.clone())?,
        player: std::env::current_exe()?,
        subclusters: args.subclusters,
        loaded: args.loaded.min(args.subclusters),
        idle: Duration::from_secs(args.idle_secs),
        led_by: match args.led_by {
            Led::One => LedBy::One,
            Led::Placement => LedBy::Placement,
        },
        timing: args.timing.into(),
        seed: args.seed,
        keep: args.keep,
    };
    let report = tokio::select! {
        report = run_thousand(&plan) => report?,
        stopped = told_to_stop() => return stopped.and_then(|()| bail!("told to stop")),
    };
    match args.output {
        Form::Table => print!("{}", report.table()),
        Form::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(report.outcome)
}

/// A scenario of one cluster, or of several.
enum Chosen {
    Cluster(Scenario),
    Federation(FederationScenario),
}

impl Chosen {
    /// Its name, and what it proves.
    fn words(&self) -> (&str, &str) {
        match self {
            Self::Cluster(scenario) => (&scenario.name, &scenario.proves),
            Self::Federation(scenario) => (&scenario.name, &scenario.proves),
        }
    }

    async fn run(&self, plan: &RunPlan) -> Result<Report> {
        match self {
            Self::Cluster(scenario) => run(scenario, plan).await,
            Self::Federation(scenario) => run_federation(scenario, plan).await,
        }
    }
}

fn all() -> Result<Vec<Chosen>> {
    let clusters = Scenario::all()?.into_iter().map(Chosen::Cluster);
    Ok(clusters.chain(FederationScenario::all()?.into_iter().map(Chosen::Federation)).collect())
}

fn named(name: &str) -> Result<Chosen> {
    Ok(match FederationScenario::named(name)? {
        Some(scenario) => Chosen::Federation(scenario),
        None => Chosen::Cluster(Scenario::named(name)?),
    })
}

/// Runs one scenario after the other; the worst of the outcomes.
async fn run_each(scenarios: &[Chosen], plan: &RunPlan, output: Output) -> Result<Outcome> {
    let mut worst = Outcome::Pass;
    for scenario in scenarios {
        let outcome = match scenario.run(plan).await {
            Ok(report) => {
                print(&report, output, scenarios.len())?;
                report.outcome
            }
            // The other scenarios still run.
            Err(error) => {
                let (name, _) = scenario.words();
                eprintln!("error: {name}: {error:#}");
                if matches!(output, Output::Json) {
                    print_brief(&ReportSummary::without_report(name, format!("{error:#}")), scenarios.len())?;
                }
                Outcome::Harness
            }
        };
        worst = worst.max(outcome);
    }
    Ok(worst)
}

fn print(report: &Report, output: Output, of: usize) -> Result<()> {
    if !matches!(output, Output::Table) {
        report.reasons.iter().for_each(|reason| eprintln!("{}: {:?}: {reason}", report.scenario, report.outcome));
    }
    match output {
        Output::Table => print!("{}", report.table()),
        Output::Json => print_brief(&report.brief(), of)?,
        Output::Details if of > 1 => println!("{}", serde_json::to_string(report)?),
        Output::Details => println!("{}", serde_json::to_string_pretty(report)?),
    }
    Ok(())
}

fn print_brief(brief: &ReportSummary<'_>, of: usize) -> Result<()> {
    let text = if of > 1 { serde_json::to_string(brief)? } else { serde_json::to_string_pretty(brief)? };
    println!("{text}");
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
