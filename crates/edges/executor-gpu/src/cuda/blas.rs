//! Products of square matrices with cuBLASLt; everything that stays the same between products is set up once.
//!
//! cudarc's own handle creates descriptors and selects a kernel for each product, and panics if there is no memory for
//! its workspace or the library cannot release it. So its lower layer is used here.

use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};

use super::errors::device_error;
use super::{Cuda, GpuLoadError};
use crate::overlap::{DeviceError, Lane};

/// As NVIDIA advises for Hopper and later; older ones are advised less (cuBLAS, "cublasSetWorkspace").
const WORKSPACE_BYTES: usize = 32 << 20;

/// cuBLASLt, opened for one GPU's compute lane.
pub(super) struct Blas {
    /// Lets go of the library before the workspace. (Fields are dropped in their order.)
    handle: Handle,
    description: Description,
    workspace: CudaSlice<u8>,
    lane: Arc<CudaStream>,
}

/// How matrices with this many rows are multiplied.
pub(super) struct Square {
    layout: Layout,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// An object of cuBLASLt that must be released. An error of its release is logged, and not worth a panic.
macro_rules! owned {
    ($name:ident, $raw:ty, $destroy:path) => {
        struct $name($raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: it is this value's own, and nothing queued needs it: the library copies what it needs.
                if let Err(error) = unsafe { $destroy(self.0) } {
                    tracing::warn!(?error, what = stringify!($name), "cuBLASLt did not let go");
                }
            }
        }

        // SAFETY: cuBLASLt's objects may be used from any thread, one at a time (cuBLAS, "Using the cuBLASLt API").
        unsafe impl Send for $name {}
    };
}

owned!(Handle, sys::cublasLtHandle_t, result::destroy_handle);
owned!(Layout, sys::cublasLtMatrixLayout_t, result::destroy_matrix_layout);
owned!(Description, sys::cublasLtMatmulDesc_t, result::destroy_matmul_desc);
owned!(Preference, sys::cublasLtMatmulPreference_t, result::destroy_matmul_pref);

impl Blas {
    /// Opens the library. The GPU's context is this thread's already.
    pub(super) fn new(cuda: &Cuda) -> Result<Self, GpuLoadError> {
        // SAFETY: it opens the library and closes it again; nothing of ours is involved.
        if !unsafe { sys::is_culib_present() } {
            let needed_for = "the executor cuda-gemm multiplies matrices by it";
            return Err(GpuLoadError::NoLibrary { library: "cuBLASLt (libcublasLt.so)", needed_for });
        }
        let failed = |error| blas_error(cuda, "cuBLASLt cannot be opened", error);
        let lane = Arc::clone(cuda.lane(Lane::Compute));
        // SAFETY: the library writes it before anything reads it.
        let workspace = unsafe { lane.alloc(WORKSPACE_BYTES) }.map_err(device_error)?;
        let handle = Handle(result::create_handle().map_err(failed)?);
        // TF32 (ten bits of a number) is what a model's products are computed in, too.
        let (compute, scale) =
            (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, sys::cudaDataType_t::CUDA_R_32F);
        let description = Description(result::create_matmul_desc(compute, scale).map_err(failed)?);
        Ok(Self { handle, description, workspace, lane })
    }

    /// Asks the library for its best way to multiply matrices of this many rows.
    pub(super) fn square(&self, cuda: &Cuda, rows: u32) -> Result<Square, DeviceError> {
        let failed = |error| blas_error(cuda, &format!("cuBLASLt has no product of {rows} rows"), error);
        let float = sys::cudaDataType_t::CUDA_R_32F;
        let n = u64::from(rows);
        let layout = Layout(result::create_matrix_layout(float, n, n, i64::from(rows)).map_err(failed)?);
        let preference = Preference(result::create_matmul_pref().map_err(failed)?);
        let size = WORKSPACE_BYTES as u64;
        let of = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference lives, and the library reads as many bytes as are said from an address that has them.
        unsafe { result::set_matmul_pref_attribute(preference.0, of, (&raw const size).cast(), size_of_val(&size)) }
            .map_err(failed)?;
        let (handle, description, layout) = (self.handle.0, self.description.0, layout);
        // SAFETY: all of them live.
        let found = unsafe {
            result::get_matmul_algo_heuristic(handle, description, layout.0, layout.0, layout.0, layout.0, preference.0)
        };
        Ok(Square { algorithm: found.map_err(failed)?.algo, layout })
    }

    /// Enqueues a product in the lane.
    ///
    /// # Safety
    /// All three have as many rows and columns as `square` was made for, and are used in the lane alone.
    pub(super) unsafe fn multiply(
        &self,
        cuda: &Cuda,
        square: &Square,
        [a, b]: [&CudaSlice<f32>; 2],
        to: &mut CudaSlice<f32>,
    ) -> Result<(), DeviceError> {
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let at = |matrix: &CudaSlice<f32>| matrix.device_ptr(&self.lane).0 as *const std::ffi::c_void;
        let (a, b) = (at(a), at(b));
        let to = to.device_ptr_mut(&self.lane).0 as *mut std::ffi::c_void;
        let workspace = self.workspace.device_ptr(&self.lane).0 as *mut std::ffi::c_void;
        let layout = square.layout.0;
        // SAFETY: the caller's promise for the matrices; everything else is `self`'s or `square`'s. Both numbers are
        // the host's, which is what a description says that says nothing else, and are read before the call returns.
        unsafe {
            result::matmul(
                self.handle.0,
                self.description.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                a,
                layout,
                b,
                layout,
                to,
                layout,
                to,
                layout,
                &raw const square.algorithm,
                workspace,
                WORKSPACE_BYTES,
                self.lane.cu_stream().cast(),
            )
        }
        .map_err(|error| blas_error(cuda, "cuBLASLt does not multiply", error))
    }
}

/// The library has few words for what went wrong below it; the driver has more.
fn blas_error(cuda: &Cuda, what: &str, CublasError(status): CublasError) -> DeviceError {
    use sys::cublasStatus_t as Status;
    match status {
        Status::CUBLAS_STATUS_ALLOC_FAILED => DeviceError::OutOfMemory(format!("{what}: {status:?}")),
        Status::CUBLAS_STATUS_NOT_INITIALIZED => {
            let (major, minor) = cuda.driver();
            let words =
                format!("{what}: {status:?}; it must not be newer than the driver, which speaks CUDA {major}.{minor}");
            cuda.blame(words)
        }
        _ => cuda.blame(format!("{what}: {status:?}")),
    }
}
