//! Graphs from their inputs to their outputs. A subgraph's values are hashed in a scope of their own; what it takes
//! from around it has the hash that it has there.

use std::collections::HashMap;

use super::node::{attribute, operator};
use super::sum::{Sum, ValueHash};
use super::tensor::{of_sparse, of_tensor};
use super::types::of_type;
use super::versions::{Versions, domain};
use crate::error::Error;
use crate::functions::Functions;
use crate::onnx::tensor_proto::DataType;
use crate::onnx::{GraphProto, NodeProto, StringStringEntryProto, TensorAnnotation, TensorProto, ValueInfoProto};
use crate::random::is_random_operator;
use crate::subgraph::sparse_name;

/// What a node's meaning depends on beside itself.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) versions: &'a Versions,
    pub(crate) functions: &'a Functions,
    /// The whole file.
    pub(crate) file: &'a [u8],
}

/// What is known of the main graph.
pub(crate) struct Hashes<'a> {
    /// Of each value, by name.
    pub(crate) values: HashMap<&'a str, ValueHash>,
    /// For each node, whether it may give another answer each time.
    pub(crate) is_random: Vec<bool>,
}

/// Hashes all values of a graph whose names are in order (`Wiring::of`).
pub(crate) fn of_graph<'a>(graph: &'a GraphProto, context: Context<'a>) -> Result<Hashes<'a>, Error> {
    let mut walk = Walk { context, scopes: vec![Scope::of(graph)], file_hash: None, draws: 0 };
    walk.given(graph)?;
    let mut is_random = Vec::with_capacity(graph.node.len());
    for node in &graph.node {
        let before = walk.draws;
        walk.node(node)?;
        is_random.push(walk.draws > before);
    }
    let values = walk.scopes.pop().map(|scope| scope.values).unwrap_or_default();
    Ok(Hashes { values, is_random })
}

/// The values of one graph so far.
struct Scope<'a> {
    values: HashMap<&'a str, ValueHash>,
    annotations: HashMap<&'a str, Vec<&'a TensorAnnotation>>,
}

impl<'a> Scope<'a> {
    fn of(graph: &'a GraphProto) -> Self {
        let mut annotations = HashMap::<&str, Vec<&TensorAnnotation>>::new();
        for annotation in &graph.quantization_annotation {
            annotations.entry(annotation.tensor_name()).or_default().push(annotation);
        }
        Self { values: HashMap::new(), annotations }
    }
}

struct Walk<'a> {
    context: Context<'a>,
    /// The main graph's first.
    scopes: Vec<Scope<'a>>,
    /// Of the whole file, once a random operator has asked for it.
    file_hash: Option<ValueHash>,
    /// Random operators so far.
    draws: i64,
}

impl<'a> Walk<'a> {
    /// Initializers and inputs.
    fn given(&mut self, graph: &'a GraphProto) -> Result<(), Error> {
        let depth = self.scopes.len() as i64;
        let mut initial = HashMap::new();
        for tensor in &graph.initializer {
            initial.insert(tensor.name(), of_tensor(tensor)?);
        }
        for sparse in &graph.sparse_initializer {
            initial.insert(sparse_name(sparse), of_sparse(sparse)?);
        }
        // In the order of the file: the annotation of one may name another.
        let dense = graph.initializer.iter().map(|tensor| tensor.name());
        for name in dense.chain(graph.sparse_initializer.iter().map(sparse_name)) {
            if let Some(&hash) = initial.get(name) {
                self.define(name, hash);
            }
        }
        // In the main graph an initializer is what clients do not give; in a subgraph a node may give it nevertheless.
        let is_asked = |input: &&ValueInfoProto| depth > 1 || !initial.contains_key(input.name());
        let inputs: Vec<_> = graph.input.iter().filter(is_asked).collect();
        // All types count for each: what one model takes, another with an equal value takes, too.
        let types = inputs.iter().map(|input| of_type(input.r#type.as_ref()));
        let types = types.fold(Sum::of("inputs").int(inputs.len() as i64), Sum::value).hash();
        for (position, input) in inputs.into_iter().enumerate() {
            let sum = Sum::of("input").int(depth).int(position as i64).value(types);
            self.define(input.name(), sum.optional(initial.get(input.name()).copied()).hash());
        }
        Ok(())
    }

    fn node(&mut self, node: &'a NodeProto) -> Result<(), Error> {
        // A model may bring its own Constant.
        if self.context.functions.called(node).is_none()
            && let Some(hash) = constant(node)
        {
            let hash = hash?;
            node.output.iter().for_each(|output| self.define(output, hash));
            return Ok(());
        }
        let hash = self.operation(node)?;
        for (position, output) in node.output.iter().enumerate().filter(|(_, output)| !output.is_empty()) {
            self.define(output, Sum::of("output").value(hash).int(position as i64).hash());
        }
        Ok(())
    }

    fn operation(&mut self, node: &'a NodeProto) -> Result<ValueHash, Error> {
        let Context { versions, functions, .. } = self.context;
        let mut attributes: Vec<_> = node.attribute.iter().collect();
        attributes.sort_by(|a, b| a.name().cmp(b.name()));
        let mut sum = operator(node, versions, functions, Sum::of("node")).int(attributes.len() as i64);
        for one in attributes {
            sum = attribute(one, sum, |graph| self.subgraph(graph))?;
        }
        sum = sum.int(node.input.len() as i64);
        for input in &node.input {
            let hash = if input.is_empty() { None } else { Some(self.needed(input, node)?) };
            sum = sum.optional(hash);
        }
        // Which outputs are asked for decides what some operators do: Split, BatchNormalization.
        let present: Vec<i64> = node.output.iter().map(|output| i64::from(!output.is_empty())).collect();
        sum = sum.ints(&present);
        let is_random = functions.called(node).map_or_else(
            || is_random_operator(node, versions.highest(domain(node.domain()))),
            |function| function.is_random,
        );
        if is_random {
            sum = sum.value(self.draw());
        }
        Ok(sum.hash())
    }

    fn subgraph(&mut self, graph: &'a GraphProto) -> Result<ValueHash, Error> {
        self.scopes.push(Scope::of(graph));
        let hash = self.inside(graph);
        self.scopes.pop();
        hash
    }

    fn inside(&mut self, graph: &'a GraphProto) -> Result<ValueHash, Error> {
        self.given(graph)?;
        graph.node.iter().try_for_each(|node| self.node(node))?;
        let inputs = graph.input.iter().map(|input| of_type(input.r#type.as_ref()));
        let mut sum = inputs.fold(Sum::of("graph").int(graph.input.len() as i64), Sum::value);
        sum = sum.int(graph.output.len() as i64);
        for output in &graph.output {
            let hash = self.found(output.name());
            let undefined =
                || Error::Undefined { user: format!("graph `{}`", graph.name()), name: output.name().into() };
            sum = sum.value(hash.ok_or_else(undefined)?);
        }
        Ok(sum.hash())
    }

    fn define(&mut self, name: &'a str, hash: ValueHash) {
        let annotations = self.scopes.last().and_then(|scope| scope.annotations.get(name));
        let annotations = annotations.into_iter().flatten();
        let hash = annotations.fold(hash, |hash, annotation| self.annotated(hash, annotation));
        if let Some(scope) = self.scopes.last_mut() {
            scope.values.insert(name, hash);
        }
    }

    /// A value that was quantized in a certain way. Scales that are not known yet count by name.
    fn annotated(&self, hash: ValueHash, annotation: &TensorAnnotation) -> ValueHash {
        let mut parameters: Vec<_> = annotation.quant_parameter_tensor_names.iter().collect();
        parameters.sort_by(|a, b| a.key().cmp(b.key()));
        let sum = Sum::of("quantized").value(hash).int(parameters.len() as i64);
        let add = |sum: Sum, parameter: &StringStringEntryProto| {
            let known = self.found(parameter.value());
            let sum = sum.text(parameter.key()).optional(known);
            if known.is_some() { sum } else { sum.text(parameter.value()) }
        };
        parameters.into_iter().fold(sum, add).hash()
    }

    /// The innermost value of that name.
    fn found(&self, name: &str) -> Option<ValueHash> {
        self.scopes.iter().rev().find_map(|scope| scope.values.get(name).copied())
    }

    fn needed(&self, name: &str, node: &NodeProto) -> Result<ValueHash, Error> {
        let user = || format!("{} `{}`", node.op_type(), node.name());
        self.found(name).ok_or_else(|| Error::Undefined { user: user(), name: name.to_owned() })
    }

    /// What no other draw is equal to, in this file or in one with other bytes.
    fn draw(&mut self) -> ValueHash {
        let file = self.context.file;
        let file_hash = *self.file_hash.get_or_insert_with(|| Sum::of("file").bytes(file).hash());
        self.draws += 1;
        Sum::of("draw").value(file_hash).int(self.draws).hash()
    }
}

/// The hash of a Constant: that of an initializer with the same elements. None if the node is no constant, or not a
/// plain one.
fn constant(node: &NodeProto) -> Option<Result<ValueHash, Error>> {
    let [attribute] = node.attribute.as_slice() else { return None };
    let is_constant = domain(node.domain()).is_empty() && node.op_type() == "Constant" && node.output.len() == 1;
    if !is_constant || attribute.ref_attr_name.is_some() {
        return None;
    }
    let of = |data_type: DataType, dims: Vec<i64>| TensorProto {
        dims,
        data_type: Some(data_type.into()),
        name: node.name.clone(),
        ..Default::default()
    };
    let length = |length: usize| vec![length as i64];
    let tensor = match attribute.name() {
        "value" => return attribute.t.as_ref().map(of_tensor),
        "sparse_value" => return attribute.sparse_tensor.as_ref().map(of_sparse),
        "value_float" => TensorProto { float_data: vec![attribute.f()], ..of(DataType::Float, vec![]) },
        "value_int" => TensorProto { int64_data: vec![attribute.i()], ..of(DataType::Int64, vec![]) },
        "value_string" => {
            TensorProto { string_data: vec![attribute.s.clone().unwrap_or_default()], ..of(DataType::String, vec![]) }
        }
        "value_floats" => {
            let floats = attribute.floats.clone();
            TensorProto { float_data: floats, ..of(DataType::Float, length(attribute.floats.len())) }
        }
        "value_ints" => {
            let ints = attribute.ints.clone();
            TensorProto { int64_data: ints, ..of(DataType::Int64, length(attribute.ints.len())) }
        }
        "value_strings" => {
            let strings = attribute.strings.clone();
            TensorProto { string_data: strings, ..of(DataType::String, length(attribute.strings.len())) }
        }
        _ => return None,
    };
    Some(of_tensor(&tensor))
}
