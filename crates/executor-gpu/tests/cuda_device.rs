//! On a real GPU, if there is one. Without one every test says `skipped: no CUDA device`, and
//! `SYMPHONY_TEST_REQUIRE=cuda` makes its absence a failure; docs/cuda.md says how to run them on a machine that is lent.

#[path = "../../executor/tests/contract/promises.rs"]
mod promises;

use std::path::Path;

use promises::BATCH_MAX;
use symphony_executor::{
    BatchInputs, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, StagedExecutor, default_signature, digits,
    item_checksum, load_runtime,
};
use symphony_executor_gpu::{Cuda, GemmModel, PinnedPool, cuda_provider_is_there};
use symphony_testkit::needed;
use symphony_types::{DataType, LatencyProfile, Nanos, Signature, TensorSpec};
use symphony_zoo::Architecture;

const PINNED_BYTES_MAX: u64 = 4 << 30;

/// The first GPU.
fn gpu() -> Option<Cuda> {
    needed("cuda", Cuda::open(0, &PinnedPool::new(PINNED_BYTES_MAX)))
}

/// The first GPU, and an ONNX Runtime that can use it.
fn onnx() -> Option<(Cuda, Runtime)> {
    let gpu = gpu()?;
    let runtime = load_runtime(None).map_err(|error| error.to_string()).and_then(|runtime| {
        cuda_provider_is_there(&runtime).map_err(|missing| missing.to_string())?;
        Ok(runtime)
    });
    Some((gpu, needed("onnxruntime-cuda", runtime)?))
}

fn pictures() -> Signature {
    let tensor = |name: &str, data_type, width| TensorSpec { name: name.into(), data_type, item_shape: vec![width] };
    Signature {
        inputs: vec![tensor("INPUT0", DataType::Fp32, 3 * 224 * 224)],
        outputs: vec![tensor("OUTPUT0", DataType::Uint32, 1)],
    }
}

#[test]
fn a_gpu_that_multiplies_matrices_keeps_the_contract() {
    let Some(gpu) = gpu() else { return };
    let profile = LatencyProfile::from_line(0.5, 3.0, BATCH_MAX).unwrap();
    let mut model = gpu.load_gemm(&profile, default_signature()).unwrap();
    promises::batches_give_what_single_items_give(&mut model);
    promises::what_does_not_fit_is_refused(&mut model);
    promises::outputs_have_the_signature_s_size(&mut model);
}

#[test]
fn copies_to_the_gpu_fall_into_computations() {
    let Some(gpu) = gpu() else { return };
    let profile = LatencyProfile::from_line(0.5, 3.0, 16).unwrap();
    let mut model = gpu.load_gemm(&profile, pictures()).unwrap();
    let input = vec![3; pictures().inputs[0].item_bytes() * 16];
    let spans = model.trace(&BatchInputs { items: 16, tensors: &[&input], start: None }, 16).unwrap();
    assert_eq!(spans.len(), 16);
    for pair in spans.windows(2) {
        let (this, next) = (pair[0].1, pair[1].1);
        assert!(next.copy_in.shared_with(this.compute) > Nanos::ZERO, "{this:?} {next:?}");
        assert!(next.compute.from >= this.compute.until, "batches are computed one after the other: {this:?} {next:?}");
        assert!(next.compute.from >= next.copy_in.until, "inputs are there before they are used: {next:?}");
    }
}

#[test]
fn batches_that_are_staged_while_others_run_have_their_own_answers() {
    const BATCHES: u32 = 100;
    let Some(gpu) = gpu() else { return };
    let profile = LatencyProfile::from_line(0.2, 1.0, BATCH_MAX).unwrap();
    let mut model = gpu.load_gemm(&profile, pictures()).unwrap();
    let item = pictures().inputs[0].item_bytes();
    // Of different sizes, and with bytes that no other batch has.
    let input = |batch: u32| -> Vec<u8> {
        let bytes = item as u32 * (1 + batch % BATCH_MAX);
        (0..bytes / 4).flat_map(|n| (n.wrapping_mul(0x9e37_79b9) ^ batch).to_le_bytes()).collect()
    };
    let stage = |model: &mut GemmModel, batch: u32| {
        let input = input(batch);
        let items = (input.len() / item) as u32;
        model.stage(&BatchInputs { items, tensors: &[&input], start: None }).unwrap();
    };
    let mut outputs = Vec::new();
    stage(&mut model, 0);
    for batch in 0..BATCHES {
        model.launch().unwrap();
        if batch + 1 < BATCHES {
            stage(&mut model, batch + 1);
        }
        while !model.is_done().unwrap() {}
        model.finish(&mut outputs).unwrap();
        let input = input(batch);
        let answers: Vec<u8> = input.chunks(item).flat_map(|item| item_checksum([item]).to_le_bytes()).collect();
        assert_eq!(outputs, [answers], "batch {batch}");
    }
}

#[test]
fn models_beside_each_other_give_their_memory_back() {
    let Some(gpu) = gpu() else { return };
    let profile = LatencyProfile::from_line(0.01, 3.0, 64).unwrap();
    // The matrices stay with the GPU: they are there before it is measured.
    drop(gpu.load_gemm(&profile, default_signature()).unwrap());
    let (before, _) = gpu.memory().unwrap();
    let mut model = gpu.load_gemm(&profile, pictures()).unwrap();
    let mut other = gpu.load_gemm(&profile, pictures()).unwrap();
    let (both, _) = gpu.memory().unwrap();
    // Each has inputs and outputs of two batches: 300 MB together. The driver takes and gives back memory in pieces of its own.
    let take = 2 * 2 * 2 * 64 * pictures().inputs[0].item_bytes() as u64;
    assert!(both >= before + take / 2, "{before} bytes without, {both} with them; they take {take}");
    assert!(model.memory().is_some());
    promises::batches_give_what_single_items_give(&mut other);
    drop(other);
    let input = vec![1; pictures().inputs[0].item_bytes()];
    model.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut Vec::new()).unwrap();
    drop(model);
    // What was given back in a lane is free when the lane has come there.
    promises::batches_give_what_single_items_give(&mut gpu.load_gemm(&profile, default_signature()).unwrap());
    let (after, _) = gpu.memory().unwrap();
    assert!(after < before + take / 4, "{before} bytes before they came, {both} with them, {after} after they went");
}

#[test]
fn what_the_gpu_has_not_the_memory_for_is_refused_and_it_goes_on() {
    let Some(gpu) = gpu() else { return };
    let profile = LatencyProfile::from_line(0.001, 3.0, 4096).unwrap();
    // 4096 items of 64 MB: no GPU has that, and no pool of pinned memory either.
    let huge = Signature {
        inputs: vec![TensorSpec { item_shape: vec![16 << 20], ..pictures().inputs[0].clone() }],
        ..pictures()
    };
    let refused = gpu.load_gemm(&profile, huge).unwrap_err().to_string();
    assert!(refused.contains("out of memory"), "{refused}");
    let profile = LatencyProfile::from_line(0.5, 3.0, BATCH_MAX).unwrap();
    promises::batches_give_what_single_items_give(&mut gpu.load_gemm(&profile, default_signature()).unwrap());
}

fn model_file(dir: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn onnx_models_on_the_gpu_keep_the_contract_and_agree_with_the_cpu() {
    let Some((gpu, runtime)) = onnx() else { return };
    let dir = tempfile::tempdir().unwrap();
    let options = OnnxOptions { batch_max: BATCH_MAX, ..OnnxOptions::default() };
    let mlp = Architecture::by_name("mlp").unwrap().build(1).unwrap();
    for (name, bytes) in [("digits.onnx", digits::MODEL), ("mlp.onnx", mlp.bytes())] {
        let path = model_file(dir.path(), name, bytes);
        let mut on_gpu = gpu.load_onnx(&runtime, &path, &options).unwrap();
        let mut on_cpu = OnnxExecutor::from_file(&runtime, &path, &options).unwrap();
        assert_eq!(on_gpu.signature(), on_cpu.signature());
        promises::what_does_not_fit_is_refused(&mut on_gpu);
        promises::outputs_have_the_signature_s_size(&mut on_gpu);
        let items = on_gpu.signature().inputs[0].item_bytes() / 4;
        let input: Vec<u8> = (0..items * 5).flat_map(|n| ((n % 17) as f32 / 17.0).to_le_bytes()).collect();
        let batch = BatchInputs { items: 5, tensors: &[&input], start: None };
        let (mut there, mut here) = (Vec::new(), Vec::new());
        on_gpu.run(&batch, &mut there).unwrap();
        on_cpu.run(&batch, &mut here).unwrap();
        let numbers =
            |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|&n| f32::from_le_bytes(n)).collect() };
        // TF32 keeps ten bits of a number.
        for (a, b) in numbers(&there[0]).into_iter().zip(numbers(&here[0])) {
            assert!((a - b).abs() <= 2e-2 * (1.0 + b.abs()), "{name}: {a} on the GPU, {b} on the CPU");
        }
    }
}

#[test]
fn copies_of_onnx_models_fall_into_computations() {
    let Some((gpu, runtime)) = onnx() else { return };
    let dir = tempfile::tempdir().unwrap();
    let resnet = Architecture::by_name("resnet50").unwrap().build(1).unwrap();
    let path = model_file(dir.path(), "resnet50.onnx", resnet.bytes());
    let options = OnnxOptions { batch_max: 16, ..OnnxOptions::default() };
    let mut model = gpu.load_onnx(&runtime, &path, &options).unwrap();
    let input = vec![0; model.signature().inputs[0].item_bytes() * 16];
    let spans = model.trace(&BatchInputs { items: 16, tensors: &[&input], start: None }, 8).unwrap();
    // Kernels were chosen when it was loaded; the first batches find the GPU at rest.
    for pair in spans[4..].windows(2) {
        let (this, next) = (pair[0].1, pair[1].1);
        assert!(next.copy_in.shared_with(this.compute) > Nanos::ZERO, "{this:?} {next:?}");
    }
}
