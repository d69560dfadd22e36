//! Accepts connections for the two servers, up to a limit, until it is stopped.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use symphony_net::{
    CallerLimits, CertificateNames, HttpVersion, PublicConnection, PublicListener, PublicPort, PublicTls,
};
use tokio::net::TcpListener;

use super::caller::FromLoopback;
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

/// Serves gRPC until `stop`, then lets the calls in flight end: bound that time from outside.
pub async fn serve_grpc<S: InferenceService>(
    server: GrpcServer<S>,
    listener: TcpListener,
    tls: Option<Arc<PublicTls>>,
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
    let serve = |connection: PublicConnection, peer: SocketAddr| {
        let server = Named { names: connection.certificate_names(), is_local: is_local(peer), inner: server.clone() };
        connections.watch(http.serve_connection(TokioIo::new(connection), server))
    };
    // A client that vanished is found by pings: a channel may be idle.
    accept(public("frontend.grpc", listener, limits, HttpVersion::Http2).secured(tls), stop, serve).await;
    connections.shutdown().await;
}

/// Serves REST until `stop`, then lets the calls in flight end: bound that time from outside.
pub async fn serve_rest(
    router: axum::Router,
    listener: TcpListener,
    tls: Option<Arc<PublicTls>>,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_MAX).max_buf_size(READ_BUFFER_BYTES_MAX);
    let connections = GracefulShutdown::new();
    let serve = |connection: PublicConnection, peer: SocketAddr| {
        let service = TowerToHyperService::new(router.clone());
        let service = Named { names: connection.certificate_names(), is_local: is_local(peer), inner: service };
        connections.watch(http.serve_connection(TokioIo::new(connection), service))
    };
    accept(public("frontend.rest", listener, limits, HttpVersion::Http1).secured(tls), stop, serve).await;
    connections.shutdown().await;
}

/// Tells a service what certificate its caller has shown, and whether it is on the loopback.
struct Named<S> {
    names: CertificateNames,
    is_local: bool,
    inner: S,
}

impl<S, B> hyper::service::Service<hyper::Request<B>> for Named<S>
where
    S: hyper::service::Service<hyper::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: hyper::Request<B>) -> S::Future {
        if !self.names.get().is_empty() {
            request.extensions_mut().insert(self.names.clone());
        }
        if self.is_local {
            request.extensions_mut().insert(FromLoopback);
        }
        self.inner.call(request)
    }
}

/// Whether the other end is on this host's loopback, which no other host reaches.
fn is_local(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn public(name: &'static str, listener: TcpListener, limits: Limits, http: HttpVersion) -> PublicListener {
    let limits = CallerLimits { total: limits.connections_max, per_address: limits.connections_per_address_max };
    PublicListener::new(listener, PublicPort { name, limits, http, idle_max: None })
}

/// Serves each connection in a task of its own, until `stop`. The listener is closed then: no client can connect to a
/// server that no longer accepts.
async fn accept<C>(
    listener: PublicListener,
    stop: impl Future<Output = ()> + Send,
    serve: impl Fn(PublicConnection, SocketAddr) -> C,
) where
    C: Future<Output = Result<(), hyper::Error>> + Send + 'static,
{
    let mut stop = pin!(stop);
    loop {
        let (connection, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        let serving = serve(connection, peer);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_is_local() {
        for (peer, expected) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
            ("[fe80::1]:1", false),
            ("0.0.0.0:1", false),
        ] {
            assert_eq!(is_local(peer.parse().unwrap()), expected, "{peer}");
        }
    }
}
