//! Accepted connections, each delivered after its handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::sockets::Listener;
use futures::{Stream, StreamExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::callers::{CallerLimits, Callers, HANDSHAKES_MAX, HANDSHAKES_PER_PEER_MAX, Refusal};
use crate::connection::Connection;
use crate::grpc_connection::GrpcConnection;
use crate::identity::Role;
use crate::net::Net;
use crate::refusals::refused;

/// Connections after their handshake that wait to be taken.
const WAITING_MAX: usize = 64;

/// Pause after a failed accept, which is probably due to a lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The settings of a port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name in logs and metrics.
    pub name: &'static str,
    /// The roles that may call.
    pub allowed: &'static [Role],
    /// The most concurrent connections of authenticated callers, half of them from one address. Further ones are
    /// refused: a caller that leaks connections must not use up the process's file descriptors and memory.
    pub connections_max: usize,
}

impl Port {
    /// A port.
    #[must_use]
    pub const fn new(name: &'static str, allowed: &'static [Role], connections_max: usize) -> Self {
        Self { name, allowed, connections_max }
    }

    /// Half of the places for one address, as at public ports: it may be that of all processes, as where a cluster runs
    /// on one machine, and it may be that of one who has a certificate and keeps connections open.
    const fn limits(&self) -> CallerLimits {
        CallerLimits { total: self.connections_max, per_address: self.connections_max.div_ceil(2) }
    }
}

/// The connections to one port. A slow or refused caller delays no other.
#[derive(Debug)]
pub struct Incoming {
    /// The port's name.
    port: &'static str,
    connections: mpsc::Receiver<Connection>,
}

impl Incoming {
    /// Accepts on `listener` until this value is dropped. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(listener: impl Into<Listener>, net: Net, port: Port) -> Self {
        let (done, connections) = mpsc::channel(WAITING_MAX);
        tokio::spawn(accept(listener.into(), net, port, done));
        Self { port: port.name, connections }
    }

    /// The next connection. Cancel-safe. Never None while the listener lives.
    pub async fn next(&mut self) -> Option<Connection> {
        self.connections.recv().await
    }

    /// For gRPC servers. No item is an error: refused callers are only logged.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<GrpcConnection>> + Send + use<> {
        let port = self.port;
        ReceiverStream::new(self.connections).map(move |connection| Ok(GrpcConnection::new(connection, port)))
    }
}

async fn accept(listener: Listener, net: Net, port: Port, done: mpsc::Sender<Connection>) {
    let limits = port.limits();
    let Port { name: port, allowed, .. } = port;
    let connected = Callers::new(limits);
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let waiting = Callers::new(CallerLimits { total: HANDSHAKES_MAX, per_address: HANDSHAKES_PER_PEER_MAX });
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = done.closed() => return,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(port, %error, "connection not accepted");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let peer = stream.peer();
        let place = match waiting.take_place(peer.ip()) {
            Ok(place) => place,
            Err(refusal) => {
                refused(port, refusal);
                tracing::warn!(port, %peer, max = HANDSHAKES_PER_PEER_MAX, "caller turned away: too many handshakes from there");
                continue;
            }
        };
        let (net, done, connected) = (net.clone(), done.clone(), connected.clone());
        tokio::spawn(async move {
            match net.accept(stream, allowed).await {
                Ok(connection) => match connected.take_place(peer.ip()) {
                    Ok(held) => drop(done.send(connection.holding(held)).await),
                    Err(refusal) => {
                        refused(port, refusal);
                        let (peer, reason) = (connection.peer(), refusal.label());
                        tracing::warn!(port, %peer, reason, ?limits, "caller turned away: too many connections");
                    }
                },
                Err(error) => {
                    refused(port, Refusal::Stranger);
                    tracing::warn!(port, %peer, %error, "caller turned away");
                }
            }
            // Freed first: the next handshake expects the place to be free once it has the permit.
            drop(place);
            drop(permit);
        });
    }
}
