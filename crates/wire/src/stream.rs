//! A connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A simulated connection.
pub trait Socket: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin> Socket for S {}

/// A connection; TCP costs no more than TCP.
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    peer: SocketAddr,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Simulated(Box<dyn Socket>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        // A peer that has gone already has no address.
        let peer = stream.peer_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        Self::tcp(stream, peer)
    }
}

impl Stream {
    pub(crate) fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        // Fails only where the peer has gone already, which the first read will tell.
        let _ = stream.set_nodelay(true);
        Self { kind: Kind::Tcp(stream), peer }
    }

    pub(crate) fn simulated((socket, peer): (Box<dyn Socket>, SocketAddr)) -> Self {
        Self { kind: Kind::Simulated(socket), peer }
    }

    /// Who is at the other end.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The two directions, for two tasks.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.kind {
            Kind::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf(ReadSide::Tcp(read)), WriteHalf(WriteSide::Tcp(write)))
            }
            Kind::Simulated(stream) => {
                let (read, write) = tokio::io::split(stream);
                (ReadHalf(ReadSide::Simulated(read)), WriteHalf(WriteSide::Simulated(write)))
            }
        }
    }
}

/// The direction in which bytes come.
#[derive(Debug)]
pub struct ReadHalf(ReadSide);

#[derive(Debug)]
enum ReadSide {
    Tcp(OwnedReadHalf),
    Simulated(tokio::io::ReadHalf<Box<dyn Socket>>),
}

/// The direction in which bytes go.
#[derive(Debug)]
pub struct WriteHalf(WriteSide);

#[derive(Debug)]
enum WriteSide {
    Tcp(OwnedWriteHalf),
    Simulated(tokio::io::WriteHalf<Box<dyn Socket>>),
}

macro_rules! read_by {
    ($type:ty, $field:tt, $side:ident) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match &mut self.$field {
                    $side::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
                    $side::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
                }
            }
        }
    };
}

macro_rules! write_by {
    ($type:ty, $field:tt, $side:ident) => {
        impl AsyncWrite for $type {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                match &mut self.$field {
                    $side::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
                    $side::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
                }
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut self.$field {
                    $side::Tcp(stream) => Pin::new(stream).poll_flush(cx),
                    $side::Simulated(stream) => Pin::new(stream).poll_flush(cx),
                }
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut self.$field {
                    $side::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
                    $side::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
                }
            }
        }
    };
}

read_by!(Stream, kind, Kind);
write_by!(Stream, kind, Kind);
read_by!(ReadHalf, 0, ReadSide);
write_by!(WriteHalf, 0, WriteSide);
