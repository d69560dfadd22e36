//! One replica's control plane: starts its parts, hands out what they offer, ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Command, NodeRegistration};
use symphony_consensus::{ControlGroup, GroupConfig, Leadership};
use symphony_protocol::view::View;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::ControlPlaneConfig;
use crate::error::{CallError, StartError};
use crate::explain::{Memory, Remembers};
use crate::host::{SharedState, StateHost};
use crate::liveness::{self, LivenessThreads, Outlook};
use crate::metrics::Metrics;
use crate::propose::{Accepted, Proposer};
use crate::publish::{self, Viewer};
use crate::service::ControlService;
use crate::{registrar, server};

/// How long calls under way are waited for at the end.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The bound ports of a replica's control plane.
#[derive(Debug)]
pub struct Listeners {
    /// For Raft and `symphony.v1.Control`.
    pub control: tokio::net::TcpListener,
    /// For beats.
    pub beat: std::net::TcpListener,
}

/// A running control plane. Call [`shutdown`](Self::shutdown) when done: dropping it ends nothing.
#[derive(Debug)]
pub struct ControlPlane {
    group: ControlGroup,
    proposer: Proposer,
    views: watch::Receiver<Arc<View>>,
    memory: Memory,
    metrics: Metrics,
    control_addr: SocketAddr,
    threads: LivenessThreads,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl ControlPlane {
    /// Opens the replica's disk, joins its control group, serves on the listeners, shows itself to the Raft leader and
    /// keeps itself registered.
    ///
    /// # Errors
    /// If the configuration contradicts itself, or the disk, the listeners or the threads cannot be used.
    pub async fn start(config: ControlPlaneConfig, listeners: Listeners) -> Result<Self, StartError> {
        config.validate().map_err(StartError::Config)?;
        let control_addr =
            listeners.control.local_addr().map_err(|source| StartError::Io { what: "control listener", source })?;
        let metrics = Metrics::default();
        let state = SharedState::default();
        let (host, applied) = StateHost::new(state.clone(), metrics.clone());
        let group = ControlGroup::start(group_config(&config), host).await?;

        let leadership = group.leadership();
        let cluster: Arc<str> = config.cluster.as_str().into();
        let viewer = Viewer { cluster: cluster.clone(), node: config.node, state, leadership: leadership.clone() };
        let (view_sender, views) = watch::channel(Arc::new(viewer.view()));
        let outlook = Outlook { leadership, views: views.clone(), applied: applied.clone() };
        let parts = Proposer::new(&config, group.clone())
            .and_then(|proposer| Ok((proposer, LivenessThreads::start(&config, listeners.beat, outlook, &metrics)?)));
        let (proposer, (threads, declared)) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                group.shutdown().await;
                return Err(error);
            }
        };

        let stop = CancellationToken::new();
        let memory = Memory::default();
        let service = ControlService {
            cluster,
            proposer: proposer.clone(),
            viewer: viewer.clone(),
            views: views.clone(),
            memory: memory.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let serving = server::serve(listeners.control, config.net.clone(), group.service(), service, stop.clone());
        let registration = registration(&config);
        let life = (config.node, config.boot);
        let tasks = vec![
            tokio::spawn(async {
                if let Err(error) = serving.await {
                    tracing::error!(%error, "the control port failed");
                }
            }),
            tokio::spawn(publish::run(viewer, applied, view_sender, metrics.clone(), stop.clone())),
            tokio::spawn(liveness::propose_declared(declared, proposer.clone(), metrics.clone())),
            tokio::spawn(registrar::run(
                registration,
                life,
                proposer.clone(),
                views.clone(),
                metrics.clone(),
                stop.clone(),
            )),
        ];
        tracing::info!(cluster = config.cluster, node = %config.node, %control_addr, "control plane started");
        Ok(Self { group, proposer, views, memory, metrics, control_addr, threads, tasks, stop })
    }

    /// The cluster as this replica has applied it; changes when it does.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// Who leads the control group, as this replica knows it.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.group.leadership()
    }

    /// Has the cluster agree on a command, through whichever replica leads.
    ///
    /// # Errors
    /// If the state refuses it, or no leader takes it in time.
    pub async fn propose(&self, command: &Command) -> Result<Accepted, CallError> {
        self.proposer.propose(command).await
    }

    /// From now on calls to `Explain` are answered by `memory`; before, nothing is known. Only the first one counts.
    pub fn explain_by(&self, memory: Arc<dyn Remembers>) {
        let _ = self.memory.set(memory);
    }

    /// What this control plane counts; register it with the process's registry.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Where the control surface listens.
    #[must_use]
    pub const fn control_addr(&self) -> SocketAddr {
        self.control_addr
    }

    /// Answers nobody any more, shows no sign of life, writes what is queued and lets go of the disk. The others elect
    /// and re-home as after a crash.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let mut threads = self.threads;
        let ended = tokio::task::spawn_blocking(move || threads.shutdown());
        self.group.shutdown().await;
        if ended.await.is_err() {
            tracing::error!("ending the beat threads panicked");
        }
        for task in &mut self.tasks {
            if tokio::time::timeout(DRAIN_WITHIN, &mut *task).await.is_err() {
                task.abort();
            }
        }
    }
}

fn group_config(config: &ControlPlaneConfig) -> GroupConfig {
    let voters = config.replicas.iter().map(|(&node, addrs)| (node, addrs.control.clone())).collect();
    GroupConfig {
        engine: config.engine,
        timing: config.timing.group.clone(),
        on_disk_error: config.on_disk_error,
        net: config.net.clone(),
        ..GroupConfig::new(config.cluster.clone(), config.node, voters, config.data_dir.clone())
    }
}

fn registration(config: &ControlPlaneConfig) -> Command {
    Command::RegisterNode(NodeRegistration {
        node: config.node,
        boot: config.boot,
        control_addr: config.replicas.get(&config.node).map(|addrs| addrs.control.clone()).unwrap_or_default(),
        dispatch_addr: config.dispatch_addr.clone(),
        avoid: None,
    })
}
