//! The measurement: all ways in turn, round by round, so that what else the machine does falls on all of them.

use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use symphony_config::PayloadTransportKind;
use symphony_transport::ReadPath;
use tokio::runtime::{Builder, Runtime};

use super::owners::Owners;

/// Threads of each of the two sides.
const THREADS: usize = 2;
/// Inputs that each owner has, and that are pulled in turn: more than the nearest caches hold.
const INPUTS: u64 = 16;
/// Each way is measured this many times in turn.
const ROUNDS: usize = 20;
/// Pulls of each way before anything counts, at most.
const WARM_UP_MAX: usize = 200;
/// The longest pull that the histogram tells apart, in nanoseconds: 10 s.
const NS_MAX: u64 = 10_000_000_000;

/// What is compared. Copies are plain ones: into existing buffers, and into new ones.
const COPIES: [&str; 2] = ["copy", "copy into new buffers"];

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Frontends.
    pub owners: usize,
    /// Bytes of each input.
    pub bytes: usize,
    /// Pulls by each way.
    pub pulls: usize,
    /// Whether RDMA is measured too, by the first device that has an active port.
    pub rdma: bool,
}

/// What one way took, in microseconds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The kind of transport, as in tables.
    pub way: &'static str,
    /// Pulls that were measured.
    pub pulls: u64,
    /// Half of them were faster.
    pub p50_us: f64,
    /// 99 of 100 were.
    pub p99_us: f64,
    /// 9999 of 10 000 were.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Measures a plain copy, shared memory, TCP, and TCP with mutual TLS.
///
/// # Errors
/// If a transport cannot be set up, or inputs come by another way, or not at all.
pub fn run(options: Options) -> Result<Vec<Row>> {
    let Options { owners, bytes, pulls, rdma } = options;
    ensure!(owners > 0 && pulls >= ROUNDS, "expected owners, and at least {ROUNDS} pulls");
    let input = |owner: usize, sequence: u64| Bytes::from(vec![(owner as u64 * INPUTS + sequence) as u8; bytes]);
    let inputs: Vec<Vec<_>> = (0..owners).map(|owner| (0..INPUTS).map(|n| input(owner, n)).collect()).collect();
    let side = || Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let (frontends, backend) = (side()?, side()?);
    let start = |kind, secured| {
        let owners = frontends.block_on(Owners::start(&inputs, kind, secured))?;
        backend.block_on(owners.link(&inputs))
    };
    let mut ways = vec![
        ("shared memory", ReadPath::SharedMemory, start(PayloadTransportKind::SharedMemory, true)?),
        ("TCP loopback", ReadPath::Tcp, start(PayloadTransportKind::Tcp, false)?),
        ("TCP loopback, mutual TLS", ReadPath::Tcp, start(PayloadTransportKind::Tcp, true)?),
    ];
    if rdma {
        ways.push(("RDMA", ReadPath::Rdma, start(PayloadTransportKind::Rdma, true)?));
    }

    let warm_up = (pulls / 10).min(WARM_UP_MAX);
    let mut histograms = Vec::new();
    for _ in 0..COPIES.len() + ways.len() {
        histograms.push(Histogram::<u64>::new_with_bounds(1, NS_MAX, 3)?);
    }
    for round in 0..=ROUNDS {
        let count = if round == 0 { warm_up } else { pulls / ROUNDS } as u64;
        let mut buffers = vec![vec![0; bytes]; owners];
        for n in 0..count {
            let begun = Instant::now();
            for (buffer, own) in buffers.iter_mut().zip(&inputs) {
                buffer.copy_from_slice(&own[(n % INPUTS) as usize]);
            }
            std::hint::black_box(&mut buffers);
            let took = begun.elapsed().as_nanos() as u64;
            if round > 0 {
                histograms[0].record(took.clamp(1, NS_MAX))?;
            }
        }
        let mut measure = |index: usize, pull: &dyn Fn(u64) -> Vec<Option<Bytes>>| {
            for n in 0..count {
                let sequence = n % INPUTS;
                let begun = Instant::now();
                let pulled = pull(sequence);
                let took = begun.elapsed().as_nanos() as u64;
                ensure!(pulled.len() == owners && pulled.iter().all(Option::is_some), "an input did not come");
                if round > 0 {
                    histograms[index].record(took.clamp(1, NS_MAX))?;
                }
            }
            Ok(())
        };
        measure(1, &|sequence| copy(&inputs, sequence))?;
        for (index, (_, _, owners)) in (COPIES.len()..).zip(&ways) {
            measure(index, &|sequence| pull(&backend, owners, sequence))?;
        }
    }
    let expected = (owners * (ROUNDS * (pulls / ROUNDS) + warm_up)) as u64;
    for (_, way, of) in &ways {
        let inputs = of.transport().readings().reads[*way as usize].inputs;
        // The first of each link comes before anything is shared: by TCP, or over the RDMA connection.
        let first = if *way == ReadPath::Tcp { owners as u64 } else { 0 };
        ensure!(inputs == expected + first, "{inputs} inputs came by {}", way.label());
    }
    let names = COPIES.into_iter().chain(ways.iter().map(|(name, ..)| *name));
    Ok(names.zip(&histograms).map(|(way, histogram)| row(way, histogram)).collect())
}

fn copy(inputs: &[Vec<Bytes>], sequence: u64) -> Vec<Option<Bytes>> {
    inputs.iter().map(|own| Some(Bytes::copy_from_slice(&own[sequence as usize]))).collect()
}

fn pull(backend: &Runtime, owners: &Owners, sequence: u64) -> Vec<Option<Bytes>> {
    backend.block_on(owners.pull(sequence))
}

fn row(way: &'static str, histogram: &Histogram<u64>) -> Row {
    let us = |ns: u64| ns as f64 / 1e3;
    Row {
        way,
        pulls: histogram.len(),
        p50_us: us(histogram.value_at_quantile(0.5)),
        p99_us: us(histogram.value_at_quantile(0.99)),
        p9999_us: us(histogram.value_at_quantile(0.9999)),
        max_us: us(histogram.max()),
    }
}
