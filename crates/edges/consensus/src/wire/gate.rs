//! Silences a leader that has lost its quorum, so that the followers it still reaches can elect another.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Closes all log and snapshot traffic of such a leader in the same time slots as the library's heartbeats.
///
/// A follower that still hears a leader does not vote for another. For a leader without a quorum the library silences
/// heartbeats in phases of `probe`, but not replication retries and snapshots; with entries pending and a one-way
/// partition, those alone would keep the deadlock. Counted from the last acknowledgement by a quorum plus the lease,
/// even slots of length `probe` are closed and odd ones open.
///
/// A leader whose disk hangs sends nothing at all, heartbeats included.
#[derive(Debug)]
pub(crate) struct Gate {
    lease: Duration,
    probe: Duration,
    /// Since when the leader has had no acknowledgement; `None` for followers and for a group of one voter.
    since: Mutex<Option<Instant>>,
    /// Whether the disk hangs.
    stalled: watch::Receiver<bool>,
}

impl Gate {
    pub(crate) fn new(lease: Duration, probe: Duration, stalled: watch::Receiver<bool>) -> Self {
        Self { lease, probe, since: Mutex::new(None), stalled }
    }

    /// Whether the disk hangs, so that nothing may be sent that keeps followers loyal.
    pub(crate) fn is_stalled(&self) -> bool {
        *self.stalled.borrow()
    }

    /// Sets the time of the last acknowledgement by a quorum, or of becoming leader.
    pub(crate) fn note(&self, since: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Whether log and snapshot traffic may be sent.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        #[cfg(feature = "planted-faults")]
        if crate::planted::is(crate::planted::Bug::NoQuorumGate) {
            return true;
        }
        if self.is_stalled() {
            return false;
        }
        let Some(since) = *self.since.lock().unwrap_or_else(PoisonError::into_inner) else { return true };
        let silent = now.saturating_duration_since(since);
        let Some(overdue) = silent.checked_sub(self.lease) else { return true };
        (overdue.as_nanos() / self.probe.as_nanos().max(1)) % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_without_quorum_alternates_between_silence_and_probes() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let (disk, stalled) = watch::channel(false);
        let gate = Gate::new(ms(120), ms(240), stalled);
        assert!(gate.is_open(start), "a follower is never gated");
        gate.note(Some(start));
        for (after, open) in
            [(0, true), (119, true), (120, false), (359, false), (360, true), (599, true), (600, false)]
        {
            assert_eq!(gate.is_open(start + ms(after)), open, "{after} ms after the last acknowledgement");
        }
        gate.note(Some(start + ms(130)));
        assert!(gate.is_open(start + ms(200)), "an acknowledgement opens it again");
        disk.send_replace(true);
        assert!(!gate.is_open(start + ms(200)), "a hung disk closes it whatever the quorum says");
    }
}
