//! NVIDIA GPUs. All unsafe code of this crate is in this folder; it rests on these rules:
//!
//! 1. Memory that a lane may still use is neither freed nor used otherwise. Which lane uses what when is decided by
//!    [`crate::overlap::Overlap`] and watched by invariant D1; a device that is dropped settles first. A part of a
//!    family has one stream, and waits for its trunk's, and that for it, as `part.rs` says: no check watches these.
//! 2. Addresses that go to the driver or to ONNX Runtime are those of memory that is at least as long as the length
//!    passed with them, and is in the same object or, of a suffix, in its trunk, which waits for it (rule 1).
//! 3. Nothing of CUDA is called before [`Cuda::open`] has found the driver: the crate `cudarc` panics without it.

#![allow(unsafe_code)]

mod blas;
mod device;
mod errors;
mod gemm;
mod lanes;
mod onnx;
mod onnx_part;
mod part;
mod pinned;

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use crate::overlap::{DeviceError, Lane};
use errors::device_error;
use lanes::Lanes;

pub use errors::{GpuLoadError, NoCuda};
pub use gemm::GemmModel;
pub use onnx::{OnnxOnCuda, cuda_provider_is_there};
pub use onnx_part::{CudaLoader, OnnxPart};
pub use part::{CudaPart, PartProgram};
pub use pinned::PinnedPool;

/// The oldest major version of CUDA that a driver must support: that of the oldest supported cuBLASLt and ONNX
/// Runtime.
const DRIVER_MAJOR_MIN: i32 = 12;

/// An open GPU, and lanes of it. Clones share the GPU and the lanes.
#[derive(Clone)]
pub struct Cuda {
    gpu: Arc<Gpu>,
    /// Models that share them are in order among each other, whichever batch uses them.
    lanes: Arc<Lanes>,
}

struct Gpu {
    context: Arc<CudaContext>,
    ordinal: u32,
    name: String,
    driver: (i32, i32),
    pinned: PinnedPool,
}

impl Cuda {
    /// Opens the GPU with this number, as `nvidia-smi` counts (`CUDA_VISIBLE_DEVICES` changes that), with host memory
    /// from a pool.
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
        // SAFETY: what cudarc would order by events of its own is ordered by those of the overlap (rule 1): with both,
        // each product of a chain would record two more.
        unsafe { context.disable_event_tracking() };
        let lanes = Arc::new(Lanes::new(&context).map_err(refused)?);
        let name = context.name().map_err(refused)?;
        tracing::info!(device = ordinal, name, driver = format!("{}.{}", driver.0, driver.1), "opened a GPU");
        let pinned = pinned.clone();
        Ok(Self { gpu: Arc::new(Gpu { context, ordinal, name, driver, pinned }), lanes })
    }

    /// This GPU with separate lanes: their work delays other lanes only by sharing the GPU.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn with_own_lanes(&self) -> Result<Self, DeviceError> {
        let lanes = Arc::new(Lanes::new(self.context()).map_err(device_error)?);
        Ok(Self { gpu: Arc::clone(&self.gpu), lanes })
    }

    /// As [`with_own_lanes`](Self::with_own_lanes), with one stream as all lanes.
    fn with_own_stream(&self) -> Result<Self, DeviceError> {
        let lanes = Arc::new(Lanes::of_one_stream(self.context()).map_err(device_error)?);
        Ok(Self { gpu: Arc::clone(&self.gpu), lanes })
    }

    /// Its number.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.gpu.ordinal
    }

    /// What the vendor calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.gpu.name
    }

    /// The newest CUDA that its driver supports: 13 and 0 for 13.0.
    #[must_use]
    pub fn driver(&self) -> (i32, i32) {
        self.gpu.driver
    }

    /// Bytes of its memory in use by all processes, and in total.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (free, all) = self.gpu.context.mem_get_info().map_err(device_error)?;
        Ok(((all - free) as u64, all as u64))
    }

    /// Bytes in use after pending releases: the driver keeps freed memory in a lane until the lane is synchronized.
    fn used_by_now(&self) -> Result<u64, DeviceError> {
        self.lane(Lane::Compute).synchronize().map_err(device_error)?;
        Ok(self.memory()?.0)
    }

    /// Attributes a library's error: after a failure of the device every call of the driver fails.
    fn blame(&self, words: String) -> DeviceError {
        match self.memory() {
            Err(DeviceError::Lost(driver)) => DeviceError::Lost(format!("{words}: {driver}")),
            _ => DeviceError::Failed(words),
        }
    }

    fn context(&self) -> &Arc<CudaContext> {
        &self.gpu.context
    }

    /// One of its lanes, for programs that enqueue work there.
    #[must_use]
    pub fn lane(&self, lane: Lane) -> &Arc<CudaStream> {
        self.lanes.stream(lane)
    }

    fn pinned(&self) -> &PinnedPool {
        &self.gpu.pinned
    }

    /// Waits until these lanes are empty. After a failure the driver returns at once.
    fn settle(&self) {
        for lane in Lane::ALL {
            if let Err(error) = self.lane(lane).synchronize() {
                tracing::warn!(device = self.gpu.ordinal, error = %device_error(error), "a lane did not end well");
            }
        }
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("ordinal", &self.gpu.ordinal).field("name", &self.gpu.name).finish_non_exhaustive()
    }
}

/// Major and minor number of the newest CUDA that the driver supports.
fn driver_version() -> Result<(i32, i32), cudarc::driver::DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to the address of one.
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok((version / 1000, version % 1000 / 10))
}
