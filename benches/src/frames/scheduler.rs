//! The process that receives.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use symphony_net::{
    CarrierPreference, Carriers, CredentialFiles, Credentials, Incoming, Net, Port, Rings, Role, rdma_fabric,
};
use symphony_protocol::dispatch::{EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_transport::{LinkError, link_over};
use symphony_types::DropReason;
use tokio::net::TcpListener;

use super::clock::{cpu_ns, now_ns};

/// How the two processes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LinkKind {
    /// Bytes of the size of a frame, written and read by blocking calls: what the machine takes.
    BareTcp,
    /// A link without encryption.
    Link,
    /// A link with mutual TLS.
    SecuredLink,
    /// A link with mutual TLS that goes on through shared memory; an end with nothing to read sleeps.
    SharedLink,
    /// As `SharedLink`, but an end with nothing to read polls for 10 ms.
    SpinningLink,
    /// A link with mutual TLS that goes on over RDMA.
    RdmaLink,
}

/// Requests from one acknowledgement to the next.
pub(super) const ACKNOWLEDGED_EVERY: u64 = 256;
/// Latencies that are not counted, at the start: connections, caches and threads warm up.
const WARM_UP: u64 = 100;
/// The longest latency that the histogram tells apart: 10 s.
const NS_MAX: u64 = 10_000_000_000;
/// Ten times as long as the pause between two requests of which the latency is measured.
const SPIN: Duration = Duration::from_millis(10);
/// One frame with one request.
pub(super) const BARE_BYTES: usize = 80;
/// The names in the two certificates.
pub(super) const FRONTEND: &str = "frontend";
pub(super) const SCHEDULER: &str = "1";

/// What the receiving process saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Requests, in order and each once.
    pub requests: u64,
    /// Frames that they came in.
    pub frames: u64,
    /// From the first frame to the last one, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time meanwhile.
    pub cpu_ns: u64,
    /// Requests that count for the latencies.
    pub counted: u64,
    /// From the moment that a request came up to that in which it was read here, in nanoseconds: the median.
    pub p50_ns: u64,
    /// 99 of 100 were faster.
    pub p99_ns: u64,
    /// 9999 of 10 000 were.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl LinkKind {
    /// Its name in tables.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::BareTcp => "bare TCP",
            Self::Link => "link",
            Self::SecuredLink => "link, TLS",
            Self::SharedLink => "link, shared",
            Self::SpinningLink => "link, spinning",
            Self::RdmaLink => "link, RDMA",
        }
    }

    /// What carries the frames of a process that is connected so. Must be called inside a tokio runtime.
    pub(super) fn carried(self, net: Net) -> Result<Net> {
        // Before the first message, so that all of them count.
        let preference = CarrierPreference { expected: true, required: true };
        let shared = |spin| anyhow::Ok(Carriers::new(Some(Rings::start(spin)?), None, preference));
        let carriers = match self {
            Self::BareTcp | Self::Link | Self::SecuredLink => return Ok(net),
            Self::SharedLink => shared(Duration::ZERO)?,
            Self::SpinningLink => shared(SPIN)?,
            Self::RdmaLink => Carriers::new(None, Some(rdma_fabric(None).map_err(Error::msg)?), preference),
        };
        Ok(net.carried(carriers))
    }

    /// How a process with that role connects.
    pub(super) fn net(self, pki: &Path, role: Role, name: &str) -> Result<Net> {
        Ok(match self {
            Self::SecuredLink | Self::SharedLink | Self::SpinningLink | Self::RdmaLink => {
                Net::secured(Arc::new(Credentials::load(CredentialFiles::in_dir(pki, role, name))?))
            }
            Self::Link | Self::BareTcp => Net::plaintext(),
        })
    }
}

/// Receives what one frontend sends until it hangs up. `listening` gets the address.
///
/// # Errors
/// If the connection fails, or requests are missing, doubled or out of order.
pub fn serve(way: LinkKind, pki: &Path, listening: impl FnOnce(std::net::SocketAddr)) -> Result<Served> {
    if way == LinkKind::BareTcp {
        return serve_bare(listening);
    }
    // As many workers as a process has that is bound to one core.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let net = way.net(pki, Role::Scheduler, SCHEDULER)?;
    runtime.block_on(async move {
        let net = way.carried(net)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let incoming = Incoming::new(listener, net, Port::new("frames", &[Role::Frontend], 1));
        listening(addr);
        tokio::spawn(serve_link(incoming)).await?
    })
}

async fn serve_link(mut incoming: Incoming) -> Result<Served> {
    let connection = incoming.next().await.context("no connection came")?;
    let (sender, mut receiver) = link_over::<ToFrontend, ToLeader>(connection);
    let mut meter = Meter::new()?;
    let mut acknowledged = 0;
    loop {
        let message = match receiver.receive().await {
            Ok(frame) => frame.message,
            Err(LinkError::Closed { .. }) => break,
            // A frontend that ends with acknowledgements unread resets the connection.
            Err(LinkError::Io { source, .. }) if source.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error.into()),
        };
        let ToLeader::Announce { requests, .. } = message else { bail!("{message:?} where requests were expected") };
        meter.note(&requests)?;
        if meter.requests - acknowledged >= ACKNOWLEDGED_EVERY {
            acknowledged = meter.requests;
            let end = EndReason::Dropped(DropReason::QueueFull);
            sender.send(ToFrontend::Ended { requests: vec![(acknowledged, end)] })?;
        }
    }
    meter.served()
}

fn serve_bare(listening: impl FnOnce(std::net::SocketAddr)) -> Result<Served> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listening(listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    let mut meter = Meter::new()?;
    let mut bytes = [0; BARE_BYTES];
    loop {
        match stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let header = RequestHeader { sequence: word(0), model: 1, items: 1, budget: word(8), attempt: 1, weight: 1000 };
        meter.note(&[header])?;
    }
    meter.served()
}

struct Meter {
    requests: u64,
    frames: u64,
    first_ns: u64,
    last_ns: u64,
    cpu_at_first: u64,
    latencies: Histogram<u64>,
}

impl Meter {
    fn new() -> Result<Self> {
        let latencies = Histogram::new_with_bounds(1, NS_MAX, 3)?;
        Ok(Self { requests: 0, frames: 0, first_ns: 0, last_ns: 0, cpu_at_first: 0, latencies })
    }

    /// A frame has come. A request's budget is the moment that it came up.
    fn note(&mut self, requests: &[RequestHeader]) -> Result<()> {
        self.last_ns = now_ns()?;
        if self.frames == 0 {
            (self.first_ns, self.cpu_at_first) = (self.last_ns, cpu_ns()?);
        }
        self.frames += 1;
        for header in requests {
            self.requests += 1;
            let (got, expected) = (header.sequence, self.requests);
            ensure!(got == expected, "request {got} came where {expected} was expected");
            if self.requests > WARM_UP {
                self.latencies.record(self.last_ns.saturating_sub(header.budget).clamp(1, NS_MAX))?;
            }
        }
        Ok(())
    }

    fn served(self) -> Result<Served> {
        let quantile = |q| self.latencies.value_at_quantile(q);
        Ok(Served {
            requests: self.requests,
            frames: self.frames,
            elapsed_ns: self.last_ns - self.first_ns,
            cpu_ns: cpu_ns()? - self.cpu_at_first,
            counted: self.latencies.len(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p9999_ns: quantile(0.9999),
            max_ns: self.latencies.max(),
        })
    }
}
