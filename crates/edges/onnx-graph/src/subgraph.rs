//! Names in a graph and in those inside it: each made once and before it is used.

use std::collections::HashSet;
use std::fmt;

use crate::error::Error;
use crate::onnx::{AttributeProto, GraphProto, NodeProto, SparseTensorProto};

/// A name that a graph uses and does not make: whatever is around it has to.
pub(crate) struct Free<'a> {
    pub(crate) name: &'a str,
    /// Its first user.
    pub(crate) user: User<'a>,
}

/// The user of a name. Words are made of it only for a message: there may be millions of names.
#[derive(Clone, Copy)]
pub(crate) enum User<'a> {
    /// The node of that number.
    Node(usize, &'a NodeProto),
    /// The output of that number.
    Output(usize),
}

impl fmt::Display for User<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Node(index, node) => f.write_str(&title(index, node)),
            Self::Output(index) => write!(f, "output {index}"),
        }
    }
}

/// The name of a node in messages.
pub(crate) fn title(index: usize, node: &NodeProto) -> String {
    format!("node {index} ({} `{}`)", node.op_type(), node.name())
}

/// The graphs in a node's attributes.
pub(crate) fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(graphs)
}

pub(crate) fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.iter().chain(&attribute.graphs)
}

/// The name of a sparse initializer.
pub(crate) fn sparse_name(sparse: &SparseTensorProto) -> &str {
    sparse.values.as_ref().map_or("", |values| values.name())
}

/// All that a node needs: its inputs, and what its subgraphs take from around it. Each name once, in order.
pub(crate) fn used(node: &NodeProto) -> Result<Vec<&str>, Error> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for graph in subgraphs(node) {
        names.extend(free(graph)?.into_iter().map(|free| free.name));
    }
    let mut seen = HashSet::new();
    names.retain(|&name| seen.insert(name));
    Ok(names)
}

/// Checks a graph and those inside it. Returns what it uses of what is around it, in the order of first use.
pub(crate) fn free(graph: &GraphProto) -> Result<Vec<Free<'_>>, Error> {
    let mut made = given(graph)?;
    let later: HashSet<&str> = graph.node.iter().flat_map(|node| &node.output).map(String::as_str).collect();
    let (mut free, mut seen) = (Vec::new(), HashSet::new());
    for (index, node) in graph.node.iter().enumerate() {
        for name in used(node)? {
            if made.contains(name) {
                continue;
            }
            if later.contains(name) {
                return Err(Error::Unsorted { user: title(index, node), name: name.to_owned() });
            }
            if seen.insert(name) {
                free.push(Free { name, user: User::Node(index, node) });
            }
        }
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if !made.insert(output.as_str()) {
                return Err(Error::NameTwice { graph: graph.name().to_owned(), name: output.clone() });
            }
        }
    }
    for (index, output) in graph.output.iter().enumerate() {
        let name = output.name();
        if !made.contains(name) && seen.insert(name) {
            free.push(Free { name, user: User::Output(index) });
        }
    }
    Ok(free)
}

/// The names of inputs and initializers. An input may have an initializer: that is its default.
fn given(graph: &GraphProto) -> Result<HashSet<&str>, Error> {
    let twice = |name: &str| Error::NameTwice { graph: graph.name().to_owned(), name: name.to_owned() };
    let mut inputs = HashSet::new();
    if let Some(input) = graph.input.iter().find(|input| !inputs.insert(input.name())) {
        return Err(twice(input.name()));
    }
    let dense = graph.initializer.iter().map(|tensor| tensor.name());
    let mut initializers = HashSet::new();
    for name in dense.chain(graph.sparse_initializer.iter().map(sparse_name)) {
        if !initializers.insert(name) {
            return Err(twice(name));
        }
    }
    inputs.extend(initializers);
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_from_around_costs_no_words() {
        assert!(!std::mem::needs_drop::<Free<'_>>());
        let node = NodeProto { op_type: Some("Relu".to_owned()), ..Default::default() };
        assert_eq!(User::Node(3, &node).to_string(), "node 3 (Relu ``)");
        assert_eq!(User::Output(1).to_string(), "output 1");
    }
}
