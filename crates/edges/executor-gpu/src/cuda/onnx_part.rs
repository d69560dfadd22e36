//! Parts of ONNX models on a GPU: what a trunk computes is in tensors of ONNX Runtime's allocator, and a suffix's
//! session is shown its rows there.

use std::fmt;

use ort::value::DynValue;
use symphony_executor::{LoadError, OnnxOptions, OnnxSession, PartLoader, Runtime};

use super::onnx::{Loaded, OnnxInLane, address};
use super::part::{CudaPart, PartProgram};
use super::{Cuda, GpuLoadError};
use crate::overlap::DeviceError;

/// Loads parts of ONNX models onto a GPU.
#[derive(Clone, Debug)]
pub struct CudaLoader {
    cuda: Cuda,
    runtime: Runtime,
    options: OnnxOptions,
}

/// A session, and what it has computed last.
pub struct OnnxPart {
    /// Before the session, to whose allocator it goes back. (Fields are dropped in their order.)
    computed: Vec<DynValue>,
    onnx: OnnxInLane,
}

impl CudaLoader {
    /// With these options for each part; their signature does not count.
    #[must_use]
    pub fn new(cuda: &Cuda, runtime: &Runtime, options: &OnnxOptions) -> Self {
        let options = OnnxOptions { signature: None, ..options.clone() };
        Self { cuda: cuda.clone(), runtime: runtime.clone(), options }
    }
}

impl PartLoader for CudaLoader {
    type Part = CudaPart<OnnxPart>;

    fn load(&self, name: &str, bytes: &[u8]) -> Result<Self::Part, LoadError> {
        let Self { cuda, runtime, options } = self;
        let refuse = |problem: String| LoadError { model: name.to_owned(), problem };
        let loaded = cuda.load_part("onnxruntime-cuda", |cuda| {
            let open = |providers: &[_]| OnnxSession::from_memory(runtime, name, bytes, options, providers);
            let Loaded { onnx, signature, batch_max, sizes } = OnnxInLane::load(cuda, runtime, name, open)?;
            if sizes.is_some() {
                return Err(refuse("it runs batches of certain sizes only, and parts run any".into()).into());
            }
            Ok((OnnxPart { computed: Vec::new(), onnx }, signature, batch_max))
        });
        loaded.map_err(|error| match error {
            GpuLoadError::Model(error) => error,
            other => refuse(other.to_string()),
        })
    }
}

// SAFETY: the session computes in the lane `Compute`, which is the stream that it was given. Outputs were taken with
// the shape of the batch, ONNX Runtime refuses to run a model that gives another one, and they are kept until the next
// batch has others.
unsafe impl PartProgram for OnnxPart {
    unsafe fn enqueue(&mut self, inputs: &[u64], rows: u32) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.computed = unsafe { self.onnx.run(inputs, rows) }?;
        Ok(())
    }

    fn output(&mut self, index: usize) -> Result<u64, DeviceError> {
        address(self.computed.get(index))
    }
}

impl fmt::Debug for OnnxPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxPart").field("onnx", &self.onnx).finish_non_exhaustive()
    }
}
