//! The threads that receive the other replicas' heartbeats.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use symphony_consensus::{ControlGroup, Leadership, RoundTrip};
use symphony_net::{CallerLimits, CallerPlace, Callers, Line, Net, Refusal, Role, refused};
use tokio::sync::watch;

use crate::failure_detector::detector::DetectorEvent;
use crate::failure_detector::event_queue::EventQueue;
use crate::failure_detector::message::{Ack, HEARTBEAT_BYTES, Heartbeat};
use crate::failure_detector::progress::Progress;
use crate::failure_detector::thread_priority::{lower as lower_priority, raise as raise_priority};
use crate::group::checkpoints::Checkpoints;

/// The port's name in metrics.
const PORT: &str = "scheduler.beat";

/// Concurrent connections of replicas: 64 replicas, each with an old and a new one.
pub(crate) const CONNECTIONS_MAX: usize = 128;

/// The part of them from one address: half, as at the other internal ports.
const CONNECTIONS_PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;

/// Concurrent connections that have not authenticated: twice the number of replicas, which all dial a new Raft leader
/// at once. Counted apart, so that strangers take no place from authenticated replicas.
const HANDSHAKES_MAX: usize = 128;

/// The part of them from one address: replicas of a test cluster share one, but a stranger must not take all places.
const HANDSHAKES_PER_PEER_MAX: usize = 16;

/// A connection without a heartbeat for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// An acknowledgement that cannot be sent at once is useless later.
const ACK_WITHIN: Duration = Duration::from_millis(1);

/// What the Raft leader knows about the sending replicas.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatRecords {
    pub(crate) leadership: watch::Receiver<Leadership>,
    /// How long the last acknowledgement of a quorum counts.
    pub(crate) lease: Duration,
    pub(crate) group: Option<ControlGroup>,
    pub(crate) checkpoints: Checkpoints,
    /// How far this replica has applied the log.
    pub(crate) applied: watch::Receiver<u64>,
    /// How far the others have applied it.
    pub(crate) progress: Arc<Mutex<Progress>>,
    /// The metric of the replicas that do not apply the log.
    pub(crate) not_applying: Gauge,
}

impl HeartbeatRecords {
    /// Records a heartbeat. Returns whether it is a sign of life: one from a replica that does not apply the log is
    /// not.
    pub(crate) fn record(&self, heartbeat: &Heartbeat, now: Instant) -> bool {
        self.checkpoints.compare(heartbeat.node, heartbeat.checkpoint);
        let own = *self.applied.borrow();
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let applies = progress.record(now, (heartbeat.node, heartbeat.boot), heartbeat.applied, own);
        progress.set_level((heartbeat.node, heartbeat.boot), heartbeat.level);
        self.not_applying.set(progress.late(now) as i64);
        applies
    }

    /// The acknowledgement of a heartbeat: none unless this replica leads with a quorum.
    pub(crate) fn answer(&self, heartbeat: &Heartbeat, now: Instant) -> Option<Ack> {
        let confirmed = self.leadership.borrow().confirmed(now)?;
        if now.saturating_duration_since(confirmed) > self.lease {
            return None;
        }
        let member = self.group.as_ref().is_none_or(|group| group.members().addresses.contains_key(&heartbeat.node));
        Some(Ack { sequence: heartbeat.sequence, member })
    }
}

/// Accepts heartbeats until stopped, and passes them to the detector.
pub(crate) struct HeartbeatAcceptor {
    pub(crate) cluster: u64,
    pub(crate) listener: TcpListener,
    pub(crate) net: Net,
    pub(crate) events: EventQueue,
    pub(crate) received: Counter,
    pub(crate) records: HeartbeatRecords,
    /// How long the round trip may take on a usable connection.
    pub(crate) answer: Duration,
    pub(crate) stop: Arc<AtomicBool>,
}

impl HeartbeatAcceptor {
    /// Runs on its own thread; a connection made after `stop` is set ends it.
    pub(crate) fn run(self) {
        let connected = Callers::new(CallerLimits { total: CONNECTIONS_MAX, per_address: CONNECTIONS_PER_ADDRESS_MAX });
        let waiting = Callers::new(CallerLimits { total: HANDSHAKES_MAX, per_address: HANDSHAKES_PER_PEER_MAX });
        loop {
            let accepted = self.listener.accept();
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Probably out of file descriptors; without a pause this would spin.
                    tracing::warn!(%error, "heartbeat connection not accepted");
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            let place = match waiting.take_place(peer.ip()) {
                Ok(place) => place,
                Err(refusal) => {
                    refused(PORT, refusal);
                    tracing::warn!(%peer, "heartbeat connection turned away: too many handshakes, here or from there");
                    continue;
                }
            };
            let reader = ConnectionReader {
                cluster: self.cluster,
                net: self.net.clone(),
                events: self.events.clone(),
                received: self.received.clone(),
                records: self.records.clone(),
                answer: self.answer,
                stop: self.stop.clone(),
                connected: connected.clone(),
            };
            let listen = move || reader.listen(stream, place);
            if let Err(error) = thread::Builder::new().name("beat-reader".to_owned()).spawn(listen) {
                tracing::warn!(%error, "no thread for a heartbeat connection");
            }
        }
    }
}

/// Reads one connection.
struct ConnectionReader {
    cluster: u64,
    net: Net,
    events: EventQueue,
    received: Counter,
    records: HeartbeatRecords,
    answer: Duration,
    stop: Arc<AtomicBool>,
    connected: Callers,
}

impl ConnectionReader {
    /// `waiting` is the place of a caller that has not authenticated.
    fn listen(&self, stream: TcpStream, waiting: CallerPlace) {
        lower_priority();
        let mut line = match self.net.accept_line(stream, &[Role::Scheduler]) {
            Ok(line) => line,
            // Also a probe that only checks whether the port is open.
            Err(error) => {
                refused(PORT, Refusal::Stranger);
                return tracing::debug!(%error, "heartbeat connection turned away");
            }
        };
        raise_priority();
        drop(waiting);
        let peer = line.peer();
        let _place = match self.connected.take_place(peer.addr.ip()) {
            Ok(place) => place,
            Err(refusal) => {
                refused(PORT, refusal);
                let reason = refusal.label();
                return tracing::warn!(%peer, reason, "heartbeat connection turned away: too many connections");
            }
        };
        let mut heard: Option<Heartbeat> = None;
        let ended = self.read_heartbeats(&mut line, &mut heard);
        if let Some(Heartbeat { node, boot, .. }) = heard.filter(|_| !self.stop.load(Ordering::Relaxed)) {
            tracing::debug!(%node, reason = %ended, "heartbeat connection ended");
            // The detector lives as long as the control plane; without it the event does not matter.
            let _ = self.events.queue(Instant::now(), DetectorEvent::Lost { node, boot });
        }
    }

    /// Reads until the connection ends; returns the reason.
    fn read_heartbeats(&self, line: &mut Line, heard: &mut Option<Heartbeat>) -> io::Error {
        let socket = line.socket();
        let set_up = socket
            .set_read_timeout(Some(IDLE_MAX))
            .and_then(|()| socket.set_write_timeout(Some(ACK_WITHIN)))
            .and_then(|()| socket.set_nodelay(true));
        if let Err(error) = set_up {
            return error;
        }
        let mut trip = RoundTrip::new(self.answer);
        let mut bytes = [0; HEARTBEAT_BYTES];
        loop {
            if let Err(error) = line.read_exact(&mut bytes) {
                return error;
            }
            let Some(heartbeat) = Heartbeat::decode(&bytes, self.cluster) else {
                tracing::warn!(peer = %line.peer(), "what arrived at the heartbeat port is no heartbeat of this cluster and release");
                return io::ErrorKind::InvalidData.into();
            };
            if !line.peer().may_be(Role::Scheduler, &heartbeat.node.get().to_string()) {
                tracing::warn!(peer = %line.peer(), node = %heartbeat.node, "a heartbeat in another replica's name");
                return io::ErrorKind::PermissionDenied.into();
            }
            *heard = Some(heartbeat);
            self.received.inc();
            let now = Instant::now();
            let recent = trip.is_recent(now, heartbeat.echoed);
            let alive = self.records.record(&heartbeat, now);
            let event = DetectorEvent::Heartbeat { node: heartbeat.node, boot: heartbeat.boot };
            if self.stop.load(Ordering::Relaxed) || alive && recent && !self.events.queue(now, event) {
                return io::ErrorKind::ConnectionAborted.into();
            }
            if let Some(ack) = self.records.answer(&heartbeat, now).filter(|_| alive) {
                if let Err(error) = line.write_all(&ack.encode(self.cluster)).and_then(|()| line.flush()) {
                    return error;
                }
                trip.answered(Instant::now(), heartbeat.sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc::Receiver;

    use symphony_net::{Authority, Credentials, Expected, Identity};
    use symphony_types::{BootId, Level, NodeId};

    use super::*;
    use crate::failure_detector::event_queue::TimedEvent;
    use crate::failure_detector::message::{ACK_BYTES, cluster_hash};
    use crate::group::checkpoints::Checkpoint;

    const LEADING: Leadership = Leadership { leader: None, is_leader: true, term: 0, quorum_acked: None, alone: true };

    /// The listener of a Raft leader, on its own thread.
    struct Scene {
        addr: SocketAddr,
        heard: Receiver<TimedEvent>,
        told: watch::Sender<Leadership>,
        agreed: watch::Sender<u64>,
        progress: Arc<Mutex<Progress>>,
        answer: Duration,
        stop: Arc<AtomicBool>,
        thread: thread::JoinHandle<()>,
    }

    impl Scene {
        fn new(net: Net, cluster: u64) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let (events, heard) = EventQueue::new(16);
            let stop = Arc::new(AtomicBool::new(false));
            let (told, leadership) = watch::channel(LEADING);
            let (agreed, applied) = watch::channel(0);
            let (checkpoints, progress) = (Checkpoints::default(), Arc::<Mutex<Progress>>::default());
            let lease = Duration::from_secs(1);
            let records = HeartbeatRecords {
                leadership,
                lease,
                group: None,
                checkpoints,
                applied,
                progress: Arc::clone(&progress),
                not_applying: Gauge::default(),
            };
            let received = Counter::default();
            let answer = Duration::from_millis(200);
            let acceptor =
                HeartbeatAcceptor { cluster, listener, net, events, received, records, answer, stop: stop.clone() };
            Self { addr, heard, told, agreed, progress, answer, stop, thread: thread::spawn(|| acceptor.run()) }
        }

        fn hears(&self) -> DetectorEvent {
            self.heard.recv_timeout(Duration::from_secs(30)).unwrap().1
        }

        fn end(self) {
            self.stop.store(true, Ordering::Relaxed);
            TcpStream::connect(self.addr).unwrap();
            self.thread.join().unwrap();
        }
    }

    /// Connects from another address of this host than the others here have.
    fn connect_from_elsewhere(to: SocketAddr) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            socket.connect(to).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream
    }

    #[test]
    fn strangers_that_say_nothing_keep_no_replica_out() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "blue").unwrap();
        let net = |name| {
            let issued = authority.issue(&Identity::new("blue", Role::Scheduler, name).unwrap(), 1).unwrap();
            Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
        };
        let (cluster, patience) = (cluster_hash("blue"), Duration::from_secs(30));
        let scene = Scene::new(net("1"), cluster);
        let strangers: Vec<_> =
            (0..CONNECTIONS_MAX + HANDSHAKES_MAX).map(|_| connect_from_elsewhere(scene.addr)).collect();

        let leader = Expected::named(Role::Scheduler, "1");
        let net = net("2");
        let stream = net.connect_line(&[scene.addr], patience).unwrap();
        let mut line = net.authenticate_line(stream, &leader, patience, patience, || true).unwrap();
        let (node, boot) = (NodeId::new(2), BootId::new(20));
        let (checkpoint, level) = (Checkpoint::default(), Level::OLDEST);
        let heartbeat = Heartbeat { node, boot, applied: 5, sequence: 7, checkpoint, echoed: 7, level };
        line.write_all(&heartbeat.encode(cluster)).unwrap();
        line.flush().unwrap();
        assert_eq!(scene.hears(), DetectorEvent::Heartbeat { node, boot });
        drop((line, strangers));
        scene.end();
    }

    /// In plaintext, where every caller is believed, as one with a certificate is.
    #[test]
    fn connections_from_one_address_leave_places_for_those_of_others() {
        let (cluster, patience) = (cluster_hash("blue"), Duration::from_secs(30));
        let scene = Scene::new(Net::plaintext(), cluster);
        let (node, boot) = (NodeId::new(2), BootId::new(20));
        let (checkpoint, level) = (Checkpoint::default(), Level::OLDEST);
        let heartbeat = Heartbeat { node, boot, applied: 5, sequence: 7, checkpoint, echoed: 7, level };
        // Each has its place, or is turned away, before the next one comes.
        let answer = |mut line: TcpStream| {
            line.set_read_timeout(Some(patience)).unwrap();
            let written = line.write_all(&heartbeat.encode(cluster));
            let answered = written.and_then(|()| line.read(&mut [0; 1])).is_ok_and(|count| count == 1);
            while scene.heard.try_recv().is_ok() {}
            (answered, line)
        };
        let crowd: Vec<_> = (0..=CONNECTIONS_MAX).map(|_| answer(TcpStream::connect(scene.addr).unwrap())).collect();
        assert!(crowd.iter().any(|(answered, _)| *answered) && crowd.iter().any(|(answered, _)| !answered));

        let (answered, line) = answer(connect_from_elsewhere(scene.addr));
        assert!(answered, "half of the places are for others");
        drop((line, crowd));
        scene.end();
    }

    #[test]
    fn heartbeats_are_heard_strangers_are_cut_off_and_an_end_is_told() {
        let (cluster, patience) = (cluster_hash("blue"), Duration::from_secs(30));
        let scene = Scene::new(Net::plaintext(), cluster);
        let Scene { addr, heard, told, agreed, progress, answer, .. } = &scene;
        let addr = *addr;

        let (node, boot) = (NodeId::new(2), BootId::new(20));
        let (checkpoint, level) = (Checkpoint::default(), Level::NEWEST);
        let heartbeat = Heartbeat { node, boot, applied: 5, sequence: 7, checkpoint, echoed: 7, level };
        let mut line = TcpStream::connect(addr).unwrap();
        let bytes = heartbeat.encode(cluster);
        line.write_all(&bytes[..7]).unwrap();
        line.write_all(&bytes[7..]).unwrap();
        assert_eq!(scene.hears(), DetectorEvent::Heartbeat { node, boot }, "however it was cut into packets");

        let mut bytes = [0; ACK_BYTES];
        line.set_read_timeout(Some(patience)).unwrap();
        line.read_exact(&mut bytes).unwrap();
        assert_eq!(Ack::decode(&bytes, cluster), Some(Ack { sequence: 7, member: true }));
        assert_eq!(progress.lock().unwrap().of(node), 5);
        assert_eq!(progress.lock().unwrap().level_of(node, boot), Some(Level::NEWEST));
        assert_eq!(progress.lock().unwrap().level_of(node, BootId::new(21)), None, "of another boot nothing is known");
        // It answers twice; a heartbeat that echoes neither answer has come over a slow connection.
        thread::sleep(*answer + Duration::from_millis(5));
        for (echoed, recent) in [(0, false), (8, true)] {
            line.write_all(&Heartbeat { sequence: 8, echoed, ..heartbeat }.encode(cluster)).unwrap();
            line.read_exact(&mut bytes).unwrap();
            assert_eq!(heard.try_recv().is_ok(), recent, "before it is acknowledged it is heard, or not");
        }
        agreed.send_replace(9);
        let before = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        progress.lock().unwrap().record(before(3_000), (node, boot), 5, 9);
        progress.lock().unwrap().record(before(1_500), (node, boot), 5, 9);
        line.write_all(&heartbeat.encode(cluster)).unwrap();
        line.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(
            line.read_exact(&mut bytes).is_err(),
            "who does not apply what was agreed three seconds ago is not answered"
        );
        assert!(heard.try_recv().is_err(), "and not heard");
        line.set_read_timeout(Some(patience)).unwrap();
        let heartbeat = Heartbeat { applied: 9, ..heartbeat };
        told.send_replace(Leadership { quorum_acked: None, alone: false, ..LEADING });
        line.write_all(&heartbeat.encode(cluster)).unwrap();
        assert_eq!(scene.hears(), DetectorEvent::Heartbeat { node, boot });
        line.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(line.read_exact(&mut bytes).is_err(), "a leader without a quorum acknowledges nothing");

        let mut stranger = TcpStream::connect(addr).unwrap();
        stranger.set_read_timeout(Some(patience)).unwrap();
        stranger.write_all(&heartbeat.encode(cluster_hash("green"))).unwrap();
        assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0, "a heartbeat of another cluster ends its connection");

        drop(line);
        assert_eq!(scene.hears(), DetectorEvent::Lost { node, boot }, "and the stranger told nothing");
        scene.end();
    }
}
