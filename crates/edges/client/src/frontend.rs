//! One frontend: its connections, whether it takes requests, and how many of this client's it has.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_protocol::inference as pb;
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use tokio::sync::{Notify, watch};
use tonic::Request;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::backoff::{Backoff, PAUSE_MIN};
use crate::error::Failure;
use crate::limits;
use crate::settings::BuildError;

/// Windows of HTTP/2 flow control: the protocol's 64 KiB cost a round trip for every 64 KiB of a tensor.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// A frontend that vanishes silently is detected within interval + timeout, also by requests that wait there.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Grpc = GrpcInferenceServiceClient<Channel>;

/// Whether a frontend takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It has not been asked yet.
    Unknown,
    /// It takes requests.
    Ready,
    /// It answers that it accepts no requests: it drains, or knows no cluster yet.
    NotReady,
    /// It does not answer, for this reason.
    Down(String),
}

/// What a client knows about one of its frontends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendStatus {
    /// Its address, as the client was given it.
    pub address: String,
    /// Whether it takes requests.
    pub availability: Availability,
    /// Requests of this client that it has.
    pub in_flight: usize,
}

#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) address: String,
    connections: Vec<Grpc>,
    turn: AtomicUsize,
    in_flight: AtomicUsize,
    availability: Mutex<Availability>,
    /// Rings when a request met something that a probe should look at.
    suspicion: Notify,
}

/// A request that a frontend has; counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frontend: Arc<Frontend>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.frontend.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Frontend {
    /// Makes connections that come up when they are first used.
    pub(crate) fn new(address: &str, connections: usize, authority: Option<&[u8]>) -> Result<Self, BuildError> {
        let refuse =
            |expected: &str| BuildError { key: "frontend", value: address.to_owned(), expected: expected.to_owned() };
        let secured = address.strip_prefix("https://");
        let (scheme, address) = match secured {
            Some(address) => ("https", address),
            None => ("http", address.strip_prefix("http://").unwrap_or(address)),
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|_| refuse("host:port"))?;
        if secured.is_some() {
            let pem = authority.ok_or_else(|| refuse("an authority for its certificate"))?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(|_| refuse("an authority whose certificate is PEM"))?;
        }
        if endpoint.uri().port().is_none() {
            return Err(refuse("host:port"));
        }
        let endpoint = endpoint
            .connect_timeout(limits::CONNECT_WITHIN)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let connect = |_| Grpc::new(endpoint.connect_lazy()).max_decoding_message_size(limits::ANSWER_BYTES_MAX);
        Ok(Self {
            address: address.to_owned(),
            connections: (0..connections).map(connect).collect(),
            turn: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            availability: Mutex::new(Availability::Unknown),
            suspicion: Notify::new(),
        })
    }

    /// One of its connections, each in turn.
    pub(crate) fn connection(&self) -> Grpc {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].clone()
    }

    /// Counts one more request here.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Held { frontend: Arc::clone(self) }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn availability(&self) -> Availability {
        self.availability.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.availability.lock().unwrap_or_else(PoisonError::into_inner) == Availability::Ready
    }

    pub(crate) fn status(&self) -> FrontendStatus {
        FrontendStatus { address: self.address.clone(), availability: self.availability(), in_flight: self.in_flight() }
    }

    /// A request got no connection: nothing more is sent until a probe succeeds.
    pub(crate) fn is_down(&self, reason: &str) {
        *self.availability.lock().unwrap_or_else(PoisonError::into_inner) = Availability::Down(reason.to_owned());
        self.suspicion.notify_one();
    }

    /// A request has met something that may mean that nothing works there any more.
    pub(crate) fn is_suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Probes the frontend for ever, and sends to `news` after each probe.
    pub(crate) async fn keep(self: Arc<Self>, news: watch::Sender<u64>) {
        let mut backoff = Backoff::default();
        loop {
            let found = self.probe().await;
            let down = matches!(found, Availability::Down(_));
            let pause = if down { backoff.next(rand::random()) } else { limits::PROBE_EVERY };
            if !down {
                backoff.reset();
            }
            let was = {
                let mut availability = self.availability.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *availability, found.clone())
            };
            if was != found {
                tracing::debug!(frontend = self.address, availability = ?found, "frontend");
            }
            // Every probe notifies the waiters: "still down" also ends the wait for a first answer.
            news.send_modify(|count| *count += 1);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Already down: its pause holds, whatever requests find.
                () = self.suspected(), if !down => {}
            }
        }
    }

    async fn suspected(&self) {
        self.suspicion.notified().await;
        // A frontend that ends one stream after the other is not asked after each of them.
        tokio::time::sleep(PAUSE_MIN).await;
    }

    async fn probe(&self) -> Availability {
        let mut connection = self.connection();
        let ready = connection.server_ready(Request::new(pb::ServerReadyRequest {}));
        match tokio::time::timeout(limits::PROBE_WITHIN, ready).await {
            Ok(Ok(answer)) if answer.get_ref().ready => Availability::Ready,
            Ok(Ok(_)) => Availability::NotReady,
            Ok(Err(status)) => Availability::Down(match Failure::of(&status, &self.address) {
                Failure::NotSent(reason) | Failure::Lost(reason) => reason,
                Failure::Said(refusal) => format!("{:?}: {}", refusal.code, refusal.message),
            }),
            Err(_) => Availability::Down(format!("no answer within {} ms", limits::PROBE_WITHIN.as_millis())),
        }
    }
}
