//! Members of the control group: changes that operators ask for, and the end of a removed replica.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Action, Command, NewReplica, Operation, Refusal};
use symphony_consensus::{Members, MembershipError, ProposeError};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::{Duty, Member, NodeId};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::operations::Operations;
use crate::error::{CallError, Fatal};
use crate::failure_detector::ContactState;
use crate::group::propose::{AttemptError, Proposer};
use crate::group::state_machine::SharedState;

/// How long a new replica may take to catch up.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(60);
/// How long a replica that leaves may take to hand over its leads; then the rest is re-homed.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// How long a transfer of the group's leadership may take.
const TRANSFER_WITHIN: Duration = Duration::from_secs(2);
/// How long the votes may take to move, once enough of the new voters are up.
const MOVE_WITHIN: Duration = Duration::from_secs(10);
/// How often the progress of a change is checked.
const CHECK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Carries out membership changes, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    me: NodeId,
    proposer: Proposer,
    state: SharedState,
    operations: Operations,
    one_at_a_time: Arc<Mutex<()>>,
}

fn refused(reason: String) -> AttemptError {
    AttemptError::Fatal(CallError::Membership(reason))
}

impl From<MembershipError> for AttemptError {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Refused(reason) => refused(reason),
            MembershipError::Propose(ProposeError::Stopped) => Self::Fatal(CallError::Stopped),
            MembershipError::Propose(error) => Self::Retry(error.to_string()),
        }
    }
}

impl Membership {
    pub(crate) fn new(me: NodeId, proposer: Proposer, state: SharedState, operations: Operations) -> Self {
        Self { me, proposer, state, operations, one_at_a_time: Arc::default() }
    }

    /// Carries a change out if this replica leads: new replicas catch up before they vote, and votes move by joint
    /// consensus. Returns the new voters. Repeating an interrupted change completes it; a completed change, under the
    /// same id, is not repeated.
    pub(crate) async fn change(&self, operation: &Operation) -> Result<BTreeSet<NodeId>, AttemptError> {
        let Action::ChangeReplicas { add, remove } = &operation.action else {
            return Err(refused(format!("to {} is no change of the control group", operation.action)));
        };
        let _alone = self.one_at_a_time.lock().await;
        let group = self.proposer.group();
        // A newly elected leader may not have applied earlier entries yet.
        group.read_index().await.map_err(|error| AttemptError::Retry(error.to_string()))?;
        // Before any change: the operation itself enters the log only when all is done.
        if let Some(outcome) = self.state.read().answer_to(operation) {
            return outcome.map(|_| group.members().voters).map_err(|error| CallError::from(error).into());
        }
        let before = group.members();
        let new = add.as_ref().filter(|new| !before.voters.contains(&new.node));
        if let Some(add) = add {
            self.check_added(add, &before)?;
        }
        let mut voters = before.voters.clone();
        voters.extend(add.as_ref().map(|new| new.node));
        if let Some(node) = *remove {
            self.check_removed(node, &before)?;
            voters.remove(&node);
            if voters.is_empty() {
                return Err(refused(format!("{node} is the only replica that votes; add another one first")));
            }
            if node == self.me {
                return Err(self.give_leadership_away(&voters).await);
            }
        }
        if let Some(new) = new {
            self.catch_up(new, &before).await?;
        }
        self.are_able(&voters)?;
        let former = match *remove {
            Some(node) => self.drain(node, operation).await?,
            None => None,
        };
        let moved = self.move_votes(&before.voters, &voters, *remove).await;
        if let (Err(_), Some(former)) = (&moved, former) {
            // It stays after all, and continues as before.
            let _ = self.proposer.propose_here(&Command::Operate(self.operations.step(operation, former))).await;
        }
        moved?;
        self.proposer.propose_here(&Command::Operate(operation.clone())).await?;
        tracing::info!(?voters, "the control group has changed");
        Ok(voters)
    }

    /// Refuses a new replica under another one's id, and a voter at another address.
    fn check_added(
        &self,
        NewReplica { node, control_addr }: &NewReplica,
        before: &Members,
    ) -> Result<(), AttemptError> {
        let known = before.addresses.get(node);
        if before.voters.contains(node) {
            return match known.filter(|known| *known != control_addr) {
                Some(known) => Err(refused(format!(
                    "{node} votes at {known}; to move it to {control_addr}, replace it by one with an id that nobody had"
                ))),
                None => Ok(()),
            };
        }
        let state = self.state.read();
        if state.removed_nodes().contains(node) {
            return Err(CallError::from(Refusal::NodeRemoved { node: *node }).into());
        }
        if state.nodes().contains_key(node) && known.is_none() {
            return Err(refused(format!(
                "{node} is the id of another replica; give the new one an id that nobody had"
            )));
        }
        Ok(())
    }

    fn check_removed(&self, node: NodeId, before: &Members) -> Result<(), AttemptError> {
        let state = self.state.read();
        // A removal that was interrupted between its two steps is visible in the state only.
        let known = state.nodes().contains_key(&node) || state.removed_nodes().contains(&node);
        if !known && !before.addresses.contains_key(&node) {
            return Err(CallError::from(Refusal::UnknownNode { node }).into());
        }
        Ok(())
    }

    /// Adds the replica as a learner, and waits until it has the log and has registered: from its first vote on the
    /// state must know it, should its disk be lost.
    async fn catch_up(
        &self,
        NewReplica { node, control_addr: addr }: &NewReplica,
        before: &Members,
    ) -> Result<(), AttemptError> {
        tracing::info!(%node, addr, "a replica comes: it catches up first");
        let group = self.proposer.group();
        if before.addresses.get(node).is_some_and(|known| known != addr) {
            // A learner that never answered, perhaps at a wrong address: the group would keep the first address that it
            // was given.
            group.remove_learners([*node].into()).await?;
        }
        let caught_up = async {
            group.add_learner(*node, addr.clone()).await?;
            while !self.is_up(node) {
                sleep(CHECK_AGAIN_AFTER).await;
            }
            Ok(())
        };
        timeout(CATCH_UP_WITHIN, caught_up).await.unwrap_or_else(|_| {
            Err(refused(format!(
                "{node} has not caught up and registered within {CATCH_UP_WITHIN:?}; is it running at {addr}, with scheduler.join = true? It follows and does not vote yet: \
                 give the command again, with another address if this one is wrong, or take {node} out with `symphony members remove`"
            )))
        })
    }

    /// Refuses a set of voters without a live majority: after the change nothing could be committed, not even its
    /// undoing.
    fn are_able(&self, voters: &BTreeSet<NodeId>) -> Result<(), AttemptError> {
        let down = voters.iter().filter(|&node| *node != self.me && !self.is_up(node));
        let down: Vec<_> = down.map(ToString::to_string).collect();
        if 2 * down.len() < voters.len() {
            return Ok(());
        }
        Err(refused(format!(
            "of the {} replicas that would vote, {} would be down: no majority, and nothing could be agreed any more; bring them back or replace them first",
            voters.len(),
            down.join(" and ")
        )))
    }

    fn is_up(&self, node: &NodeId) -> bool {
        self.state.read().nodes().get(node).is_some_and(|known| known.up)
    }

    /// Makes these replicas the voters, and drops the one that leaves.
    async fn move_votes(
        &self,
        from: &BTreeSet<NodeId>,
        to: &BTreeSet<NodeId>,
        remove: Option<NodeId>,
    ) -> Result<(), AttemptError> {
        let group = self.proposer.group();
        let moves = async {
            if from != to {
                group.change_voters(to.clone()).await
            } else if let Some(node) = remove.filter(|node| group.members().addresses.contains_key(node)) {
                group.remove_learners([node].into()).await
            } else {
                Ok(())
            }
        };
        match timeout(MOVE_WITHIN, moves).await {
            Ok(moved) => Ok(moved?),
            Err(_) => Err(AttemptError::Retry(format!("the votes have not moved within {MOVE_WITHIN:?}"))),
        }
    }

    /// A leader that leaves first transfers the group's leadership; the next leader carries out the change.
    async fn give_leadership_away(&self, to: &BTreeSet<NodeId>) -> AttemptError {
        match transfer_leadership(&self.proposer, &self.state, self.me, to).await {
            true => AttemptError::Retry("the control group's leadership was handed over".to_owned()),
            false => refused("nobody took over the control group's leadership; are the other replicas up?".to_owned()),
        }
    }

    /// Lets a leaving replica, if alive, hand over its leads. Returns the action that restores its former duty.
    async fn drain(&self, node: NodeId, operation: &Operation) -> Result<Option<Action>, AttemptError> {
        let member = Member::Scheduler(node);
        let former = match self.state.read().nodes().get(&node).map(|known| known.duty) {
            None => return Ok(None),
            Some(Duty::Draining) => None,
            Some(duty) => Some(Action::SetDuty { member, duty }),
        };
        let drain = Action::SetDuty { member, duty: Duty::Draining };
        self.proposer.propose_here(&Command::Operate(self.operations.step(operation, drain))).await?;
        let give_up = Instant::now() + DRAIN_WITHIN;
        while Instant::now() < give_up {
            {
                let state = self.state.read();
                if !state.subclusters().values().any(|s| s.leader.is_some_and(|l| l.node == node)) {
                    return Ok(former);
                }
            }
            sleep(CHECK_AGAIN_AFTER).await;
        }
        tracing::warn!(%node, "it has not handed everything over within {DRAIN_WITHIN:?}; the rest is re-homed");
        Ok(former)
    }
}

/// Asks live voters, one after the other, to lead the control group instead of this replica. True once one does.
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

/// How often a replica without contact checks whether it was removed.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How long one replica may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Returns when the control group exists without this replica, a former member.
pub(crate) async fn left_out(
    me: NodeId,
    proposer: Proposer,
    contact_state: watch::Receiver<ContactState>,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let look = async {
        loop {
            sleep(POLL_EVERY).await;
            let ContactState { in_contact, member, .. } = *contact_state.borrow();
            if (in_contact && member) || !proposer.group().has_past() {
                continue;
            }
            for node in proposer.others() {
                let Ok(mut client) = proposer.client(node) else { continue };
                let response = timeout(ANSWER_WITHIN, client.get(pb::GetRequest { linearizable: true })).await;
                let Ok(Ok(answer)) = response else { continue };
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
