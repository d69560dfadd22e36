//! A model with all that is known of it.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use prost::Message as _;

use crate::cuts::{Cut, Flow, cuts, separators};
use crate::error::Error;
use crate::functions::Functions;
use crate::hash::{Context, ValueHash, Versions, of_graph};
use crate::limits::MODEL_BYTES_MAX;
use crate::onnx::{GraphProto, ModelProto, TypeProto};
use crate::schema;
use crate::wire::{Field, Fields, NoField};
use crate::wiring::{Value, Wiring};

/// Numbers of the fields that are taken apart.
pub(crate) mod number {
    pub(crate) const MODEL_GRAPH: u32 = 7;
    pub(crate) const MODEL_TRAINING: u32 = 20;
    pub(crate) const MODEL_FUNCTION: u32 = 25;
    pub(crate) const NODE: u32 = 1;
    pub(crate) const INITIALIZER: u32 = 5;
    pub(crate) const INPUT: u32 = 11;
    pub(crate) const OUTPUT: u32 = 12;
    pub(crate) const VALUE_INFO: u32 = 13;
    pub(crate) const ANNOTATION: u32 = 14;
    pub(crate) const SPARSE_INITIALIZER: u32 = 15;
}

/// An ONNX model that was read whole: checked, hashed, with its cut points. It keeps the bytes of its file, and parts
/// are put together from them.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) bytes: Bytes,
    /// Fields of the model and of its graph, as they lie in the file.
    pub(crate) model_fields: Vec<Field>,
    pub(crate) graph_fields: Vec<Field>,
    /// Without its graph.
    pub(crate) proto: ModelProto,
    pub(crate) graph: GraphProto,
    pub(crate) wiring: Wiring,
    /// Of each value of `wiring`.
    hashes: Vec<ValueHash>,
    cuts: Vec<Cut>,
    pub(crate) flow: Flow,
}

impl Model {
    /// Reads a model. Takes time and memory in proportion to the file; weights in `raw_data` are not copied.
    ///
    /// # Errors
    /// If a limit is exceeded, if anything is unknown or contradicts itself, or if weights lie in another file.
    pub fn read(bytes: Bytes) -> Result<Self, Error> {
        if bytes.len() > MODEL_BYTES_MAX {
            return Err(Error::TooLong { bytes: bytes.len() });
        }
        schema::check(&bytes)?;
        let mut proto = ModelProto::decode(bytes.clone()).map_err(|error| Error::Undecodable(error.to_string()))?;
        let graph = proto.graph.take().ok_or(Error::NoGraph)?;
        let model_fields = fields("ModelProto", &bytes, &(0..bytes.len()))?;
        let graph_range = model_fields.iter().find(|field| field.number == number::MODEL_GRAPH);
        let graph_range = graph_range.map(|field| field.value.clone()).ok_or(Error::NoGraph)?;
        let graph_fields = fields("GraphProto", &bytes, &graph_range)?;
        let wiring = Wiring::of(&graph)?;
        let functions = model_fields.iter().filter(|field| field.number == number::MODEL_FUNCTION);
        let functions: Vec<_> = functions.map(|field| &bytes[field.value.clone()]).collect();
        let functions = Functions::of(&proto.functions, &functions)?;
        let versions = Versions::of(&proto.opset_import);
        let context = Context { versions: &versions, functions: &functions, file: &bytes };
        let (hashes, flow, cuts) = hashed_and_cut(&graph, &wiring, context)?;
        Ok(Self { bytes, model_fields, graph_fields, proto, graph, wiring, hashes, cuts, flow })
    }

    /// All cut points, from the inputs to the outputs.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// What a value of the main graph computes.
    #[must_use]
    pub fn hash_of(&self, value: &str) -> Option<ValueHash> {
        self.wiring.places.get(value).map(|&place| self.hashes[place])
    }

    /// What clients give, in order.
    #[must_use]
    pub fn inputs(&self) -> Vec<&str> {
        self.wiring.inputs().map(|place| self.wiring.values[place].name.as_str()).collect()
    }

    /// What the model answers with, in order.
    #[must_use]
    pub fn outputs(&self) -> Vec<&str> {
        self.wiring.outputs.iter().map(|&place| self.wiring.values[place].name.as_str()).collect()
    }

    /// The cut point of that name.
    pub(crate) fn cut(&self, value: &str) -> Result<&Cut, Error> {
        let cut = self.cuts.iter().find(|cut| cut.value == value);
        cut.ok_or_else(|| Error::NotACut { value: value.to_owned() })
    }
}

/// The hash of each value, the nodes on paths, and the cut points.
fn hashed_and_cut(
    graph: &GraphProto,
    wiring: &Wiring,
    context: Context<'_>,
) -> Result<(Vec<ValueHash>, Flow, Vec<Cut>), Error> {
    let hashed = of_graph(graph, context)?;
    let hash = |value: &Value| {
        let undefined = || Error::Undefined { user: "the graph".to_owned(), name: value.name.clone() };
        hashed.values.get(value.name.as_str()).copied().ok_or_else(undefined)
    };
    let hashes = wiring.values.iter().map(hash).collect::<Result<Vec<_>, _>>()?;
    let flow = Flow::of(wiring, &hashed.is_random);
    let separators = separators(wiring, &flow, &hashed.is_random);
    let types = types(graph);
    let cuts = cuts(&separators, wiring, &hashes, |name| types.get(name).copied());
    Ok((hashes, flow, cuts))
}

/// The fields of one message, in order.
fn fields(message: &'static str, bytes: &[u8], range: &Range<usize>) -> Result<Vec<Field>, Error> {
    let malformed = |NoField { at, problem }| Error::Malformed { message, at, problem: problem.to_owned() };
    Fields::new(bytes, range).map(|field| field.map_err(malformed)).collect()
}

/// The types that the model states for values between inputs and outputs.
fn types(graph: &GraphProto) -> HashMap<&str, &TypeProto> {
    graph.value_info.iter().filter_map(|info| Some((info.name(), info.r#type.as_ref()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::TensorProto;
    use crate::onnx::tensor_proto::DataType;

    #[test]
    fn weights_stay_in_the_bytes_of_the_file() {
        let weight = TensorProto {
            name: Some("w".to_owned()),
            data_type: Some(DataType::Uint8.into()),
            dims: vec![64],
            raw_data: Some(vec![7_u8; 64].into()),
            ..Default::default()
        };
        let graph = GraphProto { initializer: vec![weight], ..Default::default() };
        let file = Bytes::from(ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec());
        let places = file.as_ptr_range();
        let model = Model::read(file).unwrap();
        let raw = model.graph.initializer[0].raw_data.as_ref().unwrap();
        assert_eq!(raw.len(), 64);
        assert!(places.contains(&raw.as_ptr()), "decoded without a copy");
    }
}
