//! One replica: starts its parts, and stops them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{BACKUP_BYTES_MAX, FRONTENDS_MAX, NODES_MAX};
use symphony_consensus::{ControlGroup, GroupConfig, Leadership};
use symphony_federation_state::FederationState;
use symphony_net::{Incoming, Port, Role};
use symphony_protocol::control::federation_server::FederationServer;
use symphony_protocol::port_limits::{HEADER_BYTES_MAX, STREAMS_PER_CONNECTION_MAX};
use symphony_telemetry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::config::FederationConfig;
use crate::error::StartError;
use crate::founding;
use crate::metrics::Metrics;
use crate::reconciler::{self, LeaderContext};
use crate::service::FederationService;
use crate::state_machine::FederationStateMachine;

/// The roles that may call at all; each call is then authorized by itself, and Raft answers only replicas by their
/// names.
const CONTROL: Port =
    Port::new("federation.control", &[Role::Scheduler, Role::Frontend, Role::Operator, Role::Viewer], CONNECTIONS_MAX);
/// Connections at a time: one of each frontend, eight of each replica, and some of operators.
const CONNECTIONS_MAX: usize = FRONTENDS_MAX + 8 * NODES_MAX + 128;
/// Interval and timeout of pings on a silent connection, which is closed without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Bytes of a request: a model with every profile, or the rates of all models.
const REQUEST_BYTES_MAX: usize = 2 * symphony_federation_state::COMMAND_BYTES_MAX;
/// Bytes of an answer: the largest is a backup, with the few bytes around it.
const ANSWER_BYTES_MAX: usize = BACKUP_BYTES_MAX + 64;
/// How long a stop waits for calls in progress.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The last words of a replica that has less than it acknowledged.
const FORGOTTEN: &str = "this replica of the federation runs on an older copy of its disk, or the disk lost what it had written; it must not come back over it";

/// A running replica of the top-level group. Call [`shutdown`](Self::shutdown) when done: dropping it stops nothing.
#[derive(Debug)]
pub struct Federation {
    group: ControlGroup,
    state: watch::Receiver<Arc<FederationState>>,
    ends: watch::Receiver<Option<String>>,
    metrics: Metrics,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Federation {
    /// Opens the replica's disk, joins its group, serves on `control`, and does the leader's work while it leads.
    ///
    /// # Errors
    /// If the configuration of the group contradicts itself, or the disk cannot be used.
    pub async fn start(config: FederationConfig, control: TcpListener) -> Result<Self, StartError> {
        config.group.validate().map_err(symphony_consensus::StartError::Config)?;
        let (state_machine, state) = FederationStateMachine::new();
        // The group is founded after the others have been asked.
        let unfounded = GroupConfig { voters: BTreeMap::new(), ..config.group.clone() };
        let group = ControlGroup::start(unfounded, state_machine).await?;
        // Before any message can arrive: what is on the disk now is from an earlier boot.
        let takes_part = group.has_past() && !group.begins_anew();
        group.set_open(takes_part);
        let (metrics, stop, leadership) = (Metrics::default(), CancellationToken::new(), group.leadership());
        let context = LeaderContext::new(
            group.clone(),
            state.clone(),
            config.unreachable,
            config.balance.clone(),
            config.wall_clock,
            metrics.clone(),
        );
        let service = FederationService {
            federation: config.group.cluster.clone(),
            node: config.group.node.get(),
            context: context.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let service = FederationServer::new(service)
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX);
        let router = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .add_service(group.service(|_| false))
            .add_service(service);
        let incoming = Incoming::new(control, config.group.net.clone(), CONTROL).into_stream();
        let serving = router.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let serving = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the federation's port failed");
            }
        });
        let (federation, node) = (config.group.cluster.clone(), config.group.node);
        let (ended, ends) = watch::channel(None);
        let taking_part = {
            let (group_config, group, stop) = (config.group.clone(), group.clone(), stop.clone());
            stop.run_until_cancelled_owned(async move {
                let why = match if takes_part { Ok(()) } else { founding::found(&group_config, &group).await } {
                    Ok(()) => {
                        group.forgotten().await;
                        FORGOTTEN.to_owned()
                    }
                    Err(why) => why,
                };
                ended.send_replace(Some(why));
            })
        };
        let taking_part = tokio::spawn(async move {
            let _ = taking_part.await;
        });
        let working = tokio::spawn(reconciler::run(context, config, leadership, stop.clone()));
        tracing::info!(federation, %node, "replica of the federation started");
        Ok(Self { group, state, ends, metrics, tasks: vec![taking_part, serving, working], stop })
    }

    /// Adds its metrics.
    pub fn register_metrics(&self, registry: &Registry) {
        self.metrics.register(registry);
    }

    /// The leader; the channel closes when the replica ends.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.group.leadership()
    }

    /// Resolves when this replica has to end, with the reason: it has lost its disk, or entries that it acknowledged to
    /// the leader.
    pub async fn ends(&self) -> String {
        let mut ends = self.ends.clone();
        let why = ends.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // It stops.
            None => std::future::pending().await,
        }
    }

    /// The state as this replica has applied it.
    #[must_use]
    pub fn state(&self) -> Arc<FederationState> {
        Arc::clone(&self.state.borrow())
    }

    /// Hands leadership over if another replica can take it, and stops.
    pub async fn shutdown(self) {
        let leadership = *self.group.leadership().borrow();
        let me = leadership.leader.filter(|_| leadership.is_leader);
        if let Some(me) = me
            && let Some(&successor) = self.group.members().voters.iter().find(|voter| **voter != me)
        {
            let _ = self.group.transfer_leader(successor).await;
        }
        self.stop.cancel();
        // The streams of the other replicas end with the group, and the server with them.
        let ended = async {
            for task in self.tasks {
                let _ = tokio::time::timeout(DRAIN_WITHIN, task).await;
            }
        };
        tokio::join!(self.group.shutdown(), ended);
    }
}
