//! Latency profiles as `symphony profile` writes them: of that file the latencies and the memory.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony_types::{LatencyProfile, Nanos};

/// The part of the profile file that decides; what else it holds is its own reader's.
#[derive(Deserialize)]
struct Measured {
    gpu: BTreeMap<String, MeasuredKind>,
}

#[derive(Deserialize)]
struct MeasuredKind {
    /// Of batches of 1, 2, … items.
    latency_ms: Vec<f64>,
    #[serde(default)]
    static_memory_bytes: u64,
    #[serde(default)]
    dynamic_memory_bytes: u64,
}

/// What a model takes of a GPU of the kind in bytes: as long as it is loaded, and beside that while its largest batch
/// runs. Nothing if the file does not state it, or lacks the kind.
pub(crate) fn memory_from_toml(text: &str, gpu_kind: &str) -> (u64, u64) {
    let measured = toml::from_str(text).ok().and_then(|Measured { mut gpu }| gpu.remove(gpu_kind));
    measured.map_or((0, 0), |kind| (kind.static_memory_bytes, kind.dynamic_memory_bytes))
}

/// The profile of one GPU kind, from the text of a profile file.
///
/// # Errors
/// If it is not such a file, the kind is not in it, or the latencies are not positive and monotone. The message names
/// the kind or the batch size.
pub fn profile_from_toml(text: &str, gpu_kind: &str) -> Result<LatencyProfile, String> {
    let Measured { gpu } = toml::from_str(text).map_err(|error| {
        format!("expected a file of `symphony profile`, with latency_ms of each [gpu.KIND]: {}", error.message())
    })?;
    let Some(kind) = gpu.get(gpu_kind) else {
        let known = gpu.into_keys().collect::<Vec<_>>().join(", ");
        return Err(format!("has no rows for gpu_kind `{gpu_kind}`; it knows: {known}"));
    };
    if let Some(at) = kind.latency_ms.iter().position(|ms| !(ms.is_finite() && *ms > 0.0)) {
        return Err(format!("batch {}: expected a positive latency_ms, got {}", at + 1, kind.latency_ms[at]));
    }
    let table: Vec<_> = kind.latency_ms.iter().map(|&ms| Nanos::from_millis_f64(ms)).collect();
    LatencyProfile::from_table(&table).map_err(|error| format!("gpu_kind `{gpu_kind}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = "format = 1\nmodel = \"m\"\n[[inputs]]\nname = \"x\"\n\
        [gpu.a100]\nmachine = \"rack 7\"\nlatency_ms = [6.0, 7.5]\n[gpu.t4]\nlatency_ms = [9.0]\n";

    #[test]
    fn the_latencies_of_a_kind_are_taken_as_they_are() {
        let profile = profile_from_toml(MEASURED, "a100").unwrap();
        assert_eq!(profile.table(), [Nanos::from_millis_f64(6.0), Nanos::from_millis_f64(7.5)]);
        assert_eq!(profile_from_toml(MEASURED, "t4").unwrap().batch_max(), 1);
    }

    #[test]
    fn files_that_make_no_profile_are_refused_with_the_reason() {
        let refused = |text: &str, words: &str| {
            let error = profile_from_toml(text, "a100").unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused(&MEASURED.replace("a100", "h100"), "no rows for gpu_kind `a100`; it knows: h100, t4");
        refused(&MEASURED.replace("7.5", "-7.5"), "batch 2: expected a positive latency_ms, got -7.5");
        refused(&MEASURED.replace("7.5", "5.5"), "gpu_kind `a100`");
        refused(&MEASURED.replace("6.0, 7.5", ""), "gpu_kind `a100`");
        refused("gpu_kind,batch\na100,1\n", "expected a file of `symphony profile`");
        refused("", "missing field `gpu`");
    }
}
