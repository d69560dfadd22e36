//! Streams, one per lane, or one for all.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::gemm::Products;
use super::{Cuda, GpuLoadError};
use crate::overlap::Lane;

/// The lanes of a GPU, and what is used in them alone.
pub(super) struct Lanes {
    /// In the order of [`Lane::ALL`].
    streams: [Arc<CudaStream>; 3],
    /// Made when the first model wants them.
    products: Mutex<Option<Arc<Mutex<Products>>>>,
}

impl Lanes {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let stream = || context.new_stream();
        Ok(Self { streams: [stream()?, stream()?, stream()?], products: Mutex::default() })
    }

    /// One stream is all lanes: what is enqueued is in order whichever lane it is in.
    pub(super) fn of_one_stream(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let stream = context.new_stream()?;
        Ok(Self { streams: [Arc::clone(&stream), Arc::clone(&stream), stream], products: Mutex::default() })
    }

    pub(super) const fn stream(&self, lane: Lane) -> &Arc<CudaStream> {
        &self.streams[lane as usize]
    }
}

impl Cuda {
    /// The matrices that all chains in these lanes multiply.
    pub(super) fn products(&self) -> Result<Arc<Mutex<Products>>, GpuLoadError> {
        let mut products = self.lanes.products.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*products {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(Mutex::new(Products::new(self)?));
        Ok(Arc::clone(products.insert(made)))
    }
}
