//! An established connection with the identity of its peer.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::sockets::{forward_read, forward_write};
use tokio_rustls::TlsStream;

use crate::callers::CallerPlace;
use crate::carriers::Carriers;
use crate::cluster_level::ClusterLevel;
use crate::identity::Identity;
use crate::peer_info::PeerInfo;

/// A connection. Plaintext costs no more than the socket itself.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: PeerInfo,
    place: HeldPlace,
    carriers: Carriers,
    level: ClusterLevel,
}

/// The place of an accepted connection among those of its port, held until both halves are gone.
type HeldPlace = Option<Arc<CallerPlace>>;

#[derive(Debug)]
enum Stream {
    Plain(crate::sockets::Stream),
    Tls(Box<TlsStream<crate::sockets::Stream>>),
}

impl Connection {
    /// In plaintext, with what this process has besides.
    pub(crate) fn plain(
        stream: crate::sockets::Stream,
        addr: SocketAddr,
        carriers: Carriers,
        level: ClusterLevel,
    ) -> Self {
        Self { stream: Stream::Plain(stream), peer: PeerInfo { addr, identity: None }, place: None, carriers, level }
    }

    /// The same over TLS.
    pub(crate) fn tls(
        stream: TlsStream<crate::sockets::Stream>,
        peer: PeerInfo,
        carriers: Carriers,
        level: ClusterLevel,
    ) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), peer, place: None, carriers, level }
    }

    /// Adds its place among those of its port.
    pub(crate) fn holding(self, place: CallerPlace) -> Self {
        Self { place: Some(Arc::new(place)), ..self }
    }

    /// Who is at the other end.
    #[must_use]
    pub const fn peer(&self) -> &PeerInfo {
        &self.peer
    }

    /// The carriers available besides this connection.
    #[must_use]
    pub const fn carriers(&self) -> &Carriers {
        &self.carriers
    }

    /// What this process writes by.
    #[must_use]
    pub const fn level(&self) -> &ClusterLevel {
        &self.level
    }

    /// The two directions, for two tasks.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let place = self.place.clone();
        match self.stream {
            Stream::Plain(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf(ReadSide::Plain(read), place), WriteHalf(WriteSide::Plain(write), self.place))
            }
            Stream::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (ReadHalf(ReadSide::Tls(read), place), WriteHalf(WriteSide::Tls(write), self.place))
            }
        }
    }
}

/// The half that receives; the connection keeps its place until both halves are gone.
#[derive(Debug)]
pub struct ReadHalf(ReadSide, #[expect(dead_code, reason = "held")] HeldPlace);

#[derive(Debug)]
enum ReadSide {
    Plain(crate::sockets::ReadHalf),
    Tls(tokio::io::ReadHalf<TlsStream<crate::sockets::Stream>>),
}

/// The half that sends; the connection keeps its place until both halves are gone.
#[derive(Debug)]
pub struct WriteHalf(WriteSide, #[expect(dead_code, reason = "held")] HeldPlace);

#[derive(Debug)]
enum WriteSide {
    Plain(crate::sockets::WriteHalf),
    Tls(tokio::io::WriteHalf<TlsStream<crate::sockets::Stream>>),
}

forward_read!(Connection, stream, Stream { Plain, Tls });
forward_write!(Connection, stream, Stream { Plain, Tls });
forward_read!(ReadHalf, 0, ReadSide { Plain, Tls });
forward_write!(WriteHalf, 0, WriteSide { Plain, Tls });

/// A blocking connection, for threads that must not depend on a runtime.
pub struct Line {
    stream: LineStream,
    peer: PeerInfo,
}

enum LineStream {
    Plain(std::net::TcpStream),
    Client(Box<rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>>),
    Server(Box<rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>>),
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Line {
    pub(crate) const fn plain(stream: std::net::TcpStream, addr: SocketAddr) -> Self {
        Self { stream: LineStream::Plain(stream), peer: PeerInfo { addr, identity: None } }
    }

    pub(crate) fn client(
        stream: rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>,
        addr: SocketAddr,
        identity: Identity,
    ) -> Self {
        Self { stream: LineStream::Client(Box::new(stream)), peer: PeerInfo { addr, identity: Some(identity) } }
    }

    pub(crate) fn server(
        stream: rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>,
        addr: SocketAddr,
        identity: Identity,
    ) -> Self {
        Self { stream: LineStream::Server(Box::new(stream)), peer: PeerInfo { addr, identity: Some(identity) } }
    }

    /// Who is at the other end.
    #[must_use]
    pub const fn peer(&self) -> &PeerInfo {
        &self.peer
    }

    /// The socket, to set timeouts.
    #[must_use]
    pub fn socket(&self) -> &std::net::TcpStream {
        match &self.stream {
            LineStream::Plain(stream) => stream,
            LineStream::Client(stream) => &stream.sock,
            LineStream::Server(stream) => &stream.sock,
        }
    }
}

impl Read for Line {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            LineStream::Plain(stream) => stream.read(buf),
            LineStream::Client(stream) => stream.read(buf),
            LineStream::Server(stream) => stream.read(buf),
        }
    }
}

impl Write for Line {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            LineStream::Plain(stream) => stream.write(buf),
            LineStream::Client(stream) => stream.write(buf),
            LineStream::Server(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            LineStream::Plain(stream) => stream.flush(),
            LineStream::Client(stream) => stream.flush(),
            LineStream::Server(stream) => stream.flush(),
        }
    }
}
