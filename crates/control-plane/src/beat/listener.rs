//! The threads that hear the other replicas' beats.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use symphony_consensus::{ControlGroup, Leadership};
use symphony_net::{Line, Net, Role};
use symphony_types::NodeId;
use tokio::sync::watch;

use super::detector::Input;
use super::message::{Ack, BEAT_BYTES, Beat};
use crate::checkpoints::Checkpoints;

/// Connections at a time: 64 replicas, each with the one it is giving up and the one it is opening.
const CONNECTIONS_MAX: usize = 128;

/// A connection without a beat for so long is of no use to anybody.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// An acknowledgement that does not fit the line at once is of no use later.
const ACK_WITHIN: Duration = Duration::from_millis(1);

/// What a leader of the control group knows of those who beat it.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    pub(crate) leadership: watch::Receiver<Leadership>,
    /// For how long a quorum's last acknowledgement is worth one.
    pub(crate) lease: Duration,
    pub(crate) group: Option<ControlGroup>,
    pub(crate) checkpoints: Checkpoints,
    /// How far each replica has applied the log.
    pub(crate) applied: Arc<Mutex<BTreeMap<NodeId, u64>>>,
}

impl Roll {
    /// Takes a beat, and says what to answer: nothing unless this replica leads with a quorum.
    pub(crate) fn note(&self, beat: &Beat, now: Instant) -> Option<Ack> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).insert(beat.node, beat.applied);
        self.checkpoints.compare(beat.node, beat.checkpoint);
        let confirmed = self.leadership.borrow().confirmed(now)?;
        if now.saturating_duration_since(confirmed) > self.lease {
            return None;
        }
        let member = self.group.as_ref().is_none_or(|group| group.members().addresses.contains_key(&beat.node));
        Some(Ack { sequence: beat.sequence, member })
    }
}

/// Accepts beats until told to stop, and hands them to the detector.
pub(crate) struct Listener {
    pub(crate) cluster: u64,
    pub(crate) listener: TcpListener,
    pub(crate) net: Net,
    pub(crate) inputs: SyncSender<Input>,
    pub(crate) received: Counter,
    pub(crate) roll: Roll,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Listener {
    /// Runs on a thread of its own; a connection made after `stop` is set ends it.
    pub(crate) fn run(self) {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let accepted = self.listener.accept();
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely; without a pause this would spin.
                    tracing::warn!(%error, "beat connection not accepted");
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                tracing::warn!(max = CONNECTIONS_MAX, "beat connection turned away: there are too many");
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let ear = Ear {
                cluster: self.cluster,
                net: self.net.clone(),
                inputs: self.inputs.clone(),
                received: self.received.clone(),
                roll: self.roll.clone(),
                stop: self.stop.clone(),
            };
            let count = open.clone();
            let spawned = thread::Builder::new().name("beat-ear".to_owned()).spawn(move || {
                ear.listen(stream);
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = spawned {
                open.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(%error, "no thread for a beat connection");
            }
        }
    }
}

/// Hears one connection.
struct Ear {
    cluster: u64,
    net: Net,
    inputs: SyncSender<Input>,
    received: Counter,
    roll: Roll,
    stop: Arc<AtomicBool>,
}

impl Ear {
    fn listen(&self, stream: TcpStream) {
        let mut line = match self.net.accept_line(stream, &[Role::Scheduler]) {
            Ok(line) => line,
            // Also whoever only asks whether the port is open.
            Err(error) => return tracing::debug!(%error, "beat connection turned away"),
        };
        let mut heard: Option<Beat> = None;
        let ended = self.hear(&mut line, &mut heard);
        if let Some(Beat { node, boot, .. }) = heard.filter(|_| !self.stop.load(Ordering::Relaxed)) {
            tracing::debug!(%node, reason = %ended, "beat connection ended");
            // The detector lives as long as this process's control plane; without it nobody cares.
            let _ = self.inputs.send(Input::Lost { node, boot });
        }
    }

    /// Hears until the connection ends, and says why it did.
    fn hear(&self, line: &mut Line, heard: &mut Option<Beat>) -> io::Error {
        let socket = line.socket();
        let set_up = socket
            .set_read_timeout(Some(IDLE_MAX))
            .and_then(|()| socket.set_write_timeout(Some(ACK_WITHIN)))
            .and_then(|()| socket.set_nodelay(true));
        if let Err(error) = set_up {
            return error;
        }
        let mut bytes = [0; BEAT_BYTES];
        loop {
            if let Err(error) = line.read_exact(&mut bytes) {
                return error;
            }
            let Some(beat) = Beat::decode(&bytes, self.cluster) else {
                tracing::warn!(peer = %line.peer(), "what arrived at the beat port is no beat of this cluster and release");
                return io::ErrorKind::InvalidData.into();
            };
            if !line.peer().may_be(Role::Scheduler, &beat.node.get().to_string()) {
                tracing::warn!(peer = %line.peer(), node = %beat.node, "a beat in another replica's name");
                return io::ErrorKind::PermissionDenied.into();
            }
            *heard = Some(beat);
            self.received.inc();
            let stopped = self.stop.load(Ordering::Relaxed);
            if stopped || self.inputs.send(Input::Beat { node: beat.node, boot: beat.boot }).is_err() {
                return io::ErrorKind::ConnectionAborted.into();
            }
            if let Some(ack) = self.roll.note(&beat, Instant::now())
                && let Err(error) = line.write_all(&ack.encode(self.cluster)).and_then(|()| line.flush())
            {
                return error;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use symphony_types::BootId;

    use super::super::message::{ACK_BYTES, cluster_hash};
    use super::*;
    use crate::checkpoints::Checkpoint;

    #[test]
    fn beats_are_heard_strangers_are_cut_off_and_an_end_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (inputs, heard) = sync_channel(16);
        let stop = Arc::new(AtomicBool::new(false));
        let cluster = cluster_hash("blue");
        let leading = Leadership { is_leader: true, alone: true, ..Leadership::default() };
        let (told, leadership) = watch::channel(leading);
        let (checkpoints, applied) = (Checkpoints::default(), Arc::default());
        let roll = Roll { leadership, lease: Duration::from_secs(1), group: None, checkpoints, applied };
        let (received, applied) = (Counter::default(), Arc::clone(&roll.applied));
        let ears = Listener { cluster, listener, net: Net::plaintext(), inputs, received, roll, stop: stop.clone() };
        let thread = thread::spawn(|| ears.run());
        let patience = Duration::from_secs(30);

        let (node, boot) = (NodeId::new(2), BootId::new(20));
        let beat = Beat { node, boot, applied: 5, sequence: 7, checkpoint: Checkpoint::default() };
        let mut line = TcpStream::connect(addr).unwrap();
        let bytes = beat.encode(cluster);
        line.write_all(&bytes[..7]).unwrap();
        line.write_all(&bytes[7..]).unwrap();
        assert_eq!(heard.recv_timeout(patience), Ok(Input::Beat { node, boot }), "however it was cut into packets");

        let mut bytes = [0; ACK_BYTES];
        line.set_read_timeout(Some(patience)).unwrap();
        line.read_exact(&mut bytes).unwrap();
        assert_eq!(Ack::decode(&bytes, cluster), Some(Ack { sequence: 7, member: true }));
        assert_eq!(applied.lock().unwrap().get(&node), Some(&5));
        told.send_replace(Leadership { quorum_acked: None, alone: false, ..leading });
        line.write_all(&beat.encode(cluster)).unwrap();
        assert_eq!(heard.recv_timeout(patience), Ok(Input::Beat { node, boot }));
        line.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(line.read_exact(&mut bytes).is_err(), "a leader without a quorum acknowledges nothing");

        let mut stranger = TcpStream::connect(addr).unwrap();
        stranger.set_read_timeout(Some(patience)).unwrap();
        stranger.write_all(&beat.encode(cluster_hash("green"))).unwrap();
        assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0, "a beat of another cluster ends its connection");

        drop(line);
        assert_eq!(heard.recv_timeout(patience), Ok(Input::Lost { node, boot }), "and the stranger told nothing");
        stop.store(true, Ordering::Relaxed);
        TcpStream::connect(addr).unwrap();
        thread.join().unwrap();
    }
}
