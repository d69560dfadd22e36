//! Dialling.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

use crate::stream::{Socket, Stream};

/// The sockets of a simulation.
pub trait Sockets: fmt::Debug + Send + Sync + 'static {
    /// Connects to `host:port`.
    fn dial(&self, addr: String) -> BoxFuture<'static, io::Result<(Box<dyn Socket>, SocketAddr)>>;
}

/// How a process reaches the others. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    simulated: Option<Arc<dyn Sockets>>,
}

impl Wire {
    /// TCP of this machine.
    #[must_use]
    pub const fn machine() -> Self {
        Self { simulated: None }
    }

    /// That of a simulation.
    #[must_use]
    pub fn simulated(sockets: impl Sockets) -> Self {
        Self { simulated: Some(Arc::new(sockets)) }
    }

    /// Connects to `host:port`. The caller bounds the time.
    ///
    /// # Errors
    /// If nobody answers.
    pub async fn dial(&self, addr: &str) -> io::Result<Stream> {
        match &self.simulated {
            None => {
                let stream = TcpStream::connect(addr).await?;
                let peer = stream.peer_addr()?;
                Ok(Stream::tcp(stream, peer))
            }
            Some(sockets) => sockets.dial(addr.to_owned()).await.map(Stream::simulated),
        }
    }
}
