//! Runs failure detection in tasks, for simulations: one thread does everything there, and time stands still while it
//! runs. Heartbeats and detector are those of the threads.

use std::io;

use futures::FutureExt as _;
use symphony_cluster_state::Command;
use symphony_consensus::RoundTrip;
use symphony_net::sockets::Listener;
use symphony_net::{Connection, Expected, Incoming, Net, Port, Role};
use symphony_types::{BootId, NodeId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::config::{ControlPlaneConfig, Liveness};
use crate::failure_detector::declarations::{
    DECLARATIONS_MAX, DetectorContext, EVENTS_MAX, PROBE_ATTEMPTS, queue_declaration,
};
use crate::failure_detector::detector_turn::DetectorTurn;
use crate::failure_detector::{
    ACK_BYTES, Action, CONNECTIONS_MAX, ContactState, DetectorEvent, HEARTBEAT_BYTES, Heartbeat, HeartbeatAddresses,
    HeartbeatSources, HeartbeatState, SilenceSwitch, cluster_hash,
};
use crate::metrics::Metrics;
use crate::vital::{Guard, Vital};

const HEARTBEAT_PORT: Port = Port::new("scheduler.beat", &[Role::Scheduler], CONNECTIONS_MAX);

/// The tasks of one replica's failure detection.
#[derive(Debug)]
pub(crate) struct TaskRunner {
    tasks: JoinSet<()>,
    silence_switch: SilenceSwitch,
}

/// Shared by all tasks.
#[derive(Clone)]
struct Shared {
    cluster: u64,
    me: NodeId,
    net: Net,
    peers: HeartbeatAddresses,
    limits: Liveness,
    context: DetectorContext,
    metrics: Metrics,
}

impl TaskRunner {
    /// Starts the sender, the listener and the detector. Declared failures arrive on the returned channel.
    pub(crate) fn start(
        config: &ControlPlaneConfig,
        listener: Listener,
        context: DetectorContext,
        contact_state: watch::Sender<ContactState>,
        metrics: &Metrics,
        vital: &Vital,
    ) -> (Self, mpsc::Receiver<Command>) {
        let configured = config.replicas.iter().map(|(&node, addrs)| (node, addrs.heartbeat.clone())).collect();
        let silence_switch = SilenceSwitch::default();
        let sources = context.sources(config, contact_state, silence_switch.clone());
        let shared = Shared {
            cluster: cluster_hash(&config.cluster),
            me: config.node,
            net: config.net.clone(),
            peers: HeartbeatAddresses::new(configured, context.views.clone()),
            limits: config.timing.liveness,
            context,
            metrics: metrics.clone(),
        };
        let (events, heard) = mpsc::channel(EVENTS_MAX);
        let (declare, declared) = mpsc::channel(DECLARATIONS_MAX);
        let mut tasks = JoinSet::new();
        tasks.spawn(guarded(vital.guard("beat-sender"), send(shared.clone(), sources)));
        tasks.spawn(guarded(vital.guard("beat-listener"), listen(shared.clone(), listener, events.clone())));
        tasks.spawn(guarded(vital.guard("beat-detector"), run_detector(shared, events, heard, declare)));
        (Self { tasks, silence_switch }, declared)
    }

    pub(crate) fn silence_switch(&self) -> SilenceSwitch {
        self.silence_switch.clone()
    }

    pub(crate) fn shutdown(mut self) {
        self.tasks.abort_all();
    }
}

async fn guarded(guard: Guard, task: impl Future<Output = ()>) {
    let _guard = guard;
    task.await;
}

/// A connection to the leader's heartbeat port.
struct ToLeader {
    to: NodeId,
    stream: Connection,
    /// The beginning of an acknowledgement.
    partial: Vec<u8>,
}

async fn send(shared: Shared, sources: HeartbeatSources) {
    let mut line: Option<ToLeader> = None;
    let mut heartbeat_state = HeartbeatState::new(sources, Instant::now().into_std(), shared.limits);
    loop {
        let leader = heartbeat_state.begin_turn(Instant::now().into_std());
        line = line.filter(|line| Some(line.to) == leader);
        if let Some(leader) = leader {
            line = send_heartbeat(&shared, line, leader, &mut heartbeat_state).await.ok();
        }
        heartbeat_state.end_turn(Instant::now().into_std());
        sleep(shared.limits.heartbeat).await;
    }
}

async fn send_heartbeat(
    shared: &Shared,
    line: Option<ToLeader>,
    to: NodeId,
    heartbeat_state: &mut HeartbeatState,
) -> io::Result<ToLeader> {
    let mut line = match line {
        Some(line) => line,
        None => {
            let addr = shared.peers.of(to).ok_or_else(|| io::Error::other("no heartbeat address is known"))?;
            let stream = timeout(shared.limits.dial, shared.net.dial(&addr, &named(to))).await??;
            heartbeat_state.dialled(Instant::now().into_std());
            ToLeader { to, stream, partial: Vec::with_capacity(ACK_BYTES) }
        }
    };
    let mut bytes = [0; ACK_BYTES];
    // Reads what has arrived, without waiting.
    while let Some(read) = line.stream.read(&mut bytes[..ACK_BYTES - line.partial.len()]).now_or_never() {
        match read? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => line.partial.extend_from_slice(&bytes[..count]),
        }
        if let Some(whole) = line.partial.first_chunk::<ACK_BYTES>() {
            heartbeat_state.acknowledged(whole)?;
            line.partial.clear();
        }
    }
    let bytes = heartbeat_state.heartbeat(Instant::now().into_std())?;
    timeout(shared.limits.heartbeat, line.stream.write_all(&bytes)).await??;
    Ok(line)
}

fn named(node: NodeId) -> Expected {
    Expected::named(Role::Scheduler, node.get().to_string())
}

async fn listen(shared: Shared, listener: Listener, events: mpsc::Sender<DetectorEvent>) {
    let mut incoming = Incoming::new(listener, shared.net.clone(), HEARTBEAT_PORT);
    let mut readers = JoinSet::new();
    while let Some(stream) = incoming.next().await {
        readers.spawn(read_heartbeats(shared.clone(), stream, events.clone()));
        // Finished connection tasks are removed here.
        while readers.try_join_next().is_some() {}
    }
}

async fn read_heartbeats(shared: Shared, mut stream: Connection, events: mpsc::Sender<DetectorEvent>) {
    let mut peer = None;
    let mut trip = RoundTrip::new(shared.limits.answer());
    let mut bytes = [0; HEARTBEAT_BYTES];
    while stream.read_exact(&mut bytes).await.is_ok() {
        let Some(heartbeat) = Heartbeat::decode(&bytes, shared.cluster) else { break };
        peer = Some((heartbeat.node, heartbeat.boot));
        shared.metrics.heartbeats_received.inc();
        let recent = trip.is_recent(Instant::now().into_std(), heartbeat.echoed);
        let alive = shared.context.records.record(&heartbeat, Instant::now().into_std());
        let event = DetectorEvent::Heartbeat { node: heartbeat.node, boot: heartbeat.boot };
        if alive && recent && events.send(event).await.is_err() {
            return;
        }
        let ack = shared.context.records.answer(&heartbeat, Instant::now().into_std());
        if let Some(ack) = ack.filter(|_| alive) {
            if stream.write_all(&ack.encode(shared.cluster)).await.is_err() {
                break;
            }
            trip.answered(Instant::now().into_std(), heartbeat.sequence);
        }
    }
    if let Some((node, boot)) = peer {
        let _ = events.send(DetectorEvent::Lost { node, boot }).await;
    }
}

async fn run_detector(
    shared: Shared,
    events: mpsc::Sender<DetectorEvent>,
    mut heard: mpsc::Receiver<DetectorEvent>,
    declarations: mpsc::Sender<Command>,
) {
    let DetectorContext { views, leadership, .. } = shared.context.clone();
    let now = Instant::now().into_std();
    let mut detector_turn = DetectorTurn::new(shared.me, shared.limits, views, leadership, shared.metrics.clone(), now);
    let mut actions = Vec::new();
    let mut probes = JoinSet::new();
    loop {
        let event = tokio::select! {
            biased;
            event = heard.recv() => event,
            () = sleep_until(detector_turn.due().into()) => None,
        };
        let now = Instant::now().into_std();
        detector_turn.run(now, event.map(|event| (now, event)), &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Declare { node, boot } => queue_declaration(shared.me, node, boot, &declarations),
                Action::Probe { node, boot } => {
                    probes.spawn(probe(shared.clone(), node, boot, events.clone()));
                    while probes.try_join_next().is_some() {}
                }
            }
        }
    }
}

async fn probe(shared: Shared, node: NodeId, boot: BootId, events: mpsc::Sender<DetectorEvent>) {
    let Some(addr) = shared.peers.of(node) else { return };
    for _ in 0..PROBE_ATTEMPTS {
        let dialled = timeout(shared.limits.dial, shared.net.dial(&addr, &named(node))).await;
        if dialled.is_ok_and(|dialled| dialled.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)) {
            let _ = events.try_send(DetectorEvent::Refused { node, boot });
            return;
        }
        sleep(shared.limits.heartbeat).await;
    }
}
