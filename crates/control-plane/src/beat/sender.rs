//! The thread that shows this replica to the Raft leader.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use symphony_consensus::Leadership;
use symphony_net::{Expected, Line, Net, Role};
use symphony_types::{BootId, NodeId};
use tokio::sync::watch;

use super::addresses::BeatAddresses;
use super::message::{ACK_BYTES, Ack, Beat};
use crate::checkpoints::Checkpoints;
use crate::config::Liveness;
use crate::contact::Contact;

/// How this replica stands with the control group, as its beats are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// A leader with a quorum was there lately: sub-clusters may be led.
    pub(crate) in_contact: bool,
    /// Such a leader has answered a beat just now: it would not miss this replica if it watched it.
    pub(crate) heard: bool,
    /// The leader knows this replica as a member of the group.
    pub(crate) member: bool,
}

/// A line without an acknowledgement for so many times the leader's patience is dialled anew: packets that a partition took
/// are sent again ever more rarely, and an old line may stay silent for as long again as the partition lasted.
const UNANSWERED_SUSPICIONS: u32 = 4;

/// Sends beats until told to stop. It is a thread and not a task, because a busy runtime is not a dead replica.
pub(crate) struct Sender {
    pub(crate) cluster: u64,
    pub(crate) me: NodeId,
    pub(crate) boot: BootId,
    pub(crate) net: Net,
    pub(crate) peers: BeatAddresses,
    pub(crate) limits: Liveness,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) standing: watch::Sender<Standing>,
    /// Set when this replica should be taken for dead: no beats then.
    pub(crate) mute: Arc<AtomicBool>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// A connection to the leader's beat port.
struct ToLeader {
    to: NodeId,
    line: Line,
    /// When it was dialled, or answered last.
    answered: Instant,
    /// The beginning of an acknowledgement.
    partial: Vec<u8>,
}

impl Sender {
    pub(crate) fn run(self) {
        let mut line: Option<ToLeader> = None;
        let mut next = Instant::now();
        let mut contact = Contact::new(next, self.limits.unconfirmed_max);
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let leadership = *self.leadership.borrow();
            if let Some(at) = leadership.confirmed(now) {
                contact.confirmed(at);
                self.tell(|standing| standing.member = true);
            }
            let leader = leadership.leader.filter(|&leader| leader != self.me && !self.mute.load(Ordering::Relaxed));
            // Who no longer leads needs no beats; a closed line tells it nothing, because it does not listen.
            line = line.filter(|line| Some(line.to) == leader);
            if let Some(leader) = leader {
                line = self
                    .beat(line, leader, &mut contact)
                    .inspect_err(|error| {
                        tracing::debug!(%leader, %error, "beat not sent; dialling again at the next");
                    })
                    .ok();
            }
            let now = Instant::now();
            let (in_contact, heard) = (contact.holds(now), contact.within(now, self.limits.suspicion));
            self.tell(|standing| (standing.in_contact, standing.heard) = (in_contact, heard));
            // A thread that was held up does not make up for the beats it missed.
            next = (next + self.limits.beat).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()).min(self.limits.beat));
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            let before = *standing;
            change(standing);
            *standing != before
        });
    }

    fn beat(&self, line: Option<ToLeader>, leader: NodeId, contact: &mut Contact) -> io::Result<ToLeader> {
        let mut line = match line {
            Some(line) => line,
            None => self.dial(leader)?,
        };
        while let Some(ack) = line.ack(self.cluster)? {
            line.answered = Instant::now();
            contact.acknowledged(ack.sequence);
            self.tell(|standing| standing.member = ack.member);
        }
        if line.answered.elapsed() > self.limits.suspicion * UNANSWERED_SUSPICIONS {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (applied, checkpoint) = (*self.applied.borrow(), self.checkpoints.newest());
        let sequence = contact.beat(Instant::now());
        let beat = Beat { node: self.me, boot: self.boot, applied, sequence, checkpoint };
        // A line that does not take a beat at once leads to nobody who listens.
        line.line.write_all(&beat.encode(self.cluster))?;
        line.line.flush()?;
        Ok(line)
    }

    fn dial(&self, to: NodeId) -> io::Result<ToLeader> {
        let addr = self.peers.of(to).ok_or_else(|| io::Error::other("no beat address is known"))?;
        let leader = Expected::named(Role::Scheduler, to.get().to_string());
        let line = self.net.dial_line(&self.peers.sockets(self.net.through(&addr)), &leader, self.limits.dial)?;
        // Neither a leader that does not read nor one that says nothing may hold up the thread that finds its successor.
        line.socket().set_nonblocking(true)?;
        Ok(ToLeader { to, line, answered: Instant::now(), partial: Vec::with_capacity(ACK_BYTES) })
    }
}

impl ToLeader {
    /// The next acknowledgement, if one has arrived.
    fn ack(&mut self, cluster: u64) -> io::Result<Option<Ack>> {
        let mut bytes = [0; ACK_BYTES];
        let missing = ACK_BYTES - self.partial.len();
        match self.line.read(&mut bytes[..missing]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let Some(whole) = self.partial.first_chunk::<ACK_BYTES>() else { return Ok(None) };
        let ack = Ack::decode(whole, cluster).ok_or(io::ErrorKind::InvalidData)?;
        self.partial.clear();
        Ok(Some(ack))
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
