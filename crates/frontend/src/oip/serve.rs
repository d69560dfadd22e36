//! Accepts connections for the two servers, so many at once, until told to stop.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{HEADER_BYTES_MAX, HEADER_READ_MAX, STREAMS_PER_CONNECTION_MAX};
use super::{GrpcServer, InferenceService, Limits};

/// Bytes that a REST connection buffers at most: the largest head, and reads of a body large enough to be few.
const READ_BUFFER_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(READ_BUFFER_BYTES_MAX >= HEADER_BYTES_MAX as usize);
// Windows of HTTP/2 flow control. The protocol's default of 64 KiB costs a round trip for every 64 KiB of a tensor; a
// stream's window holds a batch of small images, a connection's a few of them, and memory stays bounded by
// connections × window.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
// A client that vanished without a word is noticed within interval + timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// When a connection cannot be accepted, the process is out of descriptors or memory; trying again at once would only
/// burn a core.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves gRPC until `stop`, then lets the calls in flight end: bound that time from outside.
pub async fn serve_grpc<S: InferenceService>(
    server: GrpcServer<S>,
    listener: TcpListener,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let connections = GracefulShutdown::new();
    let serve =
        |connection: Connection| connections.watch(http.serve_connection(TokioIo::new(connection), server.clone()));
    accept(Acceptor::new(listener, limits), stop, serve).await;
    connections.shutdown().await;
}

/// Serves REST until `stop`, then lets the calls in flight end: bound that time from outside.
pub async fn serve_rest(
    router: axum::Router,
    listener: TcpListener,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_MAX).max_buf_size(READ_BUFFER_BYTES_MAX);
    let connections = GracefulShutdown::new();
    let serve = |connection: Connection| {
        let service = TowerToHyperService::new(router.clone());
        connections.watch(http.serve_connection(TokioIo::new(connection), service))
    };
    accept(Acceptor::new(listener, limits), stop, serve).await;
    connections.shutdown().await;
}

/// Serves each connection in a task of its own, until `stop`. The listener is closed then: nobody may connect to a
/// server that no longer accepts.
async fn accept<C>(acceptor: Acceptor, stop: impl Future<Output = ()> + Send, serve: impl Fn(Connection) -> C)
where
    C: Future<Output = Result<(), hyper::Error>> + Send + 'static,
{
    let mut stop = pin!(stop);
    loop {
        let connection = tokio::select! {
            connection = acceptor.accept() => connection,
            () = &mut stop => return,
        };
        let serving = serve(connection);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

/// A listener that accepts only while there is a permit.
struct Acceptor {
    listener: TcpListener,
    connections: Arc<Semaphore>,
}

impl Acceptor {
    fn new(listener: TcpListener, limits: Limits) -> Self {
        let permits = limits.connections_max.min(Semaphore::MAX_PERMITS);
        Self { listener, connections: Arc::new(Semaphore::new(permits)) }
    }

    async fn accept(&self) -> Connection {
        loop {
            // The semaphore is never closed; were it, connections would go uncounted rather than unserved.
            let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Answers are small and waited for: no byte of them may wait for more bytes.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, %peer, "TCP_NODELAY was refused");
                    }
                    return Connection { stream, _permit: permit };
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// A connection that counts until it is dropped.
struct Connection {
    stream: TcpStream,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
