//! One replica of the control group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{
    ChangeMembershipError, ClientWriteError, Fatal, ForwardToLeader, InitializeError, LinearizableReadError, RaftError,
};
use openraft::{BasicNode, ChangeMembers, Config, Raft, ReadPolicy, SnapshotPolicy};
use symphony_types::NodeId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{Engine, GroupConfig, validate_address};
use crate::disk;
use crate::error::{MembershipError, ProposeError, ReadError, StartError};
use crate::leadership::{self, LeaderSignals, Leadership};
use crate::limits::{APPEND_ENTRIES_MAX, COMMAND_BYTES_MAX, CORE_ENDS_WITHIN, MESSAGE_BYTES_MAX};
use crate::log::store::LogStore;
use crate::pacing::LastHeard;
use crate::participation::Participation;
use crate::raft_state_machine::Machine;
use crate::raft_types::{Command, TypeConfig};
use crate::stall::StallWatch;
use crate::state_machine::StateMachine;
use crate::timing::Timing;
use crate::wire::{Addressing, Gate, Lanes, RaftService, Received};
use crate::{RaftServer, wire};

/// A command that a quorum holds and this node has applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposed {
    /// Its log index.
    pub index: u64,
    /// What the state machine answered.
    pub response: Vec<u8>,
}

/// The members of a control group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Members whose votes make a quorum.
    pub voters: BTreeSet<NodeId>,
    /// The addresses of all members, learners included: `host:port` of the control gRPC.
    pub addresses: BTreeMap<NodeId, String>,
}

/// One replica of the control group; a cheap handle. Call [`shutdown`](Self::shutdown) when done: dropping handles
/// alone ends nothing.
#[derive(Clone)]
pub struct ControlGroup {
    me: Addressing,
    raft: Raft<TypeConfig, Machine>,
    log: LogStore,
    /// 0, or the index of the state from a backup.
    log_begins_at: u64,
    leadership: watch::Receiver<Leadership>,
    timing: Timing,
    participation: Arc<Participation>,
    received: Arc<Received>,
    last_heard: Arc<LastHeard>,
    /// None after the shutdown.
    stall_watch: Arc<Mutex<Option<StallWatch>>>,
}

impl fmt::Debug for ControlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlGroup").field("me", &self.me).field("leadership", &*self.leadership.borrow()).finish()
    }
}

impl ControlGroup {
    /// Opens the replica's disk, restores `state` from it, and joins the group. If all logs are empty, the voters
    /// found the group, each with the same first entry.
    ///
    /// The replica answers others only once [`service`](Self::service) is mounted and reachable.
    ///
    /// # Errors
    /// A configuration that contradicts itself; a disk that fails, is damaged, or belongs to another node.
    pub async fn start(config: GroupConfig, state: impl StateMachine) -> Result<Self, StartError> {
        config.validate().map_err(StartError::Config)?;
        let raft_config = raft_config(&config).map_err(StartError::Raft)?;
        let me = Addressing { cluster: config.cluster.clone(), node: config.node.get() };
        let opening = config.clone();
        let blocking = config.environment.blocking();
        let opened = blocking.run(move || {
            let opened = disk::open(&opening, Box::new(state))?;
            Ok::<_, StartError>((opened, disk::restore_mark::log_begins_at(&opening.data_dir)?))
        });
        let ((log, machine), log_begins_at) = opened.await.map_err(|error| StartError::Raft(error.to_string()))??;
        let machine = machine.blocking(blocking);

        let (silent, stalled) = watch::channel(false);
        let gate = Gate::new(config.timing.election_max, config.timing.quorum_loss_probe, stalled.clone());
        let gate = Arc::new(gate);
        let lanes = Lanes::new(me.clone(), config.net.clone(), config.timing.clone(), gate.clone());
        let raft = match Raft::new(me.node, Arc::new(raft_config), lanes, log.clone(), machine).await {
            Ok(raft) => raft,
            Err(error) => {
                log.close().await;
                return Err(StartError::Raft(error.to_string()));
            }
        };
        let (leadership_sender, leadership) = watch::channel(Leadership::default());
        let last_heard = Arc::<LastHeard>::default();
        let signals = LeaderSignals { stalled, gate, last_heard: Arc::clone(&last_heard) };
        tokio::spawn(leadership::follow(raft.clone(), signals, config.timing.clone(), leadership_sender));
        // A log in memory has no disk that could hang.
        let watch = (config.engine != Engine::Memory)
            .then(|| StallWatch::start(log.pulse(), &config.timing, raft.clone(), silent))
            .transpose();
        let participation = Arc::new(Participation::new(raft.clone(), log.clone(), config.data_dir.clone(), blocking));
        let stall_watch = Arc::default();
        let (timing, received) = (config.timing.clone(), Arc::new(Received::new(&config.timing)));
        let group =
            Self { me, raft, log, log_begins_at, leadership, timing, participation, received, last_heard, stall_watch };
        match watch {
            Ok(watch) => *group.stall_watch.lock().unwrap_or_else(PoisonError::into_inner) = watch,
            Err(error) => {
                group.shutdown().await;
                return Err(StartError::Raft(format!("no thread to watch the disk: {error}")));
            }
        }
        if let Err(error) = group.found(&config.voters).await {
            group.shutdown().await;
            return Err(error);
        }
        Ok(group)
    }

    /// Writes the first membership if this node is among the voters and its log is empty. All voters write the same
    /// entry at the same position, so it does not matter which are first. Called by [`start`](Self::start) with the
    /// configured voters. A caller that must first make sure that no group exists configures none, and has a
    /// [`Newcomer`](crate::founding::Newcomer) call this later.
    ///
    /// # Errors
    /// The node has stopped.
    pub async fn found(&self, voters: &BTreeMap<NodeId, String>) -> Result<(), StartError> {
        if !voters.contains_key(&NodeId::new(self.me.node)) {
            return Ok(());
        }
        let members: BTreeMap<u64, BasicNode> =
            voters.iter().map(|(node, address)| (node.get(), BasicNode::new(address.clone()))).collect();
        match self.raft.initialize(members).await {
            // The log is not empty or a vote was given: the group exists and this node is part of it.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(StartError::Raft(error.to_string())),
        }
    }

    /// Makes a quorum commit `command`; returns once this node, the leader, has applied it.
    ///
    /// # Errors
    /// See [`ProposeError`]; after a timeout the outcome is unknown.
    pub async fn propose(&self, command: Vec<u8>) -> Result<Proposed, ProposeError> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(ProposeError::TooLarge { got: command.len(), max: COMMAND_BYTES_MAX });
        }
        let command = Command(command.into());
        let give_up = Instant::now() + self.timing.election_max;
        loop {
            match self.try_propose(command.clone()).await {
                // A leader that was just elected, or whose followers were briefly slow, gets one lease to hear from a
                // quorum: the command was not taken, so nothing is done twice.
                Err(ProposeError::NoQuorum) if Instant::now() < give_up => {
                    tokio::time::sleep(self.timing.heartbeat).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_propose(&self, command: Command) -> Result<Proposed, ProposeError> {
        let waited = self.timing.proposal_timeout;
        match tokio::time::timeout(waited, self.raft.client_write(command)).await {
            Ok(Ok(written)) => Ok(Proposed { index: written.log_id.index, response: written.data.0 }),
            Ok(Err(error)) => Err(self.propose_error(error)),
            Err(_) => Err(ProposeError::Timeout { waited }),
        }
    }

    /// Resolves once this node has applied everything that was committed before the call; reads of its state are then
    /// linearizable. Relies on a quorum, not on clocks. Returns an index up to which at least the state is applied.
    ///
    /// # Errors
    /// This node does not lead, or no quorum confirmed that it does.
    pub async fn read_index(&self) -> Result<u64, ReadError> {
        #[cfg(feature = "planted-faults")]
        if crate::planted::is(crate::planted::Bug::ReadsWithoutQuorum) {
            return Ok(0);
        }
        let waited = self.timing.proposal_timeout;
        match tokio::time::timeout(waited, self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
            Ok(Ok(read)) => Ok(read.index()),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                Err(ReadError::NotLeader { leader: self.other_leader(&forward) })
            }
            Ok(Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) | Err(_) => {
                Err(ReadError::NoQuorum { waited })
            }
            Ok(Err(RaftError::Fatal(_))) => Err(ReadError::Stopped),
        }
    }

    /// The leader as this node knows it. Notifies when leader or term change; closes when the node stops.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Whether this node has anything on its disk: a vote, or a log that it founded or received, in this boot or an
    /// earlier one.
    #[must_use]
    pub fn has_past(&self) -> bool {
        let known = self.log.known();
        known.vote.is_some() || known.last.is_some()
    }

    /// How many entries its log has had, those included that a snapshot covers. The first is the first membership, or
    /// the state from a backup.
    #[must_use]
    pub fn log_entries(&self) -> u64 {
        self.log.known().last.map_or(0, |at| at.index.saturating_sub(self.log_begins_at) + 1)
    }

    /// Whether it was [restored](crate::restore) from a backup, and its log has not grown since: it knows of no
    /// election.
    #[must_use]
    pub fn awaits_first_leader(&self) -> bool {
        self.log_begins_at > 0 && self.log_entries() <= 1
    }

    /// Whether, besides, it has neither campaigned nor voted since: then no replica can have followed it.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        let known = self.log.known();
        self.awaits_first_leader() && known.vote.map(|vote| vote.term) == known.last.map(|at| at.term)
    }

    /// Index of the last entry of its log, or of the snapshot that covers it; 0 if there is none.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.log.known().last.map_or(0, |at| at.index)
    }

    /// Opens or closes this node to Raft: when closed, it neither answers the other replicas nor campaigns. A node
    /// that may have lost its disk, or part of it, must not vote or acknowledge before that is clear: others may rely
    /// on what it forgot. Every node starts open.
    pub fn set_open(&self, open: bool) {
        self.participation.set_open(open);
    }

    /// To be called when this node is found to have lost what it acknowledged: it leaves Raft, and its directory is
    /// refused from now on.
    pub fn forget(&self) {
        self.participation.forget();
    }

    /// Resolves once the node has [forgotten](Self::forget), also because a leader has found that it holds less than
    /// it acknowledged: its disk was replaced by an older copy, or lied. It no longer takes part, and must return
    /// under a new id.
    pub async fn forgotten(&self) {
        self.participation.forgotten().await;
    }

    /// The members of the group, as this node knows them.
    #[must_use]
    pub fn members(&self) -> Members {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        Members {
            voters: membership.voter_ids().map(NodeId::new).collect(),
            addresses: membership.nodes().map(|(id, node)| (NodeId::new(*id), node.addr.clone())).collect(),
        }
    }

    /// The members that hold entries of this leader's log, itself included; none if this node does not lead.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let Some(replication) = &metrics.replication else { return BTreeSet::new() };
        let holders = replication.iter().filter(|(_, held)| held.is_some()).map(|(&node, _)| node);
        holders.chain([self.me.node]).map(NodeId::new).collect()
    }

    /// The service for the other replicas; mount it on the node's control port. It asks `removed` at each message:
    /// replicas removed for ever are refused, also on a stream that they opened before.
    #[must_use]
    pub fn service(&self, removed: impl Fn(NodeId) -> bool + Send + Sync + 'static) -> RaftServer {
        wire::pb::raft_server::RaftServer::new(self.raft_service(Arc::new(removed)))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The implementation behind it.
    pub(crate) fn raft_service(&self, removed: Arc<dyn Fn(NodeId) -> bool + Send + Sync>) -> RaftService {
        RaftService::new(
            self.me.clone(),
            self.raft.clone(),
            Arc::clone(&self.participation),
            Arc::clone(&self.received),
            Arc::clone(&self.last_heard),
            removed,
            self.leadership.clone(),
        )
    }

    /// Hands leadership over without a gap: asks `to` to campaign at once. [`leadership`](Self::leadership) shows
    /// whether it won. Does nothing on a follower.
    ///
    /// # Errors
    /// The node has stopped.
    pub async fn transfer_leader(&self, to: NodeId) -> Result<(), ProposeError> {
        self.raft.trigger().transfer_leader(to.get()).await.map_err(|_| ProposeError::Stopped)
    }

    /// Adds a replica as a learner, and returns once it holds everything up to its own addition, however long that
    /// takes.
    ///
    /// Ids are never reused: use the log index of a proposal, which is unique.
    ///
    /// # Errors
    /// The address is not host:port, or the group did not agree.
    pub async fn add_learner(&self, node: NodeId, address: String) -> Result<(), MembershipError> {
        validate_address(&address).map_err(|reason| MembershipError::Refused(format!("address {reason}")))?;
        // The library's own wait accepts a lag below the limit for a snapshot: in a young group even that of a learner
        // that never answered.
        match self.raft.add_learner(node.get(), BasicNode::new(address), false).await {
            Ok(added) => self.catches_up(node, added.log_id.index).await,
            Err(error) => Err(self.membership_error(error)),
        }
    }

    /// Waits until a replica reports that it holds the entry at that index, by which it was added.
    async fn catches_up(&self, node: NodeId, index: u64) -> Result<(), MembershipError> {
        let mut metrics = self.raft.metrics();
        loop {
            {
                let now = metrics.borrow_and_update();
                if now.running_state.is_err() {
                    return Err(ProposeError::Stopped.into());
                }
                let Some(replication) = &now.replication else {
                    let leader = now.current_leader.filter(|leader| *leader != self.me.node).map(NodeId::new);
                    return Err(ProposeError::NotLeader { leader }.into());
                };
                if replication.get(&node.get()).is_some_and(|held| held.is_some_and(|held| held.index >= index)) {
                    return Ok(());
                }
                let members = &now.membership_config;
                let newer = members.log_id().is_some_and(|changed| changed.index > index);
                if newer && members.membership().get_node(&node.get()).is_none() {
                    return Err(MembershipError::Refused(format!("{node} was removed before it had caught up")));
                }
            }
            metrics.changed().await.map_err(|_| ProposeError::Stopped)?;
        }
    }

    /// Makes exactly these replicas the voters, by joint consensus; new ones must be learners already. Voters left out
    /// leave the group.
    ///
    /// # Errors
    /// One of them is unknown, none is given, another change is under way, or the group did not agree.
    pub async fn change_voters(&self, voters: BTreeSet<NodeId>) -> Result<(), MembershipError> {
        let voters: BTreeSet<u64> = voters.into_iter().map(NodeId::get).collect();
        match self.raft.change_membership(voters, false).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.membership_error(error)),
        }
    }

    /// Removes learners from the group.
    ///
    /// # Errors
    /// One of them votes, another change is under way, or the group did not agree.
    pub async fn remove_learners(&self, nodes: BTreeSet<NodeId>) -> Result<(), MembershipError> {
        let nodes: BTreeSet<u64> = nodes.into_iter().map(NodeId::get).collect();
        match self.raft.change_membership(ChangeMembers::RemoveNodes(nodes), false).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.membership_error(error)),
        }
    }

    /// Stops this replica: it answers no more calls, writes what is queued, and releases the disk. If it led, the
    /// others elect. Takes at most three seconds: what a hung disk has not taken by then is lost with the process.
    pub async fn shutdown(&self) {
        match tokio::time::timeout(CORE_ENDS_WITHIN, self.raft.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "raft core did not end cleanly"),
            Err(_) => tracing::error!("raft core did not end within {CORE_ENDS_WITHIN:?}; it may wait for its disk"),
        }
        let watch = self.stall_watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(watch);
        self.log.close().await;
    }

    /// The leader in an answer, unless it is this node, which has just lost its quorum.
    fn other_leader(&self, forward: &ForwardToLeader<TypeConfig>) -> Option<NodeId> {
        let known = forward.leader_id.or_else(|| self.leadership.borrow().leader.map(NodeId::get));
        known.filter(|leader| *leader != self.me.node).map(NodeId::new)
    }

    fn propose_error(&self, error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> ProposeError {
        match error {
            RaftError::Fatal(Fatal::Stopped | Fatal::Panicked | Fatal::StorageError(_)) => ProposeError::Stopped,
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => match self.other_leader(&forward) {
                // A leader whose lease ran out refuses without naming a leader.
                None if self.leadership.borrow().is_leader => ProposeError::NoQuorum,
                leader => ProposeError::NotLeader { leader },
            },
            RaftError::APIError(_) => ProposeError::Discarded,
        }
    }

    fn membership_error(&self, error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
        match error {
            RaftError::APIError(ClientWriteError::ChangeMembershipError(refused)) => refused_change(&refused),
            other => MembershipError::Propose(self.propose_error(other)),
        }
    }
}

fn refused_change<A, B>(error: &ChangeMembershipError<A, B>) -> MembershipError
where
    A: openraft::vote::RaftCommittedLeaderId,
    B: openraft::NodeId,
{
    MembershipError::Refused(error.to_string())
}

fn raft_config(config: &GroupConfig) -> Result<Config, String> {
    let timing = &config.timing;
    let whole_ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let retry = whole_ms(timing.heartbeat);
    let retry_max = whole_ms(timing.election_max);
    Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: whole_ms(timing.heartbeat),
        election_timeout_min: whole_ms(timing.election_min),
        election_timeout_max: whole_ms(timing.election_max),
        quorum_loss_probe_interval: Some(whole_ms(timing.quorum_loss_probe)),
        enable_pre_vote: Some(true),
        // The state is in memory, and the committed mark on disk is only a hint, so a restarted leader may not know
        // what it had already confirmed. Before it serves reads it must win an election, whose first entry tells it.
        enable_leader_restore: Some(false),
        install_snapshot_timeout: whole_ms(timing.snapshot_timeout),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot.entries),
        max_in_snapshot_log_to_keep: config.snapshot.entries_kept,
        // A follower that lags by more than the kept log gets a snapshot at once.
        replication_lag_threshold: config.snapshot.entries.saturating_add(config.snapshot.entries_kept),
        max_payload_entries: APPEND_ENTRIES_MAX,
        // An unreachable peer is retried after one heartbeat, then less often, but at least once per election timeout.
        backoff: format!("{retry}ms {}ms ...{retry_max}ms", retry.saturating_mul(2)),
        ..Config::default()
    }
    .validate()
    .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_profiles_make_a_valid_raft_configuration() {
        for timing in [Timing::lan(), Timing::relaxed()] {
            let mut config = GroupConfig::new("blue", NodeId::new(1), BTreeMap::new(), "data".into());
            config.timing = timing;
            let raft = raft_config(&config).expect("valid");
            assert_eq!(raft.enable_pre_vote, Some(true));
            raft.build_backoff().take(20).for_each(|wait| assert!(wait <= config.timing.election_max));
        }
    }
}
