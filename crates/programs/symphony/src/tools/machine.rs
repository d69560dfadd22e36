//! The machine that a profile was measured on, in words.

use symphony_executor_gpu::Cuda;

/// The GPU and driver of a measurement.
pub(super) fn gpu_machine(gpu: &Cuda) -> String {
    let (major, minor) = gpu.driver();
    format!("{}, driver for CUDA {major}.{minor}, {}", gpu.name(), machine())
}

/// Processor and cores of a measurement.
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split_once(':'));
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, name)| name.trim()))
}
