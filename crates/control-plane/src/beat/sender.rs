//! The thread that shows this replica to the Raft leader.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use symphony_consensus::Leadership;
use symphony_net::{Expected, Line, Net, Role};
use symphony_types::{BootId, NodeId};
use tokio::sync::watch;

use super::message::Beat;
use crate::config::Liveness;

/// Sends beats until told to stop. It is a thread and not a task, because a busy runtime is not a dead replica.
pub(crate) struct Sender {
    pub(crate) cluster: u64,
    pub(crate) me: NodeId,
    pub(crate) boot: BootId,
    pub(crate) net: Net,
    /// Beat addresses of the other replicas.
    pub(crate) peers: Arc<BTreeMap<NodeId, String>>,
    pub(crate) limits: Liveness,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// A connection to the leader's beat port.
struct ToLeader {
    to: NodeId,
    line: Line,
}

impl Sender {
    pub(crate) fn run(self) {
        let mut line: Option<ToLeader> = None;
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let leader = self.leadership.borrow().leader.filter(|&leader| leader != self.me);
            // Who no longer leads needs no beats; a closed line tells it nothing, because it does not listen.
            line = line.filter(|line| Some(line.to) == leader);
            if let Some(leader) = leader {
                line = self
                    .beat(line, leader)
                    .inspect_err(|error| {
                        tracing::debug!(%leader, %error, "beat not sent; dialling again at the next");
                    })
                    .ok();
            }
            // A thread that was held up does not make up for the beats it missed.
            next = (next + self.limits.beat).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()).min(self.limits.beat));
        }
    }

    fn beat(&self, line: Option<ToLeader>, leader: NodeId) -> io::Result<ToLeader> {
        let mut line = match line {
            Some(line) => line,
            None => self.dial(leader)?,
        };
        let beat = Beat { node: self.me, boot: self.boot, applied: *self.applied.borrow() };
        line.line.write_all(&beat.encode(self.cluster))?;
        line.line.flush()?;
        Ok(line)
    }

    fn dial(&self, to: NodeId) -> io::Result<ToLeader> {
        let addr = self.peers.get(&to).ok_or_else(|| io::Error::other("no beat address is known"))?;
        let leader = Expected::named(Role::Scheduler, to.get().to_string());
        let line = self.net.dial_line(addr, &leader, self.limits.dial)?;
        // A leader that does not read must not hold up the thread that finds its successor.
        line.socket().set_write_timeout(Some(self.limits.beat.max(Duration::from_millis(1))))?;
        Ok(ToLeader { to, line })
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
