//! Requests per second and latency from a frontend's process to a scheduler's, over TCP on loopback and through shared
//! memory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use core_affinity::CoreId;
use symphony_benches::frames::{LinkKind, Options, Report, run, serve};
use symphony_benches::measured::{Figures, Measured, at_most};

/// One way, in microseconds, as the specification wants it.
const ONE_WAY_MAX_US: f64 = 60.0;

/// Sends request headers from this process, bound to one core, to a second one, bound to another, over plain and
/// secured links, through shared memory and over RDMA, and prints requests per second, processor time for each, and
/// latency one way.
#[derive(Debug, Parser)]
#[command(name = "frame-rate")]
struct Args {
    /// The core of this process, the frontend's.
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The core of the scheduler's process.
    #[arg(long, default_value_t = 1)]
    scheduler_core: usize,
    /// How long each rate is measured.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Requests whose latency is measured, for each way; one each millisecond.
    #[arg(long, default_value_t = 20_000)]
    latencies: u64,
    /// Measure links over RDMA as well: takes a build with the feature `rdma`, and a device.
    #[arg(long)]
    rdma: bool,
    /// JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measured: Measured,
    /// Be the scheduler's process: how this program starts itself.
    #[arg(long, hide = true, requires = "pki")]
    serve: Option<LinkKind>,
    /// The certificates of both.
    #[arg(long, hide = true)]
    pki: Option<PathBuf>,
}

fn figures(report: &Report) -> Figures {
    let rate = |way: &str| {
        let row = report.rates.iter().find(|row| row.way == way && row.frame_max > 1)?;
        Some(row.requests_per_second / 1e6)
    };
    let p50 = |way: &str| report.latencies.iter().find(|row| row.way == way).map(|row| row.p50_us);
    let tcp = rate("link").zip(rate("link, TLS")).map(|(plain, secured)| plain.min(secured));
    let one_way: Option<Vec<_>> = ["link", "link, TLS", "link, shared"].into_iter().map(p50).collect();
    let one_way = one_way.map(|all| all.into_iter().map(|us| at_most(us, 0, ONE_WAY_MAX_US)).collect::<Vec<_>>());
    let found = [
        ("TCP, with or without mutual TLS, frames of 32", tcp.map(|rate| format!("{rate:.1}"))),
        ("shared memory, frames of 32", rate("link, shared").map(|rate| format!("{rate:.1}"))),
        ("one way, p50: TCP; mutual TLS; shared memory", one_way.map(|all| all.join("; "))),
        ("shared memory with a reader that spins, p50", p50("link, spinning").map(|us| format!("{us:.1}"))),
    ];
    found.into_iter().filter_map(|(what, value)| Some((what.to_owned(), value?))).collect()
}

fn main() -> Result<()> {
    let args = Args::parse();
    let bound = core_affinity::set_for_current(CoreId { id: args.core });
    ensure!(bound, "this process cannot be bound to core {}; --core and --scheduler-core choose others", args.core);
    if let (Some(way), Some(pki)) = (args.serve, &args.pki) {
        let served = serve(way, pki, |addr| println!("{addr}"))?;
        println!("{}", serde_json::to_string(&served)?);
        return Ok(());
    }
    let rate_for = Duration::try_from_secs_f64(args.seconds).context("--seconds: expected a positive number")?;
    let program = std::env::current_exe()?;
    let (scheduler_core, latencies, rdma) = (args.scheduler_core, args.latencies, args.rdma);
    let options = Options { program, scheduler_core, rate_for, latencies, rdma };
    let report = run(&options)?;
    args.measured.write(&report, &figures(&report))?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    Ok(())
}
