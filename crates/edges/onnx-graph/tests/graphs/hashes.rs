//! Which values are equal, and which are not.

use bytes::Bytes;
use prost::Message as _;
use symphony_onnx_graph::onnx::attribute_proto::AttributeType;
use symphony_onnx_graph::onnx::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorAnnotation,
};
use symphony_onnx_graph::{Model, ValueHash};

use crate::builder::{
    BOOL, INT64, batch_of, branch, encoded, fixed, floats, graph, info, int, node, proto, raw, read, subgraph, with,
};

fn hash(graph: GraphProto, value: &str) -> ValueHash {
    read(graph).hash_of(value).unwrap()
}

fn dense(input: &str, weights: &str, sum: &str, output: &str) -> GraphProto {
    let nodes = vec![node("MatMul", &[input, weights], &[sum]), node("Relu", &[sum], &[output])];
    let mut graph = graph(&[input], nodes, &[output]);
    graph.initializer.push(floats(weights, &[1.0, 2.0]));
    graph
}

#[test]
fn names_and_prose_do_not_count() {
    let mut other = dense("input", "kernel", "product", "result");
    other.name = Some("another".to_owned());
    other.node[0].name = Some("first".to_owned());
    other.node[0].doc_string = Some("multiplies".to_owned());
    assert_eq!(hash(dense("x", "w", "s", "y"), "y"), hash(other, "result"));
}

#[test]
fn a_weight_counts_by_its_elements_however_it_is_written() {
    let base = hash(dense("x", "w", "s", "y"), "y");
    let mut graph = dense("x", "w", "s", "y");
    graph.initializer[0] = raw(&graph.initializer[0]);
    assert_eq!(base, hash(graph.clone(), "y"));
    let tensor = graph.initializer.remove(0);
    let value = AttributeProto {
        name: Some("value".to_owned()),
        r#type: Some(AttributeType::Tensor.into()),
        t: Some(tensor),
        ..Default::default()
    };
    graph.node.insert(0, with(node("Constant", &[], &["w"]), vec![value]));
    assert_eq!(base, hash(graph, "y"), "a Constant is an initializer");
    let mut graph = dense("x", "w", "s", "y");
    graph.initializer[0].float_data[1] = 2.000_000_2;
    assert_ne!(base, hash(graph, "y"));
}

#[test]
fn every_short_constant_is_the_tensor_that_it_stands_for() {
    let constant = |attribute: AttributeProto| {
        let nodes = vec![with(node("Constant", &[], &["c"]), vec![attribute]), node("Add", &["x", "c"], &["y"])];
        hash(graph(&["x"], nodes, &["y"]), "c")
    };
    let mut initial = graph(&["x"], vec![node("Add", &["x", "c"], &["y"])], &["y"]);
    let mut number = floats("c", &[]);
    (number.dims, number.data_type, number.int64_data) = (vec![], Some(INT64), vec![7]);
    initial.initializer.push(number);
    assert_eq!(constant(int("value_int", 7)), hash(initial, "c"));
    assert_ne!(constant(int("value_int", 7)), constant(int("value_int", 8)));
    let list = AttributeProto { name: Some("value_ints".to_owned()), ints: vec![7], ..Default::default() };
    assert_ne!(constant(int("value_int", 7)), constant(list), "a list of one has another shape");
}

#[test]
fn operator_attributes_versions_and_outputs_count() {
    let split = |outputs: &[&str], axis: i64| {
        let nodes = vec![with(node("Split", &["x"], outputs), vec![int("axis", axis), int("a", 1)])];
        graph(&["x"], nodes, &outputs[..1])
    };
    let base = hash(split(&["y", "z"], 1), "y");
    assert_ne!(base, hash(split(&["y", "z"], 0), "y"));
    assert_ne!(base, hash(split(&["y", "z", "more"], 1), "y"), "Split divides by how many outputs it has");
    assert_ne!(base, hash(split(&["y", "z"], 1), "z"));
    let mut sorted = split(&["y", "z"], 1);
    sorted.node[0].attribute.reverse();
    assert_eq!(base, hash(sorted, "y"), "the order of attributes does not count");
    let mut newer = proto(split(&["y", "z"], 1));
    newer.opset_import[0].version = Some(18);
    assert_ne!(base, Model::read(encoded(&newer)).unwrap().hash_of("y").unwrap());
    newer.opset_import = vec![OperatorSetIdProto { domain: Some("ai.onnx".to_owned()), version: Some(17) }];
    assert_eq!(base, Model::read(encoded(&newer)).unwrap().hash_of("y").unwrap(), "two names of one domain");
    newer.opset_import.push(OperatorSetIdProto { domain: None, version: Some(16) });
    assert_ne!(base, Model::read(encoded(&newer)).unwrap().hash_of("y").unwrap(), "which of two is meant");
}

#[test]
fn wiring_and_positions_of_inputs_count() {
    let sub = |first: &str, second: &str| graph(&["x", "z"], vec![node("Sub", &[first, second], &["y"])], &["y"]);
    assert_ne!(hash(sub("x", "z"), "y"), hash(sub("z", "x"), "y"));
    let mut fixed_input = sub("x", "z");
    fixed_input.input[0] = info("x", Some(batch_of(&[5])));
    assert_ne!(hash(sub("x", "z"), "y"), hash(fixed_input, "y"));
    let optional = |inputs: &[&str]| hash(graph(&["x", "z"], vec![node("Clip", inputs, &["y"])], &["y"]), "y");
    assert_ne!(optional(&["x", "", "z"]), optional(&["x", "z"]));
}

fn choice(captured: &str, inner: &str, operator: &str) -> GraphProto {
    let then = branch(vec![node(operator, &[captured], &[inner])], inner);
    let other = branch(vec![node("Abs", &[captured], &["else_out"])], "else_out");
    let attributes = vec![subgraph("then_branch", then), subgraph("else_branch", other)];
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Sigmoid", &["x"], &["b"]),
        with(node("If", &["which"], &["y"]), attributes),
    ];
    let mut graph = graph(&["x"], nodes, &["y"]);
    graph.input.push(info("which", Some(fixed(BOOL, &[]))));
    graph
}

#[test]
fn a_subgraph_counts_by_what_it_computes_of_what_it_captures() {
    let base = hash(choice("a", "then_out", "Neg"), "y");
    assert_eq!(base, hash(choice("a", "renamed", "Neg"), "y"));
    assert_ne!(base, hash(choice("a", "then_out", "Exp"), "y"));
    assert_ne!(base, hash(choice("b", "then_out", "Neg"), "y"), "another value is captured");
    let mut other_outside = choice("a", "then_out", "Neg");
    other_outside.node[0].op_type = Some("Tanh".to_owned());
    assert_ne!(base, hash(other_outside, "y"), "the captured value computes something else");
    let mut swapped = choice("a", "then_out", "Neg");
    let [then, other] = swapped.node[2].attribute.as_mut_slice() else { unreachable!("two branches") };
    std::mem::swap(&mut then.g, &mut other.g);
    assert_ne!(base, hash(swapped, "y"));
}

#[test]
fn two_draws_are_never_equal() {
    let noisy = |gain: &[f32]| {
        let nodes = vec![
            node("RandomNormalLike", &["x"], &["n1"]),
            node("RandomNormalLike", &["x"], &["n2"]),
            node("Relu", &["x"], &["r1"]),
            node("Relu", &["x"], &["r2"]),
            node("Sum", &["n1", "n2", "r1", "r2", "w"], &["y"]),
        ];
        let mut graph = graph(&["x"], nodes, &["y"]);
        graph.initializer.push(floats("w", gain));
        read(graph)
    };
    let (one, other) = (noisy(&[1.0]), noisy(&[2.0]));
    assert_ne!(one.hash_of("n1"), one.hash_of("n2"));
    assert_eq!(one.hash_of("r1"), one.hash_of("r2"));
    assert_ne!(one.hash_of("n1"), other.hash_of("n1"), "another file draws for itself");
    assert_eq!(one.hash_of("r1"), other.hash_of("r1"));
}

#[test]
fn a_function_counts_by_its_body_and_by_those_that_it_calls() {
    let model = |inner: &str, draws: &str| {
        let function = |name: &str, operator: &str, domain: &str| {
            let mut body = node(operator, &["in"], &["out"]);
            body.domain = Some(domain.to_owned());
            FunctionProto {
                name: Some(name.to_owned()),
                domain: Some("own".to_owned()),
                input: vec!["in".to_owned()],
                output: vec!["out".to_owned()],
                node: vec![body],
                ..Default::default()
            }
        };
        let mut call = node("Outer", &["x"], &["y"]);
        call.domain = Some("own".to_owned());
        let mut model = proto(graph(&["x"], vec![call], &["y"]));
        model.functions =
            vec![function("Outer", "Inner", "own"), function("Inner", inner, ""), function("Unused", draws, "")];
        Model::read(encoded(&model)).unwrap()
    };
    let base = model("Relu", "Abs").hash_of("y");
    assert_eq!(base, model("Relu", "RandomNormalLike").hash_of("y"), "a function that nothing calls does not count");
    assert_ne!(base, model("Tanh", "Abs").hash_of("y"));
    assert_ne!(model("Bernoulli", "Abs").hash_of("y"), model("Bernoulli", "Neg").hash_of("y"), "what is inside draws");
}

/// A model that calls functions of its own; each function has one node, by domain and operator.
fn calling(call: &str, functions: &[(&str, &str, &str)]) -> ModelProto {
    let own = |mut node: NodeProto, domain: &str| {
        node.domain = Some(domain.to_owned());
        node
    };
    let function = |&(name, domain, operator): &(&str, &str, &str)| FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("own".to_owned()),
        input: vec!["in".to_owned()],
        output: vec!["out".to_owned()],
        node: vec![own(node(operator, &["in"], &["out"]), domain)],
        ..Default::default()
    };
    let mut model = proto(graph(&["x"], vec![own(node(call, &["x"], &["y"]), "own")], &["y"]));
    model.functions = functions.iter().map(function).collect();
    model
}

fn answer(model: &ModelProto) -> ValueHash {
    Model::read(encoded(model)).unwrap().hash_of("y").unwrap()
}

#[test]
fn functions_may_call_each_other_in_a_circle_and_share_the_versions_of_the_model() {
    let circle = |last: &str| calling("A", &[("A", "own", "B"), ("B", "own", "C"), ("C", "own", last)]);
    assert_eq!(answer(&circle("A")), answer(&circle("A")));
    assert_ne!(answer(&circle("A")), answer(&circle("B")));
    // The function imports nothing: its Relu is that of the model's version.
    let versioned = |version: i64| {
        let mut model = calling("F", &[("F", "", "Relu")]);
        model.opset_import[0].version = Some(version);
        answer(&model)
    };
    assert_eq!(versioned(17), versioned(17));
    assert_ne!(versioned(17), versioned(18));
}

#[test]
fn a_constant_of_the_models_own_is_none_of_onnx() {
    let model = |operator: &str| {
        let mut model = calling("F", &[("F", "", "Relu"), ("Constant", "", operator)]);
        model.functions[1].domain = None;
        let constant = with(node("Constant", &[], &["c"]), vec![int("value_int", 7)]);
        model.graph = Some(graph(&["x"], vec![constant, node("Add", &["x", "c"], &["y"])], &["y"]));
        model
    };
    assert_ne!(answer(&model("Abs")), answer(&model("Neg")));
}

#[test]
fn every_annotation_of_a_value_counts() {
    let annotated = |first: &str, second: &str| {
        let annotation = |scale: &str| TensorAnnotation {
            tensor_name: Some("s".to_owned()),
            quant_parameter_tensor_names: vec![StringStringEntryProto {
                key: Some("SCALE_TENSOR".to_owned()),
                value: Some(scale.to_owned()),
            }],
        };
        let mut graph = dense("x", "w", "s", "y");
        graph.quantization_annotation = vec![annotation(first), annotation(second)];
        hash(graph, "y")
    };
    assert_eq!(annotated("w", "x"), annotated("w", "x"));
    assert_ne!(annotated("w", "x"), annotated("y", "x"));
}

#[test]
fn hashes_are_those_of_the_bytes_that_travel() {
    let model = read(dense("x", "w", "s", "y"));
    let hash = model.hash_of("y").unwrap();
    assert_eq!(ValueHash::from_bytes(*hash.as_bytes()), hash);
    assert_eq!(hash.to_string().len(), 64);
    assert_eq!(model.hash_of("nothing"), None);
    let again = Model::read(Bytes::from(proto(dense("x", "w", "s", "y")).encode_to_vec())).unwrap();
    assert_eq!(again.hash_of("y"), Some(hash));
}
