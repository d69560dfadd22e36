//! GPUs: whether they are up, and whether they are set aside.

use serde_json::{Value, json};
use symphony_protocol::view::{BackendView, GpuView, SlowGpuView, View};
use symphony_types::{GpuId, SubclusterId};

use super::{Shown, subcluster_name};

/// All GPUs.
pub(crate) fn show(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for backend in view.backends.values() {
        for gpu in &backend.gpus {
            let subcluster = subcluster_name(view, backend.subcluster);
            let token = view.gpu_token(backend, gpu);
            let memory_mb = gpu.memory_bytes >> 20;
            let slow = slow(view, backend.subcluster, gpu.id);
            let up = gpu_state(view, backend, gpu);
            rows.push(vec![
                gpu.id.to_string(),
                gpu.kind.clone(),
                format!("{memory_mb} MB"),
                backend.name.clone(),
                subcluster.clone(),
                token.to_string(),
                up,
            ]);
            json.push(json!({ "id": gpu.id.get(), "kind": gpu.kind, "memory_bytes": gpu.memory_bytes,
                              "backend": backend.name, "subcluster": subcluster, "token": token.get(), "up": backend.up,
                              "quarantined": slow.map(|slow| json!({ "slowdown": slow.slowdown, "failed": slow.failed,
                                                                    "left_ms": slow.quarantined_ms })) }));
        }
    }
    (&["ID", "KIND", "MEMORY", "BACKEND", "SUBCLUSTER", "TOKEN", "STATE"], rows, Value::Array(json))
}

/// Whether a GPU is up, and whether it is set aside.
pub(crate) fn gpu_state(view: &View, backend: &BackendView, gpu: &GpuView) -> String {
    match slow(view, backend.subcluster, gpu.id) {
        _ if !backend.up => "down".to_owned(),
        None => "up".to_owned(),
        Some(slow) => slow.to_string(),
    }
}

/// The reason why a GPU is set aside.
pub(super) fn slow(view: &View, subcluster: SubclusterId, gpu: GpuId) -> Option<&SlowGpuView> {
    view.subclusters.get(&subcluster)?.advice.as_ref()?.slow.iter().find(|slow| slow.gpu == gpu)
}
