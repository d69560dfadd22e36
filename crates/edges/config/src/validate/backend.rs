//! Checks of the `backend` section: its GPUs, its device and its executor.

use std::collections::BTreeSet;

use super::{Check, limits};
use crate::{BackendConfig, DeviceKind, ExecutorKind};

impl Check {
    pub(super) fn backend(&mut self, backend: &BackendConfig) {
        self.process_name("backend.name", &backend.name);
        self.name("backend.subcluster", &backend.subcluster);
        let threads = u64::from(backend.intra_op_threads);
        self.range("backend.intra_op_threads", threads, 1, limits::INTRA_OP_THREADS_MAX.into());
        self.range("backend.journal_mb_max", backend.journal_mb_max, 1, limits::JOURNAL_MB_MAX);
        self.payloads("backend.payloads", &backend.payloads);
        self.backend_gpus(backend);
        self.backend_device(backend);
    }

    fn backend_gpus(&mut self, backend: &BackendConfig) {
        if backend.gpus.is_empty() {
            self.say("backend.gpus", "no GPU is given; add { kind = \"cpu\", count = 1, memory_mb = 1024 } or such");
        }
        let mut kinds = BTreeSet::new();
        for (index, gpu) in backend.gpus.iter().enumerate() {
            let key = |name: &str| format!("backend.gpus.{index}.{name}");
            self.name(key("kind"), &gpu.kind);
            self.range(key("count"), gpu.count.into(), 1, limits::GPUS_MAX.into());
            self.range(key("memory_mb"), gpu.memory_mb, 1, limits::GPU_MEMORY_MB_MAX);
            if !kinds.insert(&gpu.kind) {
                self.say(key("kind"), format!("`{}` is given twice; add the counts up", gpu.kind));
            }
            let is_cpu = gpu.kind == "cpu" || gpu.kind.starts_with("cpu-");
            let on_cuda = backend.executor == ExecutorKind::CudaGemm || backend.device == DeviceKind::Cuda;
            if backend.executor == ExecutorKind::OrtCpu && !on_cuda && !is_cpu {
                let kind = &gpu.kind;
                self.say(
                    key("kind"),
                    format!(
                        "executor ort-cpu runs on the CPU, which is not a `{kind}`; expected `cpu` or `cpu-…`, or device = \"cuda\""
                    ),
                );
            }
            if on_cuda && is_cpu {
                let kind = &gpu.kind;
                self.say(key("kind"), format!("a CUDA device is no `{kind}`; expected its own kind, such as `h100`"));
            }
        }
        let count: u64 = backend.gpus.iter().map(|g| u64::from(g.count)).sum();
        if count > limits::GPUS_MAX.into() && backend.gpus.len() > 1 {
            self.say("backend.gpus", format!("{count} GPUs; one backend has at most {}", limits::GPUS_MAX));
        }
    }

    /// What does not go with the device or the executor.
    fn backend_device(&mut self, backend: &BackendConfig) {
        if backend.device_required && backend.device == DeviceKind::Auto {
            self.say(
                "backend.device_required",
                "with device = \"auto\" everything is allowed; name the device that is required",
            );
        }
        if backend.executor == ExecutorKind::Emulated && backend.device != DeviceKind::Auto {
            self.say("backend.device", "executor = \"emulated\" has no device; leave it out");
        }
        if backend.executor == ExecutorKind::CudaGemm && backend.device == DeviceKind::Cpu {
            self.say("backend.device", "executor = \"cuda-gemm\" runs on CUDA devices only; leave it out");
        }
        // NaN is in no range.
        if !(0.0..=limits::NOISE_MAX).contains(&backend.noise) {
            self.say(
                "backend.noise",
                format!("{} is out of range; expected 0 to {}", backend.noise, limits::NOISE_MAX),
            );
        }
        match (backend.executor, &backend.onnxruntime) {
            (ExecutorKind::Emulated, Some(path)) => self.say(
                "backend.onnxruntime",
                format!("`{}` is set but executor = \"emulated\" never loads it; remove one of them", path.display()),
            ),
            (ExecutorKind::CudaGemm, Some(path)) => self.say(
                "backend.onnxruntime",
                format!("`{}` is set but executor = \"cuda-gemm\" never loads it; remove one of them", path.display()),
            ),
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.pace_file.is_some() => {
                self.say("backend.pace_file", "only executor = \"emulated\" reads it; remove one of them");
            }
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.noise != 0.0 => {
                self.say("backend.noise", "only executor = \"emulated\" uses it; remove one of them");
            }
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.emulated_load_mb_per_s > 0 => {
                self.say("backend.emulated_load_mb_per_s", "only executor = \"emulated\" uses it; remove one of them");
            }
            (ExecutorKind::OrtCpu, _) if backend.model_dir.as_os_str().is_empty() => {
                self.say("backend.model_dir", "no directory is given, but executor = \"ort-cpu\" loads models from it");
            }
            _ => {}
        }
    }
}
