//! Functions: operators that a model brings along, told apart by all of their bytes and those of what they call.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::Error;
use crate::hash::{Sum, ValueHash, Versions, domain, inside};
use crate::onnx::{AttributeProto, FunctionProto, NodeProto, SparseTensorProto, TensorProto};
use crate::random::is_random_operator;
use crate::subgraph::graphs;

/// Domain, name and overload.
type Key = (String, String, String);

/// What a call computes, apart from its inputs and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) hash: ValueHash,
    /// It may give another answer each time.
    pub(crate) is_random: bool,
}

/// The functions of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions(HashMap<Key, Function>);

impl Functions {
    /// `encoded` are the bytes of each function in the file. Names inside functions count, so that two with the same
    /// body and other names are taken for different ones: missed, never confused.
    ///
    /// # Errors
    /// If a function stands twice, or has weights in another file.
    pub(crate) fn of(functions: &[FunctionProto], encoded: &[&[u8]]) -> Result<Self, Error> {
        let mut own = BTreeMap::new();
        for (function, bytes) in functions.iter().zip(encoded) {
            let key =
                (domain(function.domain()).to_owned(), function.name().to_owned(), function.overload().to_owned());
            let body = Body::of(function, bytes)?;
            if own.insert(key.clone(), body).is_some() {
                return Err(Error::FunctionTwice { name: format!("{}:{}:{}", key.0, key.1, key.2) });
            }
        }
        Ok(Self(with_what_they_call(&own)))
    }

    /// The function that a node calls, if it calls one.
    pub(crate) fn called(&self, node: &NodeProto) -> Option<Function> {
        if self.0.is_empty() { None } else { self.0.get(&key(node)).copied() }
    }
}

/// One function alone.
struct Body {
    hash: ValueHash,
    has_random_operator: bool,
    calls: BTreeSet<Key>,
}

impl Body {
    fn of(function: &FunctionProto, bytes: &[u8]) -> Result<Self, Error> {
        let mut body =
            Self { hash: Sum::of("function").bytes(bytes).hash(), has_random_operator: false, calls: BTreeSet::new() };
        let versions = Versions::of(&function.opset_import);
        let mut open: Vec<&NodeProto> = function.node.iter().collect();
        for default in &function.attribute_proto {
            look_into(default, &mut open)?;
        }
        while let Some(node) = open.pop() {
            body.has_random_operator |= is_random_operator(node, versions.highest(node.domain()));
            body.calls.insert(key(node));
            for attribute in &node.attribute {
                look_into(attribute, &mut open)?;
            }
        }
        Ok(body)
    }
}

/// Adds the nodes of an attribute's graphs. Weights have to be inside: where they are not, the bytes by which a
/// function counts only name a file, and the same name may be that of other weights in another model.
fn look_into<'a>(attribute: &'a AttributeProto, open: &mut Vec<&'a NodeProto>) -> Result<(), Error> {
    let sparse = attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors);
    attribute.t.iter().chain(&attribute.tensors).chain(sparse.flat_map(tensors)).try_for_each(inside)?;
    for graph in graphs(attribute) {
        let sparse = graph.sparse_initializer.iter();
        graph.initializer.iter().chain(sparse.flat_map(tensors)).try_for_each(inside)?;
        open.extend(&graph.node);
    }
    Ok(())
}

fn tensors(sparse: &SparseTensorProto) -> impl Iterator<Item = &TensorProto> {
    sparse.values.iter().chain(&sparse.indices)
}

/// Each function together with all that it calls, directly or not. A function that calls itself is visited only once.
fn with_what_they_call(own: &BTreeMap<Key, Body>) -> HashMap<Key, Function> {
    let keys: Vec<&Key> = own.keys().collect();
    let bodies: Vec<&Body> = own.values().collect();
    // By number: all functions are gone through for each of them, and names may be long.
    let number = |call: &Key| keys.binary_search_by(|key| (*key).cmp(call)).ok();
    let calls: Vec<Vec<usize>> = bodies.iter().map(|body| body.calls.iter().filter_map(number).collect()).collect();
    let function = |(at, &key): (usize, &&Key)| {
        let mut is_reached = vec![false; bodies.len()];
        let mut open = vec![at];
        while let Some(next) = open.pop() {
            if !std::mem::replace(&mut is_reached[next], true) {
                open.extend_from_slice(&calls[next]);
            }
        }
        let sum = [&key.0, &key.1, &key.2].into_iter().fold(Sum::of("functions"), |sum, part| sum.text(part));
        let reached = bodies.iter().zip(&is_reached).filter(|(_, is_reached)| **is_reached);
        let mut reached = reached.map(|(body, _)| *body);
        let hash = reached.clone().fold(sum, |sum, body| sum.value(body.hash)).hash();
        (key.clone(), Function { hash, is_random: reached.any(|body| body.has_random_operator) })
    };
    keys.iter().enumerate().map(function).collect()
}

fn key(node: &NodeProto) -> Key {
    (domain(node.domain()).to_owned(), node.op_type().to_owned(), node.overload().to_owned())
}
