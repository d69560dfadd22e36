//! A listening port.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::net::TcpListener;

use super::stream::{Socket, Stream};

/// A simulated port.
pub trait Port: fmt::Debug + Send + Sync {
    /// The next connection, and its peer's address.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>>;

    /// Where it listens.
    ///
    /// # Errors
    /// The simulation's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A bound port.
#[derive(Debug)]
pub enum Listener {
    /// Of the machine.
    Tcp(TcpListener),
    /// Of a simulation.
    Simulated(Box<dyn Port>),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// The system's error.
    pub async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Stream::tcp(stream, peer)),
            Self::Simulated(port) => port.accept().await.map(Stream::simulated),
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Simulated(port) => port.local_addr(),
        }
    }
}
