//! NVIDIA GPUs. All unsafe code of this crate is in this folder; it rests on these rules:
//!
//! 1. Memory that a lane may still use is neither freed nor used by anybody else. Who uses what when is decided by
//!    [`crate::overlap::Overlap`] and watched by invariant D1; a device that is dropped settles first.
//! 2. Addresses that go to the driver or to ONNX Runtime are those of memory that is at least as long as what is said with them,
//!    and lives in the same object.
//! 3. Nothing of CUDA is called before [`Cuda::open`] has found the driver: the crate `cudarc` panics without it.

#![allow(unsafe_code)]

mod blas;
mod device;
mod errors;
mod gemm;
mod onnx;
mod pinned;

use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaStream};

use crate::overlap::{DeviceError, Lane};
use errors::device_error;
use gemm::Products;

pub use errors::{GpuLoadError, NoCuda};
pub use gemm::GemmModel;
pub use onnx::{OnnxOnCuda, cuda_provider_is_there};
pub use pinned::PinnedPool;

/// The oldest major number of CUDA that a driver must speak: that of the oldest cuBLASLt and ONNX Runtime that are taken.
const DRIVER_MAJOR_MIN: i32 = 12;

/// One GPU, opened: its lanes and what its models share. Clones are the same GPU.
#[derive(Clone)]
pub struct Cuda(Arc<Gpu>);

struct Gpu {
    context: Arc<CudaContext>,
    ordinal: u32,
    name: String,
    driver: (i32, i32),
    /// In the order of [`Lane::ALL`]. All models of the GPU share them, so batches of different models are in order, too.
    lanes: [Arc<CudaStream>; 3],
    pinned: PinnedPool,
    /// Made when the first model wants them.
    products: Mutex<Option<Arc<Mutex<Products>>>>,
}

impl Cuda {
    /// Opens the GPU with this number, as `nvidia-smi` counts (`CUDA_VISIBLE_DEVICES` changes that), with host memory from a pool.
    ///
    /// # Errors
    /// Says what is missing: the driver, a device, or a device that answers.
    pub fn open(ordinal: u32, pinned: &PinnedPool) -> Result<Self, NoCuda> {
        // SAFETY: it opens the driver's library and closes it again; nothing of ours is involved.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(NoCuda::NoDriver);
        }
        let refused = |error: cudarc::driver::DriverError| NoCuda::Refused { ordinal, reason: device_error(error) };
        let count = match CudaContext::device_count() {
            Ok(count) => u32::try_from(count).unwrap_or_default(),
            Err(error) if errors::is_no_device(error) => 0,
            Err(error) => return Err(refused(error)),
        };
        if ordinal >= count {
            return Err(NoCuda::NoDevice { ordinal, count });
        }
        let driver = driver_version().map_err(refused)?;
        if driver.0 < DRIVER_MAJOR_MIN {
            return Err(NoCuda::OldDriver { major: driver.0, minor: driver.1 });
        }
        let context = CudaContext::new(ordinal as usize).map_err(refused)?;
        // SAFETY: what cudarc would order by events of its own is ordered by those of the overlap (rule 1): with both, each product
        // of a chain would record two more.
        unsafe { context.disable_event_tracking() };
        let stream = || context.new_stream().map_err(refused);
        let lanes = [stream()?, stream()?, stream()?];
        let name = context.name().map_err(refused)?;
        tracing::info!(device = ordinal, name, driver = format!("{}.{}", driver.0, driver.1), "opened a GPU");
        let (pinned, products) = (pinned.clone(), Mutex::default());
        Ok(Self(Arc::new(Gpu { context, ordinal, name, driver, lanes, pinned, products })))
    }

    /// Its number.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.0.ordinal
    }

    /// What the vendor calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The newest CUDA that its driver speaks: 13 and 0 for 13.0.
    #[must_use]
    pub fn driver(&self) -> (i32, i32) {
        self.0.driver
    }

    /// Bytes of its memory in use, by whomever, and in all.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (free, all) = self.0.context.mem_get_info().map_err(device_error)?;
        Ok(((all - free) as u64, all as u64))
    }

    /// Bytes in use once everything that was given back is counted as that: the driver keeps what is given back in a lane until the
    /// lane is waited for.
    fn used_by_now(&self) -> Result<u64, DeviceError> {
        self.lane(Lane::Compute).synchronize().map_err(device_error)?;
        Ok(self.memory()?.0)
    }

    /// Whose failure it is that a library speaks of: after one of the device's every call of the driver fails.
    fn blame(&self, words: String) -> DeviceError {
        match self.memory() {
            Err(DeviceError::Lost(driver)) => DeviceError::Lost(format!("{words}: {driver}")),
            _ => DeviceError::Failed(words),
        }
    }

    fn context(&self) -> &Arc<CudaContext> {
        &self.0.context
    }

    fn lane(&self, lane: Lane) -> &Arc<CudaStream> {
        &self.0.lanes[lane as usize]
    }

    fn pinned(&self) -> &PinnedPool {
        &self.0.pinned
    }

    /// Waits until all lanes are empty. After a failure the driver says so at once.
    fn settle(&self) {
        for lane in &self.0.lanes {
            if let Err(error) = lane.synchronize() {
                tracing::warn!(device = self.0.ordinal, error = %device_error(error), "a lane did not end well");
            }
        }
    }

    /// The matrices that all chains on this GPU multiply.
    fn products(&self) -> Result<Arc<Mutex<Products>>, GpuLoadError> {
        let mut products = self.0.products.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(made) = &*products {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(Mutex::new(Products::new(self)?));
        Ok(Arc::clone(products.insert(made)))
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("ordinal", &self.0.ordinal).field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// Major and minor number of the newest CUDA that the driver speaks.
fn driver_version() -> Result<(i32, i32), cudarc::driver::DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to the address of one.
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok((version / 1000, version % 1000 / 10))
}
