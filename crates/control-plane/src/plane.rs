//! One replica's control plane: starts its parts, hands out what they offer, ends them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use symphony_cluster_state::{Command, NodeRegistration};
use symphony_consensus::{ControlGroup, GroupConfig, Host, Leadership};
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::beat::{Roll, Standing};
use crate::checkpoints::Checkpoints;
use crate::config::ControlPlaneConfig;
use crate::error::{CallError, Fatal, StartError};
use crate::explain::{Memory, Remembers};
use crate::host::{SharedState, StateHost};
use crate::liveness::{self, Outlook};
use crate::membership::{self, Membership};
use crate::metrics::Metrics;
use crate::propose::{Accepted, Proposer};
use crate::publish::{self, Viewer};
use crate::service::ControlService;
use crate::vitals::Vitals;
use crate::{disk, founding, registrar, server, steward};

/// How long calls under way are waited for at the end.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The bound ports of a replica's control plane.
#[derive(Debug)]
pub struct Listeners {
    /// For Raft and `symphony.v1.Control`.
    pub control: symphony_wire::Listener,
    /// For beats.
    pub beat: BeatListener,
}

/// The bound port for beats, which decides what hears them.
#[derive(Debug)]
pub enum BeatListener {
    /// Threads of their own: a busy runtime is not a dead replica.
    Threads(std::net::TcpListener),
    /// Tasks of the runtime, for a simulation.
    Tasks(symphony_wire::Listener),
}

impl From<std::net::TcpListener> for BeatListener {
    fn from(listener: std::net::TcpListener) -> Self {
        Self::Threads(listener)
    }
}

/// A way to have the cluster agree on commands; cheap to clone.
#[derive(Clone, Debug)]
pub struct Proposals(Proposer);

impl Proposals {
    /// As [`ControlPlane::propose`].
    ///
    /// # Errors
    /// If the state refuses it, or no leader takes it in time.
    pub async fn propose(&self, command: &Command) -> Result<Accepted, CallError> {
        self.0.propose(command).await
    }
}

/// A running control plane. Call [`shutdown`](Self::shutdown) when done: dropping it ends nothing.
#[derive(Debug)]
pub struct ControlPlane {
    node: NodeId,
    group: ControlGroup,
    proposer: Proposer,
    state: SharedState,
    views: watch::Receiver<Arc<View>>,
    standing: watch::Receiver<Standing>,
    ends: watch::Receiver<Option<Fatal>>,
    memory: Memory,
    metrics: Metrics,
    control_addr: SocketAddr,
    vitals: Vitals,
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
        let (state, checkpoints) = (SharedState::default(), Checkpoints::default());
        let (host, applied) = StateHost::new(state.clone(), checkpoints.clone(), metrics.clone());
        let group = ControlGroup::start(group_config(&config), host).await?;
        // Before anybody can reach this replica: what is on its disk now is from an earlier life.
        let has_past = group.has_past();
        group.set_open(has_past);
        let disk = match disk::number(&config.data_dir, has_past, config.boot.get()) {
            Ok(number) => number,
            Err(source) => {
                group.shutdown().await;
                return Err(StartError::Io { what: "number of the disk", source });
            }
        };

        let leadership = group.leadership();
        let cluster: Arc<str> = config.cluster.as_str().into();
        let roll = Roll {
            leadership: leadership.clone(),
            lease: config.timing.group.election_max,
            group: Some(group.clone()),
            checkpoints: checkpoints.clone(),
            applied: Arc::default(),
        };
        let viewer = Viewer {
            cluster: cluster.clone(),
            node: config.node,
            state: state.clone(),
            leadership: leadership.clone(),
            group: group.clone(),
            applied: Arc::clone(&roll.applied),
        };
        let (view_sender, views) = watch::channel(Arc::new(viewer.view()));
        let (stands, standing) = watch::channel(Standing { in_contact: true, member: true });
        let outlook = Outlook { roll, checkpoints, leadership, views: views.clone(), applied: applied.clone() };
        let parts = Proposer::new(&config, group.clone())
            .and_then(|proposer| Ok((proposer, Vitals::start(&config, listeners.beat, outlook, stands, &metrics)?)));
        let (proposer, (vitals, declared)) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                group.shutdown().await;
                return Err(error);
            }
        };

        let stop = CancellationToken::new();
        let memory = Memory::default();
        let (fatal, ends) = watch::channel(None);
        let service = ControlService {
            cluster,
            proposer: proposer.clone(),
            membership: Membership::new(config.node, proposer.clone(), state.clone()),
            viewer: viewer.clone(),
            views: views.clone(),
            memory: memory.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let serving = server::serve(listeners.control, config.net.clone(), group.service(), service, stop.clone());
        let registration = registration(&config, disk);
        let life = (config.node, config.boot);
        let founding = {
            let (config, proposer, fatal, stop) = (config.clone(), proposer.clone(), fatal.clone(), stop.clone());
            async move {
                if has_past {
                    return;
                }
                if let Some(Err(error)) = stop.run_until_cancelled(founding::found(&config, &proposer)).await {
                    fatal.send_replace(Some(error));
                }
            }
        };
        let tasks = vec![
            tokio::spawn(founding),
            tokio::spawn(steward::run(config.node, state.clone(), proposer.clone(), views.clone(), stop.clone())),
            tokio::spawn(membership::left_out(
                config.node,
                proposer.clone(),
                standing.clone(),
                fatal.clone(),
                stop.clone(),
            )),
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
                fatal,
                stop.clone(),
            )),
        ];
        tracing::info!(cluster = config.cluster, node = %config.node, %control_addr, "control plane started");
        let node = config.node;
        Ok(Self {
            node,
            group,
            proposer,
            state,
            views,
            standing,
            ends,
            memory,
            metrics,
            control_addr,
            vitals,
            tasks,
            stop,
        })
    }

    /// How far this replica has applied the log, and a hash of the state that this gave.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.applied_index(), state.state_hash())
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

    /// Whether sub-clusters may be led: a leader of the control group that has a quorum was in contact lately.
    #[must_use]
    pub fn in_contact(&self) -> watch::Receiver<bool> {
        let (told, contact) = watch::channel(true);
        let mut standing = self.standing.clone();
        tokio::spawn(async move {
            loop {
                let now = standing.borrow_and_update().in_contact;
                told.send_if_modified(|known| std::mem::replace(known, now) != now);
                tokio::select! {
                    changed = standing.changed() => if changed.is_err() { return },
                    () = told.closed() => return,
                }
            }
        });
        contact
    }

    /// Why this replica cannot be part of the cluster any more, once that is so: removed, or over another disk.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<Option<Fatal>> {
        self.ends.clone()
    }

    /// As long as it is set this replica looks dead to the others: for one that cannot even say that it is unwell.
    #[must_use]
    pub fn mute(&self) -> Arc<AtomicBool> {
        self.vitals.mute()
    }

    /// Hands the control group's leadership to another replica, if this one has it and another one is up. False if nobody
    /// took it.
    pub async fn give_leadership_away(&self) -> bool {
        if !self.group.leadership().borrow().is_leader {
            return true;
        }
        let voters = self.group.members().voters;
        membership::transfer_leadership(&self.proposer, &self.state, self.node, &voters).await
    }

    /// Has the cluster agree on a command, through whichever replica leads.
    ///
    /// # Errors
    /// If the state refuses it, or no leader takes it in time.
    pub async fn propose(&self, command: &Command) -> Result<Accepted, CallError> {
        self.proposer.propose(command).await
    }

    /// What [`propose`](Self::propose) does, for tasks of their own.
    #[must_use]
    pub fn proposals(&self) -> Proposals {
        Proposals(self.proposer.clone())
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
        tokio::join!(self.group.shutdown(), self.vitals.shutdown());
        for task in &mut self.tasks {
            if tokio::time::timeout(DRAIN_WITHIN, &mut *task).await.is_err() {
                task.abort();
            }
        }
    }
}

fn group_config(config: &ControlPlaneConfig) -> GroupConfig {
    let mut group = GroupConfig {
        engine: config.engine,
        timing: config.timing.group.clone(),
        on_disk_error: config.on_disk_error,
        host: config.host.clone(),
        net: config.net.clone(),
        // It is founded once the others have been asked.
        ..GroupConfig::new(config.cluster.clone(), config.node, BTreeMap::new(), config.data_dir.clone())
    };
    if let Host::Simulation { snapshot, .. } = &config.host {
        group.snapshot = *snapshot;
    }
    group
}

fn registration(config: &ControlPlaneConfig, disk: u64) -> Command {
    let own = config.replicas.get(&config.node);
    Command::RegisterNode(NodeRegistration {
        node: config.node,
        boot: config.boot,
        control_addr: own.map(|addrs| addrs.control.clone()).unwrap_or_default(),
        dispatch_addr: config.dispatch_addr.clone(),
        beat_addr: own.map(|addrs| addrs.beat.clone()).unwrap_or_default(),
        disk,
        avoid: None,
    })
}
