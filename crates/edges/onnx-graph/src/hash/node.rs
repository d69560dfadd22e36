//! A node by its operator and attributes; what it uses and its subgraphs are in [`super::graph`].

use prost::Message as _;

use super::sum::{Sum, ValueHash};
use super::tensor::{of_sparse, of_tensor};
use super::types::of_type;
use super::versions::{Versions, domain};
use crate::error::Error;
use crate::functions::Functions;
use crate::onnx::{AttributeProto, GraphProto, NodeProto};

/// The operator: a function of the model, or one of its domain in the versions that are imported.
pub(super) fn operator(node: &NodeProto, versions: &Versions, functions: &Functions, sum: Sum) -> Sum {
    let sum = sum.text(domain(node.domain())).text(node.op_type()).text(node.overload());
    let sum = match functions.called(node) {
        // Domains that a function uses and does not import are those of the model.
        Some(function) => sum.int(1).value(function.hash).value(versions.whole),
        None => sum.int(0).optional(versions.hash_of(node.domain())),
    };
    let devices = &node.device_configurations;
    devices.iter().fold(sum.int(devices.len() as i64), |sum, device| sum.bytes(&device.encode_to_vec()))
}

/// An attribute with all that it may hold, whatever type it says; `graph` hashes its graphs.
pub(super) fn attribute<'a>(
    attribute: &'a AttributeProto,
    sum: Sum,
    mut graph: impl FnMut(&'a GraphProto) -> Result<ValueHash, Error>,
) -> Result<Sum, Error> {
    let sum =
        sum.text(attribute.name()).text(attribute.ref_attr_name()).int(attribute.r#type.unwrap_or_default().into());
    let sum = sum.int(attribute.f().to_bits().into()).int(attribute.i()).bytes(attribute.s());
    let floats: Vec<i64> = attribute.floats.iter().map(|number| number.to_bits().into()).collect();
    let sum = sum.ints(&floats).ints(&attribute.ints);
    let sum = attribute.strings.iter().fold(sum.int(attribute.strings.len() as i64), |sum, string| sum.bytes(string));
    let tensor = attribute.t.as_ref().map(of_tensor).transpose()?;
    let sparse = attribute.sparse_tensor.as_ref().map(of_sparse).transpose()?;
    let single = attribute.g.as_ref().map(&mut graph).transpose()?;
    let its_type = attribute.tp.as_ref().map(|its_type| of_type(Some(its_type)));
    let sum = sum.optional(tensor).optional(sparse).optional(single).optional(its_type);
    let tensors = attribute.tensors.iter().map(of_tensor).collect::<Result<Vec<_>, _>>()?;
    let sparse = attribute.sparse_tensors.iter().map(of_sparse).collect::<Result<Vec<_>, _>>()?;
    let graphs = attribute.graphs.iter().map(graph).collect::<Result<Vec<_>, _>>()?;
    let types = attribute.type_protos.iter().map(|its_type| of_type(Some(its_type))).collect();
    Ok([tensors, sparse, graphs, types].into_iter().fold(sum, list))
}

fn list(sum: Sum, hashes: Vec<ValueHash>) -> Sum {
    let sum = sum.int(hashes.len() as i64);
    hashes.into_iter().fold(sum, Sum::value)
}
