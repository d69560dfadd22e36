//! Dialling.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

use super::stream::{Socket, Stream};

/// The sockets of a simulated network.
pub trait Sockets: fmt::Debug + Send + Sync + 'static {
    /// Connects to `host:port`.
    fn dial(&self, addr: String) -> BoxFuture<'static, io::Result<(Box<dyn Socket>, SocketAddr)>>;
}

/// Opens connections to other processes: over TCP, or over a simulated network. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    simulated: Option<Arc<dyn Sockets>>,
}

impl Dialer {
    /// TCP of this machine.
    #[must_use]
    pub const fn machine() -> Self {
        Self { simulated: None }
    }

    /// The sockets of a simulated network.
    #[must_use]
    pub fn simulated(sockets: impl Sockets) -> Self {
        Self { simulated: Some(Arc::new(sockets)) }
    }

    /// Connects to `host:port`. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer.
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
