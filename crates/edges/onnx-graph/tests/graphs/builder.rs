//! Builds models by the schema.

use bytes::Bytes;
use prost::Message as _;
use symphony_onnx_graph::Model;
use symphony_onnx_graph::onnx::attribute_proto::AttributeType;
use symphony_onnx_graph::onnx::tensor_shape_proto::{Dimension, dimension};
use symphony_onnx_graph::onnx::type_proto::{self, Tensor};
use symphony_onnx_graph::onnx::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
};

pub(crate) const FLOAT: i32 = 1;
pub(crate) const INT64: i32 = 7;
pub(crate) const BOOL: i32 = 9;

/// FP32 with a free first dimension.
pub(crate) fn batch_of(item: &[i64]) -> TypeProto {
    let free = dimension::Value::DimParam("N".to_owned());
    let dims = std::iter::once(free).chain(item.iter().map(|&size| dimension::Value::DimValue(size)));
    tensor_type(FLOAT, dims.collect())
}

/// A type whose dimensions are all fixed.
pub(crate) fn fixed(elem_type: i32, dims: &[i64]) -> TypeProto {
    tensor_type(elem_type, dims.iter().map(|&size| dimension::Value::DimValue(size)).collect())
}

fn tensor_type(elem_type: i32, dims: Vec<dimension::Value>) -> TypeProto {
    let dim = dims.into_iter().map(|value| Dimension { value: Some(value), ..Default::default() }).collect();
    let tensor = Tensor { elem_type: Some(elem_type), shape: Some(TensorShapeProto { dim }) };
    TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() }
}

pub(crate) fn info(name: &str, value_type: Option<TypeProto>) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.to_owned()), r#type: value_type, ..Default::default() }
}

pub(crate) fn floats(name: &str, numbers: &[f32]) -> TensorProto {
    TensorProto {
        dims: vec![numbers.len() as i64],
        data_type: Some(FLOAT),
        name: Some(name.to_owned()),
        float_data: numbers.to_vec(),
        ..Default::default()
    }
}

/// The same elements in the other encoding.
pub(crate) fn raw(tensor: &TensorProto) -> TensorProto {
    let bytes: Vec<u8> = tensor.float_data.iter().flat_map(|number| number.to_le_bytes()).collect();
    TensorProto { float_data: vec![], raw_data: Some(bytes.into()), ..tensor.clone() }
}

pub(crate) fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto { op_type: Some(operator.to_owned()), input: owned(inputs), output: owned(outputs), ..Default::default() }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Int.into()),
        i: Some(value),
        ..Default::default()
    }
}

pub(crate) fn subgraph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Graph.into()),
        g: Some(graph),
        ..Default::default()
    }
}

/// A graph of these nodes without inputs, as If has it.
pub(crate) fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    GraphProto { node: nodes, output: vec![info(output, None)], ..Default::default() }
}

pub(crate) fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

/// Which inputs and outputs a model has, by name; inputs are batches of four.
pub(crate) fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("test".to_owned()),
        node: nodes,
        input: inputs.iter().map(|name| info(name, Some(batch_of(&[4])))).collect(),
        output: outputs.iter().map(|name| info(name, Some(batch_of(&[4])))).collect(),
        ..Default::default()
    }
}

pub(crate) fn proto(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(17) }],
        ..Default::default()
    }
}

pub(crate) fn encoded(model: &ModelProto) -> Bytes {
    model.encode_to_vec().into()
}

pub(crate) fn read(graph: GraphProto) -> Model {
    Model::read(encoded(&proto(graph))).unwrap()
}

pub(crate) fn cut_names(model: &Model) -> Vec<&str> {
    model.cuts().iter().map(|cut| cut.value.as_str()).collect()
}

/// A part as messages again.
pub(crate) fn decoded(bytes: &[u8]) -> GraphProto {
    ModelProto::decode(bytes).unwrap().graph.unwrap()
}

pub(crate) fn outputs_of(graph: &GraphProto) -> Vec<&str> {
    graph.node.iter().flat_map(|node| &node.output).map(String::as_str).collect()
}

pub(crate) fn names<'a>(infos: impl IntoIterator<Item = &'a ValueInfoProto>) -> Vec<&'a str> {
    infos.into_iter().map(|info| info.name()).collect()
}
