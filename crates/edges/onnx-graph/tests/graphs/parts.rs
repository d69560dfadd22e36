//! Parts are models with the very nodes of the whole.

use prost::Message as _;
use symphony_onnx_graph::onnx::{
    FunctionProto, GraphProto, ModelProto, StringStringEntryProto, TensorAnnotation, TrainingInfoProto,
};
use symphony_onnx_graph::{End, Error, Model, Part};

use crate::builder::{
    batch_of, branch, cut_names, decoded, encoded, floats, graph, info, int, names, node, outputs_of, proto, read,
    subgraph, with,
};

/// `x` → a → b → c → y with weights of their own, one for `a` and `c` in common, and constants.
fn chain() -> GraphProto {
    let nodes = vec![
        node("Identity", &["shape"], &["shape_copy"]),
        node("MatMul", &["x", "wa"], &["a0"]),
        node("Add", &["a0", "shared"], &["a"]),
        with(node("Gemm", &["a", "wb"], &["b"]), vec![int("transB", 1)]),
        node("Reshape", &["b", "shape_copy"], &["c0"]),
        node("Add", &["c0", "shared"], &["c"]),
        node("Relu", &["c"], &["dead"]),
        node("Reshape", &["c", "shape_copy"], &["y"]),
    ];
    let mut graph = graph(&["x"], nodes, &["y"]);
    graph.initializer = ["wa", "shared", "wb", "shape"].map(|name| floats(name, &[1.0, 2.0])).to_vec();
    graph.value_info = ["a", "b", "c", "a0"].map(|name| info(name, Some(batch_of(&[4])))).to_vec();
    graph
}

fn end(value: &str) -> Option<End> {
    Some(End { value: value.to_owned(), value_type: None })
}

#[test]
fn a_split_leaves_each_node_on_its_side_and_constants_where_they_are_needed() {
    let model = read(chain());
    assert_eq!(cut_names(&model), ["a0", "a", "b", "c0", "c"]);
    let (trunk, suffix) = model.split("b", None).unwrap();
    let (trunk, suffix) = (decoded(&trunk), decoded(&suffix));
    assert_eq!(outputs_of(&trunk), ["a0", "a", "b"]);
    assert_eq!(outputs_of(&suffix), ["shape_copy", "c0", "c", "y"], "what leads nowhere is left out");
    let weights = |graph: &GraphProto| graph.initializer.iter().map(|t| t.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(weights(&trunk), ["wa", "shared", "wb"]);
    assert_eq!(weights(&suffix), ["shared", "shape"], "a shared weight is in both");
    assert_eq!((names(&trunk.input), names(&trunk.output)), (vec!["x"], vec!["b"]));
    assert_eq!((names(&suffix.input), names(&suffix.output)), (vec!["b"], vec!["y"]));
    assert_eq!(suffix.input[0].r#type, Some(batch_of(&[4])));
    assert_eq!((names(&trunk.value_info), names(&suffix.value_info)), (vec!["a", "a0"], vec!["c"]));
    let report = model.report();
    let cut = report.cuts.iter().find(|cut| cut.value == "b").unwrap();
    let bytes = |graph: &GraphProto| graph.initializer.iter().map(|tensor| tensor.encoded_len() as u64).sum::<u64>();
    assert_eq!((cut.trunk_bytes, cut.suffix_bytes), (bytes(&trunk), bytes(&suffix)));
}

#[test]
fn parts_between_two_cuts_follow_each_other() {
    let model = read(chain());
    let middle = model.part(&Part { from: end("a"), to: end("c") }).unwrap();
    let middle = decoded(&middle);
    assert_eq!(outputs_of(&middle), ["shape_copy", "b", "c0", "c"]);
    assert_eq!((names(&middle.input), names(&middle.output)), (vec!["a"], vec!["c"]));
    let whole = decoded(&model.part(&Part::default()).unwrap());
    assert_eq!(outputs_of(&whole).len(), 7, "all but the dead node");
    let backward = model.part(&Part { from: end("c"), to: end("a") });
    assert_eq!(backward, Err(Error::Backward { from: "c".to_owned(), to: "a".to_owned() }));
    assert!(model.part(&Part { from: end("a"), to: end("a") }).is_err());
    for no_cut in ["x", "y", "wa", "shape_copy", "dead", "unheard"] {
        let refused = model.split(no_cut, None);
        assert_eq!(refused, Err(Error::NotACut { value: no_cut.to_owned() }));
    }
}

#[test]
fn a_part_has_the_same_hashes_as_the_whole() {
    let model = read(chain());
    let (trunk, _) = model.split("b", None).unwrap();
    let trunk = Model::read(trunk.into()).unwrap();
    assert_eq!(trunk.hash_of("b"), model.hash_of("b"));
    assert_eq!(cut_names(&trunk), ["a0", "a"]);
}

#[test]
fn what_a_suffix_takes_has_a_type() {
    let mut untyped = chain();
    untyped.value_info.clear();
    let model = read(untyped);
    assert_eq!(model.split("b", None), Err(Error::TypeUnknown { value: "b".to_owned() }));
    assert!(model.part(&Part { from: None, to: end("b") }).is_ok(), "a session says the type of an output");
    let (trunk, suffix) = model.split("b", Some(batch_of(&[9]))).unwrap();
    assert_eq!(decoded(&suffix).input[0].r#type, Some(batch_of(&[9])));
    assert_eq!(decoded(&trunk).output[0].r#type, Some(batch_of(&[9])));
}

#[test]
fn nodes_are_copied_byte_for_byte_also_where_another_writer_would_differ() {
    let graph = chain();
    let mut model = proto(graph.clone());
    let written = model.graph.take().map(|graph| spaced_out(&graph)).unwrap();
    let mut bytes = model.encode_to_vec();
    put(&mut bytes, 7, &written);
    let model = Model::read(bytes.clone().into()).unwrap();
    let (trunk, suffix) = model.split("b", None).unwrap();
    let contains = |part: &[u8], piece: &[u8]| part.windows(piece.len()).any(|window| window == piece);
    for node in &graph.node {
        let piece = long_node(node.encode_to_vec());
        assert!(contains(&bytes, &piece));
        let in_parts = usize::from(contains(&trunk, &piece)) + usize::from(contains(&suffix, &piece));
        assert_eq!(in_parts, usize::from(node.output[0] != "dead"), "{node:?}");
    }
    assert_eq!(outputs_of(&decoded(&trunk)), ["a0", "a", "b"]);
}

/// A node with a name whose length takes two bytes though one would do: valid, and nothing that prost writes.
fn long_node(mut node: Vec<u8>) -> Vec<u8> {
    node.extend_from_slice(&[0x1a, 0x81, 0x00, b'n']);
    node
}

fn spaced_out(graph: &GraphProto) -> Vec<u8> {
    let mut bytes = GraphProto { node: vec![], ..graph.clone() }.encode_to_vec();
    for node in &graph.node {
        put(&mut bytes, 1, &long_node(node.encode_to_vec()));
    }
    bytes
}

fn put(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

#[test]
fn functions_and_metadata_stay_and_training_goes() {
    let mut whole = proto(chain());
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: Some(key.to_owned()), value: Some(value.to_owned()) };
    whole.metadata_props.push(entry("author", "us"));
    whole.functions.push(FunctionProto { name: Some("F".to_owned()), ..Default::default() });
    whole.training_info.push(TrainingInfoProto::default());
    let annotation = |tensor: &str, scale: &str| TensorAnnotation {
        tensor_name: Some(tensor.to_owned()),
        quant_parameter_tensor_names: vec![entry("SCALE_TENSOR", scale)],
    };
    if let Some(graph) = &mut whole.graph {
        graph.quantization_annotation = vec![annotation("a", "wa"), annotation("c", "shape"), annotation("c", "wb")];
    }
    let (trunk, suffix) = Model::read(encoded(&whole)).unwrap().split("b", None).unwrap();
    for (part, kept) in [(trunk, vec!["a"]), (suffix, vec!["c"])] {
        let part = ModelProto::decode(part.as_slice()).unwrap();
        assert_eq!((&part.metadata_props, &part.functions), (&whole.metadata_props, &whole.functions));
        assert_eq!((part.opset_import, part.ir_version), (whole.opset_import.clone(), whole.ir_version));
        assert!(part.training_info.is_empty());
        let annotations = part.graph.unwrap().quantization_annotation;
        assert_eq!(annotations.iter().map(|one| one.tensor_name()).collect::<Vec<_>>(), kept);
    }
}

#[test]
fn a_subgraph_takes_the_cut_value_as_it_took_the_nodes() {
    let body = || branch(vec![node("Add", &["a", "w"], &["inner"])], "inner");
    let attributes = vec![subgraph("then_branch", body()), subgraph("else_branch", body())];
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Cast", &["flag"], &["which"]),
        with(node("If", &["which"], &["y"]), attributes),
    ];
    let mut graph = graph(&["x"], nodes, &["y"]);
    graph.initializer = vec![floats("w", &[1.0]), floats("flag", &[1.0])];
    let (trunk, suffix) = read(graph.clone()).split("a", Some(batch_of(&[4]))).unwrap();
    let (trunk, suffix) = (decoded(&trunk), decoded(&suffix));
    assert_eq!((outputs_of(&trunk), trunk.initializer.len()), (vec!["a"], 0));
    assert_eq!((outputs_of(&suffix), suffix.initializer.len()), (vec!["which", "y"], 2));
    assert_eq!(suffix.node[1], graph.node[2], "the subgraphs are what they were");
}
