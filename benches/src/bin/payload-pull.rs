//! How long the inputs of one batch take from several frontends at once: a plain copy, shared memory, TCP, TCP with
//! TLS.

use clap::Parser;
use symphony_benches::measured::{Figures, Measured, at_most};
use symphony_benches::pull::{Options, Row, run};

/// Shared memory over a plain copy, as the specification wants it.
const OVER_COPY_MAX: f64 = 2.0;

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
    #[command(flatten)]
    measured: Measured,
}

/// Of the default sizes.
fn figures(rows: &[Row]) -> Figures {
    let p50 = |way: &str| rows.iter().find(|row| row.way == way).map(|row| row.p50_us);
    let times = [
        ("shared memory, checksums and all, p50", "shared memory"),
        ("TCP, p50", "TCP loopback"),
        ("TCP with mutual TLS, p50", "TCP loopback, mutual TLS"),
    ];
    let times = times.into_iter().filter_map(|(what, way)| Some((what.to_owned(), format!("{:.0}", p50(way)?))));
    let over_copy = p50("shared memory").zip(p50("copy")).map(|(shared, copy)| shared / copy);
    let over_copy = over_copy
        .map(|over| ("over a plain copy into buffers that are there".to_owned(), at_most(over, 1, OVER_COPY_MAX)));
    times.chain(over_copy).collect()
}

fn main() -> anyhow::Result<()> {
    let Args { owners, bytes, pulls, rdma, json, measured } = Args::parse();
    let rows = run(Options { owners, bytes, pulls, rdma })?;
    measured.write(&rows, &figures(&rows))?;
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
