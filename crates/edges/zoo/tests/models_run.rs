//! Every architecture loads and runs in ONNX Runtime, in batches of any size, whole and in two parts.

use symphony_executor::{BatchInputs, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, load_runtime};
use symphony_onnx_graph::onnx::tensor_shape_proto::{Dimension, dimension};
use symphony_onnx_graph::onnx::type_proto::{Tensor, Value};
use symphony_onnx_graph::onnx::{TensorShapeProto, TypeProto};
use symphony_onnx_graph::{End, Model, Part};
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

/// The answers of the model cut at its middle cut point, one part after the other. The file does not say the type of
/// the value there; the trunk's session does.
fn run_in_two_parts(runtime: &Runtime, bytes: &[u8], items: &[Vec<f32>]) -> Vec<f32> {
    let model = Model::read(bytes.to_vec().into()).unwrap();
    let cut = &model.cuts()[model.cuts().len() / 2].value;
    let end = |value_type| Some(End { value: cut.clone(), value_type });
    let load = |name, part: &[u8]| OnnxExecutor::from_memory(runtime, name, part, &OnnxOptions::default()).unwrap();
    let mut trunk = load("trunk", &model.part(&Part { from: None, to: end(None) }).unwrap());
    let spec = trunk.signature().outputs[0].clone();
    assert_eq!((spec.name.as_str(), spec.data_type), (cut.as_str(), DataType::Fp32));
    let from = end(Some(batch_of(&spec.item_shape)));
    let mut suffix = load("suffix", &model.part(&Part { from, to: None }).unwrap());
    let between = run(&mut trunk, items);
    let rows: Vec<Vec<f32>> = between.chunks(between.len() / items.len()).map(<[f32]>::to_vec).collect();
    run(&mut suffix, &rows)
}

/// Batches of FP32 items of this shape.
fn batch_of(item_shape: &[u32]) -> TypeProto {
    let free = dimension::Value::DimParam("N".to_owned());
    let dims = std::iter::once(free).chain(item_shape.iter().map(|&size| dimension::Value::DimValue(size.into())));
    let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).collect();
    let tensor = Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim }) };
    TypeProto { value: Some(Value::TensorType(tensor)), ..Default::default() }
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

    let in_parts = run_in_two_parts(&runtime, model.bytes(), &items);
    assert_eq!(in_parts.len(), batched.len());
    for (parts, whole) in in_parts.iter().zip(&batched) {
        assert!((parts - whole).abs() <= TOLERANCE * (1.0 + whole.abs()), "{parts} in two parts, {whole} whole");
    }

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
