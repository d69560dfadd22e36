//! Gets a command committed, whichever replica received it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_cluster_state::{COMMAND_BYTES_MAX, Command, LogEntry, Reply, decode_outcome};
use symphony_consensus::{ControlGroup, Leadership, ProposeError, ReadError};
use symphony_net::{ClusterLevel, Expected, Net, Role};
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_protocol::externalscaler::external_scaler_client::ExternalScalerClient;
use symphony_protocol::view::VIEW_BYTES_MAX;
use symphony_types::{Level, NodeId};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

use crate::config::{ControlPlaneConfig, WallClock};
use crate::error::{CallError, StartError};

/// How long a command may look for a leader: more than the slowest election, less than clients' timeout (2 s).
pub(crate) const PROPOSE_WITHIN: Duration = Duration::from_millis(1_800);

/// Pause after a failed attempt; a change of leadership ends it.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// How long dialling another replica may take.
const CONNECT_WITHIN: Duration = Duration::from_millis(250);

/// Interval and timeout of pings on a silent connection to another replica.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Metadata key of calls that another replica has forwarded, so that two replicas that each take the other for the
/// leader do not pass a call back and forth.
pub(crate) const FORWARDED: &str = "x-symphony-forwarded";

/// A command that was committed and accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its log index.
    pub index: u64,
    /// The state's reply.
    pub reply: Reply,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// Another replica, or the same one later, may succeed. The command may have been committed nevertheless.
    Retry(String),
    /// No attempt will succeed.
    Fatal(CallError),
}

impl From<CallError> for AttemptError {
    fn from(error: CallError) -> Self {
        Self::Fatal(error)
    }
}

/// Proposes commands here if this replica leads, else through the leader.
#[derive(Clone, Debug)]
pub(crate) struct Proposer {
    cluster: Arc<str>,
    node: NodeId,
    group: ControlGroup,
    net: Net,
    /// Configured control addresses of the replicas, for those that the group does not know (yet).
    configured: Arc<BTreeMap<NodeId, String>>,
    channels: Arc<Mutex<BTreeMap<NodeId, (String, Channel)>>>,
    /// For the times of log entries.
    wall_clock: WallClock,
    /// The runtime of the connections, whichever task calls first.
    runtime: Handle,
}

impl Proposer {
    /// Connections are made in the current runtime.
    pub(crate) fn new(config: &ControlPlaneConfig, group: ControlGroup) -> Result<Self, StartError> {
        let configured: BTreeMap<_, _> = config.replicas.iter().map(|(&n, addrs)| (n, addrs.control.clone())).collect();
        for (node, addr) in &configured {
            endpoint(addr).map_err(|e| StartError::Config(format!("control address `{addr}` of {node}: {e}")))?;
        }
        let (cluster, configured) = (config.cluster.as_str().into(), Arc::new(configured));
        let net = config.net.clone();
        let (channels, runtime) = (Arc::default(), Handle::current());
        let wall_clock = config.wall_clock;
        Ok(Self { cluster, node: config.node, group, net, configured, channels, wall_clock, runtime })
    }

    /// What this replica knows, and writes to the others by.
    pub(crate) const fn cluster_level(&self) -> &ClusterLevel {
        self.net.level()
    }

    pub(crate) const fn group(&self) -> &ControlGroup {
        &self.group
    }

    /// The time, for people.
    pub(crate) fn unix_ms(&self) -> u64 {
        (self.wall_clock)()
    }

    /// The leader of the control group, unless it is this replica.
    pub(crate) fn leader_elsewhere(&self) -> Result<Option<NodeId>, AttemptError> {
        let leadership = *self.group.leadership().borrow();
        match leadership.leader {
            _ if leadership.is_leader => Ok(None),
            Some(leader) => Ok(Some(leader)),
            None => Err(AttemptError::Retry("no leader is elected".to_owned())),
        }
    }

    /// Every other replica known to the group or the configuration.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        let members = self.group.members().addresses;
        let all: std::collections::BTreeSet<_> = members.keys().chain(self.configured.keys()).copied().collect();
        all.into_iter().filter(|node| *node != self.node).collect()
    }

    /// Makes the cluster agree on a command, for at most [`PROPOSE_WITHIN`]. A command with an unknown outcome is
    /// proposed again: registrations and reports are idempotent, and the state remembers operations by id and repeats
    /// its answer.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Accepted, CallError> {
        command.validate()?;
        let mut budget = RetryBudget::new(&self.group);
        loop {
            if let Some(accepted) = budget.spend_on(self.attempt(command)).await? {
                return Ok(accepted);
            }
        }
    }

    async fn attempt(&self, command: &Command) -> Result<Accepted, AttemptError> {
        match self.leader_elsewhere()? {
            None => self.propose_here(command).await,
            Some(leader) => self.forward(leader, command).await,
        }
    }

    /// Proposes only if this replica leads.
    pub(crate) async fn propose_here(&self, command: &Command) -> Result<Accepted, AttemptError> {
        // The proposer is the Raft leader, which should not lead sub-clusters as well.
        let command = command.clone().avoiding(self.node);
        let version = command.version_at(self.level().await?);
        let entry = LogEntry { at_unix_ms: (self.wall_clock)(), command };
        let bytes = entry.encode_in(version).map_err(CallError::from)?;
        match self.group.propose(bytes).await {
            Ok(proposed) => accepted(proposed.index, &proposed.response),
            Err(ProposeError::Stopped) => Err(CallError::Stopped.into()),
            Err(error) => Err(AttemptError::Retry(error.to_string())),
        }
    }

    /// What this replica writes into the log. If it has applied everything that was agreed and found no command, it
    /// founds the cluster, at the newest level that it knows. Before, it must not write: its neighbours may not read
    /// what it takes for the oldest.
    async fn level(&self) -> Result<Level, AttemptError> {
        let level = self.net.level();
        if let Some(known) = level.known() {
            return Ok(known);
        }
        match self.group.read_index().await {
            Ok(_) => Ok(level.known_by_whole_log().unwrap_or_else(|| level.newest())),
            Err(ReadError::Stopped) => Err(CallError::Stopped.into()),
            Err(error) => Err(AttemptError::Retry(error.to_string())),
        }
    }

    async fn forward(&self, leader: NodeId, command: &Command) -> Result<Accepted, AttemptError> {
        let command = command.encode_at(self.net.level().written()).map_err(CallError::from)?;
        let mut client = self.client(leader)?;
        let request = pb::ForwardRequest { cluster: self.cluster.to_string(), command };
        match client.forward(request).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                accepted(reply.index, &reply.response)
            }
            Err(status) => Err(AttemptError::Retry(format!("{leader}: {}", status.message()))),
        }
    }

    /// Whether this replica has applied everything committed before now; on a follower, the leader's view instead.
    pub(crate) async fn linearize(&self, forwarded: bool) -> Result<Option<pb::ClusterView>, CallError> {
        let mut budget = RetryBudget::new(&self.group);
        loop {
            if let Some(view) = budget.spend_on(self.linearize_once(forwarded)).await? {
                return Ok(view);
            }
        }
    }

    /// One attempt of [`linearize`](Self::linearize): with `forwarded`, it fails unless this replica leads.
    pub(crate) async fn linearize_once(&self, forwarded: bool) -> Result<Option<pb::ClusterView>, AttemptError> {
        let leader = match self.group.read_index().await {
            Ok(_) => return Ok(None),
            Err(ReadError::NotLeader { leader: Some(leader) }) if !forwarded => leader,
            Err(ReadError::Stopped) => return Err(CallError::Stopped.into()),
            Err(error) => return Err(AttemptError::Retry(error.to_string())),
        };
        let mut client = self.client(leader)?.max_decoding_message_size(VIEW_BYTES_MAX);
        let mut request = Request::new(pb::GetRequest { linearizable: true });
        request.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
        match client.get(request).await {
            Ok(view) => Ok(Some(view.into_inner())),
            Err(status) => Err(AttemptError::Retry(format!("{leader}: {}", status.message()))),
        }
    }

    /// A client of another replica.
    pub(crate) fn client(&self, node: NodeId) -> Result<ControlClient<Channel>, AttemptError> {
        Ok(ControlClient::new(self.channel(node)?).max_encoding_message_size(2 * COMMAND_BYTES_MAX))
    }

    /// A client of another replica's autoscaler service.
    pub(crate) fn scaler_client(&self, node: NodeId) -> Result<ExternalScalerClient<Channel>, AttemptError> {
        Ok(ExternalScalerClient::new(self.channel(node)?))
    }

    /// The connection to another replica, at the address known to the group or else configured.
    fn channel(&self, node: NodeId) -> Result<Channel, AttemptError> {
        let known = self.group.members().addresses.remove(&node).or_else(|| self.configured.get(&node).cloned());
        let addr = known.ok_or_else(|| AttemptError::Retry(format!("the address of {node} is unknown")))?;
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(&node) {
            Some((dialled, channel)) if *dialled == addr => channel.clone(),
            _ => {
                let endpoint =
                    endpoint(&addr).map_err(|e| AttemptError::Retry(format!("address `{addr}` of {node}: {e}")))?;
                let expected = Expected::named(Role::Scheduler, node.get().to_string());
                let _of_the_runtime = self.runtime.enter();
                let channel = self.net.channel(&endpoint, expected);
                channels.insert(node, (addr, channel.clone()));
                channel
            }
        };
        Ok(channel)
    }
}

fn endpoint(addr: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{addr}"))?
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE))
}

/// The time that one call may spend on attempts.
struct RetryBudget {
    give_up: Instant,
    leadership: watch::Receiver<Leadership>,
    last: String,
}

impl RetryBudget {
    fn new(group: &ControlGroup) -> Self {
        let give_up = Instant::now() + PROPOSE_WITHIN;
        Self { give_up, leadership: group.leadership(), last: "the attempt took too long".to_owned() }
    }

    /// Runs one attempt. Returns its result, or none after a pause if another attempt should be made.
    async fn spend_on<T>(
        &mut self,
        attempt: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<Option<T>, CallError> {
        self.leadership.mark_unchanged();
        let ended = tokio::select! {
            biased;
            ended = timeout_at(self.give_up, attempt) => ended,
            // The called replica no longer leads, or there is a leader by now. A leader that is cut off would block
            // the call until its connection times out.
            changed = self.leadership.changed() => {
                changed.map_err(|_| CallError::Stopped)?;
                "the leadership changed meanwhile".clone_into(&mut self.last);
                return Ok(None);
            }
        };
        match ended {
            Ok(Ok(value)) => return Ok(Some(value)),
            Ok(Err(AttemptError::Fatal(error))) => return Err(error),
            Ok(Err(AttemptError::Retry(reason))) => self.last = reason,
            Err(_) => {}
        }
        // A change of leadership ends the pause early; a closed watch means that this replica has stopped.
        let next = (Instant::now() + RETRY_AFTER).min(self.give_up);
        if let Ok(Err(_)) = timeout_at(next, self.leadership.changed()).await {
            return Err(CallError::Stopped);
        }
        if Instant::now() >= self.give_up {
            return Err(CallError::NoLeader { within: PROPOSE_WITHIN, last: std::mem::take(&mut self.last) });
        }
        Ok(None)
    }
}

fn accepted(index: u64, response: &[u8]) -> Result<Accepted, AttemptError> {
    let outcome = decode_outcome(response).map_err(CallError::from)?;
    let reply = outcome.map_err(CallError::from)?;
    Ok(Accepted { index, reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attempt_at_a_leader_that_is_silent_ends_when_another_one_is_known() {
        let (told, leadership) = watch::channel(Leadership::default());
        let give_up = Instant::now() + Duration::from_secs(3_600);
        let mut budget = RetryBudget { give_up, leadership, last: String::new() };
        let silent = || std::future::pending::<Result<(), AttemptError>>();
        {
            let mut waits = Box::pin(budget.spend_on(silent()));
            assert!(futures::poll!(&mut waits).is_pending());
            told.send_modify(|leadership| leadership.term += 1);
            let again = waits.await;
            assert!(matches!(again, Ok(None)), "{again:?}");
        }
        assert!(matches!(budget.spend_on(async { Ok(7) }).await, Ok(Some(7))), "asked again");

        budget.give_up = Instant::now();
        let error = budget.spend_on(silent()).await.unwrap_err();
        assert!(matches!(&error, CallError::NoLeader { last, .. } if last.contains("leadership changed")), "{error}");
        budget.give_up = give_up;
        drop(told);
        assert!(matches!(budget.spend_on(silent()).await, Err(CallError::Stopped)));
    }
}
