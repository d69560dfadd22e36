//! What this replica's beats say, and what their acknowledgements mean; whoever sends and waits between the turns.

use std::io;
use std::time::Instant;

use symphony_consensus::Leadership;
use symphony_types::{BootId, NodeId};
use tokio::sync::watch;

use super::message::{ACK_BYTES, Ack, BEAT_BYTES, Beat};
use super::mute::Mute;
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

/// Who this replica is, and what it looks at.
pub(crate) struct Facts {
    pub(crate) cluster: u64,
    pub(crate) me: NodeId,
    pub(crate) boot: BootId,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) standing: watch::Sender<Standing>,
    /// On when this replica should be taken for dead: no beats then.
    pub(crate) mute: Mute,
}

/// Writes beats, reads acknowledgements, and keeps the standing.
pub(crate) struct Herald {
    facts: Facts,
    contact: Contact,
    limits: Liveness,
    /// When the line was dialled, or the last beat sent that was answered.
    answered: Instant,
    /// The newest beat that was acknowledged.
    echoed: u64,
}

impl Herald {
    pub(crate) fn new(facts: Facts, now: Instant, limits: Liveness) -> Self {
        Self { facts, contact: Contact::new(now, limits.unconfirmed_max), limits, answered: now, echoed: 0 }
    }

    /// Begins a turn: who is to hear a beat, if anybody.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<NodeId> {
        let leadership = *self.facts.leadership.borrow();
        if let Some(at) = leadership.confirmed(now) {
            self.contact.confirmed(at);
            self.tell(|standing| standing.member = true);
        }
        leadership.leader.filter(|&leader| leader != self.facts.me && !self.facts.mute.is_on())
    }

    /// Whether nobody is to hear beats before the leadership changes.
    pub(crate) fn rests(&self) -> bool {
        self.facts.leadership.borrow().leader.is_none_or(|leader| leader == self.facts.me)
    }

    /// Waits for another leadership; for ever if there will be none.
    pub(crate) async fn led_otherwise(&mut self) {
        if self.facts.leadership.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// There is a new line.
    pub(crate) const fn dialled(&mut self, now: Instant) {
        self.answered = now;
    }

    /// The next beat, sent now.
    ///
    /// # Errors
    /// If the line has been silent for too long: packets that a partition took are sent again ever more rarely, and an old
    /// line may stay silent for as long again as the partition lasted.
    pub(crate) fn beat(&mut self, now: Instant) -> io::Result<[u8; BEAT_BYTES]> {
        if now.saturating_duration_since(self.answered) > self.limits.answer() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let Facts { cluster, me: node, boot, .. } = self.facts;
        let (applied, checkpoint) = (*self.facts.applied.borrow(), self.facts.checkpoints.newest());
        let sequence = self.contact.beat(now);
        Ok(Beat { node, boot, applied, sequence, checkpoint, echoed: self.echoed }.encode(cluster))
    }

    /// Takes an acknowledgement that has arrived.
    ///
    /// # Errors
    /// If the bytes are none.
    pub(crate) fn acknowledged(&mut self, bytes: &[u8; ACK_BYTES]) -> io::Result<()> {
        let ack = Ack::decode(bytes, self.facts.cluster).ok_or(io::ErrorKind::InvalidData)?;
        self.echoed = self.echoed.max(ack.sequence);
        // What was long under way says how the line was: both ends give up one that hardly moves.
        if let Some(sent) = self.contact.acknowledged(ack.sequence) {
            self.answered = self.answered.max(sent);
        }
        self.tell(|standing| standing.member = ack.member);
        Ok(())
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&self, now: Instant) {
        let (in_contact, heard) = (self.contact.holds(now), self.contact.within(now, self.limits.answer()));
        self.tell(|standing| (standing.in_contact, standing.heard) = (in_contact, heard));
    }

    fn tell(&self, change: impl FnOnce(&mut Standing)) {
        self.facts.standing.send_if_modified(|standing| {
            let before = *standing;
            change(standing);
            *standing != before
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::message::cluster_hash;
    use super::*;

    #[test]
    fn a_line_that_is_silent_for_long_is_given_up_and_an_answer_is_heard_for_a_moment() {
        let (limits, start) = (Liveness::LAN, Instant::now());
        let (_lead, leadership) = watch::channel(Leadership::default());
        let (_apply, applied) = watch::channel(0);
        let (standing, told) = watch::channel(Standing { in_contact: true, heard: false, member: true });
        let cluster = cluster_hash("blue");
        let (me, boot, mute) = (NodeId::new(2), BootId::new(20), Mute::default());
        let facts =
            Facts { cluster, me, boot, leadership, applied, checkpoints: Checkpoints::default(), standing, mute };
        let mut herald = Herald::new(facts, start, limits);

        herald.dialled(start);
        let sequence = Beat::decode(&herald.beat(start).unwrap(), cluster).unwrap().sequence;
        let at = start + limits.beat;
        herald.acknowledged(&Ack { sequence, member: false }.encode(cluster)).unwrap();
        assert_eq!(Beat::decode(&herald.beat(at).unwrap(), cluster).unwrap().echoed, sequence);
        herald.end_turn(at);
        assert_eq!(*told.borrow(), Standing { in_contact: true, heard: true, member: false });
        // It counts from when the beat was sent, however late the answer came.
        let late = start + limits.answer() + Duration::from_millis(1);
        herald.end_turn(late);
        assert_eq!(*told.borrow(), Standing { in_contact: true, heard: false, member: false });
        assert!(herald.acknowledged(&[0; ACK_BYTES]).is_err(), "no acknowledgement of this cluster");
        assert!(herald.beat(start + limits.answer()).is_ok());
        assert!(herald.beat(late).is_err());
        herald.dialled(late);
        assert!(herald.beat(late).is_ok(), "a new line has its own time");
    }
}
