//! Model configurations: what is honoured, what is refused and in which words, and that no text brings the reader down.

use std::path::Path;

use proptest::prelude::*;
use symphony_repository::{Device, Engine, ModelConfig, VersionPolicy};
use symphony_types::{DataType, Nanos, RequestValue, TensorSpec};

const WHOLE: &str = r#"
# Everything that is read.
name: "digits"
platform: "onnxruntime_onnx"
backend: "onnxruntime"
default_model_filename: "weights.onnx"
max_batch_size: 32
version_policy { specific { versions: [ 1, 3 ] } }
input [ { name: "pixels" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 8, 8 ] reshape { shape: [ 64 ] } } ]
output [
  { name: "probabilities", data_type: TYPE_FP32, dims: [ 10 ] label_filename: "digits.txt" },
  { name: "label", data_type: TYPE_INT64, dims: [ 1 ] reshape { shape: [ ] } }
]
instance_group [ { kind: KIND_CPU count: 2 } ]
model_warmup [
  { name: "digits" batch_size: 8 count: 2
    inputs { key: "pixels" value { data_type: TYPE_FP32 dims: [ 8, 8 ] zero_data: true } } },
  { name: "one" batch_size: 1 inputs: { key: "pixels" value: { data_type: TYPE_FP32 dims: 64 input_data_file: "seven.bin" } } }
]
optimization {
  graph { level: 1 }
  cuda { graphs: true }
  execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } } ] }
  input_pinned_memory { enable: true }
}
model_transaction_policy { decoupled: false }
response_cache { enable: true }
dynamic_batching {
  preferred_batch_size: [ 8, 16 ]
  max_queue_delay_microseconds: 100
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 600000 allow_timeout_override: true }
}
parameters { key: "slo_ms" value { string_value: "500" } }
parameters { key: "profile" value { string_value: "h200.toml" } }
parameters [
  { key: "intra_op_thread_count" value { string_value: "4" } },
  { key: "policy" value { string_value: "auto" } },
  { key: "value" value { string_value: "2.5" } },
  { key: "subcluster" value { string_value: "cpu" } }
]
"#;

/// The smallest configuration.
const LEAST: &str =
    "backend: \"onnxruntime\" max_batch_size: 8 parameters { key: \"slo_ms\" value { string_value: \"50\" } }";

fn parse(text: &str) -> Result<ModelConfig, String> {
    ModelConfig::parse(Path::new("repo/digits/config.pbtxt"), "digits", text).map_err(|error| error.to_string())
}

fn tensor(name: &str, data_type: DataType, item_shape: &[u32]) -> TensorSpec {
    TensorSpec { name: name.into(), data_type, item_shape: item_shape.to_vec() }
}

#[test]
fn everything_that_is_read_is_honoured() {
    let config = parse(WHOLE).unwrap();
    assert_eq!(config.engine, Engine::Onnx { file: "weights.onnx".into() });
    assert_eq!((config.batch_max, config.slo), (32, Nanos::from_millis(500)));
    assert_eq!(config.versions, VersionPolicy::Specific([1, 3].into()));
    assert_eq!(config.device, Device::Cpu);
    let signature = config.signature.unwrap();
    assert_eq!(signature.inputs, [tensor("pixels", DataType::Fp32, &[8, 8])]);
    let outputs = [tensor("probabilities", DataType::Fp32, &[10]), tensor("label", DataType::Int64, &[1])];
    assert_eq!(signature.outputs, outputs);
    assert_eq!((config.profile.as_str(), config.policy.to_string().as_str()), ("h200.toml", "auto"));
    assert_eq!((config.value, config.subcluster.as_str()), (RequestValue::from_number(2.5).unwrap(), "cpu"));
    let about: Vec<_> = config.notes.iter().map(|note| note.split(' ').next().unwrap()).collect();
    let dynamic = ["dynamic_batching.preferred_batch_size", "dynamic_batching.max_queue_delay_microseconds"];
    assert_eq!(
        about,
        [
            "model_warmup",
            "input.format",
            "optimization",
            "response_cache",
            "parameters[\"intra_op_thread_count\"]",
            "instance_group.count",
            dynamic[0],
            dynamic[1]
        ],
        "what makes no difference is said"
    );
    assert_eq!(config.label_files, [("probabilities".to_owned(), "digits.txt".to_owned())].into());
}

#[test]
fn the_sample_repository_can_be_read() {
    let config = parse(include_str!("../../../../deploy/models/repository/digits/config.pbtxt")).unwrap();
    assert_eq!((config.batch_max, config.versions), (32, VersionPolicy::Latest(2)));
    let signature = config.signature.unwrap();
    assert_eq!(signature.inputs, [tensor("pixels", DataType::Fp32, &[64])]);
    assert_eq!(signature.outputs[1], tensor("label", DataType::Int64, &[]));
    assert_eq!(config.transforms.as_deref(), Some("transforms.toml"));
    let config = include_str!("../../../../deploy/models/repository/detect/config.pbtxt");
    let signature = ModelConfig::parse(Path::new("config.pbtxt"), "detect", config).unwrap().signature.unwrap();
    assert_eq!(signature.outputs[0], tensor("boxes", DataType::Fp32, &[16, 4]));
}

#[test]
fn what_is_not_said_has_tritons_defaults() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.engine, Engine::Onnx { file: "model.onnx".into() });
    assert_eq!(config.versions, VersionPolicy::Latest(1));
    assert_eq!((config.signature, config.device), (None, Device::Any));
    let defaults = (config.profile.as_str(), config.policy.to_string(), config.notes.len());
    assert_eq!(defaults, ("profile.toml", "auto".into(), 0));
    let with = |more: &str| parse(&format!("{LEAST} {more}")).unwrap();
    assert_eq!(with("version_policy { latest { num_versions: 3 } }").versions, VersionPolicy::Latest(3));
    assert_eq!(with("version_policy: { all: {} }").versions, VersionPolicy::All);
    assert_eq!(with("instance_group { kind: KIND_GPU }").device, Device::Gpu);
    let emulated = parse(&LEAST.replace("onnxruntime", "emulated")).unwrap();
    assert_eq!(emulated.engine, Engine::Emulated);
}

#[test]
fn what_cannot_be_served_is_refused_by_file_field_and_expectation() {
    let tensor = |rest: &str| format!("input {{ name: \"x\" {rest} }} output {{ name: \"y\" data_type: TYPE_FP32 }}");
    for (more, words) in [
        ("name: \"other\"".to_owned(), "field `name`: is `other`; expected `digits`"),
        ("platform: \"tensorrt_plan\"".into(), "is platform `tensorrt_plan` and backend `onnxruntime`"),
        ("default_model_filename: \"../x.onnx\"".into(), "`../x.onnx`; expected the name of a file"),
        ("parameters { key: \"slo\" value { string_value: \"1\" } }".into(), "parameters[\"slo\"]`: is not known"),
        ("parameters { key: \"slo_ms\" value { string_value: \"1\" } }".into(), "is given twice"),
        ("parameters { key: \"policy\" value { string_value: \"magic\" } }".into(), "is `magic`: expected one of"),
        ("parameters { key: \"policy\" value { } }".into(), "is empty; expected value { string_value"),
        ("parameters { key: \"value\" value { string_value: \"0\" } }".into(), "is 0; expected a number from 0.001"),
        (
            "parameters [ { key: \"value\" value { string_value: \"2\" } }, { key: \"policy\" value { string_value: \"symphony\" } } ]".into(),
            "is 2; expected policy `auto` or one with shed",
        ),
        ("parameters { key: \"own_trunk\" value { string_value: \"no\" } }".into(), "is `no`; expected true or false"),
        ("parameters { key: \"value\" value { string_value: \"NaN\" } }".into(), "is NaN; expected a number"),
        ("parameters { key: \"profile\" value { string_value: \"/etc/x\" } }".into(), "`/etc/x`; expected the name"),
        (
            "parameters { key: \"transforms\" value { string_value: \"../t.toml\" } }".into(),
            "parameters[\"transforms\"]`: is `../t.toml`; expected the name of a file",
        ),
        (tensor("data_type: TYPE_STRING"), "of `x` is TYPE_STRING; expected"),
        (tensor("data_type: TYPE_BF16"), "of `x` is TYPE_BF16; expected"),
        (tensor("data_type: TYPE_FP32 dims: [ 3, -1 ]"), "field `input.dims`: of `x` has -1; expected fixed sizes"),
        (tensor("data_type: TYPE_FP32 dims: [ 0 ]"), "has 0; expected fixed sizes from 1"),
        (tensor("data_type: TYPE_FP32 dims: [ 65536, 65536 ]"), "items of more than"),
        (tensor("data_type: TYPE_FP32 dims: [ 4, 4 ] reshape { shape: [ 8 ] }"), "has 8 elements; expected as many"),
        ("input { name: \"x\" data_type: TYPE_FP32 }".into(), "field `output`: is missing"),
        ("version_policy { specific { versions: 0 } }".into(), "has 0; expected versions from 1"),
        ("version_policy { specific { } }".into(), "names no version"),
        ("instance_group { kind: KIND_MODEL }".into(), "is KIND_MODEL; expected KIND_AUTO"),
        ("instance_group { gpus: [ 0 ] }".into(), "field `instance_group.gpus`"),
        ("instance_group [ { }, { } ]".into(), "is given more than once"),
        ("dynamic_batching { preferred_batch_size: 9 }".into(), "has 9; expected 1 to max_batch_size, 8"),
        ("dynamic_batching { priority_levels: 2 }".into(), "priority_levels`: is set"),
        ("dynamic_batching { preserve_ordering: true }".into(), "preserve_ordering`: is true"),
        ("dynamic_batching { default_queue_policy { timeout_action: DELAY } }".into(), "is DELAY; expected REJECT"),
        ("dynamic_batching { default_queue_policy { max_queue_size: 5 } }".into(), "is 5; expected 0"),
        (
            "dynamic_batching { default_queue_policy { default_timeout_microseconds: 20000 } }".into(),
            "is 20 ms, less than slo_ms = 50",
        ),
        ("batch_input { }".into(), "line 1: field 'batch_input' not found"),
        ("model_transaction_policy { decoupled: true }".into(), "is true; expected false: a request has one answer"),
        (
            "ensemble_scheduling { }".into(),
            "field `ensemble_scheduling`: is set; expected platform \"ensemble\" beside it",
        ),
        ("model_warmup { inputs { key: \"x\" value { dims: \"4\" } } }".into(), "config.pbtxt, line 1: "),
        (
            "output { name: \"y\" data_type: TYPE_FP32 label_filename: \"../../secret\" }".into(),
            "field `output.label_filename`: is `../../secret`; expected the name of a file",
        ),
    ] {
        let error = parse(&format!("{LEAST} {more}")).unwrap_err();
        assert!(error.starts_with("repo/digits/config.pbtxt, ") && error.contains(words), "{more}: {error}");
    }
    for (text, words) in [
        (LEAST.replace("8 ", "0 "), "field `max_batch_size`: is 0; expected 1 to 4096"),
        (LEAST.replace("8 ", "-1 "), "is -1; expected"),
        (LEAST.replace("backend: \"onnxruntime\"", ""), "field `backend`: is missing"),
        (LEAST.replace("\"50\"", "\"fast\""), "is `fast`; expected a positive number of milliseconds"),
        (LEAST.replace("\"50\"", "\"-3\""), "is -3; expected a positive number"),
        (LEAST.replace("\"50\"", "\"1e300\""), "3600000 at most"),
        (LEAST.replace("\"50\"", "\"nan\""), "is NaN; expected a positive number"),
        (
            LEAST.replace("\"50\"", "\"3600000.1\""),
            "is 3600000.1; expected a positive number of milliseconds, 3600000 at most",
        ),
        ("backend: \"onnxruntime\" max_batch_size: 8".into(), "parameters[\"slo_ms\"]`: is missing"),
        (String::new(), "field `max_batch_size`: is 0"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Whatever is accepted can be served: the promise that everything behind the reader relies on.
fn judge(text: &str) {
    let Ok(config) = parse(text) else { return };
    assert!((1..=4096).contains(&config.batch_max) && config.slo > Nanos::ZERO);
    for name in [&config.profile].into_iter().chain(match &config.engine {
        Engine::Onnx { file } => Some(file),
        Engine::Emulated => None,
    }) {
        assert!(!name.is_empty() && !name.contains('/') && name != "..", "{name:?} leaves its folder");
    }
    for spec in config.signature.iter().flat_map(|s| s.inputs.iter().chain(&s.outputs)) {
        assert!(spec.item_bytes() > 0 && spec.item_bytes() <= 1 << 30, "{spec:?}");
    }
}

proptest! {
    #[test]
    fn no_text_brings_the_reader_down(text in "\\PC{0,200}") {
        judge(&text);
    }

    #[test]
    fn pieces_of_configurations_in_any_order_do_not_either(
        pieces in prop::collection::vec(0_usize..1000, 0..80),
    ) {
        let words: Vec<_> = WHOLE.split_whitespace().chain(["-", "1e999", "0x", "'", "\"\\", "<", "[a.b/c]", ";"]).collect();
        let text: Vec<_> = pieces.iter().map(|&piece| words[piece % words.len()]).collect();
        judge(&text.join(" "));
    }

    #[test]
    fn a_configuration_with_a_few_characters_changed_does_not_either(
        changes in prop::collection::vec((0_usize..WHOLE.len(), any::<u8>(), 0_u8..3), 1..6),
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for (at, byte, what) in changes {
            let at = at.min(bytes.len() - 1);
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        judge(&String::from_utf8_lossy(&bytes));
    }
}
