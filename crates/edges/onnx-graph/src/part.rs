//! A part of a model: what lies between two cut points, as a model of its own.
//!
//! Nodes, initializers and everything else are copied as they lie in the file; only the value at each end is rewritten,
//! as an input or output. What is not on a path but needed (constants, shapes) goes into each part that needs it. Dead
//! nodes and training information are left out; functions and operator sets stay, all of them.

use prost::Message as _;

use crate::cuts::Cut;
use crate::error::Error;
use crate::model::{Model, number};
use crate::onnx::{TensorAnnotation, TypeProto, ValueInfoProto};
use crate::subgraph::sparse_name;
use crate::wire::{Field, put_delimited};
use crate::wiring::Source;

/// What lies between two cut points; without one, from the inputs or to the outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The cut point that the part takes.
    pub from: Option<End>,
    /// The cut point that it gives.
    pub to: Option<End>,
}

/// A cut point with its type.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The value's name.
    pub value: String,
    /// Its type, if the model does not state it or states less. An input has to have one; an output need not.
    pub value_type: Option<TypeProto>,
}

/// What a part has of each thing.
struct Content {
    /// For each node.
    nodes: Vec<bool>,
    /// For each value: it is made, given or in the file.
    values: Vec<bool>,
    from: Option<usize>,
    to: Option<usize>,
}

impl Model {
    /// The bytes of a part, a valid model.
    ///
    /// # Errors
    /// If an end is no cut point, if the part is empty, or if the type of what it takes is unknown.
    pub fn part(&self, part: &Part) -> Result<Vec<u8>, Error> {
        let from = part.from.as_ref().map(|end| self.cut(&end.value)).transpose()?;
        let to = part.to.as_ref().map(|end| self.cut(&end.value)).transpose()?;
        if let (Some(from), Some(to)) = (from, to)
            && from.position >= to.position
        {
            return Err(Error::Backward { from: from.value.clone(), to: to.value.clone() });
        }
        let input = part.from.as_ref().zip(from).map(|(end, cut)| typed(end, cut)).transpose()?;
        let output = part.to.as_ref().zip(to).map(|(end, cut)| value_info(end, cut));
        let content = self.content(from, to);
        let graph = self.graph_bytes(&content, input.as_ref(), output.as_ref());
        let mut bytes = Vec::with_capacity(graph.len());
        for field in &self.model_fields {
            match field.number {
                number::MODEL_GRAPH => put_delimited(&mut bytes, number::MODEL_GRAPH, &graph),
                number::MODEL_TRAINING => {}
                _ => bytes.extend_from_slice(&self.bytes[field.whole.clone()]),
            }
        }
        Ok(bytes)
    }

    /// The trunk, from the inputs to a cut point, and the suffix, from there to the outputs. `value_type` is the cut
    /// value's, if the model does not state it.
    ///
    /// # Errors
    /// As [`Model::part`].
    pub fn split(&self, cut: &str, value_type: Option<TypeProto>) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let end = End { value: cut.to_owned(), value_type };
        let trunk = self.part(&Part { from: None, to: Some(end.clone()) })?;
        let suffix = self.part(&Part { from: Some(end), to: None })?;
        Ok((trunk, suffix))
    }

    /// Bytes of the initializers that a part has; those that several parts use count in each.
    pub(crate) fn initializer_bytes(&self, from: Option<&Cut>, to: Option<&Cut>) -> u64 {
        let content = self.content(from, to);
        let numbers = [number::INITIALIZER, number::SPARSE_INITIALIZER];
        let fields = self.kept(&content).filter(|field| numbers.contains(&field.number));
        fields.map(|field| field.value.len() as u64).sum()
    }

    /// What is needed for the end of the part, found from there backwards.
    fn content(&self, from: Option<&Cut>, to: Option<&Cut>) -> Content {
        let wiring = &self.wiring;
        let (from, to) = (from.map(|cut| cut.place), to.map(|cut| cut.place));
        let mut content =
            Content { nodes: vec![false; wiring.nodes.len()], values: vec![false; wiring.values.len()], from, to };
        let mut open: Vec<usize> = to.map_or_else(|| wiring.outputs.clone(), |place| vec![place]);
        while let Some(place) = open.pop() {
            if std::mem::replace(&mut content.values[place], true) || from == Some(place) {
                continue;
            }
            let Source::Node(node) = wiring.values[place].source else { continue };
            if !std::mem::replace(&mut content.nodes[node], true) {
                open.extend_from_slice(&wiring.nodes[node].uses);
            }
        }
        // A node makes all that it makes, whether or not it is used here.
        for (wires, _) in wiring.nodes.iter().zip(&content.nodes).filter(|(_, is_in)| **is_in) {
            wires.makes.iter().for_each(|&place| content.values[place] = true);
        }
        if from.is_none() {
            wiring.inputs().for_each(|place| content.values[place] = true);
        }
        content
    }

    fn graph_bytes(
        &self,
        content: &Content,
        input: Option<&ValueInfoProto>,
        output: Option<&ValueInfoProto>,
    ) -> Vec<u8> {
        let kept: Vec<_> = self.kept(content).collect();
        let mut graph = Vec::with_capacity(kept.iter().map(|field| field.whole.len()).sum());
        if let Some(input) = input {
            put_delimited(&mut graph, number::INPUT, &input.encode_to_vec());
        }
        for field in kept {
            graph.extend_from_slice(&self.bytes[field.whole.clone()]);
        }
        if let Some(output) = output {
            put_delimited(&mut graph, number::OUTPUT, &output.encode_to_vec());
        }
        graph
    }

    /// The fields of the graph that a part has.
    fn kept<'a>(&'a self, content: &'a Content) -> impl Iterator<Item = &'a Field> {
        let mut seen = [0_usize; 64];
        self.graph_fields.iter().filter(move |field| {
            let Some(count) = seen.get_mut(field.number as usize) else { return false };
            let nth = *count;
            *count += 1;
            self.keeps(content, field.number, nth)
        })
    }

    /// Whether a part has the `nth` field of that number.
    fn keeps(&self, content: &Content, field: u32, nth: usize) -> bool {
        let graph = &self.graph;
        let has = |name: &str| self.wiring.places.get(name).is_some_and(|&place| content.values[place]);
        let is_end = |name: &str| {
            let place = self.wiring.places.get(name).copied();
            place.is_some() && (place == content.from || place == content.to)
        };
        match field {
            number::NODE => content.nodes.get(nth).copied().unwrap_or_default(),
            number::INITIALIZER => graph.initializer.get(nth).is_some_and(|tensor| has(tensor.name())),
            number::SPARSE_INITIALIZER => {
                graph.sparse_initializer.get(nth).is_some_and(|sparse| has(sparse_name(sparse)))
            }
            number::INPUT => graph.input.get(nth).is_some_and(|input| has(input.name())),
            number::OUTPUT => content.to.is_none(),
            number::VALUE_INFO => {
                graph.value_info.get(nth).is_some_and(|info| has(info.name()) && !is_end(info.name()))
            }
            number::ANNOTATION => graph.quantization_annotation.get(nth).is_some_and(|one| has_all(one, has)),
            _ => true,
        }
    }
}

/// A value at the end of a part, with its type if that is known.
fn value_info(end: &End, cut: &Cut) -> ValueInfoProto {
    let value_type = end.value_type.clone().or_else(|| cut.value_type.clone());
    ValueInfoProto { name: Some(cut.value.clone()), r#type: value_type, ..Default::default() }
}

/// The same, for what the part takes.
fn typed(end: &End, cut: &Cut) -> Result<ValueInfoProto, Error> {
    let info = value_info(end, cut);
    let is_typed = info.r#type.as_ref().is_some_and(|value_type| value_type.value.is_some());
    if is_typed { Ok(info) } else { Err(Error::TypeUnknown { value: cut.value.clone() }) }
}

/// Whether a part has the annotated tensor and all that its annotation names.
fn has_all(annotation: &TensorAnnotation, has: impl Fn(&str) -> bool) -> bool {
    let parameters = &annotation.quant_parameter_tensor_names;
    has(annotation.tensor_name()) && parameters.iter().all(|parameter| has(parameter.value()))
}
