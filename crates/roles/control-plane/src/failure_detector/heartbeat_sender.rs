//! The thread that sends this replica's heartbeats to the Raft leader.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use symphony_net::{Expected, Line, Net, Role};
use symphony_types::NodeId;
use tokio::sync::Notify;

use crate::config::Liveness;
use crate::failure_detector::addresses::HeartbeatAddresses;
use crate::failure_detector::heartbeat_state::{HeartbeatSources, HeartbeatState};
use crate::failure_detector::message::ACK_BYTES;
use crate::failure_detector::wait::wait_until;

/// A replica without a leader to send to checks its contact less often, by this factor: others would miss it after as
/// many heartbeats. A new leader wakes it.
const RESTING_HEARTBEATS: u32 = 5;

/// Sends heartbeats until stopped. A thread and not a task, because a busy runtime is not a dead replica.
pub(crate) struct HeartbeatSender {
    pub(crate) sources: HeartbeatSources,
    pub(crate) net: Net,
    pub(crate) peers: HeartbeatAddresses,
    pub(crate) limits: Liveness,
    pub(crate) stop: Arc<AtomicBool>,
    /// Notified when `stop` is set.
    pub(crate) told_to_stop: Arc<Notify>,
}

/// A connection to the leader's heartbeat port.
struct ToLeader {
    to: NodeId,
    line: Line,
    /// The beginning of an acknowledgement.
    partial: Vec<u8>,
}

impl HeartbeatSender {
    pub(crate) fn run(self) {
        let Self { sources, net, peers, limits, stop, told_to_stop } = self;
        let mut line: Option<ToLeader> = None;
        let mut next = Instant::now();
        let mut heartbeat_state = HeartbeatState::new(sources, next, limits);
        while !stop.load(Ordering::Relaxed) {
            let leader = heartbeat_state.begin_turn(Instant::now());
            // A former leader needs no heartbeats, and would not notice the closed connection: it no longer reads.
            line = line.filter(|line| Some(line.to) == leader);
            if let Some(leader) = leader {
                let dialled = match line.take() {
                    Some(line) => Ok(line),
                    None => dial(&net, &peers, &limits, leader, &mut heartbeat_state, &stop),
                };
                line = dialled
                    .and_then(|line| send_heartbeat(line, &mut heartbeat_state))
                    .inspect_err(|error| {
                        tracing::debug!(%leader, %error, "heartbeat not sent; dialling again at the next");
                    })
                    .ok();
            }
            heartbeat_state.end_turn(Instant::now());
            if heartbeat_state.rests() {
                wait_until(Some(Instant::now() + limits.heartbeat * RESTING_HEARTBEATS), async {
                    tokio::select! {
                        () = heartbeat_state.leadership_changed() => {}
                        () = told_to_stop.notified() => {}
                    }
                });
                next = Instant::now();
                continue;
            }
            // A delayed thread does not make up for missed heartbeats.
            next = (next + limits.heartbeat).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()).min(limits.heartbeat));
        }
    }
}

fn send_heartbeat(mut line: ToLeader, heartbeat_state: &mut HeartbeatState) -> io::Result<ToLeader> {
    while let Some(ack) = line.ack()? {
        heartbeat_state.acknowledged(&ack)?;
    }
    // If the connection does not accept a heartbeat at once, the leader does not read.
    line.line.write_all(&heartbeat_state.heartbeat(Instant::now())?)?;
    line.line.flush()?;
    Ok(line)
}

fn dial(
    net: &Net,
    peers: &HeartbeatAddresses,
    limits: &Liveness,
    to: NodeId,
    heartbeat_state: &mut HeartbeatState,
    stop: &AtomicBool,
) -> io::Result<ToLeader> {
    let addr = peers.of(to).ok_or_else(|| io::Error::other("no heartbeat address is known"))?;
    let leader = Expected::named(Role::Scheduler, to.get().to_string());
    let sockets = peers.sockets(net.through(&addr));
    let stream = net.connect_line(&sockets, limits.dial)?;
    let within = heartbeat_state.handshake_limit(to);
    // A leader that does not read or does not answer must not delay this thread, which has to find its successor.
    let go_on = || !stop.load(Ordering::Relaxed) && heartbeat_state.is_led_by(to);
    let line = net.authenticate_line(stream, &leader, within, limits.heartbeat, go_on).inspect_err(|error| {
        if error.kind() == io::ErrorKind::TimedOut {
            heartbeat_state.handshake_given_up();
        }
    })?;
    heartbeat_state.dialled(Instant::now());
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

/// Whether an address refuses connections: the one answer that distinguishes a dead process from a slow one.
pub(crate) fn refuses(addr: &str, within: Duration) -> bool {
    let candidates: Vec<SocketAddr> = addr.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let refused = |candidate: &SocketAddr| {
        let dialled = TcpStream::connect_timeout(candidate, within);
        dialled.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    !candidates.is_empty() && candidates.iter().all(refused)
}
