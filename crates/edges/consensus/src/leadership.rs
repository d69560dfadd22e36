//! The leader, as this node knows it.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use openraft::{Instant as _, Raft, RaftMetrics, ServerState};
use symphony_types::NodeId;
use tokio::sync::watch;

use crate::pacing::{LastHeard, Pacing, Role};
use crate::raft_state_machine::Machine;
use crate::raft_types::{LogIdOf, StoredMembershipOf, TypeConfig, VoteOf};
use crate::timing::Timing;
use crate::wire::Gate;

/// The leader, as this node knows it. Knowledge, not permission: actions that must not happen twice are fenced by a
/// token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The replica that this node follows.
    pub leader: Option<NodeId>,
    /// Whether that is this node.
    pub is_leader: bool,
    /// The Raft term. Not a fencing token: a restarted leader may resume in the same term with empty memory.
    pub term: u64,
    /// For a leader: when the last request was *sent* that a quorum has acknowledged.
    pub quorum_acked: Option<Instant>,
    /// Whether this node is the only voter, and so its own quorum.
    pub alone: bool,
}

impl Leadership {
    /// For a leader, the latest time at which it is known to have led with a quorum; `now` if it is its own quorum.
    #[must_use]
    pub fn confirmed(&self, now: Instant) -> Option<Instant> {
        if self.is_leader && self.alone { Some(now) } else { self.quorum_acked.filter(|_| self.is_leader) }
    }
}

/// Switches the library's ticks; they are on again when this is dropped.
struct Ticks {
    raft: Raft<TypeConfig, Machine>,
    on: bool,
}

impl Ticks {
    fn set(&mut self, on: bool) {
        if std::mem::replace(&mut self.on, on) != on {
            self.raft.runtime_config().tick(on);
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// Inputs of [`follow`].
pub(crate) struct LeaderSignals {
    /// Whether the disk hangs.
    pub(crate) stalled: watch::Receiver<bool>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) last_heard: Arc<LastHeard>,
}

/// Follows the library and the disk until the library stops, then closes the watch; also controls the library's clock
/// ([`Pacing`]). A leader that falls silent because its disk hangs is not shown as leader, even if the library, which
/// may be waiting for that disk, still names it. Watchers are notified only when leader or term change; `quorum_acked`
/// moves with every heartbeat and is read on demand.
///
/// The library updates its metrics after each of its turns, and the leader only when it changes. The metrics are
/// awaited only while it ticks.
pub(crate) async fn follow(
    raft: Raft<TypeConfig, Machine>,
    signals: LeaderSignals,
    timing: Timing,
    sender: watch::Sender<Leadership>,
) {
    let LeaderSignals { mut stalled, gate, last_heard } = signals;
    let (mut roles, mut metrics) = (raft.server_metrics(), raft.metrics());
    let mut ticks = Ticks { raft: raft.clone(), on: true };
    let mut pacing = Pacing::new(&timing);
    let (mut watched, mut ended) = (true, false);
    let mut leader_since: Option<Instant> = None;
    loop {
        let at = tokio::time::Instant::now().into_std();
        let reported = ReportedRole::of_roles(&roles.borrow_and_update());
        let (now, voters, running, is_stalled, in_step) = {
            let metrics = metrics.borrow_watched();
            let running = metrics.running_state.is_ok();
            let is_stalled = *stalled.borrow_and_update();
            let is_leader = running && metrics.state.is_leader() && !is_stalled;
            // The library's instant is only accessible as its age.
            let age = metrics.last_quorum_acked.filter(|_| is_leader).map(|acked| acked.elapsed());
            let quorum_acked = age.and_then(|age| at.checked_sub(age));
            let silent = is_stalled.then_some(metrics.id);
            let leader = metrics.current_leader.filter(|leader| running && Some(*leader) != silent).map(NodeId::new);
            let voters = metrics.membership_config.voter_ids().count();
            let now = Leadership { leader, is_leader, term: metrics.current_term, quorum_acked, alone: voters == 1 };
            (now, voters, running, is_stalled, reported == ReportedRole::of_metrics(&metrics))
        };
        leader_since = if now.is_leader { leader_since.or(Some(at)) } else { None };
        gate.note(
            leader_since.filter(|_| voters > 1).map(|since| now.quorum_acked.map_or(since, |acked| acked.max(since))),
        );
        sender.send_if_modified(|before| {
            let changed = (before.leader, before.is_leader, before.term) != (now.leader, now.is_leader, now.term);
            *before = now;
            changed
        });
        if !running || ended {
            return;
        }
        let role = if now.is_leader {
            Role::Leads { confirmed: now.confirmed(at) }
        } else if now.leader.is_some() && reported.follows && !is_stalled {
            Role::Follows { last_heard: last_heard.last() }
        } else {
            Role::Unsettled
        };
        // The library's role may be ahead of its metrics for a moment.
        let order = pacing.step(at, if in_step { role } else { Role::Unsettled });
        ticks.set(order.ticks);
        if order.heartbeat {
            // The library's queue is long; if it is still full, the next heartbeat will do.
            let _ = raft.trigger().heartbeat().now_or_never();
        }
        let again = async {
            match order.again {
                Some(again) => tokio::time::sleep_until(again.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = roles.changed() => ended = changed.is_err(),
            changed = metrics.changed(), if order.ticks => ended = changed.is_err(),
            // Closed if there is no disk to watch, and at the end.
            changed = stalled.changed(), if watched => watched = changed.is_ok(),
            () = again => {}
        }
    }
}

/// Fields that show whether two reports of the library are of the same moment.
#[derive(Debug, PartialEq, Eq)]
struct ReportedRole {
    follows: bool,
    state: ServerState,
    leader: Option<u64>,
    vote: VoteOf,
    members_at: Option<LogIdOf>,
}

impl ReportedRole {
    fn of_roles(roles: &RaftServerMetrics<TypeConfig>) -> Self {
        Self::new(roles.state, roles.current_leader, roles.vote, &roles.membership_config)
    }

    fn of_metrics(metrics: &RaftMetrics<TypeConfig>) -> Self {
        Self::new(metrics.state, metrics.current_leader, metrics.vote, &metrics.membership_config)
    }

    fn new(state: ServerState, leader: Option<u64>, vote: VoteOf, members: &StoredMembershipOf) -> Self {
        let follows = matches!(state, ServerState::Follower | ServerState::Learner);
        Self { follows, state, leader, vote, members_at: *members.log_id() }
    }
}
