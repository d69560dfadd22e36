//! One replica's control plane: starts its parts, provides their handles, and stops them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_cluster_state::{Command, LeadReport, NodeRegistration};
use symphony_consensus::{ControlGroup, Environment, GroupConfig, Leadership};
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::explain::{Memory, Remembers};
use crate::api::operations::Operations;
use crate::api::publish::{self, Viewer};
use crate::api::server;
use crate::api::service::ControlService;
use crate::config::ControlPlaneConfig;
use crate::error::{CallError, Fatal, StartError};
use crate::failure_detector::failure_detection::FailureDetection;
use crate::failure_detector::on_threads::{self, DetectorContext};
use crate::failure_detector::{ContactState, HeartbeatReceiver};
use crate::group::boot_history::BootHistory;
use crate::group::checkpoints::Checkpoints;
use crate::group::membership::{self, Membership};
use crate::group::propose::{Accepted, Proposer};
use crate::group::state_machine::{ClusterStateMachine, SharedState};
use crate::group::{disk, founding, lead_reports, registrar};
use crate::initiatives::frontend_reaper::{FrontendPresence, FrontendReaper};
use crate::initiatives::initiative;
use crate::initiatives::lead_balancer::LeadBalancer;
use crate::initiatives::mover::Mover;
use crate::metrics::Metrics;
use crate::planning::{LoadReports, Planner, Reported, ScalerService, ScalingCollector, Solver, Unreported};
use crate::vital::Vital;

/// How long a stop waits for calls in progress.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The bound ports of a replica's control plane.
#[derive(Debug)]
pub struct Listeners {
    /// For Raft and `symphony.v1.Control`.
    pub control: symphony_net::sockets::Listener,
    /// For heartbeats.
    pub beat: HeartbeatListener,
}

/// The bound heartbeat port; its kind selects threads or tasks.
#[derive(Debug)]
pub enum HeartbeatListener {
    /// Threads of their own: a busy runtime is not a dead replica.
    Threads(std::net::TcpListener),
    /// Tasks of the runtime, for a simulation.
    Tasks(symphony_net::sockets::Listener),
}

impl From<std::net::TcpListener> for HeartbeatListener {
    fn from(listener: std::net::TcpListener) -> Self {
        Self::Threads(listener)
    }
}

/// Operators' requests for an epoch that wait while one is planned.
const EPOCHS_ASKED_MAX: usize = 4;

/// A running control plane. Call [`shutdown`](Self::shutdown) when done: dropping it stops nothing.
#[derive(Debug)]
pub struct ControlPlane {
    node: NodeId,
    group: ControlGroup,
    proposer: Proposer,
    state: SharedState,
    views: watch::Receiver<Arc<View>>,
    contact_state: watch::Receiver<ContactState>,
    ends: watch::Receiver<Option<Fatal>>,
    memory: Memory,
    load_reports: LoadReports,
    lead_reports: mpsc::UnboundedSender<LeadReport>,
    metrics: Metrics,
    control_addr: SocketAddr,
    detection: FailureDetection,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl ControlPlane {
    /// Opens the replica's disk, joins its control group, serves on the listeners, sends heartbeats to the Raft
    /// leader, and keeps the replica registered.
    ///
    /// # Errors
    /// If the configuration contradicts itself, or the disk, the listeners or the threads cannot be used.
    pub async fn start(config: ControlPlaneConfig, listeners: Listeners) -> Result<Self, StartError> {
        config.validate().map_err(StartError::Config)?;
        let control_addr =
            listeners.control.local_addr().map_err(|source| StartError::Io { what: "control listener", source })?;
        let metrics = Metrics::default();
        let (state, checkpoints) = (SharedState::default(), Checkpoints::default());
        let (state_machine, applied) = ClusterStateMachine::new(state.clone(), checkpoints.clone(), metrics.clone());
        let group = ControlGroup::start(group_config(&config), state_machine).await?;
        // Before any message can arrive: what is on the disk now is from an earlier boot.
        let has_past = group.has_past();
        group.set_open(false);
        // Entries whose commit the disk itself shows are applied by now.
        let logged = state.read().nodes().get(&config.node).map(|node| node.boot);
        let known = disk::number(&config.data_dir, has_past, config.boot.get()).and_then(|disk| {
            Ok((disk, Arc::new(BootHistory::begin(&config.data_dir, has_past, config.boot, logged)?)))
        });
        let (disk, boot_history) = match known {
            Ok(known) => known,
            Err(source) => {
                group.shutdown().await;
                return Err(StartError::Io { what: "what the disk says of this replica", source });
            }
        };

        let leadership = group.leadership();
        let cluster: Arc<str> = config.cluster.as_str().into();
        let receiver = HeartbeatReceiver {
            leadership: leadership.clone(),
            lease: config.timing.group.election_max,
            group: Some(group.clone()),
            checkpoints: checkpoints.clone(),
            applied: applied.clone(),
            progress: Arc::default(),
            not_applying: metrics.replicas_not_applying.clone(),
        };
        let reported = Arc::new(Mutex::new(Reported::new(&config.epochs, config.wall_clock)));
        let signs = FrontendPresence::default();
        let viewer = Viewer {
            signs: signs.clone(),
            reported: Arc::clone(&reported),
            cluster: cluster.clone(),
            node: config.node,
            state: state.clone(),
            leadership: leadership.clone(),
            group: group.clone(),
            progress: Arc::clone(&receiver.progress),
        };
        let first = Arc::new(viewer.view());
        let (sorted_sender, sorted) = watch::channel(Arc::new(Arc::clone(&first).into()));
        let (view_sender, views) = watch::channel(first);
        let published = publish::Published { views: view_sender, sorted: sorted_sender };
        let (stands, contact_state) = watch::channel(ContactState { in_contact: true, heard: false, member: true });
        let context =
            DetectorContext { receiver, checkpoints, leadership, views: views.clone(), applied: applied.clone() };
        let stop = CancellationToken::new();
        let (fatal, ends) = watch::channel(None);
        let vital = Vital::new(fatal.clone(), stop.clone());
        let parts = Proposer::new(&config, group.clone()).and_then(|proposer| {
            Ok((proposer, FailureDetection::start(&config, listeners.beat, context, stands, &metrics, &vital)?))
        });
        let (proposer, (detection, declared)) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                group.shutdown().await;
                return Err(error);
            }
        };

        let memory = Memory::default();
        let (asks, asked) = mpsc::channel(EPOCHS_ASKED_MAX);
        let (proposer_of_reports, state_of_reports) = (proposer.clone(), state.clone());
        let planner = Planner {
            settings: config.epochs.clone(),
            state: state.clone(),
            proposer: proposer.clone(),
            reported: Arc::clone(&reported),
            metrics: metrics.clone(),
            asks: asked,
            solver: Solver::default(),
        };
        let operations = Operations::new(config.boot, config.wall_clock);
        let service = ControlService {
            cluster,
            proposer: proposer.clone(),
            membership: Membership::new(config.node, proposer.clone(), state.clone(), operations.clone()),
            operations,
            viewer: viewer.clone(),
            views: views.clone(),
            sorted,
            memory: memory.clone(),
            reported: Arc::clone(&reported),
            epochs: asks,
            load_bytes_per_s: config.epochs.load_bytes_per_s,
            request_delays: config.request_delays,
            signs: signs.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let scaler = ScalerService {
            proposer: proposer.clone(),
            state: state.clone(),
            reported: Arc::clone(&reported),
            stop: stop.clone(),
        };
        let serving = server::serve(
            listeners.control,
            config.net.clone(),
            group.service({
                let state = state.clone();
                move |node| state.read().removed_nodes().contains(&node)
            }),
            (service, scaler),
            state.clone(),
            stop.clone(),
        );
        let registration = registration(&config, disk);
        let on_threads = matches!(config.environment, Environment::Machine);
        let life = registrar::Life {
            config: config.clone(),
            boot_history: Arc::clone(&boot_history),
            on_threads,
            was_taken_in: false,
        };
        let founding = {
            let (config, proposer, fatal, stop) = (config.clone(), proposer.clone(), fatal.clone(), stop.clone());
            let (group, boot_history) = (group.clone(), Arc::clone(&boot_history));
            async move {
                let begin = async {
                    if has_past {
                        founding::rejoin(&config, &proposer, &boot_history).await?;
                    } else {
                        founding::found(&config, &proposer).await?;
                    }
                    group.forgotten().await;
                    Err(Fatal::forgotten(&config))
                };
                let ended: Option<Result<(), Fatal>> = stop.run_until_cancelled(begin).await;
                if let Some(Err(error)) = ended {
                    fatal.send_replace(Some(error));
                }
                // The only part that ends with its task.
                stop.cancelled().await;
            }
        };
        let (lead_balancer, mover, frontend_reaper) =
            (LeadBalancer::default(), Mover::default(), FrontendReaper::new(signs));
        let lead_balancer =
            initiative::run(lead_balancer, config.node, state.clone(), proposer.clone(), views.clone(), stop.clone());
        let mover = initiative::run(mover, config.node, state.clone(), proposer.clone(), views.clone(), stop.clone());
        let frontend_reaper =
            initiative::run(frontend_reaper, config.node, state.clone(), proposer.clone(), views.clone(), stop.clone());
        let left_out =
            membership::left_out(config.node, proposer.clone(), contact_state.clone(), fatal.clone(), stop.clone());
        let serving = async {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the control port failed");
            }
        };
        let publisher = publish::run(viewer, applied, published, metrics.clone(), fatal.clone(), stop.clone());
        let declarer = on_threads::propose_declared(declared, proposer.clone(), metrics.clone());
        let registrar = {
            let heard = registrar::Heard { views: views.clone(), contact_state: contact_state.clone() };
            registrar::run(registration, life, proposer.clone(), heard, metrics.clone(), fatal, stop.clone())
        };
        let (lead_reports, reported_leads) = mpsc::unbounded_channel();
        let lead_reporter = lead_reports::run(
            (config.node, config.boot),
            reported_leads,
            proposer.clone(),
            detection.silence_switch(),
            stop.clone(),
        );
        let mut tasks = vec![
            vital.spawn("lead reporter", lead_reporter),
            vital.spawn("founder", founding),
            vital.spawn("lead balancer", lead_balancer),
            vital.spawn("mover", mover),
            vital.spawn("frontend reaper", frontend_reaper),
            vital.spawn("planner", planner.run(stop.clone())),
            vital.spawn("search for its own place", left_out),
            vital.spawn("control port", serving),
            vital.spawn("publisher", publisher),
            vital.spawn("declarer", declarer),
            vital.spawn("registrar", registrar),
        ];
        if let Some(peers) = detection.to_resolve() {
            tasks.push(vital.spawn("resolver", peers.keep_resolved(config.net.clone(), stop.clone())));
        }
        tracing::info!(cluster = config.cluster, node = %config.node, %control_addr, "control plane started");
        let node = config.node;
        Ok(Self {
            node,
            group,
            proposer,
            state,
            views,
            contact_state,
            ends,
            memory,
            load_reports: LoadReports {
                unsaid: Unreported::default(),
                proposer: proposer_of_reports,
                state: state_of_reports,
                reported,
            },
            lead_reports,
            metrics,
            control_addr,
            detection,
            tasks,
            stop,
        })
    }

    /// How far this replica has applied the log, and the hash of the resulting state.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.applied_index(), state.state_hash())
    }

    /// The cluster as this replica has applied it; changes with each applied change.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// The leader of the control group, as this replica knows it.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.group.leadership()
    }

    /// Whether sub-clusters may be led: this replica was recently in contact with a Raft leader that has a quorum.
    #[must_use]
    pub fn in_contact(&self) -> watch::Receiver<bool> {
        let (told, contact) = watch::channel(true);
        let mut contact_state = self.contact_state.clone();
        tokio::spawn(async move {
            loop {
                let now = contact_state.borrow_and_update().in_contact;
                told.send_if_modified(|known| std::mem::replace(known, now) != now);
                tokio::select! {
                    changed = contact_state.changed() => if changed.is_err() { return },
                    () = told.closed() => return,
                }
            }
        });
        contact
    }

    /// Why this replica can no longer be part of the cluster, once that is so: it was removed, its disk was replaced,
    /// or a part of it has ended.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<Option<Fatal>> {
        self.ends.clone()
    }

    /// Hands the control group's leadership to another replica, if this one leads and another is up. False if none
    /// took it.
    pub async fn give_leadership_away(&self) -> bool {
        if !self.group.leadership().borrow().is_leader {
            return true;
        }
        let voters = self.group.members().voters;
        membership::transfer_leadership(&self.proposer, &self.state, self.node, &voters).await
    }

    /// Has the cluster agree on a command, through the current leader.
    ///
    /// # Errors
    /// If the state refuses it, or no leader takes it in time.
    pub async fn propose(&self, command: &Command) -> Result<Accepted, CallError> {
        self.proposer.propose(command).await
    }

    /// The queue for reports of this replica's leads; they are proposed to the group and repeated until they succeed.
    #[must_use]
    pub fn lead_reports(&self) -> mpsc::UnboundedSender<LeadReport> {
        self.lead_reports.clone()
    }

    /// Sends the loads of this replica's leads to the Raft leader, which plans with them.
    #[must_use]
    pub fn load_reports(&self) -> LoadReports {
        self.load_reports.clone()
    }

    /// From now on `memory` answers calls to `Explain`; before, nothing is known. Only the first call counts.
    pub fn explain_by(&self, memory: Arc<dyn Remembers>) {
        let _ = self.memory.set(memory);
    }

    /// The metrics of this control plane; register them with the process's registry.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The advice metrics of this control plane, for the process's registry.
    #[must_use]
    pub fn scaling_collector(&self) -> ScalingCollector {
        let LoadReports { state, reported, .. } = &self.load_reports;
        ScalingCollector { state: state.clone(), reported: Arc::clone(reported) }
    }

    /// The address of the control port.
    #[must_use]
    pub const fn control_addr(&self) -> SocketAddr {
        self.control_addr
    }

    /// Stops answering and sending heartbeats, writes what is queued, and releases the disk. The others elect and
    /// re-home as after a crash. Takes at most four seconds; parts that still run then end with the process.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        tokio::join!(self.group.shutdown(), self.detection.shutdown());
        let give_up = tokio::time::Instant::now() + DRAIN_WITHIN;
        for task in &mut self.tasks {
            if tokio::time::timeout_at(give_up, &mut *task).await.is_err() {
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
        environment: config.environment.clone(),
        net: config.net.clone(),
        // The group is founded after the others have been asked.
        ..GroupConfig::new(config.cluster.clone(), config.node, BTreeMap::new(), config.data_dir.clone())
    };
    if let Environment::Simulation { snapshot, .. } = &config.environment {
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

#[cfg(test)]
mod tests {
    use symphony_consensus::{Engine, OnDiskError};
    use symphony_net::Net;
    use symphony_types::BootId;

    use super::*;
    use crate::config::{ReplicaAddrs, Timing};

    #[tokio::test]
    async fn a_replica_whose_raft_core_has_ended_says_that_it_must_end() {
        let dir = tempfile::tempdir().unwrap();
        let control = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let beat = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addrs = ReplicaAddrs {
            control: control.local_addr().unwrap().to_string(),
            beat: beat.local_addr().unwrap().to_string(),
        };
        let config = ControlPlaneConfig {
            cluster: "test".into(),
            node: NodeId::new(1),
            boot: BootId::new(10),
            replicas: [(NodeId::new(1), addrs)].into(),
            dispatch_addr: "127.0.0.1:1".into(),
            data_dir: dir.path().to_owned(),
            timing: Timing::relaxed(),
            engine: Engine::Memory,
            on_disk_error: OnDiskError::Stop,
            environment: Environment::Machine,
            net: Net::plaintext(),
            join: false,
            epochs: crate::EpochSettings::default(),
            request_delays: symphony_types::Nanos::ZERO,
            wall_clock: || 0,
        };
        let patience = Duration::from_secs(60);
        let plane =
            ControlPlane::start(config, Listeners { control: control.into(), beat: beat.into() }).await.unwrap();
        let mut leadership = plane.leadership();
        let led = leadership.wait_for(|leadership| leadership.is_leader);
        drop(tokio::time::timeout(patience, led).await.expect("a group of one elects").unwrap());
        assert_eq!(*plane.ends().borrow(), None);

        // The effect of a failed disk or of a panic in the core.
        plane.group.shutdown().await;
        let mut ends = plane.ends();
        let ended = tokio::time::timeout(patience, ends.wait_for(Option::is_some)).await.expect("it finds out");
        let words = ended.unwrap().as_ref().unwrap().to_string();
        assert!(words.contains("ended"), "{words}");
        plane.shutdown().await;
    }
}
