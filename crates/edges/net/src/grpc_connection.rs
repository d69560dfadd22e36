//! The connections of a gRPC server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use crate::callers::Refusal;
use crate::connection::Connection;
use crate::http_version::{HttpVersion, OPENING_TIMEOUT, Progress};
use crate::peer_info::PeerInfo;
use crate::refusals::refused;

/// An accepted connection that fails unless its caller begins HTTP/2 within [`OPENING_TIMEOUT`]: servers ping silent
/// callers only after that.
#[derive(Debug)]
pub struct GrpcConnection {
    connection: Connection,
    /// The port's name.
    port: &'static str,
    /// None once HTTP/2 has begun, or was given up.
    opening: Option<Opening>,
}

#[derive(Debug)]
struct Opening {
    deadline: Pin<Box<Sleep>>,
    progress: Progress,
}

impl GrpcConnection {
    /// The deadline begins now.
    pub(crate) fn new(connection: Connection, port: &'static str) -> Self {
        let deadline = Box::pin(tokio::time::sleep(OPENING_TIMEOUT));
        let opening = Some(Opening { deadline, progress: Progress::of(HttpVersion::Http2) });
        Self { connection, port, opening }
    }
}

impl AsyncRead for GrpcConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.connection).poll_read(context, buffer);
        let Some(opening) = &mut self.opening else { return polled };
        if polled.is_ready() {
            if opening.progress.add(&buffer.filled()[before..]) {
                self.opening = None;
            }
            return polled;
        }
        if opening.deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.opening = None;
        refused(self.port, Refusal::Silent);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller did not begin HTTP/2 in time")))
    }
}

impl AsyncWrite for GrpcConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

impl Connected for GrpcConnection {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.connection.peer().clone()
    }
}
