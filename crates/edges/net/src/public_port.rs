//! Ports open to every caller: they do not authenticate, so they are limited by number and behaviour.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};

use crate::callers::{CallerLimits, CallerPlace, Callers, Refusal};
use crate::http_version::{HttpVersion, OPENING_TIMEOUT, Progress};
use crate::public_stream::{CertificateNames, PublicStream};
use crate::public_tls::PublicTls;
use crate::refusals::refused;

/// How long a caller may take nothing of an answer that is ready: as long as common servers wait by default. Answers
/// lie in memory meanwhile.
const ANSWER_STALLS_MAX: Duration = Duration::from_secs(60);

/// Pause after a failed accept, which is probably due to a lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The settings of a public port.
#[derive(Clone, Copy, Debug)]
pub struct PublicPort {
    /// Its name in metrics.
    pub name: &'static str,
    /// The most concurrent callers.
    pub limits: CallerLimits,
    /// The version of HTTP on it.
    pub http: HttpVersion,
    /// A connection without traffic for this long is closed; none if the server ensures that, or the connection may be
    /// idle.
    pub idle_max: Option<Duration>,
}

/// A listener that enforces the limits.
#[derive(Debug)]
pub struct PublicListener {
    listener: TcpListener,
    port: PublicPort,
    callers: Callers,
    /// None in plaintext.
    tls: Option<Arc<PublicTls>>,
}

impl PublicListener {
    /// Takes callers from `listener`.
    #[must_use]
    pub fn new(listener: TcpListener, port: PublicPort) -> Self {
        Self { listener, port, callers: Callers::new(port.limits), tls: None }
    }

    /// The same over TLS, if there is any.
    #[must_use]
    pub fn secured(self, tls: Option<Arc<PublicTls>>) -> Self {
        Self { tls, ..self }
    }

    /// The next caller with a place. Cancel-safe.
    pub async fn accept(&self) -> (PublicConnection, SocketAddr) {
        let port = self.port.name;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => match self.callers.take_place(peer.ip()) {
                    Ok(place) => {
                        // Answers are small, and clients wait for them: no byte may wait for more.
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(port, %peer, %error, "TCP_NODELAY was refused");
                        }
                        let stream = match &self.tls {
                            None => PublicStream::plain(stream),
                            Some(tls) => PublicStream::secured(stream, tls, self.port.http),
                        };
                        return (PublicConnection::new(stream, self.port, place), peer);
                    }
                    Err(refusal) => {
                        // Not a warning: a caller that connects ten thousand times would fill the log.
                        tracing::debug!(port, %peer, reason = refusal.label(), "caller turned away");
                        refused(port, refusal);
                    }
                },
                Err(error) => {
                    tracing::warn!(port, %error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            }
        }
    }

    /// The local address.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that counts until it is dropped, and that fails if its caller stays silent, or takes no answer.
#[derive(Debug)]
pub struct PublicConnection {
    stream: PublicStream,
    port: PublicPort,
    watch: Watch,
    /// Runs while the caller takes nothing of a ready answer.
    stalled: Option<Pin<Box<Sleep>>>,
    _place: CallerPlace,
}

#[derive(Debug)]
enum Watch {
    /// The opening has not arrived yet.
    Opening(Pin<Box<Sleep>>, Progress),
    /// Traffic is required before the timer fires.
    Idle(Pin<Box<Sleep>>, Duration),
    /// It may be silent.
    None,
}

impl PublicConnection {
    fn new(stream: PublicStream, port: PublicPort, place: CallerPlace) -> Self {
        let deadline = Box::pin(tokio::time::sleep(OPENING_TIMEOUT));
        let watch = Watch::Opening(deadline, Progress::of(port.http));
        Self { stream, port, watch, stalled: None, _place: place }
    }

    /// The names in the certificate that the caller shows, once it has.
    #[must_use]
    pub fn certificate_names(&self) -> CertificateNames {
        self.stream.certificate_names()
    }

    /// Fails if the caller has been silent for too long.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let (Watch::Opening(deadline, _) | Watch::Idle(deadline, _)) = &mut self.watch else { return Ok(()) };
        if deadline.as_mut().poll(context).is_pending() {
            return Ok(());
        }
        refused(self.port.name, Refusal::Silent);
        self.watch = Watch::None;
        Err(io::Error::new(io::ErrorKind::TimedOut, "the caller said nothing for too long"))
    }

    /// The same as it is written to: a server that speaks first waits for the end of the handshake there, and reads
    /// nothing before. Later on only reading counts.
    fn check_opening(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if matches!(self.watch, Watch::Opening(..)) { self.check(context) } else { Ok(()) }
    }

    /// Fails if nothing could be written for too long.
    fn check_taken<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(ANSWER_STALLS_MAX)));
        if stalled.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.stalled = None;
        refused(self.port.name, Refusal::Stalled);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller took nothing of its answer for too long")))
    }

    fn received(&mut self, bytes: &[u8]) {
        match &mut self.watch {
            Watch::Opening(_, progress) => {
                if progress.add(bytes) {
                    let idle = |within| Watch::Idle(Box::pin(tokio::time::sleep(within)), within);
                    self.watch = self.port.idle_max.map_or(Watch::None, idle);
                }
            }
            Watch::Idle(deadline, within) => deadline.as_mut().reset(Instant::now() + *within),
            Watch::None => {}
        }
    }
}

impl AsyncRead for PublicConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.received(&buffer.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for PublicConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_opening(context)?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_taken(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_opening(context)?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_taken(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_opening(context)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_taken(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::http_version::PREFACE;

    const LIMITS: CallerLimits = CallerLimits { total: 8, per_address: 2 };
    const IDLE_MAX: Duration = Duration::from_secs(75);

    struct Scene {
        listener: PublicListener,
        addr: SocketAddr,
    }

    impl Scene {
        async fn new(name: &'static str, http: HttpVersion, idle_max: Option<Duration>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let port = PublicPort { name, limits: LIMITS, http, idle_max };
            Self { listener: PublicListener::new(listener, port), addr }
        }

        async fn caller(&self) -> (TcpStream, PublicConnection) {
            let (caller, (connection, _)) = tokio::join!(TcpStream::connect(self.addr), self.listener.accept());
            (caller.unwrap(), connection)
        }
    }

    fn count(port: &'static str, refusal: Refusal) -> u64 {
        crate::refusals().get(&(port, refusal)).copied().unwrap_or(0)
    }

    /// Paused time advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_half_of_it_is_ended_and_its_place_is_free() {
        let scene = Scene::new("silent", HttpVersion::Http1, None).await;
        let (_nothing, mut silent) = scene.caller().await;
        let (mut half, mut halting) = scene.caller().await;
        half.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        let mut buffer = Vec::new();
        for connection in [&mut silent, &mut halting] {
            let error = connection.read_to_end(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(count("silent", Refusal::Silent), 2);
        drop((silent, halting));
        let _ = (scene.caller().await, scene.caller().await);
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_opening_a_connection_may_be_idle_for_ever_or_a_while() {
        for (name, idle_max) in [("channel", None), ("pages", Some(IDLE_MAX))] {
            let scene = Scene::new(name, HttpVersion::Http2, idle_max).await;
            let (mut caller, mut connection) = scene.caller().await;
            caller.write_all(PREFACE).await.unwrap();
            let mut read = vec![0; PREFACE.len()];
            connection.read_exact(&mut read).await.unwrap();
            let began = Instant::now();
            let silence = tokio::time::timeout(2 * IDLE_MAX, connection.read_exact(&mut read)).await;
            match idle_max {
                None => assert!(silence.is_err(), "it may be idle"),
                Some(_) => {
                    assert_eq!(silence.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
                    assert!(began.elapsed() >= IDLE_MAX);
                }
            }
        }
    }

    /// More than the buffers of two sockets.
    const LONG: usize = 32 << 20;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_of_its_answer_is_ended() {
        let scene = Scene::new("stalled", HttpVersion::Http2, None).await;
        let (mut caller, mut connection) = scene.caller().await;
        caller.write_all(PREFACE).await.unwrap();
        connection.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let began = Instant::now();
        let error = connection.write_all(&vec![0; LONG]).await.unwrap_err();
        assert_eq!((error.kind(), count("stalled", Refusal::Stalled)), (io::ErrorKind::TimedOut, 1));
        assert!(began.elapsed() >= ANSWER_STALLS_MAX);
    }

    #[tokio::test]
    async fn who_takes_its_answer_has_all_of_it() {
        let scene = Scene::new("taken", HttpVersion::Http2, None).await;
        let (mut caller, mut connection) = scene.caller().await;
        caller.write_all(PREFACE).await.unwrap();
        connection.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let (answer, mut taken) = (vec![7; LONG], vec![0; LONG]);
        let (written, read) = tokio::join!(connection.write_all(&answer), caller.read_exact(&mut taken));
        written.unwrap();
        read.unwrap();
        assert!(answer == taken && connection.stalled.is_none());
        assert_eq!(count("taken", Refusal::Stalled), 0);
    }

    #[tokio::test]
    async fn one_caller_too_many_from_an_address_is_closed_and_counted() {
        let scene = Scene::new("many", HttpVersion::Http2, None).await;
        let held = (scene.caller().await, scene.caller().await);
        let mut third = TcpStream::connect(scene.addr).await.unwrap();
        let next = tokio::spawn(async move { scene.listener.accept().await });
        // Closed without an answer. The kind of error depends on timing.
        let closed = third.read_to_end(&mut Vec::new()).await;
        assert!(closed.map_or(true, |read| read == 0));
        assert_eq!(count("many", Refusal::TooManyFromThere), 1);
        let addr = held.0.0.peer_addr().unwrap();
        drop(held);
        let _fourth = TcpStream::connect(addr).await.unwrap();
        next.await.unwrap();
    }
}
