//! Who leads, as this node knows it.

use std::sync::Arc;
use std::time::Instant;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{Instant as _, RaftMetrics};
use symphony_types::NodeId;
use tokio::sync::watch;

use crate::raft_types::TypeConfig;
use crate::wire::Gate;

/// Who leads, as this node knows it. Knowledge, not permission: what must not happen twice is fenced by a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The replica that this node follows.
    pub leader: Option<NodeId>,
    /// Whether that is this node.
    pub is_leader: bool,
    /// The Raft term. Not a fencing number: a restarted leader may resume in the same term with empty memory.
    pub term: u64,
    /// For a leader, when the last request was *sent* that a quorum acknowledged.
    pub quorum_acked: Option<Instant>,
    /// Whether this node is the only voter, and so its own quorum.
    pub alone: bool,
}

impl Leadership {
    /// For a leader, up to when it is known to have led with a quorum; `now` if it is its own quorum.
    #[must_use]
    pub fn confirmed(&self, now: Instant) -> Option<Instant> {
        if self.is_leader && self.alone { Some(now) } else { self.quorum_acked.filter(|_| self.is_leader) }
    }
}

/// Follows the library's metrics and the disk until the library stops, then closes the watch. A leader whose disk hangs
/// and that keeps quiet is no leader any more, whatever the library, which may be waiting for that disk, still says. Wakes watchers only when leader or term change;
/// `quorum_acked` moves with every heartbeat and is read when wanted.
pub(crate) async fn follow(
    mut metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    mut stalled: watch::Receiver<bool>,
    gate: Arc<Gate>,
    told: watch::Sender<Leadership>,
) {
    let mut watched = true;
    let mut leader_since: Option<Instant> = None;
    loop {
        let (now, voters, running) = {
            let metrics = metrics.borrow_watched();
            let running = metrics.running_state.is_ok();
            let is_stalled = *stalled.borrow_and_update();
            let is_leader = running && metrics.state.is_leader() && !is_stalled;
            // The library's instant has no accessor but its age.
            let age = metrics.last_quorum_acked.filter(|_| is_leader).map(|acked| acked.elapsed());
            let quorum_acked = age.and_then(|age| tokio::time::Instant::now().into_std().checked_sub(age));
            let silent = is_stalled.then_some(metrics.id);
            let leader = metrics.current_leader.filter(|leader| running && Some(*leader) != silent).map(NodeId::new);
            let voters = metrics.membership_config.voter_ids().count();
            let now = Leadership { leader, is_leader, term: metrics.current_term, quorum_acked, alone: voters == 1 };
            (now, voters, running)
        };
        leader_since =
            if now.is_leader { leader_since.or_else(|| Some(tokio::time::Instant::now().into_std())) } else { None };
        gate.note(
            leader_since.filter(|_| voters > 1).map(|since| now.quorum_acked.map_or(since, |acked| acked.max(since))),
        );
        told.send_if_modified(|before| {
            let changed = (before.leader, before.is_leader, before.term) != (now.leader, now.is_leader, now.term);
            *before = now;
            changed
        });
        if !running {
            return;
        }
        tokio::select! {
            biased;
            changed = metrics.changed() => if changed.is_err() { return },
            // Closed where there is no disk to watch, and at the end.
            changed = stalled.changed(), if watched => watched = changed.is_ok(),
        }
    }
}
