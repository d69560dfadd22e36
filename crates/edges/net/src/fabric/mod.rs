//! The port of a fabric: a network beside TCP, over which two connected processes may have a stream each way.
//! Implemented by RDMA devices, and by tests. The ends exchange their addresses over the connection.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use symphony_rdma::Endpoint;
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "rdma")]
mod rdma;

/// The error of a program that was built without RDMA.
pub const RDMA_NOT_BUILT: &str =
    "this program was built without it; build it with --features rdma (see crates/edges/rdma)";

/// The RDMA device of that name, or the first with an active port. One for each process.
///
/// # Errors
/// If there is none, it cannot do what is needed, or this program was built without RDMA.
pub fn rdma_fabric(device: Option<&str>) -> Result<Arc<dyn Fabric>, String> {
    #[cfg(feature = "rdma")]
    return rdma::open(device);
    #[cfg(not(feature = "rdma"))]
    {
        let _ = device;
        Err(RDMA_NOT_BUILT.to_owned())
    }
}

/// Makes streams to other hosts. One for each process.
pub trait Fabric: Debug + Send + Sync {
    /// Makes one end of a pair of streams. May block as long as the system takes.
    ///
    /// # Errors
    /// Why that is impossible.
    fn begin(&self) -> Result<Box<dyn FabricEnd>, String>;
}

/// An end that does not know its peer yet.
pub trait FabricEnd: Send {
    /// The address of this end, for the peer.
    fn endpoint(&self) -> Endpoint;

    /// Connects to the peer's end, which must do the same. Only [`prove`](FabricWriter::prove) shows that the peer is
    /// reachable. May block as long as the system takes.
    ///
    /// # Errors
    /// If the address is invalid or unsupported.
    fn join(self: Box<Self>, peer: Endpoint) -> Result<FabricStreams, String>;
}

/// Both directions.
pub type FabricStreams = (Box<dyn FabricReader>, Box<dyn FabricWriter>);

/// Reads what the peer writes. A peer that vanishes does not end the stream; the connection shows it.
pub trait FabricReader: AsyncRead + Debug + Send + Sync + Unpin {
    /// The connection has ended, and everything that arrived was read.
    fn gone(&mut self);
}

/// Writes to the peer.
pub trait FabricWriter: AsyncWrite + Debug + Send + Sync + Unpin {
    /// Checks that the peer can be reached and answers. The caller bounds the time.
    ///
    /// # Errors
    /// Why it cannot.
    fn prove(&mut self) -> BoxFuture<'_, Result<(), String>>;
}
