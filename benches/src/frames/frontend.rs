//! The process that sends, and the measurement as a whole.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use symphony_net::{Authority, Identity, Net, Role};
use symphony_protocol::dispatch::{ANNOUNCED_REQUESTS_MAX, RequestHeader, ToFrontend, ToLeader};
use symphony_transport::{LinkReceiver, LinkSender, connect_link};
use symphony_types::Token;
use tokio::sync::{Notify, mpsc};

use super::clock::{cpu_ns, now_ns};
use super::report::{LatencyRow, RateRow, Report};
use super::scheduler::{ACKNOWLEDGED_EVERY, BARE_BYTES, FRONTEND, LinkKind, SCHEDULER, Served};

/// Requests that may be on their way: far more than a round trip needs, and below what a link holds if each is a frame.
const WINDOW: u64 = 4096;
const _: () = assert!(WINDOW > 2 * ACKNOWLEDGED_EVERY && (WINDOW as usize) < symphony_transport::LINK_FRAMES_MAX);
/// Requests that come up in one turn of the frontend's runtime, before the task that announces them has its own: what
/// one read of a busy connection brings.
const TURN: u64 = 32;
/// The pause between two requests whose latency is measured.
const PAUSE: Duration = Duration::from_millis(1);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that runs [`serve`](super::serve) when it is started with `--serve WAY --pki DIR`, on the core of
    /// `--core`.
    pub program: PathBuf,
    /// The scheduler's core; the frontend is bound by the caller.
    pub scheduler_core: usize,
    /// How long each rate is measured.
    pub rate_for: Duration,
    /// Requests whose latency is measured, for each way.
    pub latencies: u64,
    /// Whether links over RDMA are measured as well.
    pub rdma: bool,
}

/// Measures rates and latencies, each way after the other.
///
/// # Errors
/// If a process or a connection cannot be made, or requests get lost on the way.
pub fn run(options: &Options) -> Result<Report> {
    let pki = tempfile::tempdir()?;
    let authority = Authority::create(pki.path(), "frames")?;
    for (role, name) in [(Role::Frontend, FRONTEND), (Role::Scheduler, SCHEDULER)] {
        authority.issue(&Identity::new("frames", role, name)?, 1)?;
    }
    let mut report = Report { rates: Vec::new(), latencies: Vec::new() };
    let mut links = vec![LinkKind::Link, LinkKind::SecuredLink, LinkKind::SharedLink, LinkKind::SpinningLink];
    links.extend(options.rdma.then_some(LinkKind::RdmaLink));
    for &way in &links {
        for frame_max in [ANNOUNCED_REQUESTS_MAX, 1] {
            report.rates.push(rate(options, pki.path(), way, frame_max)?);
        }
    }
    for way in [LinkKind::BareTcp].into_iter().chain(links) {
        report.latencies.push(latency(options, pki.path(), way)?);
    }
    Ok(report)
}

fn rate(options: &Options, pki: &Path, way: LinkKind, frame_max: usize) -> Result<RateRow> {
    let scheduler = Scheduler::start(options, pki, way)?;
    let before = cpu_ns()?;
    let (net, rate_for) = (way.net(pki, Role::Frontend, FRONTEND)?, options.rate_for);
    let sent = over_link(&scheduler.addr, net, way, move |link| send_for(link, frame_max, rate_for))?;
    let frontend_cpu = cpu_ns()? - before;
    let served = scheduler.served(sent)?;
    let each = |ns: u64| ns as f64 / served.requests as f64;
    Ok(RateRow {
        way: way.label(),
        frame_max,
        requests: served.requests,
        requests_per_frame: served.requests as f64 / served.frames as f64,
        requests_per_second: 1e9 / each(served.elapsed_ns),
        frontend_ns: each(frontend_cpu),
        scheduler_ns: each(served.cpu_ns),
    })
}

fn latency(options: &Options, pki: &Path, way: LinkKind) -> Result<LatencyRow> {
    let scheduler = Scheduler::start(options, pki, way)?;
    let count = options.latencies;
    if way == LinkKind::BareTcp {
        let mut stream = std::net::TcpStream::connect(&scheduler.addr)?;
        stream.set_nodelay(true)?;
        for sequence in 1..=count {
            std::thread::sleep(PAUSE);
            let mut bytes = [0; BARE_BYTES];
            bytes[..8].copy_from_slice(&sequence.to_le_bytes());
            bytes[8..16].copy_from_slice(&now_ns()?.to_le_bytes());
            stream.write_all(&bytes)?;
        }
    } else {
        let net = way.net(pki, Role::Frontend, FRONTEND)?;
        over_link(&scheduler.addr, net, way, move |link| send_one_by_one(link, count))?;
    }
    let served = scheduler.served(count)?;
    let us = |ns: u64| ns as f64 / 1e3;
    Ok(LatencyRow {
        way: way.label(),
        requests: served.counted,
        p50_us: us(served.p50_ns),
        p99_us: us(served.p99_ns),
        p9999_us: us(served.p9999_ns),
        max_us: us(served.max_ns),
    })
}

type Link = (LinkSender<ToLeader>, LinkReceiver<ToFrontend>);

/// Runs something with a link, in a runtime with as many workers as a process has that is bound to one core. Everything
/// sent has been written when it returns.
fn over_link<T, F>(addr: &str, net: Net, way: LinkKind, run: impl FnOnce(Link) -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let addr = addr.to_owned();
    runtime.block_on(async move {
        let net = way.carried(net)?;
        let link = connect_link::<ToLeader, ToFrontend>(&net, &addr, &Role::Scheduler.into()).await?;
        let sender = link.0.clone();
        let done = tokio::spawn(async move { run(link).await }).await??;
        sender.close();
        sender.written().await;
        Ok(done)
    })
}

/// A request that has come up: its number, and when.
type ArrivedRequest = (u64, u64);

fn announce(words: &[ArrivedRequest]) -> ToLeader {
    let header = |&(sequence, at)| RequestHeader { sequence, model: 1, items: 1, budget: at, attempt: 1, weight: 1000 };
    ToLeader::Announce { token: Token::new(1), requests: words.iter().map(header).collect() }
}

/// Sends as fast as the other end receives; returns how many.
async fn send_for((sender, mut receiver): Link, frame_max: usize, time: Duration) -> Result<u64> {
    let (words, mut come_up) = mpsc::unbounded_channel::<ArrivedRequest>();
    let (acknowledged, more) = (Arc::<AtomicU64>::default(), Arc::<Notify>::default());
    let (seen, wake) = (Arc::clone(&acknowledged), Arc::clone(&more));
    let hearing = tokio::spawn(async move {
        while let Ok(frame) = receiver.receive().await {
            if let ToFrontend::Ended { requests } = frame.message {
                let upto = requests.last().map_or(0, |&(sequence, _)| sequence);
                seen.fetch_max(upto, Ordering::Relaxed);
                wake.notify_one();
            }
        }
    });
    // As the frontend announces: whatever has come up meanwhile shares a frame.
    let announcing = tokio::spawn(async move {
        let mut gathered = Vec::new();
        while come_up.recv_many(&mut gathered, frame_max).await > 0 {
            sender.send(announce(&gathered))?;
            gathered.clear();
        }
        anyhow::Ok(())
    });
    let (until, mut sent) = (Instant::now() + time, 0);
    while Instant::now() < until && !announcing.is_finished() {
        if sent + TURN > acknowledged.load(Ordering::Relaxed) + WINDOW {
            more.notified().await;
            continue;
        }
        for _ in 0..TURN {
            sent += 1;
            words.send((sent, now_ns()?))?;
        }
        tokio::task::yield_now().await;
    }
    drop(words);
    announcing.await??;
    hearing.abort();
    Ok(sent)
}

async fn send_one_by_one((sender, _receiver): Link, count: u64) -> Result<()> {
    let (words, mut come_up) = mpsc::unbounded_channel::<ArrivedRequest>();
    let announcing = tokio::spawn(async move {
        let mut gathered = Vec::new();
        while come_up.recv_many(&mut gathered, ANNOUNCED_REQUESTS_MAX).await > 0 {
            sender.send(announce(&gathered))?;
            gathered.clear();
        }
        anyhow::Ok(())
    });
    for sequence in 1..=count {
        tokio::time::sleep(PAUSE).await;
        words.send((sequence, now_ns()?))?;
    }
    drop(words);
    announcing.await?
}

/// The other process. Dropping it ends it.
struct Scheduler {
    child: Child,
    lines: BufReader<ChildStdout>,
    addr: String,
}

impl Scheduler {
    fn start(options: &Options, pki: &Path, way: LinkKind) -> Result<Self> {
        let way = way.to_possible_value().context("every way has a name")?;
        let mut command = Command::new(&options.program);
        command.args(["--serve", way.get_name(), "--core", &options.scheduler_core.to_string()]).arg("--pki").arg(pki);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output is piped")?);
        let mut scheduler = Self { child, lines, addr: String::new() };
        scheduler.addr = scheduler.line()?;
        Ok(scheduler)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "the scheduler's process ended");
        Ok(line.trim().to_owned())
    }

    /// What it has seen, once the link has ended.
    fn served(mut self, sent: u64) -> Result<Served> {
        let served: Served = serde_json::from_str(&self.line()?)?;
        ensure!(served.requests == sent, "{} of {sent} requests arrived", served.requests);
        ensure!(self.child.wait()?.success(), "the scheduler's process failed");
        Ok(served)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
