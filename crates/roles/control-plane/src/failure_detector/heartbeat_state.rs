//! The content of this replica's heartbeats and the meaning of their acknowledgements; sending and waiting are
//! elsewhere.

use std::io;
use std::time::{Duration, Instant};

use symphony_consensus::Leadership;
use symphony_types::{BootId, Level, NodeId};
use tokio::sync::watch;

use crate::config::Liveness;
use crate::failure_detector::contact::Contact;
use crate::failure_detector::message::{ACK_BYTES, Ack, HEARTBEAT_BYTES, Heartbeat};
use crate::failure_detector::silence_switch::SilenceSwitch;
use crate::group::checkpoints::Checkpoints;

/// Whether this replica is in contact with the control group, by the answers to its heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContactState {
    /// A leader with a quorum has answered recently: sub-clusters may be led.
    pub(crate) in_contact: bool,
    /// Such a leader has answered a heartbeat just now, so it would notice if this replica fell silent.
    pub(crate) heard: bool,
    /// The leader knows this replica as a member of the group.
    pub(crate) member: bool,
}

/// The identity of this replica, and its sources.
pub(crate) struct HeartbeatSources {
    pub(crate) cluster: u64,
    pub(crate) me: NodeId,
    pub(crate) boot: BootId,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) contact_state: watch::Sender<ContactState>,
    /// While it is on, no heartbeats are sent, so that this replica is taken for dead.
    pub(crate) silence_switch: SilenceSwitch,
    /// The newest level that this replica knows.
    pub(crate) level: Level,
}

/// Writes heartbeats, reads acknowledgements, and maintains the contact state.
pub(crate) struct HeartbeatState {
    sources: HeartbeatSources,
    contact: Contact,
    limits: Liveness,
    /// When the connection was dialled, or when the last answered heartbeat was sent.
    answered: Instant,
    /// The newest acknowledged heartbeat.
    echoed: u64,
    /// Limit of the next handshake, and the leader that it is for.
    handshake: (NodeId, Duration),
}

impl HeartbeatState {
    pub(crate) fn new(sources: HeartbeatSources, now: Instant, limits: Liveness) -> Self {
        Self {
            sources,
            contact: Contact::new(now, limits.unconfirmed_max),
            limits,
            answered: now,
            echoed: 0,
            handshake: (NodeId::default(), limits.dial),
        }
    }

    /// Begins a turn: the Raft leader to send a heartbeat to, if any.
    pub(crate) fn begin_turn(&mut self, now: Instant) -> Option<NodeId> {
        let leadership = *self.sources.leadership.borrow();
        if let Some(at) = leadership.confirmed(now) {
            self.contact.confirmed(at);
            self.update_contact(|contact_state| contact_state.member = true);
        }
        leadership.leader.filter(|&leader| leader != self.sources.me && !self.sources.silence_switch.is_on())
    }

    /// Whether no heartbeats are sent before the leadership changes.
    pub(crate) fn rests(&self) -> bool {
        self.sources.leadership.borrow().leader.is_none_or(|leader| leader == self.sources.me)
    }

    /// Waits for a change of leadership; for ever if there will be none.
    pub(crate) async fn leadership_changed(&mut self) {
        if self.sources.leadership.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// How long the next handshake with that leader may take.
    pub(crate) fn handshake_limit(&mut self, leader: NodeId) -> Duration {
        if self.handshake.0 != leader {
            self.handshake = (leader, self.limits.dial);
        }
        self.handshake.1
    }

    /// Whether that replica still leads the group, as far as this one knows.
    pub(crate) fn is_led_by(&self, leader: NodeId) -> bool {
        self.sources.leadership.borrow().leader == Some(leader)
    }

    /// There is a new connection.
    pub(crate) const fn dialled(&mut self, now: Instant) {
        self.answered = now;
        self.handshake.1 = self.limits.dial;
    }

    /// The handshake took too long. On a starved machine one that begins again costs both ends as much as the last and
    /// comes no further, so the next may take twice as long.
    pub(crate) fn handshake_given_up(&mut self) {
        self.handshake.1 = self.handshake.1.saturating_mul(2).min(self.limits.answer());
    }

    /// The next heartbeat, sent now.
    ///
    /// # Errors
    /// If the connection has been silent for too long. TCP retransmits with growing pauses: after a partition an old
    /// connection may stay silent for as long again as the partition lasted.
    pub(crate) fn heartbeat(&mut self, now: Instant) -> io::Result<[u8; HEARTBEAT_BYTES]> {
        if now.saturating_duration_since(self.answered) > self.limits.answer() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let HeartbeatSources { cluster, me: node, boot, level, .. } = self.sources;
        let (applied, checkpoint) = (*self.sources.applied.borrow(), self.sources.checkpoints.newest());
        let sequence = self.contact.heartbeat_sent(now);
        Ok(Heartbeat { node, boot, applied, sequence, checkpoint, echoed: self.echoed, level }.encode(cluster))
    }

    /// Handles an acknowledgement.
    ///
    /// # Errors
    /// If the bytes are malformed.
    pub(crate) fn acknowledged(&mut self, bytes: &[u8; ACK_BYTES]) -> io::Result<()> {
        let ack = Ack::decode(bytes, self.sources.cluster).ok_or(io::ErrorKind::InvalidData)?;
        self.echoed = self.echoed.max(ack.sequence);
        // A slow acknowledgement describes the past of the connection: both ends give up a slow one.
        if let Some(sent) = self.contact.acknowledged(ack.sequence) {
            self.answered = self.answered.max(sent);
        }
        self.update_contact(|contact_state| contact_state.member = ack.member);
        Ok(())
    }

    pub(crate) fn end_turn(&self, now: Instant) {
        let (in_contact, heard) = (self.contact.holds(now), self.contact.within(now, self.limits.answer()));
        self.update_contact(|contact_state| (contact_state.in_contact, contact_state.heard) = (in_contact, heard));
    }

    fn update_contact(&self, change: impl FnOnce(&mut ContactState)) {
        self.sources.contact_state.send_if_modified(|contact_state| {
            let before = *contact_state;
            change(contact_state);
            *contact_state != before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure_detector::message::cluster_hash;

    fn sources() -> HeartbeatSources {
        HeartbeatSources {
            cluster: cluster_hash("blue"),
            me: NodeId::new(2),
            boot: BootId::new(20),
            leadership: watch::channel(Leadership::default()).1,
            applied: watch::channel(0).1,
            checkpoints: Checkpoints::default(),
            contact_state: watch::channel(ContactState { in_contact: true, heard: false, member: true }).0,
            silence_switch: SilenceSwitch::default(),
            level: Level::NEWEST,
        }
    }

    #[test]
    fn each_handshake_that_is_given_up_doubles_the_limit_of_the_next_until_one_succeeds_or_another_leads() {
        let (limits, start) = (Liveness::LAN, Instant::now());
        let mut heartbeat_state = HeartbeatState::new(sources(), start, limits);
        let given_up = (0..6).map(|_| {
            let limit = heartbeat_state.handshake_limit(NodeId::new(1));
            heartbeat_state.handshake_given_up();
            limit.as_millis()
        });
        assert_eq!(given_up.collect::<Vec<_>>(), [20, 40, 80, 160, 200, 200]);
        heartbeat_state.dialled(start);
        assert_eq!(heartbeat_state.handshake_limit(NodeId::new(1)), limits.dial);
        heartbeat_state.handshake_given_up();
        assert_eq!(heartbeat_state.handshake_limit(NodeId::new(3)), limits.dial, "another leader is another matter");
    }

    #[test]
    fn a_line_that_is_silent_for_long_is_given_up_and_an_answer_is_heard_for_a_moment() {
        let (limits, start, cluster) = (Liveness::LAN, Instant::now(), cluster_hash("blue"));
        let sources = sources();
        let contact_receiver = sources.contact_state.subscribe();
        let mut heartbeat_state = HeartbeatState::new(sources, start, limits);

        heartbeat_state.dialled(start);
        let sequence = Heartbeat::decode(&heartbeat_state.heartbeat(start).unwrap(), cluster).unwrap().sequence;
        let at = start + limits.heartbeat;
        heartbeat_state.acknowledged(&Ack { sequence, member: false }.encode(cluster)).unwrap();
        assert_eq!(Heartbeat::decode(&heartbeat_state.heartbeat(at).unwrap(), cluster).unwrap().echoed, sequence);
        heartbeat_state.end_turn(at);
        assert_eq!(*contact_receiver.borrow(), ContactState { in_contact: true, heard: true, member: false });
        // Contact counts from when the heartbeat was sent, however late the answer came.
        let late = start + limits.answer() + Duration::from_millis(1);
        heartbeat_state.end_turn(late);
        assert_eq!(*contact_receiver.borrow(), ContactState { in_contact: true, heard: false, member: false });
        assert!(heartbeat_state.acknowledged(&[0; ACK_BYTES]).is_err(), "no acknowledgement of this cluster");
        assert!(heartbeat_state.heartbeat(start + limits.answer()).is_ok());
        assert!(heartbeat_state.heartbeat(late).is_err());
        heartbeat_state.dialled(late);
        assert!(heartbeat_state.heartbeat(late).is_ok(), "a new line has its own time");
    }
}
