//! The system gets back what models have used.

use symphony_executor::{OnnxExecutor, OnnxOptions, load_runtime};
use symphony_testkit::needed;
use symphony_zoo::{Architecture, Mlp};

/// Bytes of this process in physical memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

// One test: the memory is the process's.
#[test]
fn what_models_have_used_goes_back() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    // Five layers with weights of 4 MB.
    let model = Architecture::Mlp(Mlp { width_in: 512, width: 1024, hidden: 6, classes: 10 }).build(1).unwrap();
    let load = || OnnxExecutor::from_memory(&runtime, "mlp", model.bytes(), &OnnxOptions::default()).unwrap();
    // What is loaded once stays.
    drop(load());
    let before = resident_bytes();
    drop([load(), load(), load()]);
    let kept = resident_bytes().saturating_sub(before);
    let of_one = model.bytes().len();
    assert!(kept < of_one / 2, "{kept} bytes stay of three models of {of_one}");
}
