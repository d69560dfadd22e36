//! Every architecture loads and runs in ONNX Runtime, in batches of any size.

use symphony_executor::{BatchInputs, ModelExecutor, OnnxExecutor, OnnxOptions, load_runtime};
use symphony_testkit::needed;
use symphony_types::DataType;
use symphony_zoo::{Architecture, Bert, Mlp, MobileNet, ResNet};

/// Sums are taken in another order in another batch.
const TOLERANCE: f32 = 1e-4;

fn run(executor: &mut OnnxExecutor, items: &[Vec<f32>]) -> Vec<f32> {
    let input: Vec<u8> = items.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let mut outputs = Vec::new();
    let batch = BatchInputs { items: items.len() as u32, tensors: &[&input], start: None };
    executor.run(&batch, &mut outputs).unwrap();
    assert_eq!(outputs.len(), 1);
    outputs[0].as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn loads_and_runs(architecture: Architecture, item_shape: &[u32], classes: u32) {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let model = architecture.build(42).unwrap();
    let mut executor =
        OnnxExecutor::from_memory(&runtime, architecture.name(), model.bytes(), &OnnxOptions::default()).unwrap();
    let signature = executor.signature().clone();
    assert_eq!(signature.inputs[0].item_shape, item_shape);
    assert_eq!(
        (signature.outputs[0].data_type, &signature.outputs[0].item_shape[..]),
        (DataType::Fp32, &[classes][..])
    );

    let numbers = signature.input_item_bytes() / 4;
    let item = |seed: usize| (0..numbers).map(|n| ((n * 7 + seed * 13) % 23) as f32 / 11.0 - 1.0).collect();
    let items: Vec<Vec<f32>> = (0..3).map(item).collect();
    let batched = run(&mut executor, &items);
    assert!(batched.iter().all(|number| number.is_finite() && number.abs() < 1000.0), "{batched:?}");

    let mut alone = Vec::new();
    for item in &items {
        alone.extend(run(&mut executor, std::slice::from_ref(item)));
    }
    for (batched, alone) in batched.iter().zip(&alone) {
        assert!((batched - alone).abs() <= TOLERANCE * (1.0 + alone.abs()), "{batched} in the batch, {alone} alone");
    }
    let classes = classes as usize;
    let differ = (0..classes).any(|class| (alone[class] - alone[classes + class]).abs() > 10.0 * TOLERANCE);
    assert!(differ, "different items must have different answers: {alone:?}");
}

#[test]
fn mlp() {
    let shape = Mlp { width_in: 32, width: 64, hidden: 2, classes: 7 };
    loads_and_runs(Architecture::Mlp(shape), &[32], 7);
}

#[test]
fn resnet() {
    let shape = ResNet { image: 64, width: 8, classes: 11, ..ResNet::default() };
    loads_and_runs(Architecture::ResNet(shape), &[3, 64, 64], 11);
}

#[test]
fn mobilenet() {
    let shape = MobileNet { image: 64, width: 8, classes: 9 };
    loads_and_runs(Architecture::MobileNet(shape), &[3, 64, 64], 9);
}

#[test]
fn bert() {
    let shape = Bert { sequence: 16, depth: 3, width: 32, heads: 4, classes: 5 };
    loads_and_runs(Architecture::Bert(shape), &[16, 32], 5);
}
