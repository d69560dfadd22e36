//! A connection.

use std::fmt;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::{forward_read, forward_write};

/// A simulated connection.
pub trait Socket: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin> Socket for S {}

/// A connection; the enum adds no cost to TCP.
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
        // Fails only if the peer has gone already, which the first read will show.
        let _ = stream.set_nodelay(true);
        Self { kind: Kind::Tcp(stream), peer }
    }

    pub(crate) fn simulated((socket, peer): (Box<dyn Socket>, SocketAddr)) -> Self {
        Self { kind: Kind::Simulated(socket), peer }
    }

    /// The address of the peer.
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

/// The half that receives.
#[derive(Debug)]
pub struct ReadHalf(ReadSide);

#[derive(Debug)]
enum ReadSide {
    Tcp(OwnedReadHalf),
    Simulated(tokio::io::ReadHalf<Box<dyn Socket>>),
}

/// The half that sends.
#[derive(Debug)]
pub struct WriteHalf(WriteSide);

#[derive(Debug)]
enum WriteSide {
    Tcp(OwnedWriteHalf),
    Simulated(tokio::io::WriteHalf<Box<dyn Socket>>),
}

forward_read!(Stream, kind, Kind { Tcp, Simulated });
forward_write!(Stream, kind, Kind { Tcp, Simulated });
forward_read!(ReadHalf, 0, ReadSide { Tcp, Simulated });
forward_write!(WriteHalf, 0, WriteSide { Tcp, Simulated });
