//! The threads that hear the other replicas' beats.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use symphony_net::{Line, Net, Role};

use super::detector::Input;
use super::message::{BEAT_BYTES, Beat};

/// Connections at a time: 64 replicas, each with the one it is giving up and the one it is opening.
const CONNECTIONS_MAX: usize = 128;

/// A connection without a beat for so long is of no use to anybody.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Accepts beats until told to stop, and hands them to the detector.
pub(crate) struct Listener {
    pub(crate) cluster: u64,
    pub(crate) listener: TcpListener,
    pub(crate) net: Net,
    pub(crate) inputs: SyncSender<Input>,
    pub(crate) received: Counter,
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
        if let Err(error) = line.socket().set_read_timeout(Some(IDLE_MAX)) {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::sync_channel;

    use symphony_types::{BootId, NodeId};

    use super::super::message::cluster_hash;
    use super::*;

    #[test]
    fn beats_are_heard_strangers_are_cut_off_and_an_end_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (inputs, heard) = sync_channel(16);
        let stop = Arc::new(AtomicBool::new(false));
        let cluster = cluster_hash("blue");
        let ears = Listener {
            cluster,
            listener,
            net: Net::plaintext(),
            inputs,
            received: Counter::default(),
            stop: stop.clone(),
        };
        let thread = thread::spawn(|| ears.run());
        let patience = Duration::from_secs(30);

        let (node, boot) = (NodeId::new(2), BootId::new(20));
        let beat = Beat { node, boot, applied: 5 };
        let mut line = TcpStream::connect(addr).unwrap();
        let bytes = beat.encode(cluster);
        line.write_all(&bytes[..7]).unwrap();
        line.write_all(&bytes[7..]).unwrap();
        assert_eq!(heard.recv_timeout(patience), Ok(Input::Beat { node, boot }), "however it was cut into packets");

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
