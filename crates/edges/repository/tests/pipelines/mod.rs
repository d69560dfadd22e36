//! Pipelines in folders: what is read, what is reported to make no difference, and what is refused in which words.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use symphony_pipeline::{BoxUnit, InputData, PipelineDeclaration};
use symphony_repository::{Repository, RepositoryEntry, RepositoryPipeline, parse_pipeline};
use symphony_types::{DataType, Nanos, RequestValue};

const CONFIG: &str = r#"
name: "canvas"
platform: "ensemble"
max_batch_size: 4
input [ { name: "PICTURE" data_type: TYPE_STRING dims: [ 1 ] }, { name: "BIAS" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [
  { name: "BOXES" data_type: TYPE_FP32 dims: [ 16, 4 ] },
  { name: "LABEL" data_type: TYPE_INT64 dims: [ -1 ] }
]
instance_group [ { kind: KIND_CPU } ]
ensemble_scheduling {
  step [
    {
      model_name: "detect"
      model_version: -1
      input_map { key: "canvas" value: "PICTURE" }
      output_map { key: "boxes" value: "BOXES" }
    },
    {
      model_name: "digits"
      model_version: 3
      input_map { key: "pixels" value: "PICTURE" }
      input_map { key: "bias" value: "BIAS" }
      output_map { key: "label" value: "LABEL" }
    }
  ]
}
"#;

const EXTRAS: &str = r#"
slo_ms = 200.0
value = 2.0
[[edge]]
from = "detect"
to = "digits"
for_each = "row"
where = "scores > 0.5"
crop = "boxes"
crop_unit = "pixel"
most = 8
gamma = 3.0
"#;

fn parse(config: &str, extras: &str) -> Result<RepositoryPipeline, String> {
    let (config_path, extras_path) = (Path::new("repo/canvas/config.pbtxt"), Path::new("repo/canvas/pipeline.toml"));
    let parsed = parse_pipeline("canvas", (config_path, config), (extras_path, extras), &BTreeSet::from([1, 2]));
    parsed.map_err(|error| error.to_string())
}

fn declared(config: &str, extras: &str) -> PipelineDeclaration {
    parse(config, extras).unwrap().declaration
}

#[test]
fn the_sample_pipeline_can_be_read() {
    let declaration = declared(
        include_str!("../../../../../deploy/models/repository/canvas/config.pbtxt"),
        include_str!("../../../../../deploy/models/repository/canvas/pipeline.toml"),
    );
    assert_eq!((declaration.slo(), declaration.items_max), (Nanos::from_millis(500), 4));
    let outputs: Vec<_> = declaration.outputs.iter().map(|output| (&*output.tensor.name, output.any_rows)).collect();
    assert_eq!(outputs, [("BOXES", false), ("SCORES", false), ("LABEL", true)]);
    let crop = declaration.edges[0].crop.as_ref();
    assert_eq!(crop.map(|crop| (crop.boxes.as_str(), crop.unit)), Some(("boxes", BoxUnit::Pixel)));
}

#[test]
fn an_ensemble_is_read_as_tritons_users_write_it() {
    let RepositoryPipeline { declaration, notes } = parse(CONFIG, EXTRAS).unwrap();
    assert_eq!((declaration.name.as_str(), declaration.version, declaration.items_max), ("canvas", 2, 4));
    assert_eq!((declaration.slo(), declaration.partial), (Nanos::from_millis(200), false));
    assert_eq!(Some(declaration.value), RequestValue::from_number(2.0));
    assert_eq!(declaration.inputs[0].data, InputData::Picture);
    let bias = InputData::Tensor { data_type: DataType::Fp32, item_shape: vec![8] };
    assert_eq!(declaration.inputs[1].data, bias);
    let outputs: Vec<_> = declaration.outputs.iter().map(|out| (out.tensor.item_shape.clone(), out.any_rows)).collect();
    assert_eq!(outputs, [(vec![16, 4], false), (vec![], true)]);
    let models: Vec<_> = declaration.stages.iter().map(|stage| stage.model.as_str()).collect();
    assert_eq!(models, ["detect", "digits@3"]);
    let edge = &declaration.edges[0];
    assert_eq!((edge.gamma.get(), edge.most, edge.for_each), (3.0, Some(8), true));
    assert_eq!(edge.crop.as_ref().map(|crop| (crop.boxes.as_str(), crop.unit)), Some(("boxes", BoxUnit::Pixel)));
    assert_eq!(notes, ["instance_group makes no difference: the models of its steps have their own"]);
}

#[test]
fn without_a_file_beside_it_parameters_say_the_objective_and_steps_are_told_apart() {
    let chain = r#"
platform: "ensemble" max_batch_size: 1
input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "Z" data_type: TYPE_FP32 dims: [ 4 ] }
ensemble_scheduling { step [
  { model_name: "m" input_map { key: "x" value: "X" } output_map { key: "y" value: "Y" } },
  { model_name: "m" model_version: -1 input_map { key: "x" value: "Y" } output_map { key: "y" value: "Z" } }
] }
parameters { key: "slo_ms" value { string_value: "50" } }
"#;
    let read = declared(chain, "");
    let names: Vec<_> = read.stages.iter().map(|stage| (stage.name.as_str(), stage.model.as_str())).collect();
    assert_eq!((names, read.slo()), (vec![("m", "m"), ("m.2", "m")], Nanos::from_millis(50)));
    assert_eq!(declared(chain, "partial = false\nvalue = 3.0").value, RequestValue::from_number(3.0).unwrap());
    let both = parse(chain, "slo_ms = 10.0").unwrap_err();
    assert!(both.contains("parameters[\"slo_ms\"]`: is given in pipeline.toml, too"), "{both}");
}

#[test]
fn what_cannot_be_run_is_refused_by_file_field_and_expectation() {
    for (from, to, words) in [
        (
            "\"ensemble\"",
            "\"onnxruntime_onnx\"",
            "config.pbtxt, field `platform`: is `onnxruntime_onnx`; expected \"ensemble\"",
        ),
        ("max_batch_size: 4", "", "field `max_batch_size`: is 0; expected 1 to 4096"),
        ("max_batch_size: 4", "max_batch_size: 4097", "field `max_batch_size`: is 4097; expected 1 to 4096"),
        ("name: \"canvas\"", "name: \"other\"", "field `name`: is `other`; expected `canvas`"),
        ("dims: [ 1 ]", "dims: [ 2 ]", "field `input.dims`: of `PICTURE` are of several; expected [ 1 ]"),
        ("dims: [ 8 ]", "dims: [ -1 ]", "field `input.dims`: of `BIAS` has -1; expected fixed sizes"),
        ("dims: [ -1 ]", "dims: [ 1 ]", "field `output.dims`: is another for `LABEL` of `digits`; expected -1"),
        ("dims: [ 16, 4 ]", "dims: [ -1, 4 ]", "field `output.dims`: is -1 for `BOXES` of `detect`; expected fixed"),
        ("TYPE_INT64", "TYPE_STRING", "field `output.data_type`: of `LABEL` is TYPE_STRING; expected TYPE_BOOL"),
        ("model_version: 3", "model_version: -2", "field `step.1.model_version`: is -2; expected a version from 1"),
        ("\"detect\"", "\"a/b\"", "field `step.0.model_name`: is `a/b`; expected a model's name"),
        (
            "value: \"BIAS\"",
            "value: \"BIASES\"",
            "step.1.input_map[\"bias\"]`: is `BIASES`; expected a tensor that clients",
        ),
        ("key: \"bias\"", "key: \"pixels\"", "field `step.1.input_map`: has `pixels` twice"),
        ("model_version: -1", "model_warmup { }", "line 15: field 'model_warmup' not found"),
        ("instance_group", "sequence_batching { } instance_group", "cannot be served: every request stands by itself"),
        (
            "instance_group",
            "parameters { key: \"policy\" value { string_value: \"auto\" } } instance_group",
            "parameters[\"policy\"]`: is a model's",
        ),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let error = parse(&CONFIG.replacen(from, to, 1), EXTRAS).unwrap_err();
        assert!(error.starts_with("repo/canvas/config.pbtxt") && error.contains(words), "{words}: {error}");
    }
    for (from, to, words) in [
        ("slo_ms = 200.0", "slo = 200", "unknown field `slo`"),
        ("to = \"digits\"", "to = \"digit\"", "edge.0.to`: is `digit`; expected one of the stages detect, digits"),
        ("most = 8", "most = 2", "edge detect to digits.most`: is 2; expected a whole number from gamma (3)"),
    ] {
        let error = parse(CONFIG, &EXTRAS.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with("repo/canvas/pipeline.toml") && error.contains(words), "{words}: {error}");
    }
    let error = parse(CONFIG, "").unwrap_err();
    assert!(error.contains("parameters[\"slo_ms\"]`: is missing"), "{error}");
}

#[test]
fn a_folder_is_a_pipeline_by_its_platform_and_needs_no_folder_of_a_version() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("canvas")).unwrap();
    fs::write(dir.path().join("canvas/config.pbtxt"), CONFIG).unwrap();
    fs::write(dir.path().join("canvas/pipeline.toml"), EXTRAS).unwrap();
    super::write_model(dir.path(), "m", super::CONFIG, &["1"]);
    let repository = Repository::open(dir.path()).unwrap();
    let is_pipeline = |name: &str| matches!(repository.entry(name).unwrap(), RepositoryEntry::Pipeline(_));
    assert_eq!((is_pipeline("canvas"), is_pipeline("m")), (true, false));
    assert!(repository.entry("nope").unwrap_err().to_string().contains("has no model `nope`"));
    assert_eq!(repository.pipeline("canvas").unwrap().declaration.version, 1);
    fs::create_dir(dir.path().join("canvas/7")).unwrap();
    assert_eq!(repository.pipeline("canvas").unwrap().declaration.version, 7);
    let message = repository.model("canvas").unwrap_err().to_string();
    assert!(message.contains("field `platform`: is `ensemble`, which is a pipeline"), "{message}");
    let message = repository.pipeline("m").unwrap_err().to_string();
    assert!(message.contains("expected \"ensemble\": everything else is a model"), "{message}");
    assert!(repository.pipeline("nope").unwrap_err().to_string().contains("has no model `nope`"));
}

proptest! {
    #[test]
    fn a_pipeline_with_a_few_characters_changed_does_not_bring_the_reader_down(
        changes in prop::collection::vec((0_usize..CONFIG.len(), any::<u8>(), 0_u8..3), 1..6),
        extras in prop::collection::vec((0_usize..EXTRAS.len(), any::<u8>()), 0..4),
    ) {
        let (mut bytes, mut beside) = (CONFIG.as_bytes().to_vec(), EXTRAS.as_bytes().to_vec());
        for (at, byte, what) in changes {
            let at = at.min(bytes.len() - 1);
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        extras.into_iter().for_each(|(at, byte)| beside[at] = byte);
        // Whatever is accepted is connected.
        if let Ok(read) = parse(&String::from_utf8_lossy(&bytes), &String::from_utf8_lossy(&beside)) {
            prop_assert!(read.declaration.validate().is_ok());
        }
    }
}
