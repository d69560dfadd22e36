//! On a real GPU, if there is one. Without one every test says `skipped: no CUDA device`, and
//! `SYMPHONY_TEST_REQUIRE=cuda` makes its absence a failure; docs/operating/cuda.md says how to run them on a
//! machine that is lent.

mod device;

use std::path::Path;

use device::Bench;
use device::families::{self, HEADS, head_file};
use device::family_promises::{self, Heads};
use device::promises::{self, BATCH_MAX};
use symphony_executor::{BatchInputs, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, digits, f16, load_runtime};
use symphony_executor_gpu::{Cuda, CudaLoader, PinnedPool, cuda_provider_is_there};
use symphony_testkit::needed;
use symphony_types::Nanos;
use symphony_zoo::{Architecture, Precision, layer};

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

fn bench() -> Option<Bench> {
    Some(Bench {
        gpu: gpu()?,
        loads: |gpu, profile, signature| gpu.load_gemm(profile, signature, &|_| ()),
        batches: 100,
    })
}

#[test]
fn a_gpu_that_multiplies_matrices_keeps_the_contract() {
    let Some(bench) = bench() else { return };
    device::a_model_keeps_the_contract(&bench);
}

#[test]
fn copies_to_the_gpu_fall_into_computations() {
    let Some(bench) = bench() else { return };
    device::copies_fall_into_computations(&bench);
}

#[test]
fn batches_that_are_staged_while_others_run_have_their_own_answers() {
    let Some(bench) = bench() else { return };
    device::batches_that_are_staged_while_others_run_have_their_own_answers(&bench);
}

#[test]
fn models_beside_each_other_give_their_memory_back() {
    let Some(bench) = bench() else { return };
    device::models_beside_each_other_give_their_memory_back(&bench);
}

#[test]
fn what_the_gpu_has_not_the_memory_for_is_refused_and_it_goes_on() {
    let Some(bench) = bench() else { return };
    device::what_there_is_not_the_memory_for_is_refused_and_it_goes_on(&bench);
}

#[test]
fn families_keep_their_promises() {
    let Some(gpu) = gpu() else { return };
    families::a_family_keeps_its_promises(&gpu);
    families::a_suffix_that_refuses_fails_its_batch_only(&gpu);
    families::load_after_a_family_has_gone_in_a_batch(&gpu, || ()).unwrap();
}

#[test]
fn models_join_a_trunk_are_run_together_and_leave_one_by_one() {
    let Some(gpu) = gpu() else { return };
    families::models_join_a_trunk_are_run_together_and_leave_one_by_one(&gpu);
}

#[test]
fn families_of_onnx_models_keep_their_promises_and_agree_with_the_cpu() {
    let Some((gpu, runtime)) = onnx() else { return };
    let options = OnnxOptions { batch_max: 16, ..OnnxOptions::default() };
    let file = |number: u32| head_file(number, 1);
    let whole = |number: u32| -> Box<dyn ModelExecutor> {
        Box::new(OnnxExecutor::from_memory(&runtime, "whole", &file(number), &options).unwrap())
    };
    // TF32 keeps ten bits of a number.
    let heads = Heads { file: &file, whole: &whole, stranger: head_file(0, 2), tolerance: 2e-2 };
    let mut family = heads.family(CudaLoader::new(&gpu, &runtime, &options), HEADS);
    family_promises::mixed_batches_answer_as_the_whole_models_do(&mut family, &heads);
    family_promises::a_variant_comes_and_goes_and_the_others_stay(&mut family, &heads);
    family_promises::what_is_no_batch_of_the_family_is_refused_and_the_next_one_runs(&mut family);
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
        let mut on_gpu = gpu.load_onnx(&runtime, &path, &options, &|_| ()).unwrap();
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
fn numbers_of_half_precision_on_the_gpu_agree_with_the_cpu() {
    let Some((gpu, runtime)) = onnx() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = model_file(dir.path(), "layer.onnx", layer(Precision::Half, 1).bytes());
    let options = OnnxOptions { batch_max: BATCH_MAX, ..OnnxOptions::default() };
    let mut on_gpu = gpu.load_onnx(&runtime, &path, &options, &|_| ()).unwrap();
    let mut on_cpu = OnnxExecutor::from_file(&runtime, &path, &options).unwrap();
    assert_eq!(on_gpu.signature(), on_cpu.signature());
    let input: Vec<u8> = (0..12_u8).flat_map(|n| f16::from_f32(f32::from(n) / 4.0 - 1.5).to_le_bytes()).collect();
    let batch = BatchInputs { items: 3, tensors: &[&input], start: None };
    let (mut there, mut here) = (Vec::new(), Vec::new());
    on_gpu.run(&batch, &mut there).unwrap();
    on_cpu.run(&batch, &mut here).unwrap();
    let numbers =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|&n| f16::from_le_bytes(n).to_f32()).collect() };
    assert_eq!(there[0].len(), 12);
    for (a, b) in numbers(&there[0]).into_iter().zip(numbers(&here[0])) {
        assert!((a - b).abs() <= 1e-2 * (1.0 + b.abs()), "{a} on the GPU, {b} on the CPU");
    }
}

#[test]
fn copies_of_onnx_models_fall_into_computations() {
    let Some((gpu, runtime)) = onnx() else { return };
    let dir = tempfile::tempdir().unwrap();
    let resnet = Architecture::by_name("resnet50").unwrap().build(1).unwrap();
    let path = model_file(dir.path(), "resnet50.onnx", resnet.bytes());
    // Each size is tried with all kernels when it is loaded, for seconds.
    let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
    let mut model = gpu.load_onnx(&runtime, &path, &options, &|_| ()).unwrap();
    let input = vec![0; model.signature().inputs[0].item_bytes() * 8];
    let spans = model.trace(&BatchInputs { items: 8, tensors: &[&input], start: None }, 8).unwrap();
    // Kernels were chosen when it was loaded; the first batches find the GPU at rest.
    for pair in spans[4..].windows(2) {
        let (this, next) = (pair[0].1, pair[1].1);
        assert!(next.copy_in.shared_with(this.compute) > Nanos::ZERO, "{this:?} {next:?}");
    }
}
