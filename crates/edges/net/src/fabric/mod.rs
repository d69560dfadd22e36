//! A network beside the connections: two processes that have a connection may have a stream each way there. What it is,
//! and how its ends find each other, is for whoever implements it: devices for RDMA, and tests; what they tell each
//! other goes over the connection.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use symphony_rdma::Endpoint;
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "rdma")]
mod rdma;

/// What a program says that was built without RDMA.
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
    /// One end of a pair of streams. May block for as long as the system takes.
    ///
    /// # Errors
    /// Why there can be none.
    fn begin(&self) -> Result<Box<dyn FabricEnd>, String>;
}

/// An end that has not heard of the other one yet.
pub trait FabricEnd: Send {
    /// How the other end finds this one.
    fn endpoint(&self) -> Endpoint;

    /// Connects to the other end, which has to do the same. That it is there is not known before it was
    /// [proved](FabricWriter::prove). May block for as long as the system takes.
    ///
    /// # Errors
    /// If there can be no such end.
    fn join(self: Box<Self>, peer: Endpoint) -> Result<FabricStreams, String>;
}

/// Both directions.
pub type FabricStreams = (Box<dyn FabricReader>, Box<dyn FabricWriter>);

/// What the other process writes. Nothing ends it where that is gone without a word: the connection tells.
pub trait FabricReader: AsyncRead + Debug + Send + Sync + Unpin {
    /// The connection says that the other end is gone, and everything that came was read.
    fn gone(&mut self);
}

/// What the other process reads.
pub trait FabricWriter: AsyncWrite + Debug + Send + Sync + Unpin {
    /// Finds out whether the other end can be reached, and answers. The caller bounds the time.
    ///
    /// # Errors
    /// Why it cannot.
    fn prove(&mut self) -> BoxFuture<'_, Result<(), String>>;
}
