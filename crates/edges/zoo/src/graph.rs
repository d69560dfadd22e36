//! Builds an ONNX graph node by node, with seeded weights.

use std::fs;
use std::io;
use std::path::Path;

use prost::Message;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use symphony_onnx_graph::onnx::attribute_proto::AttributeType;
use symphony_onnx_graph::onnx::tensor_shape_proto::{Dimension, dimension};
use symphony_onnx_graph::onnx::type_proto::{self, Tensor};
use symphony_onnx_graph::onnx::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
};

/// The operator set and file version: old enough for every ONNX Runtime that the executor accepts, and the first set
/// with LayerNormalization.
const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;
/// ONNX's numbers of element types.
pub(crate) const FLOAT: i32 = 1;
pub(crate) const INT64: i32 = 7;
pub(crate) const BOOL: i32 = 9;
pub(crate) const FLOAT16: i32 = 10;
/// The name of the batch dimension.
const BATCH: &str = "N";
/// Biases are small and not zero, so that dropping one changes the answer.
const BIAS_STD: f32 = 0.02;

/// A finished model.
#[derive(Clone, Debug, PartialEq)]
pub struct OnnxModel {
    bytes: Vec<u8>,
    parameters: u64,
}

/// A tensor in the graph: the output of a node, or an initializer.
#[derive(Clone, Debug)]
pub(crate) struct Value(String);

/// A model under construction.
#[derive(Debug)]
pub(crate) struct Graph {
    rng: Xoshiro256PlusPlus,
    graph: GraphProto,
    parameters: u64,
}

/// A convolution's geometry. The image is padded so that stride 1 keeps its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub(crate) channels_in: u32,
    pub(crate) channels_out: u32,
    pub(crate) kernel: u32,
    pub(crate) stride: u32,
    pub(crate) groups: u32,
    /// The factor by which the outputs' spread exceeds the inputs': √2 makes up for the half that ReLU discards.
    pub(crate) gain: f32,
}

impl OnnxModel {
    /// The bytes of the ONNX file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many weights and biases the model has.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Writes the ONNX file.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, &self.bytes)
    }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    attribute(name, AttributeType::Int, |a| a.i = Some(value))
}

pub(crate) fn ints(name: &str, values: &[u32]) -> AttributeProto {
    attribute(name, AttributeType::Ints, |a| a.ints = values.iter().map(|&v| i64::from(v)).collect())
}

/// A graph of its own, for operators that run one: nodes of one input and one output each.
pub(crate) fn graph(
    name: &str,
    input: Vec<ValueInfoProto>,
    nodes: &[(&str, &str, &str)],
    output: Vec<ValueInfoProto>,
) -> AttributeProto {
    let node = nodes.iter().map(|&(operator, from, to)| NodeProto {
        input: vec![from.to_owned()],
        output: vec![to.to_owned()],
        name: Some(to.to_owned()),
        op_type: Some(operator.to_owned()),
        ..Default::default()
    });
    let body = GraphProto { name: Some(name.to_owned()), node: node.collect(), input, output, ..Default::default() };
    attribute(name, AttributeType::Graph, |a| a.g = Some(body))
}

/// One element of this type, by ONNX's number, as an input or output of a graph.
pub(crate) fn scalar_info(name: &str, element: i32) -> ValueInfoProto {
    info(name, element, vec![])
}

pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    attribute(name, AttributeType::Float, |a| a.f = Some(value))
}

fn attribute(name: &str, kind: AttributeType, set: impl FnOnce(&mut AttributeProto)) -> AttributeProto {
    let mut attribute = AttributeProto { name: Some(name.into()), r#type: Some(kind.into()), ..Default::default() };
    set(&mut attribute);
    attribute
}

impl Graph {
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto { name: Some(name.into()), ..Default::default() };
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), graph, parameters: 0 }
    }

    /// Weights that follow are of this seed.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    }

    /// An FP32 input; `item_shape` leaves out the batch dimension.
    pub(crate) fn input(&mut self, name: &str, item_shape: &[u32]) -> Value {
        self.input_of(name, FLOAT, item_shape)
    }

    /// An input of elements of this type, by ONNX's number.
    pub(crate) fn input_of(&mut self, name: &str, element: i32, item_shape: &[u32]) -> Value {
        self.graph.input.push(value_info(name, element, item_shape));
        Value(name.into())
    }

    /// Adds a node with one output.
    pub(crate) fn node(&mut self, operator: &str, inputs: &[&Value], attributes: Vec<AttributeProto>) -> Value {
        let name = format!("{}_{}", operator.to_lowercase(), self.graph.node.len());
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            output: vec![name.clone()],
            name: Some(name.clone()),
            op_type: Some(operator.into()),
            attribute: attributes,
            ..Default::default()
        });
        Value(name)
    }

    /// What an operator may have and is not given here.
    pub(crate) fn nothing() -> Value {
        Value(String::new())
    }

    /// Random weights, uniform with mean zero and this standard deviation.
    pub(crate) fn weights(&mut self, shape: &[u32], std: f32) -> Value {
        let count: usize = shape.iter().map(|&d| d as usize).product();
        self.parameters += count as u64;
        let bound = std * 3_f32.sqrt();
        let mut raw = Vec::with_capacity(count * size_of::<f32>());
        for _ in 0..count {
            // The upper 24 bits fill an f32 exactly: the same number on every machine.
            let unit = (self.rng.next_u64() >> 40) as f32 / (1_u32 << 24) as f32;
            raw.extend_from_slice(&(bound * (2.0 * unit - 1.0)).to_le_bytes());
        }
        self.initializer(FLOAT, shape, raw)
    }

    /// FP32 constants.
    pub(crate) fn floats(&mut self, shape: &[u32], values: &[f32]) -> Value {
        self.initializer(FLOAT, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// INT64 constants.
    pub(crate) fn integers(&mut self, shape: &[u32], values: &[i64]) -> Value {
        self.initializer(INT64, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn initializer(&mut self, data_type: i32, shape: &[u32], raw_data: Vec<u8>) -> Value {
        let name = format!("constant_{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            dims: shape.iter().map(|&d| i64::from(d)).collect(),
            data_type: Some(data_type),
            name: Some(name.clone()),
            raw_data: Some(raw_data.into()),
            ..Default::default()
        });
        Value(name)
    }

    /// `inputs · weights + bias` over the last dimension; `gain` as in [`Conv::gain`].
    pub(crate) fn dense(&mut self, x: &Value, width_in: u32, width_out: u32, gain: f32) -> Value {
        let weights = self.weights(&[width_in, width_out], gain / (width_in as f32).sqrt());
        let bias = self.weights(&[width_out], BIAS_STD);
        let product = self.node("MatMul", &[x, &weights], vec![]);
        self.node("Add", &[&product, &bias], vec![])
    }

    /// [`Graph::dense`] for inputs with one dimension per item, as the one operator that classifiers use.
    pub(crate) fn gemm(&mut self, x: &Value, width_in: u32, width_out: u32, gain: f32) -> Value {
        let weights = self.weights(&[width_in, width_out], gain / (width_in as f32).sqrt());
        let bias = self.weights(&[width_out], BIAS_STD);
        self.node("Gemm", &[x, &weights, &bias], vec![])
    }

    /// A convolution with its batch normalisation folded into weights and bias.
    pub(crate) fn conv(&mut self, x: &Value, conv: Conv) -> Value {
        let Conv { channels_in, channels_out, kernel, stride, groups, gain } = conv;
        let fan_in = channels_in / groups * kernel * kernel;
        let weights =
            self.weights(&[channels_out, channels_in / groups, kernel, kernel], gain / (fan_in as f32).sqrt());
        let bias = self.weights(&[channels_out], BIAS_STD);
        let attributes = vec![
            ints("kernel_shape", &[kernel, kernel]),
            ints("strides", &[stride, stride]),
            ints("pads", &[kernel / 2; 4]),
            int("group", i64::from(groups)),
        ];
        self.node("Conv", &[x, &weights, &bias], attributes)
    }

    pub(crate) fn relu(&mut self, x: &Value) -> Value {
        self.node("Relu", &[x], vec![])
    }

    /// Reshapes the items and leaves the batch dimension as it is.
    pub(crate) fn reshape(&mut self, x: &Value, item_shape: &[u32]) -> Value {
        // ONNX reads a zero as "the dimension of the input".
        let shape: Vec<_> = std::iter::once(0).chain(item_shape.iter().map(|&d| i64::from(d))).collect();
        let shape = self.integers(&[shape.len() as u32], &shape);
        self.node("Reshape", &[x, &shape], vec![])
    }

    /// The mean over each channel's image, then a dense layer: how image classifiers end.
    pub(crate) fn pool_and_classify(&mut self, x: &Value, channels: u32, classes: u32) -> Value {
        let pooled = self.node("GlobalAveragePool", &[x], vec![]);
        let flat = self.node("Flatten", &[&pooled], vec![int("axis", 1)]);
        self.gemm(&flat, channels, classes, 1.0)
    }

    /// Ends the graph with one FP32 output.
    pub(crate) fn finish(self, output: &Value, name: &str, item_shape: &[u32], description: String) -> OnnxModel {
        self.finish_of(output, name, FLOAT, item_shape, description)
    }

    /// Ends the graph with one output of elements of this type, by ONNX's number.
    pub(crate) fn finish_of(
        mut self,
        output: &Value,
        name: &str,
        element: i32,
        item_shape: &[u32],
        description: String,
    ) -> OnnxModel {
        // The last node's output takes the public name.
        for node in &mut self.graph.node {
            for out in node.output.iter_mut().filter(|out| **out == output.0) {
                name.clone_into(out);
            }
        }
        self.graph.output.push(value_info(name, element, item_shape));
        let model = ModelProto {
            ir_version: Some(IR_VERSION),
            producer_name: Some("symphony-zoo".into()),
            doc_string: Some(description),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) }],
            ..Default::default()
        };
        OnnxModel { bytes: model.encode_to_vec(), parameters: self.parameters }
    }
}

/// Items of this shape, as an input or output of a graph.
pub(crate) fn value_info(name: &str, element: i32, item_shape: &[u32]) -> ValueInfoProto {
    let batch = dimension::Value::DimParam(BATCH.into());
    let fixed = item_shape.iter().map(|&d| dimension::Value::DimValue(i64::from(d)));
    let dims = std::iter::once(batch).chain(fixed);
    let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).collect();
    info(name, element, dim)
}

fn info(name: &str, element: i32, dim: Vec<Dimension>) -> ValueInfoProto {
    let tensor = Tensor { elem_type: Some(element), shape: Some(TensorShapeProto { dim }) };
    let value = Some(type_proto::Value::TensorType(tensor));
    let value_type = TypeProto { value, ..Default::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(value_type), ..Default::default() }
}
