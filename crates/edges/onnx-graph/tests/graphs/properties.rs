//! What holds for every graph.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use prost::Message as _;
use symphony_onnx_graph::onnx::GraphProto;
use symphony_onnx_graph::{End, Model, Part};

use crate::builder::{batch_of, cut_names, decoded, floats, graph, int, node, read, with};

const OPERATORS: [&str; 4] = ["Sum", "Max", "Mul", "Concat"];

/// A random graph: values are inputs first, then one weight, then what each node makes.
#[derive(Clone, Debug)]
struct Dag {
    inputs: usize,
    /// An operator, an attribute, and the values that are used.
    nodes: Vec<(usize, i64, Vec<usize>)>,
    outputs: Vec<usize>,
}

impl Dag {
    fn values(&self) -> usize {
        self.inputs + 1 + self.nodes.len()
    }

    fn made_by(&self, node: usize) -> usize {
        self.inputs + 1 + node
    }

    fn graph(&self, name: impl Fn(usize) -> String, weight: f32) -> GraphProto {
        let nodes = self.nodes.iter().enumerate().map(|(index, (operator, attribute, uses))| {
            let uses: Vec<String> = uses.iter().map(|&value| name(value)).collect();
            let uses: Vec<&str> = uses.iter().map(String::as_str).collect();
            with(node(OPERATORS[*operator], &uses, &[&name(self.made_by(index))]), vec![int("axis", *attribute)])
        });
        let inputs: Vec<String> = (0..self.inputs).map(&name).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let outputs: Vec<String> = self.outputs.iter().map(|&value| name(value)).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let mut graph = graph(&inputs, nodes.collect(), &outputs);
        graph.initializer.push(floats(&name(self.inputs), &[weight]));
        graph
    }

    /// What can be reached from the inputs without passing `without`.
    fn reached(&self, without: Option<usize>) -> HashSet<usize> {
        let mut reached: HashSet<usize> = (0..self.inputs).collect();
        for (index, (_, _, uses)) in self.nodes.iter().enumerate() {
            let made = self.made_by(index);
            if Some(made) != without && uses.iter().any(|value| reached.contains(value)) {
                reached.insert(made);
            }
        }
        reached
    }

    /// Whether an input reaches an output without passing `without`.
    fn connects(&self, without: Option<usize>) -> bool {
        let reached = self.reached(without);
        self.outputs.iter().any(|output| reached.contains(output))
    }

    /// The value and all that depends on it.
    fn depends_on(&self, value: usize) -> HashSet<usize> {
        let mut depends = HashSet::from([value]);
        for (index, (_, _, uses)) in self.nodes.iter().enumerate() {
            if uses.iter().any(|value| depends.contains(value)) {
                depends.insert(self.made_by(index));
            }
        }
        depends
    }
}

fn plain(value: usize) -> String {
    format!("v{value}")
}

/// Graphs whose nodes mostly use what was made last, so that there is something to cut.
fn dags() -> impl Strategy<Value = Dag> {
    let node = (0..OPERATORS.len(), 0..3_i64, proptest::collection::vec((0..3_usize, any::<u8>()), 1..3));
    let nodes = proptest::collection::vec(node, 1..16);
    (1..3_usize, nodes, any::<proptest::sample::Index>(), 0..4_u8).prop_map(|(inputs, drawn, output, more)| {
        let mut nodes = Vec::new();
        for (operator, attribute, picks) in drawn {
            let before = inputs + 1 + nodes.len();
            // One of the last three, or one in eight times any.
            let pick = |(near, any): (usize, u8)| match any % 8 {
                0 => usize::from(any / 8) % before,
                _ => before - 1 - near % before.min(3),
            };
            nodes.push((operator, attribute, picks.into_iter().map(pick).collect()));
        }
        let values = inputs + 1 + nodes.len();
        let mut outputs = vec![values - 1];
        if more == 0 {
            outputs.push(output.index(values));
        }
        Dag { inputs, nodes, outputs }
    })
}

proptest! {
    #[test]
    fn cut_points_are_what_removing_a_value_shows(dag in dags()) {
        let model = read(dag.graph(plain, 1.0));
        let separates = |value: &usize| {
            dag.connects(None) && !dag.connects(Some(*value)) && !dag.outputs.contains(value)
        };
        let expected: Vec<String> =
            (0..dag.nodes.len()).map(|node| dag.made_by(node)).filter(separates).map(plain).collect();
        prop_assert_eq!(cut_names(&model), expected);
    }

    #[test]
    fn parts_together_have_each_node_on_a_path_once(dag in dags()) {
        let whole = dag.graph(plain, 1.0);
        let model = read(whole.clone());
        let end = |value: &str| End { value: value.to_owned(), value_type: Some(batch_of(&[4])) };
        let ends: Vec<_> = std::iter::once(None)
            .chain(cut_names(&model).into_iter().map(|value| Some(end(value))))
            .chain([None])
            .collect();
        let mut times = HashMap::<Vec<u8>, usize>::new();
        for pair in ends.windows(2) {
            let bytes = model.part(&Part { from: pair[0].clone(), to: pair[1].clone() }).unwrap();
            let part = Model::read(bytes.clone().into()).unwrap();
            if let (None, Some(to)) = (&pair[0], &pair[1]) {
                prop_assert_eq!(part.hash_of(&to.value), model.hash_of(&to.value));
            }
            for node in decoded(&bytes).node {
                *times.entry(node.encode_to_vec()).or_default() += 1;
            }
        }
        let reached = dag.reached(None);
        for (index, node) in whole.node.iter().enumerate() {
            let made = dag.made_by(index);
            let is_wanted = dag.outputs.iter().any(|output| dag.depends_on(made).contains(output));
            let times = times.remove(&node.encode_to_vec()).unwrap_or_default();
            match (is_wanted, reached.contains(&made)) {
                (true, true) => prop_assert_eq!(times, 1, "a node on a path"),
                (true, false) => prop_assert!(times >= 1, "a constant"),
                (false, _) => prop_assert_eq!(times, 0, "a dead node"),
            }
        }
        prop_assert!(times.is_empty(), "no node is new");
    }

    #[test]
    fn names_do_not_count_and_every_change_counts_for_what_depends_on_it(
        dag in dags(),
        at in any::<proptest::sample::Index>(),
        kind in 0..4_u8,
    ) {
        let model = read(dag.graph(plain, 1.0));
        let hash = |model: &Model, value: usize, name: fn(usize) -> String| model.hash_of(&name(value)).unwrap();
        let other_name: fn(usize) -> String = |value| format!("other/{}", 1000 - value);
        let renamed = read(dag.graph(other_name, 1.0));
        for value in 0..dag.values() {
            prop_assert_eq!(hash(&model, value, plain), hash(&renamed, value, other_name));
        }

        let node = at.index(dag.nodes.len());
        let (mut other, mut weight, mut changed) = (dag.clone(), 1.0, dag.made_by(node));
        match kind {
            0 => other.nodes[node].0 = (dag.nodes[node].0 + 1) % OPERATORS.len(),
            1 => other.nodes[node].1 += 1,
            2 => other.nodes[node].2.push(0),
            _ => (weight, changed) = (1.5, dag.inputs),
        }
        let other = read(other.graph(plain, weight));
        let depends = dag.depends_on(changed);
        for value in 0..dag.values() {
            let same = hash(&model, value, plain) == hash(&other, value, plain);
            prop_assert_eq!(same, !depends.contains(&value), "value {} after a change of {}", value, changed);
        }
    }
}
