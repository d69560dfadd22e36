//! `symphony-crash`: the crash suite of a replica's storage.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use symphony_consensus::Engine;
use symphony_consensus::storage::Plant;
use symphony_crash::Report;
use symphony_crash::actor::Actor;
use symphony_crash::damage::Damage;
use symphony_crash::faults::Faults;
use symphony_crash::kill::KillLoop;
use symphony_crash::plants::Plants;
use symphony_crash::power_loss::PowerLoss;
use symphony_crash::replica::Replica;
use symphony_crash::soak::Soak;
use symphony_crash::stall::Stall;
use symphony_crash::verifier::{answer_questions, engine_named};

/// Kills replicas, cuts their power, breaks, fills and stalls their disks, and checks that what they promised is kept.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cut the power after steps of recorded runs: of what was not synced nothing, some, or torn pieces are left
    PowerLoss {
        #[command(flatten)]
        common: Common,
        /// Power cuts per engine
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
        /// Cut after one in this many steps; 1 is every step
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Kill processes at moments of chance
    Kill {
        #[command(flatten)]
        common: Common,
        /// Kills per engine
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
    },
    /// Let writes, syncs, renames fail, and disks fill up
    Faults {
        #[command(flatten)]
        common: Common,
        /// Faults per engine
        #[arg(long, default_value_t = 200)]
        cycles: u64,
    },
    /// Flip bits, tear and misplace sectors, remove files
    Damage {
        #[command(flatten)]
        common: Common,
        /// Damages per engine
        #[arg(long, default_value_t = 2000)]
        cycles: u64,
    },
    /// Write and purge until the log would have outgrown its disk
    Soak {
        #[command(flatten)]
        common: Common,
        /// Entries per engine
        #[arg(long, default_value_t = 1_000_000)]
        entries: u64,
    },
    /// Let the disk of a group's leader hang
    DiskStall {
        #[command(flatten)]
        common: Common,
        /// Stalls per engine
        #[arg(long, default_value_t = 30)]
        cycles: u64,
        /// How long a write may take before a replica stops leading, milliseconds
        #[arg(long, default_value_t = 300)]
        disk_stall_ms: u64,
    },
    /// Plant known bugs in the storage; each must be found
    Plants {
        #[command(flatten)]
        common: Common,
        /// Only this one
        #[arg(long)]
        plant: Option<Plant>,
    },
    /// A child that works on a disk
    #[command(hide = true)]
    Actor {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, value_parser = engine_named)]
        engine: Engine,
        #[arg(long)]
        world: u64,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        operations: u64,
        #[arg(long)]
        plant: Option<Plant>,
        #[arg(long)]
        with_ballast: bool,
    },
    /// A child that opens disks
    #[command(hide = true)]
    Verifier,
    /// A child that is a replica
    #[command(hide = true)]
    Replica {
        #[arg(long)]
        id: u64,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, value_parser = engine_named)]
        engine: Engine,
        /// id=host:port,…
        #[arg(long, value_parser = addresses)]
        addresses: BTreeMap<u64, SocketAddr>,
        #[arg(long)]
        disk_stall_ms: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Only this engine, sled or redb; both by default
    #[arg(long, value_parser = engine_named)]
    engine: Option<Engine>,
    /// Everything follows from it, except moments of death
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Disks looked at at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Where to work; a fresh directory, removed if everything was kept, by default
    #[arg(long)]
    work: Option<PathBuf>,
    /// How to say what was found
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn addresses(text: &str) -> Result<BTreeMap<u64, SocketAddr>, String> {
    let pair = |pair: &str| -> Option<(u64, SocketAddr)> {
        let (id, address) = pair.split_once('=')?;
        Some((id.parse().ok()?, address.parse().ok()?))
    };
    text.split(',').map(|text| pair(text).ok_or_else(|| format!("{text} is not id=host:port"))).collect()
}

impl Common {
    fn engines(&self) -> Vec<Engine> {
        self.engine.map_or_else(|| vec![Engine::Sled, Engine::Redb], |engine| vec![engine])
    }

    /// Runs something per engine; every report must have passed.
    fn run(&self, run: impl Fn(Engine, PathBuf) -> Result<Vec<(Report, bool)>>) -> Result<bool> {
        let fresh = tempfile::Builder::new().prefix("symphony-crash-").tempdir()?;
        let work = self.work.clone().unwrap_or_else(|| fresh.path().to_owned());
        let mut all_well = true;
        for engine in self.engines() {
            for (report, well) in run(engine, work.join(engine.name()))? {
                match self.output {
                    Output::Text => println!("{report}"),
                    Output::Json => println!("{}", serde_json::to_string(&report)?),
                }
                all_well &= well;
            }
        }
        if !all_well && self.work.is_none() {
            eprintln!("files are kept in {}", fresh.keep().display());
        }
        Ok(all_well)
    }

    /// Runs something per engine in which nothing may be violated.
    fn must_keep(&self, run: impl Fn(Engine, PathBuf) -> Result<Report>) -> Result<bool> {
        self.run(|engine, work| {
            let report = run(engine, work)?;
            let kept = report.passed();
            Ok(vec![(report, kept)])
        })
    }
}

fn main() -> Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let well = match Arguments::parse().command {
        Command::PowerLoss { common, cycles, stride } => common.must_keep(|engine, work| {
            let (seed, jobs) = (common.seed, common.jobs);
            PowerLoss { engine, cycles, seed, stride: stride.max(1), plant: None, jobs, work, until_found: false }.run()
        })?,
        Command::Kill { common, cycles } => {
            common.must_keep(|engine, work| KillLoop { engine, cycles, seed: common.seed, work }.run())?
        }
        Command::Faults { common, cycles } => common.must_keep(|engine, work| {
            Faults { engine, cycles, seed: common.seed, plant: None, work, until_found: false }.run()
        })?,
        Command::Damage { common, cycles } => common
            .must_keep(|engine, work| Damage { engine, cycles, seed: common.seed, jobs: common.jobs, work }.run())?,
        Command::Soak { common, entries } => common.must_keep(|engine, work| Soak { engine, entries, work }.run())?,
        Command::DiskStall { common, cycles, disk_stall_ms } => common.must_keep(|engine, work| {
            Stall { engine, cycles, disk_stall: Duration::from_millis(disk_stall_ms), work }.run()
        })?,
        Command::Plants { common, plant } => common.run(|engine, work| {
            let plants = Plants { engine, seed: common.seed, jobs: common.jobs, work };
            let chosen = plant.map_or_else(|| Plant::ALL.to_vec(), |plant| vec![plant]);
            chosen
                .into_iter()
                .filter(|plant| plants.applies(*plant))
                .map(|plant| {
                    let report = plants.look_for(plant).with_context(|| plant.name())?;
                    let found = !report.passed();
                    eprintln!("{} in {}: {}", plant.name(), engine.name(), if found { "found" } else { "NOT FOUND" });
                    Ok((report, found))
                })
                .collect()
        })?,
        Command::Actor { dir, engine, world, seed, operations, plant, with_ballast } => {
            Actor { dir, engine, world, seed, operations, plant, with_ballast }.live()?;
            true
        }
        Command::Verifier => {
            answer_questions()?;
            true
        }
        Command::Replica { id, dir, engine, addresses, disk_stall_ms } => {
            Replica { id, addresses, dir, engine, disk_stall: Duration::from_millis(disk_stall_ms) }.run()?;
            true
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
