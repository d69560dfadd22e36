//! Errors of GPUs.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use crate::gemm::CalibrationError;
use crate::overlap::DeviceError;

/// Why there is no GPU to run on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// The driver's library is not there.
    #[error("no CUDA device: the driver's library libcuda.so.1 was not found; install the NVIDIA driver")]
    NoDriver,
    /// The driver has not this device.
    #[error(
        "no CUDA device {ordinal}: the driver has {count}; is the device visible here (nvidia-smi, CUDA_VISIBLE_DEVICES, the \
         container's devices)?"
    )]
    NoDevice {
        /// The device asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The driver is older than what is built on it.
    #[error(
        "no CUDA device: the driver speaks CUDA {major}.{minor}; expected {}.0 or later: install a newer NVIDIA driver",
        super::DRIVER_MAJOR_MIN
    )]
    OldDriver {
        /// The newest CUDA that it supports.
        major: i32,
        /// Its minor number.
        minor: i32,
    },
    /// The device cannot be opened.
    #[error("no CUDA device {ordinal}: it cannot be opened: {reason}")]
    Refused {
        /// The device asked for.
        ordinal: u32,
        /// The driver's words.
        reason: DeviceError,
    },
    /// The ONNX Runtime that was loaded cannot use GPUs.
    #[error(
        "ONNX Runtime {version} at `{path}` is built without CUDA; install onnxruntime-gpu for the CUDA of this machine, and name its \
         library in backend.onnxruntime or SYMPHONY_ONNXRUNTIME"
    )]
    NoProvider {
        /// Version of that ONNX Runtime.
        version: String,
        /// Where it is.
        path: String,
    },
}

/// Why a model is not on a GPU.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GpuLoadError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A library that it needs is not there.
    #[error("{library} was not found; it comes with CUDA's toolkit, and has to be in LD_LIBRARY_PATH: {needed_for}")]
    NoLibrary {
        /// Name of the library, and of its file.
        library: &'static str,
        /// The purpose of the library.
        needed_for: &'static str,
    },
    /// The profile cannot be kept here.
    #[error("the profile cannot be kept on this GPU: {0}")]
    Calibration(#[from] CalibrationError),
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] symphony_executor::LoadError),
}

impl GpuLoadError {
    /// Whether it was for lack of memory: once another model has gone it may be loaded.
    #[must_use]
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::Device(error) => matches!(error, DeviceError::OutOfMemory(_)),
            Self::Model(error) => is_want_of_memory(&error.problem),
            _ => false,
        }
    }
}

/// Whether a message of ONNX Runtime, or of what it loads, is about a lack of memory; it has no code for it. These are
/// the words of its allocator, of the driver, and of cuBLAS and cuDNN.
pub(super) fn is_want_of_memory(words: &str) -> bool {
    ["Failed to allocate memory", "out of memory", "ALLOC_FAILED"].iter().any(|want| words.contains(want))
}

/// The driver's error in its own words, and whether the device can still be used.
pub(super) fn device_error(error: DriverError) -> DeviceError {
    let words = error.to_string();
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory(words),
        // After these the context answers every call with the same error (CUDA driver API, "CUresult").
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
        | CUresult::CUDA_ERROR_CONTAINED
        | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
        | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => DeviceError::Lost(words),
        _ => DeviceError::Failed(words),
    }
}

/// Whether the driver is installed and finds no device.
pub(super) fn is_no_device(error: DriverError) -> bool {
    matches!(error.0, CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_STUB_LIBRARY)
}

#[cfg(test)]
mod tests {
    use symphony_executor::LoadError;

    use super::*;

    #[test]
    fn want_of_memory_is_known_whoever_speaks_of_it() {
        let model = |problem: &str| GpuLoadError::from(LoadError { model: "m".into(), problem: problem.into() });
        assert!(GpuLoadError::from(DeviceError::OutOfMemory("2 MB".into())).lacks_memory());
        for words in ["Failed to allocate memory for requested buffer of size 9", "CUBLAS_STATUS_ALLOC_FAILED"] {
            assert!(model(words).lacks_memory(), "{words}");
        }
        assert!(!model("CUDA failure 700: an illegal memory access was encountered").lacks_memory());
        assert!(!GpuLoadError::from(DeviceError::Failed("no".into())).lacks_memory());
    }
}
