//! The type of a trunk's output, as ONNX writes it.

use symphony_onnx_graph::onnx::tensor_proto::DataType as Element;
use symphony_onnx_graph::onnx::tensor_shape_proto::{Dimension, dimension};
use symphony_onnx_graph::onnx::type_proto::{Tensor, Value};
use symphony_onnx_graph::onnx::{TensorShapeProto, TypeProto};
use symphony_types::{DataType, TensorSpec};

/// The name of the first dimension.
const BATCH: &str = "batch";

/// Batches of this tensor.
pub(super) fn cut_type(spec: &TensorSpec) -> TypeProto {
    let batch = dimension::Value::DimParam(BATCH.to_owned());
    let item = spec.item_shape.iter().map(|&size| dimension::Value::DimValue(i64::from(size)));
    let dims = std::iter::once(batch).chain(item);
    let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).collect();
    let tensor = Tensor { elem_type: Some(element(spec.data_type).into()), shape: Some(TensorShapeProto { dim }) };
    TypeProto { value: Some(Value::TensorType(tensor)), ..Default::default() }
}

const fn element(data_type: DataType) -> Element {
    match data_type {
        DataType::Bool => Element::Bool,
        DataType::Uint8 => Element::Uint8,
        DataType::Uint16 => Element::Uint16,
        DataType::Uint32 => Element::Uint32,
        DataType::Uint64 => Element::Uint64,
        DataType::Int8 => Element::Int8,
        DataType::Int16 => Element::Int16,
        DataType::Int32 => Element::Int32,
        DataType::Int64 => Element::Int64,
        DataType::Fp16 => Element::Float16,
        DataType::Fp32 => Element::Float,
        DataType::Fp64 => Element::Double,
    }
}
