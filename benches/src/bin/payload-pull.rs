//! How long the inputs of one batch take from several frontends at once: a plain copy, shared memory, TCP, TCP with
//! TLS.

use clap::Parser;
use symphony_benches::pull::{Options, run};

/// Pulls inputs from several frontends at once, by every transport in turn, and prints quantiles.
#[derive(Debug, Parser)]
#[command(name = "payload-pull")]
struct Args {
    /// Frontends; each has one input of the batch.
    #[arg(long, default_value_t = 8)]
    owners: usize,
    /// Bytes of each input.
    #[arg(long, default_value_t = 150_000)]
    bytes: usize,
    /// Pulls by each transport; 20 and more.
    #[arg(long, default_value_t = 40_000)]
    pulls: usize,
    /// Also by RDMA, through the first device with an active port; takes a build with the feature `rdma`.
    #[arg(long)]
    rdma: bool,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    let Args { owners, bytes, pulls, rdma, json } = Args::parse();
    let rows = run(Options { owners, bytes, pulls, rdma })?;
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!("{pulls} pulls of {owners} × {bytes} bytes; µs");
    println!("{:26}{:>10}{:>10}{:>10}{:>10}{:>14}", "", "p50", "p99", "p99.99", "max", "p50 / copy");
    let copy = rows.first().map_or(f64::NAN, |row| row.p50_us);
    for row in &rows {
        let (p50, p99, p9999, max) = (row.p50_us, row.p99_us, row.p9999_us, row.max_us);
        println!("{:26}{p50:>10.1}{p99:>10.1}{p9999:>10.1}{max:>10.1}{:>14.2}", row.way, p50 / copy);
    }
    Ok(())
}
