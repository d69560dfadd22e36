//! What this replica's beats say, and what their acknowledgements mean; whoever sends and waits between the turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use symphony_consensus::Leadership;
use symphony_types::{BootId, NodeId};
use tokio::sync::watch;

use super::message::{ACK_BYTES, Ack, BEAT_BYTES, Beat};
use crate::checkpoints::Checkpoints;
use crate::contact::Contact;

/// How this replica stands with the control group, as its beats are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// A leader with a quorum was there lately: sub-clusters may be led.
    pub(crate) in_contact: bool,
    /// The leader knows this replica as a member of the group.
    pub(crate) member: bool,
}

/// Who this replica is, and what it looks at.
pub(crate) struct Facts {
    pub(crate) cluster: u64,
    pub(crate) me: NodeId,
    pub(crate) boot: BootId,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) standing: watch::Sender<Standing>,
    /// Set when this replica should be taken for dead: no beats then.
    pub(crate) mute: Arc<AtomicBool>,
}

/// Writes beats, reads acknowledgements, and keeps the standing.
pub(crate) struct Herald {
    facts: Facts,
    contact: Contact,
}

impl Herald {
    pub(crate) fn new(facts: Facts, now: Instant, unconfirmed_max: Duration) -> Self {
        Self { facts, contact: Contact::new(now, unconfirmed_max) }
    }

    /// Begins a turn: who is to hear a beat, if anybody.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<NodeId> {
        let leadership = *self.facts.leadership.borrow();
        if let Some(at) = leadership.confirmed(now) {
            self.contact.confirmed(at);
            self.tell(|standing| standing.member = true);
        }
        leadership.leader.filter(|&leader| leader != self.facts.me && !self.facts.mute.load(Ordering::Relaxed))
    }

    /// The next beat, sent now.
    pub(crate) fn beat(&mut self, now: Instant) -> [u8; BEAT_BYTES] {
        let Facts { cluster, me: node, boot, .. } = self.facts;
        let (applied, checkpoint) = (*self.facts.applied.borrow(), self.facts.checkpoints.newest());
        let sequence = self.contact.beat(now);
        Beat { node, boot, applied, sequence, checkpoint }.encode(cluster)
    }

    /// Takes an acknowledgement; false if the bytes are none.
    pub(crate) fn acknowledged(&mut self, bytes: &[u8; ACK_BYTES]) -> bool {
        let Some(ack) = Ack::decode(bytes, self.facts.cluster) else { return false };
        self.contact.acknowledged(ack.sequence);
        self.tell(|standing| standing.member = ack.member);
        true
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&self, now: Instant) {
        let in_contact = self.contact.holds(now);
        self.tell(|standing| standing.in_contact = in_contact);
    }

    fn tell(&self, change: impl FnOnce(&mut Standing)) {
        self.facts.standing.send_if_modified(|standing| {
            let before = *standing;
            change(standing);
            *standing != before
        });
    }
}
