//! Functions: operators that a model brings along, told apart by all of their bytes and those of what they call.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::Error;
use crate::hash::{Sum, ValueHash, domain};
use crate::onnx::{FunctionProto, NodeProto};
use crate::random::is_random_operator;
use crate::subgraph::subgraphs;

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
    pub(crate) fn of(functions: &[FunctionProto], encoded: &[&[u8]]) -> Result<Self, Error> {
        let mut own = BTreeMap::new();
        for (function, bytes) in functions.iter().zip(encoded) {
            let key =
                (domain(function.domain()).to_owned(), function.name().to_owned(), function.overload().to_owned());
            let body = Body::of(function, bytes);
            if own.insert(key.clone(), body).is_some() {
                return Err(Error::FunctionTwice { name: format!("{}:{}:{}", key.0, key.1, key.2) });
            }
        }
        let whole = own.keys().map(|key| (key.clone(), with_what_it_calls(key, &own)));
        Ok(Self(whole.collect()))
    }

    /// The function that a node calls, if it calls one.
    pub(crate) fn called(&self, node: &NodeProto) -> Option<Function> {
        if self.0.is_empty() { None } else { self.0.get(&key(node)).copied() }
    }
}

/// One function by itself.
struct Body {
    hash: ValueHash,
    has_random_operator: bool,
    calls: BTreeSet<Key>,
}

impl Body {
    fn of(function: &FunctionProto, bytes: &[u8]) -> Self {
        let mut body =
            Self { hash: Sum::of("function").bytes(bytes).hash(), has_random_operator: false, calls: BTreeSet::new() };
        let version = |of: &str| {
            let imports = function.opset_import.iter().filter(|import| domain(import.domain()) == of);
            imports.map(|import| import.version()).max()
        };
        let mut open: Vec<&NodeProto> = function.node.iter().collect();
        while let Some(node) = open.pop() {
            body.has_random_operator |= is_random_operator(node, version(domain(node.domain())));
            body.calls.insert(key(node));
            open.extend(subgraphs(node).flat_map(|graph| &graph.node));
        }
        body
    }
}

/// The function together with all that it calls, directly or not. One that calls itself is only looked at once.
fn with_what_it_calls(key: &Key, own: &BTreeMap<Key, Body>) -> Function {
    let mut reached = BTreeSet::from([key]);
    let mut open = vec![key];
    while let Some(next) = open.pop() {
        let calls = own.get(next).into_iter().flat_map(|body| &body.calls);
        open.extend(calls.filter(|&call| own.contains_key(call) && reached.insert(call)));
    }
    let mut sum = Sum::of("functions");
    for part in [&key.0, &key.1, &key.2] {
        sum = sum.text(part);
    }
    let bodies: Vec<&Body> = reached.into_iter().filter_map(|key| own.get(key)).collect();
    let hash = bodies.iter().fold(sum, |sum, body| sum.value(body.hash)).hash();
    Function { hash, is_random: bodies.iter().any(|body| body.has_random_operator) }
}

fn key(node: &NodeProto) -> Key {
    (domain(node.domain()).to_owned(), node.op_type().to_owned(), node.overload().to_owned())
}
