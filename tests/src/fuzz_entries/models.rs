//! Models that clients of the repository bring.

use symphony_onnx_graph::onnx::type_proto::{Tensor, Value};
use symphony_onnx_graph::onnx::{TensorShapeProto, TypeProto};
use symphony_onnx_graph::{End, Model, Part};
use symphony_zoo::{Fault, Precision};

/// An ONNX file: read, described, and cut wherever it can be. Each part of a model that was read can be read, too.
pub fn onnx_model(bytes: &[u8]) {
    let Ok(model) = Model::read(bytes.to_vec().into()) else { return };
    let report = model.report();
    assert!(report.cuts.len() <= symphony_onnx_graph::CUTS_MAX && report.cuts_found <= report.nodes_on_paths);
    for cut in model.cuts() {
        let end = End { value: cut.value.clone(), value_type: Some(some_type()) };
        for part in [Part { from: None, to: Some(end.clone()) }, Part { from: Some(end), to: None }] {
            let part = model.part(&part).expect("a cut point ends a part");
            Model::read(part.into()).expect("a part is a model");
        }
    }
}

fn some_type() -> TypeProto {
    let tensor = Tensor { elem_type: Some(1), shape: Some(TensorShapeProto::default()) };
    TypeProto { value: Some(Value::TensorType(tensor)), ..Default::default() }
}

pub(super) fn onnx_model_seeds() -> Vec<Vec<u8>> {
    let models = [
        symphony_zoo::layer(Precision::Single, 1),
        symphony_zoo::hungry(1 << 10),
        symphony_zoo::endless_above(0.5),
        Fault::IndexOutOfRange.build(),
    ];
    models.iter().map(|model| model.bytes().to_vec()).collect()
}
