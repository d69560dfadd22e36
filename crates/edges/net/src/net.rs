//! Dialling and accepting.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sockets::{Dialer, Stream};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tonic::transport::{Channel, Endpoint, Uri};

use crate::carriers::Carriers;
use crate::certificate::CertificateFacts;
use crate::cluster_level::ClusterLevel;
use crate::connection::{Connection, Line};
use crate::credentials::Credentials;
use crate::dial_turns::{DialTurn, DialTurns};
use crate::identity::{Expected, Identity, Role};
use crate::peer_info::PeerInfo;
use crate::until::Until;

/// Limit for a whole handshake on an established connection.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// The server name in handshakes; the peer's identity is in its certificate.
const SERVER_NAME: &str = "symphony";

/// How this process connects to the others of its cluster. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Net {
    dialer: Dialer,
    credentials: Option<Arc<Credentials>>,
    /// Substitutes for dialled addresses; none if addresses are dialled as given.
    routes: Option<Arc<BTreeMap<String, String>>>,
    turns: DialTurns,
    carriers: Carriers,
    level: ClusterLevel,
}

impl Net {
    /// Plaintext: every peer is trusted. For loopback and tests.
    #[must_use]
    pub fn plaintext() -> Self {
        Self::default()
    }

    /// Plaintext over that dialer, for simulations.
    #[must_use]
    pub fn over(dialer: Dialer) -> Self {
        Self { dialer, ..Self::default() }
    }

    /// TLS with these certificates on both sides.
    #[must_use]
    pub fn secured(credentials: Arc<Credentials>) -> Self {
        Self { credentials: Some(credentials), ..Self::default() }
    }

    /// Adds substitutes for addresses (`host:port`); the expected peers stay the same.
    #[must_use]
    pub fn routed(self, routes: BTreeMap<String, String>) -> Self {
        Self { routes: (!routes.is_empty()).then(|| Arc::new(routes)), ..self }
    }

    /// Sets the carriers that may replace connections.
    #[must_use]
    pub fn carried(self, carriers: Carriers) -> Self {
        Self { carriers, ..self }
    }

    /// Sets what the program knows, and what it writes by.
    #[must_use]
    pub fn levelled(self, level: ClusterLevel) -> Self {
        Self { level, ..self }
    }

    /// What this process writes by, and the newest that it knows.
    #[must_use]
    pub const fn level(&self) -> &ClusterLevel {
        &self.level
    }

    /// The carriers of this process.
    #[must_use]
    pub const fn carriers(&self) -> &Carriers {
        &self.carriers
    }

    /// The address that is dialled in place of `addr`.
    #[must_use]
    pub fn through<'a>(&'a self, addr: &'a str) -> &'a str {
        self.routes.as_ref().and_then(|routes| routes.get(addr)).map_or(addr, String::as_str)
    }

    /// The certificates, if there are any.
    #[must_use]
    pub const fn credentials(&self) -> Option<&Arc<Credentials>> {
        self.credentials.as_ref()
    }

    /// Waits for the caller's turn to dial ([`DialTurns`]): for callers that may be a thousand at once.
    pub async fn dial_turn(&self) -> DialTurn {
        self.turns.next().await
    }

    /// Connects to `addr` (`host:port`), where `expected` must answer. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or another process answers.
    pub async fn dial(&self, addr: &str, expected: &Expected) -> io::Result<Connection> {
        let stream = self.dialer.dial(self.through(addr)).await?;
        let peer = stream.peer();
        let Some(credentials) = &self.credentials else { return Ok(self.plain(stream, peer)) };
        let loaded = credentials.now();
        let connector = TlsConnector::from(Arc::clone(&loaded.client));
        let stream = connector.connect(server_name(), stream).await.map_err(explain_error)?;
        let identity =
            identify(stream.get_ref().1.peer_certificates(), &loaded.facts.identity, &Allowed::Answer(expected))?;
        Ok(self.authenticated(stream.into(), peer, identity))
    }

    /// Turns an accepted socket into a connection, if the caller has one of the roles `allowed`. Bounded by
    /// [`HANDSHAKE_TIMEOUT`].
    ///
    /// # Errors
    /// If the caller has another role, or stays silent.
    pub async fn accept(&self, stream: impl Into<Stream>, allowed: &[Role]) -> io::Result<Connection> {
        let stream = stream.into();
        let peer = stream.peer();
        let Some(credentials) = &self.credentials else { return Ok(self.plain(stream, peer)) };
        let loaded = credentials.now();
        let acceptor = TlsAcceptor::from(Arc::clone(&loaded.server));
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long"))??;
        let identity =
            identify(stream.get_ref().1.peer_certificates(), &loaded.facts.identity, &Allowed::Caller(allowed))?;
        Ok(self.authenticated(stream.into(), peer, identity))
    }

    fn plain(&self, stream: Stream, addr: SocketAddr) -> Connection {
        Connection::plain(stream, addr, self.carriers.clone(), self.level.clone())
    }

    fn authenticated(&self, stream: TlsStream<Stream>, addr: SocketAddr, identity: Identity) -> Connection {
        let peer = PeerInfo { addr, identity: Some(identity) };
        Connection::tls(stream, peer, self.carriers.clone(), self.level.clone())
    }

    /// Connects, blocking, to the first of these addresses (resolved ones, of what [`Net::through`] returns: name
    /// resolution has no time limit) that accepts; for [`Net::authenticate_line`].
    ///
    /// # Errors
    /// If none accepts within that time.
    pub fn connect_line(&self, addrs: &[SocketAddr], within: Duration) -> io::Result<std::net::TcpStream> {
        let stream = connect_by(addrs, Instant::now() + within)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Checks, blocking, which process accepted, like [`Net::dial`]. Goes on for at most `within`, and only while
    /// `go_on` returns true; it is called every `check_every`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the handshake is not over by then, [`io::ErrorKind::Interrupted`] if it must not
    /// go on; others if another process answers.
    pub fn authenticate_line(
        &self,
        stream: std::net::TcpStream,
        expected: &Expected,
        within: Duration,
        check_every: Duration,
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Line> {
        let peer = stream.peer_addr()?;
        let Some(credentials) = &self.credentials else { return Ok(Line::plain(stream, peer)) };
        let loaded = credentials.now();
        let mut session =
            rustls::ClientConnection::new(Arc::clone(&loaded.client), server_name()).map_err(io::Error::other)?;
        let give_up = Instant::now() + within;
        loop {
            let until = give_up.min(Instant::now() + check_every);
            match shake_hands(&stream, until, |stream| session.complete_io(stream).map(drop)) {
                Ok(()) => break,
                // The session keeps the messages read so far.
                Err(error) if error.kind() != io::ErrorKind::TimedOut || Instant::now() >= give_up => {
                    return Err(error);
                }
                Err(_) if go_on() => {}
                Err(_) => return Err(io::ErrorKind::Interrupted.into()),
            }
        }
        let identity = identify(session.peer_certificates(), &loaded.facts.identity, &Allowed::Answer(expected))?;
        Ok(Line::client(rustls::StreamOwned::new(session, stream), peer, identity))
    }

    /// Turns an accepted socket into a blocking connection, like [`Net::accept`] and with the same limit.
    ///
    /// # Errors
    /// If the caller has another role, or stays silent.
    pub fn accept_line(&self, stream: std::net::TcpStream, allowed: &[Role]) -> io::Result<Line> {
        let peer = stream.peer_addr()?;
        let Some(credentials) = &self.credentials else { return Ok(Line::plain(stream, peer)) };
        let loaded = credentials.now();
        let mut session = rustls::ServerConnection::new(Arc::clone(&loaded.server)).map_err(io::Error::other)?;
        let give_up = Instant::now() + HANDSHAKE_TIMEOUT;
        shake_hands(&stream, give_up, |stream| session.complete_io(stream).map(drop))?;
        let identity = identify(session.peer_certificates(), &loaded.facts.identity, &Allowed::Caller(allowed))?;
        Ok(Line::server(rustls::StreamOwned::new(session, stream), peer, identity))
    }

    /// A gRPC channel that connects to `expected` at its first use. The endpoint's URI must be `http://host:port`; the
    /// connection is secured below HTTP.
    #[must_use]
    pub fn channel(&self, endpoint: &Endpoint, expected: Expected) -> Channel {
        endpoint.connect_with_connector_lazy(GrpcConnector { net: self.clone(), expected })
    }
}

/// Dials for gRPC.
#[derive(Clone, Debug)]
struct GrpcConnector {
    net: Net,
    expected: Expected,
}

impl tower_service::Service<Uri> for GrpcConnector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = futures::future::BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (net, expected) = (self.net.clone(), self.expected.clone());
        Box::pin(async move {
            let addr = uri.authority().ok_or_else(|| io::Error::other("the address has no host"))?;
            net.dial(addr.as_str(), &expected).await.map(TokioIo::new)
        })
    }
}

/// Explains the most common mistake: the certificates belong to another cluster. If both authorities have the same
/// name, their keys still differ, and the signature is wrong.
fn explain_error(error: io::Error) -> io::Error {
    use rustls::{CertificateError, Error};
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(why @ (CertificateError::UnknownIssuer | CertificateError::BadSignature))) => {
            let words = format!(
                "its certificate is not of the authority in ca.pem ({why:?}): are the certificates here those of another cluster?"
            );
            io::Error::new(error.kind(), words)
        }
        _ => error,
    }
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("a constant that is a DNS name")
}

fn connect_by(addrs: &[SocketAddr], give_up: Instant) -> io::Result<std::net::TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address is known");
    for addr in addrs {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match std::net::TcpStream::connect_timeout(addr, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Runs a blocking handshake that ends at `give_up` at the latest, and then removes the socket's timeouts.
fn shake_hands(
    stream: &std::net::TcpStream,
    give_up: Instant,
    handshake: impl FnOnce(&mut Until<'_>) -> io::Result<()>,
) -> io::Result<()> {
    handshake(&mut Until { stream, give_up })?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

/// The accepted peers.
enum Allowed<'a> {
    /// Of a dialled connection.
    Answer(&'a Expected),
    /// Of an accepted connection.
    Caller(&'a [Role]),
}

impl Allowed<'_> {
    fn check(&self, identity: &Identity) -> Result<(), String> {
        match self {
            Self::Answer(expected) if expected.is(identity) => Ok(()),
            Self::Answer(expected) => Err(format!("{identity} answered; expected {expected}")),
            Self::Caller(roles) if roles.contains(&identity.role) => Ok(()),
            Self::Caller(roles) => {
                let roles: Vec<_> = roles.iter().map(|role| role.label()).collect();
                Err(format!("{identity} called; expected {}", roles.join(" or ")))
            }
        }
    }
}

/// The holder of the certificate, if it is of our cluster and an accepted peer.
fn identify(certificates: Option<&[CertificateDer<'_>]>, me: &Identity, allowed: &Allowed<'_>) -> io::Result<Identity> {
    let refused = |what: String| io::Error::new(io::ErrorKind::PermissionDenied, what);
    let certificate =
        certificates.and_then(<[_]>::first).ok_or_else(|| refused("the peer has no certificate".into()))?;
    let identity = CertificateFacts::of(certificate).map_err(|error| refused(error.to_string()))?.identity;
    if identity.cluster != me.cluster {
        return Err(refused(format!("the peer is {identity}, of another cluster than {}", me.cluster)));
    }
    allowed.check(&identity).map_err(refused)?;
    Ok(identity)
}
