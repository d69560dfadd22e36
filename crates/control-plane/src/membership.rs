//! Who belongs to the control group: changes that operators ask for, and a replica that finds itself left out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Command, Refusal};
use symphony_consensus::{MembershipError, ProposeError};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::{Duty, Member, NodeId};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::beat::Standing;
use crate::error::{CallError, Fatal};
use crate::host::SharedState;
use crate::propose::{Attempt, Proposer};

/// How long a new replica may take to catch up.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(60);
/// How long a replica that goes may take to hand over what it leads; then the rest is re-homed.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// How long a transfer of the group's leadership may take.
const TRANSFER_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked whether what was asked for has happened.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A change of the control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Who comes, and where it is reached.
    pub(crate) add: Option<(NodeId, String)>,
    /// Who goes.
    pub(crate) remove: Option<NodeId>,
}

/// Carries out changes, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    me: NodeId,
    proposer: Proposer,
    state: SharedState,
    one_at_a_time: Arc<Mutex<()>>,
}

fn refused(reason: String) -> Attempt {
    Attempt::Never(CallError::Membership(reason))
}

impl From<MembershipError> for Attempt {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Refused(reason) => refused(reason),
            MembershipError::Propose(ProposeError::Stopped) => Self::Never(CallError::Stopped),
            MembershipError::Propose(error) => Self::Again(error.to_string()),
        }
    }
}

impl Membership {
    pub(crate) fn new(me: NodeId, proposer: Proposer, state: SharedState) -> Self {
        Self { me, proposer, state, one_at_a_time: Arc::default() }
    }

    /// Carries a change out, if this replica leads: new replicas follow before they vote, and votes move by joint
    /// consensus. Returns the voters from then on. Repeating a change that was interrupted completes it.
    pub(crate) async fn change(&self, change: &Change) -> Result<BTreeSet<NodeId>, Attempt> {
        let _alone = self.one_at_a_time.lock().await;
        let group = self.proposer.group();
        let before = group.members();
        if let Some((node, _)) = change.add.as_ref().filter(|(node, _)| !before.voters.contains(node)) {
            let state = self.state.read();
            if state.removed_nodes().contains(node) {
                return Err(CallError::from(Refusal::NodeRemoved { node: *node }).into());
            }
            if state.nodes().contains_key(node) && !before.addresses.contains_key(node) {
                return Err(refused(format!(
                    "{node} is the id of another replica; give the new one an id that nobody had"
                )));
            }
        }
        let mut voters = before.voters.clone();
        voters.extend(change.add.as_ref().map(|(node, _)| *node));
        if let Some(node) = change.remove {
            // One that votes no more and is not marked as removed: the change was interrupted in between.
            let known = {
                let state = self.state.read();
                before.addresses.contains_key(&node)
                    || state.nodes().contains_key(&node)
                    || state.removed_nodes().contains(&node)
            };
            if !known {
                return Err(CallError::from(Refusal::UnknownNode { node }).into());
            }
            voters.remove(&node);
            if voters.is_empty() {
                return Err(refused(format!("{node} is the only replica that votes; add another one first")));
            }
            if node == self.me {
                return Err(self.give_leadership_away(&voters).await);
            }
        }
        if let Some((node, addr)) = change.add.as_ref().filter(|(node, _)| !before.voters.contains(node)) {
            tracing::info!(%node, addr, "a replica comes: it catches up first");
            match timeout(CATCH_UP_WITHIN, group.add_learner(*node, addr.clone())).await {
                Ok(caught_up) => caught_up?,
                Err(_) => {
                    return Err(refused(format!(
                        "{node} has not caught up within {CATCH_UP_WITHIN:?}; is it running at {addr}, with scheduler.join = true? It follows and does not vote yet"
                    )));
                }
            }
        }
        if let Some(node) = change.remove {
            self.drain(node).await?;
        }
        if voters != before.voters {
            group.change_voters(voters.clone()).await?;
        } else if let Some(node) = change.remove.filter(|node| group.members().addresses.contains_key(node)) {
            group.remove_learners([node].into()).await?;
        }
        if let Some(node) = change.remove {
            self.proposer.propose_here(&Command::RemoveNode { node, avoid: None }).await?;
        }
        tracing::info!(?voters, "the control group has changed");
        Ok(voters)
    }

    /// A leader that goes hands the group's leadership over first; the next leader carries the change out.
    async fn give_leadership_away(&self, to: &BTreeSet<NodeId>) -> Attempt {
        match transfer_leadership(&self.proposer, &self.state, self.me, to).await {
            true => Attempt::Again("the control group's leadership was handed over".to_owned()),
            false => refused("nobody took over the control group's leadership; are the other replicas up?".to_owned()),
        }
    }

    /// Lets a replica that goes hand over what it leads, if it is alive.
    async fn drain(&self, node: NodeId) -> Result<(), Attempt> {
        if !self.state.read().nodes().contains_key(&node) {
            return Ok(());
        }
        let (member, duty) = (Member::Scheduler(node), Duty::Draining);
        self.proposer.propose_here(&Command::SetDuty { member, duty }).await?;
        let give_up = Instant::now() + DRAIN_WITHIN;
        while Instant::now() < give_up {
            {
                let state = self.state.read();
                if !state.subclusters().values().any(|s| s.leader.is_some_and(|l| l.node == node)) {
                    return Ok(());
                }
            }
            sleep(LOOK_AGAIN_AFTER).await;
        }
        tracing::warn!(%node, "it has not handed everything over within {DRAIN_WITHIN:?}; the rest is re-homed");
        Ok(())
    }
}

/// Asks living voters, one after the other, to lead the control group instead of this replica. True once another one does.
pub(crate) async fn transfer_leadership(
    proposer: &Proposer,
    state: &SharedState,
    me: NodeId,
    to: &BTreeSet<NodeId>,
) -> bool {
    let up = |node: &NodeId| *node != me && state.read().nodes().get(node).is_some_and(|n| n.up);
    let willing = |node: &NodeId| state.read().nodes().get(node).is_some_and(|n| n.takes_leads());
    let mut candidates: Vec<_> = to.iter().copied().filter(up).collect();
    candidates.sort_by_key(|node| (!willing(node), *node));
    let mut leadership = proposer.group().leadership();
    let give_up = Instant::now() + TRANSFER_WITHIN;
    for candidate in candidates.iter().cycle() {
        if Instant::now() >= give_up {
            break;
        }
        if proposer.group().transfer_leader(*candidate).await.is_err() {
            return false;
        }
        let changed = leadership.wait_for(|now| !now.is_leader && now.leader.is_some_and(|leader| leader != me));
        if let Ok(Ok(_)) = timeout(TRANSFER_WITHIN / 4, changed).await {
            return true;
        }
    }
    false
}

/// How often a replica without contact looks whether it was removed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long one replica may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Ends when the control group is found to exist without this replica, which had a part in it.
pub(crate) async fn left_out(
    me: NodeId,
    proposer: Proposer,
    standing: watch::Receiver<Standing>,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let look = async {
        loop {
            sleep(LOOK_EVERY).await;
            let Standing { in_contact, member } = *standing.borrow();
            if (in_contact && member) || !proposer.group().has_past() {
                continue;
            }
            for node in proposer.others() {
                let Ok(mut client) = proposer.client(node) else { continue };
                let asked = timeout(ANSWER_WITHIN, client.get(pb::GetRequest { linearizable: true })).await;
                let Ok(Ok(answer)) = asked else { continue };
                let Ok(view) = View::try_from(answer.into_inner()) else { continue };
                if !view.group.is_empty() && !view.group.contains_key(&me) {
                    let words = Refusal::NodeRemoved { node: me };
                    fatal.send_replace(Some(Fatal(words.to_string())));
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = look => {}
        () = stop.cancelled() => {}
    }
}
