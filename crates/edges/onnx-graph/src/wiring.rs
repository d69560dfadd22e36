//! Which values the main graph has, which node makes each and which nodes use it, by numbers instead of names.

use std::collections::HashMap;

use crate::error::Error;
use crate::onnx::GraphProto;
use crate::subgraph::{self, Free, sparse_name, used};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What clients give.
    Input,
    /// An initializer, dense or sparse.
    File,
    /// The node of that number.
    Node(usize),
}

/// A value of the main graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) source: Source,
}

/// What a node uses and makes: places in [`Wiring::values`], each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wires {
    pub(crate) uses: Vec<usize>,
    pub(crate) makes: Vec<usize>,
}

/// The main graph by numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wiring {
    pub(crate) values: Vec<Value>,
    pub(crate) places: HashMap<String, usize>,
    /// One for each node, in order.
    pub(crate) nodes: Vec<Wires>,
    /// What the graph gives back, in order.
    pub(crate) outputs: Vec<usize>,
}

impl Wiring {
    /// Checks the graph and numbers it.
    pub(crate) fn of(graph: &GraphProto) -> Result<Self, Error> {
        if let Some(Free { name, user }) = subgraph::free(graph)?.into_iter().next() {
            return Err(Error::Undefined { user: user.to_string(), name: name.to_owned() });
        }
        let mut wiring = Self::default();
        let dense = graph.initializer.iter().map(|tensor| tensor.name());
        for name in dense.chain(graph.sparse_initializer.iter().map(sparse_name)) {
            wiring.add(name, Source::File);
        }
        for input in &graph.input {
            if !wiring.places.contains_key(input.name()) {
                wiring.add(input.name(), Source::Input);
            }
        }
        for (index, node) in graph.node.iter().enumerate() {
            let user = || subgraph::title(index, node);
            let uses = used(node)?.into_iter().map(|name| wiring.place(name, user)).collect::<Result<_, _>>()?;
            let outputs = node.output.iter().filter(|output| !output.is_empty());
            let makes = outputs.map(|output| wiring.add(output, Source::Node(index))).collect();
            wiring.nodes.push(Wires { uses, makes });
        }
        for (index, output) in graph.output.iter().enumerate() {
            let place = wiring.place(output.name(), || format!("output {index}"))?;
            wiring.outputs.push(place);
        }
        Ok(wiring)
    }

    /// The places of what clients give, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        let is_input = |&(_, value): &(usize, &Value)| value.source == Source::Input;
        self.values.iter().enumerate().filter(is_input).map(|(place, _)| place)
    }

    fn add(&mut self, name: &str, source: Source) -> usize {
        let place = self.values.len();
        self.values.push(Value { name: name.to_owned(), source });
        self.places.insert(name.to_owned(), place);
        place
    }

    fn place(&self, name: &str, user: impl FnOnce() -> String) -> Result<usize, Error> {
        let place = self.places.get(name).copied();
        place.ok_or_else(|| Error::Undefined { user: user(), name: name.to_owned() })
    }
}
