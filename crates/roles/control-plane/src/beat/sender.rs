//! The thread that shows this replica to the Raft leader.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use symphony_net::{Expected, Line, Net, Role};
use symphony_types::NodeId;
use tokio::sync::Notify;

use super::addresses::BeatAddresses;
use super::herald::{Facts, Herald};
use super::message::ACK_BYTES;
use super::wait::wait_until;
use crate::config::Liveness;

/// Who has nobody to beat looks so much less often whether it is in contact: after as many beats others would miss it. A new
/// leader wakes it.
const RESTING_BEATS: u32 = 5;

/// Sends beats until told to stop. It is a thread and not a task, because a busy runtime is not a dead replica.
pub(crate) struct Sender {
    pub(crate) facts: Facts,
    pub(crate) net: Net,
    pub(crate) peers: BeatAddresses,
    pub(crate) limits: Liveness,
    pub(crate) stop: Arc<AtomicBool>,
    /// Rung when `stop` is set.
    pub(crate) told_to_stop: Arc<Notify>,
}

/// A connection to the leader's beat port.
struct ToLeader {
    to: NodeId,
    line: Line,
    /// The beginning of an acknowledgement.
    partial: Vec<u8>,
}

impl Sender {
    pub(crate) fn run(self) {
        let Self { facts, net, peers, limits, stop, told_to_stop } = self;
        let mut line: Option<ToLeader> = None;
        let mut next = Instant::now();
        let mut herald = Herald::new(facts, next, limits);
        while !stop.load(Ordering::Relaxed) {
            let leader = herald.turn(Instant::now());
            // Who no longer leads needs no beats; a closed line tells it nothing, because it does not listen.
            line = line.filter(|line| Some(line.to) == leader);
            if let Some(leader) = leader {
                let dialled = match line.take() {
                    Some(line) => Ok(line),
                    None => dial(&net, &peers, &limits, leader).inspect(|_| herald.dialled(Instant::now())),
                };
                line = dialled
                    .and_then(|line| beat(line, &mut herald))
                    .inspect_err(|error| {
                        tracing::debug!(%leader, %error, "beat not sent; dialling again at the next");
                    })
                    .ok();
            }
            herald.end_turn(Instant::now());
            if herald.rests() {
                wait_until(Some(Instant::now() + limits.beat * RESTING_BEATS), async {
                    tokio::select! {
                        () = herald.led_otherwise() => {}
                        () = told_to_stop.notified() => {}
                    }
                });
                next = Instant::now();
                continue;
            }
            // A thread that was held up does not make up for the beats it missed.
            next = (next + limits.beat).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()).min(limits.beat));
        }
    }
}

fn beat(mut line: ToLeader, herald: &mut Herald) -> io::Result<ToLeader> {
    while let Some(ack) = line.ack()? {
        herald.acknowledged(&ack)?;
    }
    // A line that does not take a beat at once leads to nobody who listens.
    line.line.write_all(&herald.beat(Instant::now())?)?;
    line.line.flush()?;
    Ok(line)
}

fn dial(net: &Net, peers: &BeatAddresses, limits: &Liveness, to: NodeId) -> io::Result<ToLeader> {
    let addr = peers.of(to).ok_or_else(|| io::Error::other("no beat address is known"))?;
    let leader = Expected::named(Role::Scheduler, to.get().to_string());
    let line = net.dial_line(&peers.sockets(net.through(&addr)), &leader, limits.dial)?;
    // Neither a leader that does not read nor one that says nothing may hold up the thread that finds its successor.
    line.socket().set_nonblocking(true)?;
    Ok(ToLeader { to, line, partial: Vec::with_capacity(ACK_BYTES) })
}

impl ToLeader {
    /// The next acknowledgement, if one has arrived.
    fn ack(&mut self) -> io::Result<Option<[u8; ACK_BYTES]>> {
        let mut bytes = [0; ACK_BYTES];
        let missing = ACK_BYTES - self.partial.len();
        match self.line.read(&mut bytes[..missing]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let whole = self.partial.first_chunk::<ACK_BYTES>().copied();
        if whole.is_some() {
            self.partial.clear();
        }
        Ok(whole)
    }
}

/// Whether nobody listens at an address: the one answer that tells a dead process from a slow one.
pub(crate) fn refuses(addr: &str, within: Duration) -> bool {
    let candidates: Vec<SocketAddr> = addr.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let refused = |candidate: &SocketAddr| {
        let dialled = TcpStream::connect_timeout(candidate, within);
        dialled.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    !candidates.is_empty() && candidates.iter().all(refused)
}
