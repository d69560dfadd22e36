//! What is refused, in words.

use prost::Message as _;
use symphony_onnx_graph::onnx::tensor_proto::DataLocation;
use symphony_onnx_graph::onnx::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto,
};
use symphony_onnx_graph::{
    DECODED_BYTES_MAX, Error, FUNCTIONS_MAX, INITIALIZERS_MAX, Model, NAME_BYTES_MAX, NODES_MAX, SUBGRAPH_DEPTH_MAX,
};

use crate::builder::{branch, encoded, floats, graph, node, proto, subgraph, with};

fn words(graph: GraphProto) -> String {
    Model::read(encoded(&proto(graph))).unwrap_err().to_string()
}

#[test]
fn names_have_to_be_made_once_and_before_they_are_used() {
    let circle = vec![node("Add", &["x", "b"], &["a"]), node("Relu", &["a"], &["b"])];
    let expected = "node 0 (Add ``) uses `b`, which is made later; expected sorted nodes without a circle";
    assert_eq!(words(graph(&["x"], circle, &["b"])), expected);
    let missing = vec![node("Add", &["x", "w"], &["y"])];
    let expected = "node 0 (Add ``) uses `w`, which no input, initializer or node makes";
    assert_eq!(words(graph(&["x"], missing, &["y"])), expected);
    let expected = "output 0 uses `z`, which no input, initializer or node makes";
    assert_eq!(words(graph(&["x"], vec![], &["z"])), expected);
    let twice = vec![node("Relu", &["x"], &["a"]), node("Abs", &["x"], &["a"])];
    assert_eq!(words(graph(&["x"], twice, &["a"])), "graph `test` makes `a` twice; expected a name for each value");
    let over = vec![node("Relu", &["x"], &["x"])];
    assert!(words(graph(&["x"], over, &["x"])).contains("makes `x` twice"));
    assert!(words(graph(&["x", "x"], vec![], &["x"])).contains("makes `x` twice"));
    let mut weights = graph(&["x"], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
    weights.initializer = vec![floats("w", &[1.0]), floats("w", &[1.0])];
    assert!(words(weights).contains("makes `w` twice"));
}

#[test]
fn subgraphs_are_held_to_the_same() {
    let choice = |inside: Vec<NodeProto>| {
        let attributes = vec![subgraph("then_branch", branch(inside, "out"))];
        graph(&["x"], vec![with(node("If", &["x"], &["y"]), attributes), node("Relu", &["y"], &["z"])], &["z"])
    };
    let unsorted = vec![node("Relu", &["b"], &["out"]), node("Relu", &["x"], &["b"])];
    assert!(words(choice(unsorted)).contains("uses `b`, which is made later"));
    let from_later = vec![node("Relu", &["z"], &["out"])];
    assert!(words(choice(from_later)).starts_with("node 0 (If ``) uses `z`, which is made later"));
    assert!(words(choice(vec![node("Relu", &["v"], &["out"])])).contains("uses `v`, which no input"));
}

#[test]
fn unknown_fields_are_refused_wherever_they_are() {
    let mut bytes = proto(graph(&["x"], vec![], &["x"])).encode_to_vec();
    assert!(Model::read(bytes.clone().into()).is_ok());
    let at = bytes.len();
    // Field 99, a varint.
    bytes.extend_from_slice(&[0x98, 0x06, 0x01]);
    let expected = Error::UnknownField { message: "ModelProto", at, number: 99 };
    assert_eq!(Model::read(bytes.into()).unwrap_err(), expected);
    // One of ONNX's own, in a message that does not have it: a graph with the field 26 of a model.
    let graph = ModelProto { graph: None, ..proto(GraphProto::default()) };
    let mut bytes = graph.encode_to_vec();
    bytes.extend_from_slice(&[0x3a, 0x03, 0xd2, 0x01, 0x00]);
    let refused = Model::read(bytes.into()).unwrap_err().to_string();
    assert!(refused.contains("GraphProto at byte") && refused.contains("unknown field 26"), "{refused}");
}

#[test]
fn what_is_written_twice_or_otherwise_is_refused() {
    let once = proto(graph(&["x"], vec![], &["x"])).encode_to_vec();
    let twice = [once.as_slice(), &once].concat();
    let refused = Model::read(twice.into()).unwrap_err().to_string();
    assert!(refused.contains("ir_version stands twice"), "{refused}");
    // ir_version as text.
    let refused = Model::read(vec![0x0a, 0x01, b'8'].into()).unwrap_err().to_string();
    assert_eq!(refused, "ModelProto at byte 0: ir_version is written as Delimited; expected Varint");
    assert_eq!(Model::read(Vec::<u8>::new().into()).unwrap_err(), Error::NoGraph);
    let cut_off = Model::read(once[..once.len() - 1].to_vec().into()).unwrap_err();
    assert!(matches!(cut_off, Error::Malformed { .. }), "{cut_off}");
}

#[test]
fn weights_have_to_be_inside_and_whole() {
    let with_weight = |change: &dyn Fn(&mut symphony_onnx_graph::onnx::TensorProto)| {
        let mut graph = graph(&["x"], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
        let mut weight = floats("w", &[1.0, 2.0]);
        change(&mut weight);
        graph.initializer.push(weight);
        words(graph)
    };
    let external = with_weight(&|weight| weight.data_location = Some(DataLocation::External.into()));
    assert_eq!(external, "the weights of tensor `w` lie in another file; expected them inside the model");
    let short = with_weight(&|weight| weight.dims = vec![3]);
    assert_eq!(short, "tensor `w` has numbers for 8 bytes; expected 12, in the list of its type");
}

#[test]
fn weights_of_functions_have_to_be_inside_too() {
    let words = |change: &dyn Fn(&mut FunctionProto, AttributeProto)| {
        let mut weight = floats("w", &[]);
        weight.external_data = vec![StringStringEntryProto { key: Some("location".to_owned()), value: None }];
        let value = AttributeProto { name: Some("value".to_owned()), t: Some(weight), ..Default::default() };
        let mut function = FunctionProto { name: Some("F".to_owned()), ..Default::default() };
        change(&mut function, value);
        let mut model = proto(graph(&["x"], vec![], &["x"]));
        model.functions.push(function);
        Model::read(encoded(&model)).unwrap_err().to_string()
    };
    let expected = "the weights of tensor `w` lie in another file; expected them inside the model";
    let constant = |value| with(node("Constant", &[], &["c"]), vec![value]);
    assert_eq!(words(&|function, value| function.node.push(constant(value))), expected);
    assert_eq!(words(&|function, value| function.attribute_proto.push(value)), expected);
    let inner = words(&|function, value| {
        let then = subgraph("then_branch", branch(vec![constant(value)], "c"));
        function.node.push(with(node("If", &["which"], &["y"]), vec![then]));
    });
    assert_eq!(inner, expected);
    let initializer = words(&|function, value| {
        let mut then = branch(vec![], "w");
        then.initializer.extend(value.t);
        function.node.push(with(node("If", &["which"], &["y"]), vec![subgraph("then_branch", then)]));
    });
    assert_eq!(initializer, expected);
}

#[test]
fn each_limit_is_refused_by_its_name() {
    let mut long = graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]);
    long.node[0].name = Some("n".repeat(NAME_BYTES_MAX + 1));
    assert_eq!(words(long), format!("the model has more than {NAME_BYTES_MAX} bytes in a name"));

    let nodes = vec![NodeProto::default(); NODES_MAX as usize + 1];
    assert_eq!(words(graph(&["x"], nodes, &["x"])), format!("the model has more than {NODES_MAX} nodes"));

    let mut weights = graph(&["x"], vec![], &["x"]);
    weights.initializer = vec![Default::default(); INITIALIZERS_MAX as usize + 1];
    assert_eq!(words(weights), format!("the model has more than {INITIALIZERS_MAX} initializers"));

    let mut functions = proto(graph(&["x"], vec![], &["x"]));
    functions.functions = vec![FunctionProto::default(); FUNCTIONS_MAX as usize + 1];
    let refused = Model::read(encoded(&functions)).unwrap_err().to_string();
    assert_eq!(refused, format!("the model has more than {FUNCTIONS_MAX} functions"));

    let nested = |depth: u32| {
        let inner = branch(vec![node("Relu", &["x"], &["out"])], "out");
        let graph = (2..depth).fold(inner, |inner, _| {
            branch(vec![with(node("If", &["x"], &["out"]), vec![subgraph("then_branch", inner)])], "out")
        });
        let main = with(node("If", &["x"], &["y"]), vec![subgraph("then_branch", graph)]);
        Model::read(encoded(&proto(crate::builder::graph(&["x"], vec![main], &["y"]))))
    };
    assert!(nested(SUBGRAPH_DEPTH_MAX).is_ok());
    let refused = nested(SUBGRAPH_DEPTH_MAX + 1).unwrap_err().to_string();
    assert_eq!(refused, format!("the model has more than {SUBGRAPH_DEPTH_MAX} graphs inside each other"));
}

#[test]
fn messages_that_grow_when_they_are_decoded_are_counted_before() {
    // Two mebibytes of empty value infos: two gibibytes, and the graph itself is on top.
    let infos = [0x6a_u8, 0x00].repeat(1 << 20);
    let mut bytes = Vec::new();
    prost::encoding::encode_key(7, prost::encoding::WireType::LengthDelimited, &mut bytes);
    prost::encoding::encode_varint(infos.len() as u64, &mut bytes);
    bytes.extend_from_slice(&infos);
    let refused = Model::read(bytes.into()).unwrap_err().to_string();
    assert_eq!(refused, format!("the model has more than {DECODED_BYTES_MAX} bytes when it is decoded"));
}
