//! The control plane in a simulation: one seed decides what happens, and the same seed gives the same bytes.

mod admin;
mod cluster;
mod cut_founding;
mod deaf_leader;
mod dispatch;
mod dripping_leader;
mod election;
mod faults;
mod hosted_replicas;
mod hung_lead;
mod judge;
mod lagging_survivor;
mod links;
mod member;
mod operator;
mod plant;
mod policies_in_turn;
mod replica;
mod rolled_back;
mod run;
mod simulation;
mod soak;
mod stale_leader;
mod story;
mod trace;
mod wiped_founders;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Simulates clusters and their troubles. Exit code 0: every promise was kept; 1: one was not, and the seed is named.
#[derive(Parser)]
#[command(name = "symphony-netsim")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One seed, in this process.
    Run {
        /// Decides everything.
        #[arg(long)]
        seed: u64,
        /// Simulated seconds of trouble; then everything heals.
        #[arg(long, default_value_t = run::TROUBLE_S)]
        trouble_s: u64,
        /// Where the trace is written; standard output if not given.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Something to break beneath the control plane, several times if it takes several: the run should not succeed
        /// then.
        #[arg(long, value_enum)]
        plant: Vec<plant::Plant>,
        /// Also what the processes log, at this level, on standard error.
        #[arg(long)]
        log: Option<tracing::Level>,
    },
    /// One seed of a scripted trouble.
    Story {
        /// Which one.
        #[arg(value_enum)]
        story: story::Story,
        /// Decides everything.
        #[arg(long)]
        seed: u64,
        /// Something to break, several times if it takes several.
        #[arg(long, value_enum)]
        plant: Vec<plant::Plant>,
    },
    /// Many seeds, each in a process of its own.
    Soak {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// How many; without end if not given.
        #[arg(long)]
        count: Option<u64>,
        /// At a time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Simulated seconds of trouble.
        #[arg(long, default_value_t = run::TROUBLE_S)]
        trouble_s: u64,
        /// Run every seed twice and compare the traces.
        #[arg(long)]
        twice: bool,
        /// Something to break beneath the control plane, several times if it takes several.
        #[arg(long, value_enum)]
        plant: Vec<plant::Plant>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run { seed, trouble_s, trace, plant, log } => {
            run::run(seed, trouble_s, trace.as_deref(), plant.into(), log)
        }
        Command::Story { story, seed, plant } => story::run(story, seed, plant.into()),
        Command::Soak { from, count, jobs, trouble_s, twice, plant } => {
            soak::soak(from, count, jobs, soak::Each { trouble_s, twice, plants: plant.into() })
        }
    }
}
