//! Tests of declarations without models.

use symphony_types::{DataType, Finite, RequestValue, TensorSpec};

use super::*;
use crate::declaration::{BoxUnit, DeclaredCondition, DeclaredStage, PipelineInput, PipelineOutput};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(one, other)| (one.to_owned(), other.to_owned())).collect()
}

fn stage(name: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> DeclaredStage {
    DeclaredStage { name: name.into(), model: name.into(), inputs: map(inputs), outputs: map(outputs) }
}

fn edge(from: &str, to: &str) -> DeclaredEdge {
    DeclaredEdge {
        from: from.into(),
        to: to.into(),
        gamma: Finite::ONE,
        for_each: true,
        condition: None,
        most: None,
        crop: Some(Crop { boxes: "boxes".into(), unit: BoxUnit::Share }),
    }
}

fn output(name: &str, any_rows: bool) -> PipelineOutput {
    let tensor = TensorSpec { name: name.into(), data_type: DataType::Int64, item_shape: vec![] };
    PipelineOutput { tensor, any_rows }
}

/// A detector whose boxes a recogniser is asked for: it takes these regions of the client's picture.
pub(super) fn digits() -> PipelineDeclaration {
    PipelineDeclaration {
        name: "p".into(),
        version: 1,
        slo_ns: 100_000_000,
        value: RequestValue::ONE,
        partial: false,
        items_max: 1,
        inputs: vec![PipelineInput { name: "picture".into(), data: InputData::Picture }],
        outputs: vec![output("found", false), output("label", true)],
        stages: vec![
            stage("detect", &[("canvas", "picture")], &[("count", "found")]),
            stage("recognise", &[("pixels", "picture")], &[("label", "label")]),
        ],
        edges: vec![edge("detect", "recognise")],
    }
}

fn refused(change: impl FnOnce(&mut PipelineDeclaration)) -> String {
    let mut declaration = digits();
    change(&mut declaration);
    declaration.validate().unwrap_err().to_string()
}

#[test]
fn tensors_and_crops_connect_stages() {
    let wiring = digits().validate().unwrap();
    let [edge] = &wiring.edges[..] else { panic!("{wiring:?}") };
    assert_eq!((edge.from, edge.to, edge.spec.per_row), (0, 1, true));
    assert_eq!((wiring.stages[0].any_rows, wiring.stages[1].any_rows), (false, true));
    assert_eq!((wiring.stages[1].picture, wiring.stages[1].cropped_by), (Some(0), Some(0)));
    assert_eq!(wiring.outputs[1], OutputWiring { stage: 1, output: "label".into() });
    let profile = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
    let pipeline = digits().pipeline(vec![profile; 2]).unwrap();
    assert_eq!((pipeline.edges().len(), pipeline.edges()[0].most), (1, 32));
    assert!(digits().pipeline(vec![]).unwrap_err().to_string().contains("a profile for each of 2 stages"));
}

#[test]
fn a_tensor_alone_is_an_edge_of_one_request_for_one_result() {
    let mut declaration = digits();
    declaration.edges.clear();
    declaration.stages[1] = stage("recognise", &[("x", "found")], &[("label", "label")]);
    declaration.outputs[1].any_rows = false;
    let wiring = declaration.validate().unwrap();
    let source = Source::Stage { stage: 0, output: "count".into() };
    assert_eq!(wiring.stages[1].inputs, [StageInput { input: "x".into(), source }]);
    assert_eq!((wiring.edges[0].spec.gamma, wiring.edges[0].spec.per_row), (1.0, false));
    // What may be lost may be missing.
    declaration.partial = true;
    let words = declaration.validate().unwrap_err().to_string();
    assert!(words.contains("expected -1 as the first of its dims"), "{words}");
}

#[test]
fn what_is_not_connected_or_connected_wrongly_is_refused_in_words() {
    let condition = DeclaredCondition { output: "x".into(), comparison: "=>".into(), threshold: Finite::ONE };
    for (words, message) in [
        ("`picture` twice", refused(|p| p.inputs.push(p.inputs[0].clone()))),
        (
            "`spare`, which no step takes",
            refused(|p| {
                let data = InputData::Tensor { data_type: DataType::Fp32, item_shape: vec![1] };
                p.inputs.push(PipelineInput { name: "spare".into(), data });
            }),
        ),
        (
            "key `input`: expected at most 1 picture (TYPE_STRING), got 2",
            // One for each stage: frontends take one with a request.
            refused(|p| {
                p.inputs.push(PipelineInput { name: "second".into(), data: InputData::Picture });
                p.stages[1].inputs = map(&[("pixels", "second")]);
                p.edges.clear();
            }),
        ),
        (
            "key `step.1.input_map[\"pixels\"]`: expected a tensor that clients send or a step gives: found, label, picture",
            refused(|p| p.stages[1].inputs = map(&[("pixels", "pictures")])),
        ),
        ("`found`, which is given already", refused(|p| p.stages[1].outputs = map(&[("label", "found")]))),
        ("`picture`, which clients send", refused(|p| p.outputs.push(output("picture", false)))),
        ("expected a tensor that a step gives: found, label", refused(|p| p.outputs[0].tensor.name = "nope".into())),
        ("key `edge.0.to`: expected one of the stages detect, recognise", refused(|p| p.edges[0].to = "x".into())),
        ("at most one edge between two stages", refused(|p| p.edges.push(p.edges[0].clone()))),
        (
            "key `edge detect to recognise.most`: expected a whole number from gamma (1) to 1024, got 0",
            refused(|p| p.edges[0].most = Some(0)),
        ),
        (
            "key `edge detect to recognise.where`: expected one of > >=",
            refused(|p| p.edges[0].condition = Some(condition.clone())),
        ),
        ("expected fixed dims", refused(|p| p.outputs[0].any_rows = true)),
        ("expected -1 as the first of its dims", refused(|p| p.outputs[1].any_rows = false)),
        (
            "edges without a cycle",
            refused(|p| {
                let mut back = edge("recognise", "detect");
                back.crop = None;
                p.edges.push(back);
            }),
        ),
        (
            "one stage without an edge into it",
            refused(|p| {
                p.edges.clear();
                p.outputs[1].any_rows = false;
            }),
        ),
        ("`recognise`, of which nothing comes to clients", refused(|p| p.outputs.truncate(1))),
        (
            "two stages that take the same picture",
            refused(|p| {
                let data = InputData::Tensor { data_type: DataType::Fp32, item_shape: vec![4] };
                p.inputs.push(PipelineInput { name: "raw".into(), data });
                p.stages[1].inputs = map(&[("pixels", "raw")]);
            }),
        ),
        ("key `max_batch_size`", refused(|p| p.items_max = 0)),
        ("key `max_batch_size`: expected a number from 1 to 4096, got 4097", refused(|p| p.items_max = 4097)),
        ("expected a number above 0", refused(|p| p.slo_ns = 0)),
        ("a name of 1 to 128 bytes", refused(|p| p.stages[0].model = "m m".into())),
        ("1 to 32 of them, got 0", refused(|p| p.stages.clear())),
    ] {
        assert!(message.contains(words), "`{words}` is not in {message}");
    }
}

#[test]
fn a_stage_asks_all_versions_of_a_model_or_the_one_that_it_names() {
    let asks =
        |model: &str, loaded_as: &str| DeclaredStage { model: model.into(), ..stage("s", &[], &[]) }.asks(loaded_as);
    assert!(asks("m", "m") && asks("m", "m@2") && asks("m@2", "m@2"));
    assert!(!asks("m", "mm") && !asks("m@2", "m@3") && !asks("m@2", "m"));
}
