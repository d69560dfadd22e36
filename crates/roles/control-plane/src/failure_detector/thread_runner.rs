//! Runs the heartbeat threads and the detector.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use symphony_cluster_state::Command;
use symphony_net::Net;
use symphony_types::NodeId;
use tokio::sync::{Notify, mpsc, watch};

use crate::config::{ControlPlaneConfig, Liveness};
use crate::error::StartError;
use crate::failure_detector::declarations::{
    DECLARATIONS_MAX, DetectorContext, EVENTS_MAX, PROBE_ATTEMPTS, queue_declaration,
};
use crate::failure_detector::detector_turn::DetectorTurn;
use crate::failure_detector::{
    Action, ContactState, DetectorEvent, EventQueue, HeartbeatAcceptor, HeartbeatAddresses, HeartbeatSender,
    SilenceSwitch, TimedEvent, cluster_hash, raise_priority, refuses, wait_until,
};
use crate::metrics::Metrics;
use crate::vital::Vital;

/// Concurrent probes, one per replica; a replica that is not probed is detected by its silence.
const PROBES_MAX: usize = 64;

/// The threads of one replica's failure detection.
#[derive(Debug)]
pub(crate) struct ThreadRunner {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    heartbeat_addr: SocketAddr,
    peers: HeartbeatAddresses,
    silence_switch: SilenceSwitch,
    /// Wakes the detector.
    events: EventQueue,
    /// Wakes the sender.
    told_to_stop: Arc<Notify>,
}

impl ThreadRunner {
    /// Starts the sender, the listener and the detector. Declared failures arrive on the returned channel.
    pub(crate) fn start(
        config: &ControlPlaneConfig,
        listener: TcpListener,
        context: DetectorContext,
        contact_state: watch::Sender<ContactState>,
        metrics: &Metrics,
        vital: &Vital,
    ) -> Result<(Self, mpsc::Receiver<Command>), StartError> {
        let io = |what| move |source| StartError::Io { what, source };
        listener.set_nonblocking(false).map_err(io("heartbeat listener"))?;
        let heartbeat_addr = listener.local_addr().map_err(io("heartbeat listener"))?;
        let (cluster, limits) = (cluster_hash(&config.cluster), config.timing.liveness);
        let configured = config.replicas.iter().map(|(&node, addrs)| (node, addrs.heartbeat.clone())).collect();
        let peers = HeartbeatAddresses::new(configured, context.views.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let (events, heard) = EventQueue::new(EVENTS_MAX);
        let (declare, declared) = mpsc::channel(DECLARATIONS_MAX);

        let mut this = Self {
            stop: stop.clone(),
            threads: Vec::new(),
            heartbeat_addr,
            peers: peers.clone(),
            silence_switch: SilenceSwitch::default(),
            events: events.clone(),
            told_to_stop: Arc::default(),
        };
        let sources = context.sources(config, contact_state, this.silence_switch.clone());
        let (net, told_to_stop) = (config.net.clone(), Arc::clone(&this.told_to_stop));
        let sender = HeartbeatSender { sources, net, peers: peers.clone(), limits, stop: stop.clone(), told_to_stop };
        let (received, records) = (metrics.heartbeats_received.clone(), context.records.clone());
        let answer = limits.answer();
        let acceptor = HeartbeatAcceptor {
            cluster,
            listener,
            net: config.net.clone(),
            events: events.clone(),
            received,
            records,
            answer,
            stop,
        };
        let detector_thread = DetectorThread {
            net: config.net.clone(),
            me: config.node,
            limits,
            peers,
            context,
            events,
            heard,
            declare,
            metrics: metrics.clone(),
            probes: Arc::default(),
            stop: this.stop.clone(),
        };
        let started = this
            .spawn("beat-sender", vital, || sender.run())
            .and_then(|()| this.spawn("beat-listener", vital, || acceptor.run()))
            .and_then(|()| this.spawn("beat-detector", vital, || detector_thread.run()));
        match started {
            Ok(()) => Ok((this, declared)),
            Err(source) => {
                this.shutdown();
                Err(StartError::Io { what: "heartbeat thread", source })
            }
        }
    }

    fn spawn(&mut self, name: &'static str, vital: &Vital, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let guard = vital.guard(name);
        let run = move || {
            let _guard = guard;
            raise_priority();
            run();
        };
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// While this is on, the replica looks dead to the others.
    pub(crate) fn silence_switch(&self) -> SilenceSwitch {
        self.silence_switch.clone()
    }

    /// The heartbeat addresses of the others; the threads use only names that are resolved there.
    pub(crate) fn peers(&self) -> HeartbeatAddresses {
        self.peers.clone()
    }

    /// Stops the threads and waits for them: a few heartbeats at most.
    pub(crate) fn shutdown(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.events.wake();
        self.told_to_stop.notify_one();
        // The listener waits for a connection; this one makes it check `stop`.
        let _ = TcpStream::connect_timeout(&self.heartbeat_addr, Duration::from_millis(100));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a heartbeat thread panicked");
            }
        }
    }
}

struct DetectorThread {
    net: Net,
    me: NodeId,
    limits: Liveness,
    peers: HeartbeatAddresses,
    context: DetectorContext,
    /// For the probes.
    events: EventQueue,
    heard: Receiver<TimedEvent>,
    declare: mpsc::Sender<Command>,
    metrics: Metrics,
    probes: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl DetectorThread {
    fn run(self) {
        let DetectorContext { views, mut leadership, .. } = self.context.clone();
        let (metrics, followed) = (self.metrics.clone(), leadership.clone());
        let mut detector_turn = DetectorTurn::new(self.me, self.limits, views, followed, metrics, Instant::now());
        let mut actions = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let due = detector_turn.is_needed().then(|| detector_turn.due());
            let leadership_changed = async {
                if leadership.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            wait_until(due, async {
                tokio::select! {
                    () = leadership_changed => {}
                    () = self.events.woken() => {}
                }
            });
            let now = Instant::now();
            if due.is_none() {
                detector_turn.begin(now);
            }
            detector_turn.run(now, self.heard.try_iter(), &mut actions);
            for action in actions.drain(..) {
                self.act(action);
            }
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Probe { node, boot } => {
                let Some(addr) = self.peers.of(node).map(|addr| self.net.through(&addr).to_owned()) else { return };
                if self.probes.fetch_add(1, Ordering::Relaxed) >= PROBES_MAX {
                    self.probes.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                let (events, probes) = (self.events.clone(), self.probes.clone());
                let (within, pause) = (self.limits.dial, self.limits.heartbeat);
                let probe = move || {
                    // A killed process may close its connections before its listeners: a port that still accepts
                    // proves little, so it is probed again a heartbeat later.
                    for _ in 0..PROBE_ATTEMPTS {
                        if refuses(&addr, within) {
                            // If the detector has ended, the event does not matter.
                            let _ = events.queue(Instant::now(), DetectorEvent::Refused { node, boot });
                            break;
                        }
                        thread::sleep(pause);
                    }
                    probes.fetch_sub(1, Ordering::Relaxed);
                };
                if let Err(error) = thread::Builder::new().name("beat-probe".to_owned()).spawn(probe) {
                    self.probes.fetch_sub(1, Ordering::Relaxed);
                    tracing::warn!(%error, %node, "no thread to probe a replica; its silence will tell");
                }
            }
            Action::Declare { node, boot } => queue_declaration(self.me, node, boot, &self.declare),
        }
    }
}
