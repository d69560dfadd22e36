//! One replica's control plane: starts its parts, provides their handles, and stops them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_cluster_state::{Command, LeadReport, NodeRegistration};
use symphony_consensus::{ControlGroup, Environment, GroupConfig, Leadership};
use symphony_protocol::view::{SortedView, View};
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
use crate::failure_detector::declarations::{DetectorContext, propose_declared};
use crate::failure_detector::failure_detection::{FailureDetection, HeartbeatListener};
use crate::failure_detector::{ContactState, HeartbeatRecords};
use crate::group::boot_history::BootHistory;
use crate::group::checkpoints::Checkpoints;
use crate::group::levels::ProcessLevels;
use crate::group::membership::{self, Membership};
use crate::group::propose::{Accepted, Proposer};
use crate::group::state_machine::{ClusterStateMachine, SharedState};
use crate::group::{disk, founding, lead_reports, registrar};
use crate::initiatives::frontend_reaper::{FrontendPresence, FrontendReaper};
use crate::initiatives::initiative::{self, Initiative};
use crate::initiatives::lead_balancer::LeadBalancer;
use crate::initiatives::mover::Mover;
use crate::metrics::Metrics;
use crate::planning::{Ask, LoadReports, Planner, Reported, ScalerService, ScalingCollector, Solver, Unreported};
use crate::vital::Vital;

/// How long a stop waits for calls in progress.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The bound ports of a replica's control plane.
#[derive(Debug)]
pub struct Listeners {
    /// For Raft and `symphony.v1.Control`.
    pub control: symphony_net::sockets::Listener,
    /// For heartbeats, which come to the Raft leader.
    pub heartbeat: HeartbeatListener,
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
        let (state_machine, applied) =
            ClusterStateMachine::new(state.clone(), checkpoints.clone(), metrics.clone(), config.net.level().clone());
        let opened = open_group(&config, state_machine, &state).await?;

        let records = heartbeat_records(&config, &opened.group, &checkpoints, &applied, &metrics);
        let viewer = Viewer {
            presence: FrontendPresence::default(),
            levels: ProcessLevels::default(),
            own_level: config.net.level().clone(),
            reported: Arc::new(Mutex::new(Reported::new(&config.epochs, config.wall_clock))),
            cluster: config.cluster.as_str().into(),
            node: config.node,
            state: state.clone(),
            leadership: opened.group.leadership(),
            group: opened.group.clone(),
            progress: Arc::clone(&records.progress),
        };
        let (published, views, sorted) = publish::channels(viewer.view());
        let (contact, contact_state) = watch::channel(ContactState { in_contact: true, heard: false, member: true });
        let context = DetectorContext {
            records,
            checkpoints,
            leadership: opened.group.leadership(),
            views: views.clone(),
            applied: applied.clone(),
        };
        let stop = CancellationToken::new();
        let (fatal, ends) = watch::channel(None);
        let vital = Vital::new(fatal.clone(), stop.clone());
        let detected = Proposer::new(&config, opened.group.clone()).and_then(|proposer| {
            Ok((proposer, FailureDetection::start(&config, listeners.heartbeat, context, contact, &metrics, &vital)?))
        });
        let (proposer, (detection, declared)) = match detected {
            Ok(detected) => detected,
            Err(error) => {
                opened.group.shutdown().await;
                return Err(error);
            }
        };

        let parts = Parts { config, state, proposer, views, contact_state, metrics, fatal, stop, vital };
        let group = opened.group.clone();
        let memory = Memory::default();
        let load_reports = LoadReports {
            unsaid: Unreported::default(),
            proposer: parts.proposer.clone(),
            state: parts.state.clone(),
            reported: Arc::clone(&viewer.reported),
        };
        let (asks, ask_receiver) = mpsc::channel(EPOCHS_ASKED_MAX);
        let (lead_reports, reported_leads) = mpsc::unbounded_channel();
        let mut tasks = parts.spawn_reporters(reported_leads, declared, &detection);
        tasks.extend(parts.spawn_initiatives(viewer.presence.clone()));
        tasks.push(parts.spawn_planner(ask_receiver, Arc::clone(&viewer.reported)));
        tasks.extend(parts.spawn_membership(opened));
        let (service, scaler) = parts.services(&viewer, sorted, memory.clone(), asks);
        tasks.push(parts.spawn_control_port(listeners.control, &group, service, scaler));
        let publisher =
            publish::run(viewer, applied, published, parts.metrics.clone(), parts.fatal.clone(), parts.stop.clone());
        tasks.push(parts.vital.spawn("publisher", publisher));
        let Parts { config, state, proposer, views, contact_state, metrics, stop, .. } = parts;
        let node = config.node;
        tracing::info!(cluster = config.cluster, %node, %control_addr, "control plane started");
        Ok(Self {
            node,
            group,
            proposer,
            state,
            views,
            contact_state,
            ends,
            memory,
            load_reports,
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
        let (sender, contact) = watch::channel(true);
        let mut contact_state = self.contact_state.clone();
        tokio::spawn(async move {
            loop {
                let now = contact_state.borrow_and_update().in_contact;
                sender.send_if_modified(|known| std::mem::replace(known, now) != now);
                tokio::select! {
                    changed = contact_state.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
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

    /// Makes the cluster agree on a command, through the current leader.
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

/// The control group as this replica's disk has it, and the earlier boots on that disk.
struct OpenedGroup {
    group: ControlGroup,
    /// Whether an earlier boot has left data.
    has_past: bool,
    /// The number of the disk.
    disk: u64,
    boot_history: Arc<BootHistory>,
}

/// Opens the control group, and keeps it closed to the others until this replica has asked what they know about it.
async fn open_group(
    config: &ControlPlaneConfig,
    state_machine: ClusterStateMachine,
    state: &SharedState,
) -> Result<OpenedGroup, StartError> {
    let group = ControlGroup::start(group_config(config), state_machine).await?;
    // Before any message can arrive: what is on the disk now is from an earlier boot.
    let has_past = group.has_past();
    group.set_open(false);
    // Entries that the disk itself shows as committed are applied by now.
    let logged = state.read().nodes().get(&config.node).map(|node| node.boot);
    let known = disk::number(&config.data_dir, has_past, config.boot.get())
        .and_then(|disk| Ok((disk, BootHistory::begin(&config.data_dir, has_past, config.boot, logged)?)));
    match known {
        Ok((disk, boot_history)) => Ok(OpenedGroup { group, has_past, disk, boot_history: Arc::new(boot_history) }),
        Err(source) => {
            group.shutdown().await;
            Err(StartError::Io { what: "what the disk says of this replica", source })
        }
    }
}

fn heartbeat_records(
    config: &ControlPlaneConfig,
    group: &ControlGroup,
    checkpoints: &Checkpoints,
    applied: &watch::Receiver<u64>,
    metrics: &Metrics,
) -> HeartbeatRecords {
    HeartbeatRecords {
        leadership: group.leadership(),
        lease: config.timing.group.election_max,
        group: Some(group.clone()),
        checkpoints: checkpoints.clone(),
        applied: applied.clone(),
        progress: Arc::default(),
        not_applying: metrics.replicas_not_applying.clone(),
    }
}

/// What the parts of a control plane share; starts those that are tasks.
struct Parts {
    config: ControlPlaneConfig,
    state: SharedState,
    proposer: Proposer,
    views: watch::Receiver<Arc<View>>,
    contact_state: watch::Receiver<ContactState>,
    metrics: Metrics,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
    vital: Vital,
}

impl Parts {
    /// Proposes what this replica has found out: the state of its leads, and failures that it declares as Raft leader.
    fn spawn_reporters(
        &self,
        leads: mpsc::UnboundedReceiver<LeadReport>,
        declared: mpsc::Receiver<Command>,
        detection: &FailureDetection,
    ) -> Vec<JoinHandle<()>> {
        let (me, silence) = ((self.config.node, self.config.boot), detection.silence_switch());
        let lead_reporter = lead_reports::run(me, leads, self.proposer.clone(), silence, self.stop.clone());
        let declarer = propose_declared(declared, self.proposer.clone(), self.metrics.clone());
        let mut tasks = vec![self.vital.spawn("lead reporter", lead_reporter), self.vital.spawn("declarer", declarer)];
        if let Some(peers) = detection.to_resolve() {
            let resolver = peers.keep_resolved(self.config.net.clone(), self.stop.clone());
            tasks.push(self.vital.spawn("resolver", resolver));
        }
        tasks
    }

    /// What this replica proposes of its own accord while it leads the control group.
    fn spawn_initiatives(&self, presence: FrontendPresence) -> [JoinHandle<()>; 3] {
        [
            self.spawn_initiative("lead balancer", LeadBalancer::default()),
            self.spawn_initiative("mover", Mover::default()),
            self.spawn_initiative("frontend reaper", FrontendReaper::new(presence)),
        ]
    }

    fn spawn_initiative(&self, part: &'static str, initiative: impl Initiative) -> JoinHandle<()> {
        let (state, proposer, views) = (self.state.clone(), self.proposer.clone(), self.views.clone());
        self.vital.spawn(part, initiative::run(initiative, self.config.node, state, proposer, views, self.stop.clone()))
    }

    fn spawn_planner(&self, asks: mpsc::Receiver<Ask>, reported: Arc<Mutex<Reported>>) -> JoinHandle<()> {
        let planner = Planner {
            settings: self.config.epochs.clone(),
            request_delays: self.config.request_delays,
            state: self.state.clone(),
            proposer: self.proposer.clone(),
            reported,
            metrics: self.metrics.clone(),
            asks,
            solver: Solver::default(),
        };
        self.vital.spawn("planner", planner.run(self.stop.clone()))
    }

    /// Makes this replica a member of the cluster, and keeps it one.
    fn spawn_membership(&self, opened: OpenedGroup) -> [JoinHandle<()>; 3] {
        let process = registrar::Process {
            config: self.config.clone(),
            boot_history: Arc::clone(&opened.boot_history),
            on_threads: matches!(self.config.environment, Environment::Machine),
            was_taken_in: false,
        };
        let inputs =
            registrar::RegistrarInputs { views: self.views.clone(), contact_state: self.contact_state.clone() };
        let registrar = registrar::run(
            registration(&self.config, opened.disk),
            process,
            self.proposer.clone(),
            inputs,
            self.metrics.clone(),
            self.fatal.clone(),
            self.stop.clone(),
        );
        let left_out = membership::left_out(
            self.config.node,
            self.proposer.clone(),
            self.contact_state.clone(),
            self.fatal.clone(),
            self.stop.clone(),
        );
        let founder =
            join_group(opened, self.config.clone(), self.proposer.clone(), self.fatal.clone(), self.stop.clone());
        [
            self.vital.spawn("founder", founder),
            self.vital.spawn("registrar", registrar),
            self.vital.spawn("search for its own place", left_out),
        ]
    }

    /// What answers on the control port, besides Raft.
    fn services(
        &self,
        viewer: &Viewer,
        sorted: watch::Receiver<Arc<SortedView>>,
        memory: Memory,
        epochs: mpsc::Sender<Ask>,
    ) -> (ControlService, ScalerService) {
        let Self { config, state, proposer, .. } = self;
        let operations = Operations::new(config.boot, config.wall_clock);
        let service = ControlService {
            cluster: Arc::clone(&viewer.cluster),
            proposer: proposer.clone(),
            membership: Membership::new(config.node, proposer.clone(), state.clone(), operations.clone()),
            operations,
            viewer: viewer.clone(),
            views: self.views.clone(),
            sorted,
            memory,
            reported: Arc::clone(&viewer.reported),
            epochs,
            load_bytes_per_s: config.epochs.load_bytes_per_s,
            request_delays: config.request_delays,
            policies: config.policies.clone(),
            presence: viewer.presence.clone(),
            metrics: self.metrics.clone(),
            stop: self.stop.clone(),
        };
        let scaler = ScalerService {
            proposer: proposer.clone(),
            state: state.clone(),
            reported: Arc::clone(&viewer.reported),
            stop: self.stop.clone(),
        };
        (service, scaler)
    }

    fn spawn_control_port(
        &self,
        listener: symphony_net::sockets::Listener,
        group: &ControlGroup,
        service: ControlService,
        scaler: ScalerService,
    ) -> JoinHandle<()> {
        let state = self.state.clone();
        let raft = group.service(move |node| state.read().removed_nodes().contains(&node));
        let (net, state) = (self.config.net.clone(), self.state.clone());
        let serving = server::serve(listener, net, raft, (service, scaler), state, self.stop.clone());
        self.vital.spawn("control port", async {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the control port failed");
            }
        })
    }
}

/// Founds the control group or takes this replica's place in it, and waits for the stop.
async fn join_group(
    opened: OpenedGroup,
    config: ControlPlaneConfig,
    proposer: Proposer,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let begin = async {
        if opened.has_past && !opened.group.begins_anew() {
            founding::rejoin(&config, &proposer, &opened.boot_history).await?;
        } else {
            founding::found(&config, &proposer).await?;
        }
        opened.group.forgotten().await;
        Err(Fatal::forgotten(&config))
    };
    let ended: Option<Result<(), Fatal>> = stop.run_until_cancelled(begin).await;
    if let Some(Err(error)) = ended {
        fatal.send_replace(Some(error));
    }
    // The only part that ends with its task.
    stop.cancelled().await;
}

pub(crate) fn group_config(config: &ControlPlaneConfig) -> GroupConfig {
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
        beat_addr: own.map(|addrs| addrs.heartbeat.clone()).unwrap_or_default(),
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
        let heartbeat = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addrs = ReplicaAddrs {
            control: control.local_addr().unwrap().to_string(),
            heartbeat: heartbeat.local_addr().unwrap().to_string(),
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
            policies: symphony_scheduler::PolicyRegistry::new(),
        };
        let timeout = Duration::from_secs(60);
        let plane = ControlPlane::start(config, Listeners { control: control.into(), heartbeat: heartbeat.into() })
            .await
            .unwrap();
        let mut leadership = plane.leadership();
        let led = leadership.wait_for(|leadership| leadership.is_leader);
        drop(tokio::time::timeout(timeout, led).await.expect("a group of one elects").unwrap());
        assert_eq!(*plane.ends().borrow(), None);

        // The effect of a failed disk or of a panic in the core.
        plane.group.shutdown().await;
        let mut ends = plane.ends();
        let ended = tokio::time::timeout(timeout, ends.wait_for(Option::is_some)).await.expect("it finds out");
        let words = ended.unwrap().as_ref().unwrap().to_string();
        assert!(words.contains("ended"), "{words}");
        plane.shutdown().await;
    }
}
