//! RDMA devices as a fabric.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use symphony_rdma::{Endpoint, Purpose, StreamReader, StreamWriter, Unpaired};

use super::{Fabric, FabricEnd, FabricReader, FabricStreams, FabricWriter};

pub(super) fn open(device: Option<&str>) -> Result<Arc<dyn Fabric>, String> {
    let fabric = symphony_rdma::Fabric::open(device, Purpose::Frames).map_err(|error| error.to_string())?;
    tracing::info!(device = fabric.device(), "frames go over RDMA to peers of other hosts that have it too");
    Ok(Arc::new(fabric))
}

impl Fabric for symphony_rdma::Fabric {
    fn begin(&self) -> Result<Box<dyn FabricEnd>, String> {
        Self::begin(self).map(|end| Box::new(end) as _).map_err(|error| error.to_string())
    }
}

impl FabricEnd for Unpaired {
    fn endpoint(&self) -> Endpoint {
        Self::endpoint(self)
    }

    fn join(self: Box<Self>, peer: Endpoint) -> Result<FabricStreams, String> {
        let (reader, writer) = Self::join(*self, peer).map_err(|error| error.to_string())?.split();
        Ok((Box::new(reader), Box::new(writer)))
    }
}

impl FabricReader for StreamReader {
    fn gone(&mut self) {
        Self::gone(self);
    }
}

impl FabricWriter for StreamWriter {
    fn prove(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Self::prove(self).map_err(|broken| broken.to_string()).boxed()
    }
}
