//! The executor that runs the batches of a backend, compared with the configured one.

use symphony_config::{BackendConfig, DeviceKind, ExecutorKind};

use crate::engine::Engine;

/// Facts that are fixed for a boot of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecutorInUse {
    /// The executor in use.
    pub(crate) executor: &'static str,
    /// The device that computes: `cpu`, `cuda`, or `none`.
    pub(crate) provider: &'static str,
    /// CUDA was configured and is not in use.
    pub(crate) fell_back: bool,
}

impl ExecutorInUse {
    pub(crate) fn new(config: &BackendConfig, engine: &Engine) -> Self {
        Self::of(engine.label(), engine.provider(), wants_cuda(config.executor, config.device))
    }

    fn of(executor: &'static str, provider: &'static str, wants_cuda: bool) -> Self {
        Self { executor, provider, fell_back: wants_cuda && provider != "cuda" }
    }

    /// The labels of the metric.
    pub(crate) fn labels(self) -> Vec<(&'static str, String)> {
        vec![
            ("executor", self.executor.to_owned()),
            ("provider", self.provider.to_owned()),
            ("fell_back", self.fell_back.to_string()),
        ]
    }
}

/// Whether batches are to run on CUDA devices, required or not.
fn wants_cuda(executor: ExecutorKind, device: DeviceKind) -> bool {
    match executor {
        ExecutorKind::OrtCpu => device == DeviceKind::Cuda,
        ExecutorKind::CudaGemm => true,
        ExecutorKind::Emulated => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onnx_models_that_were_to_run_on_gpus_and_run_on_the_cpu_are_a_fall_back() {
        let onnx = |device, provider| ExecutorInUse::of("ort", provider, wants_cuda(ExecutorKind::OrtCpu, device));
        assert!(onnx(DeviceKind::Cuda, "cpu").fell_back);
        assert!(!onnx(DeviceKind::Cuda, "cuda").fell_back);
        for device in [DeviceKind::Auto, DeviceKind::Cpu] {
            assert!(!onnx(device, "cpu").fell_back, "nobody asked for CUDA");
        }
        let emulated = wants_cuda(ExecutorKind::Emulated, DeviceKind::Cuda);
        let emulated = ExecutorInUse::of("emulated", "none", emulated);
        let labels = [("executor", "emulated"), ("provider", "none"), ("fell_back", "false")];
        assert_eq!(emulated.labels(), labels.map(|(label, value)| (label, value.to_owned())));
    }
}
