//! ONNX models: the embedded classifier is right, broken and unsuitable files are refused with the reason.

use symphony_executor::profile::{GpuProfile, MeasureOptions, ProfileFile, measure};
use symphony_executor::{
    BatchInputs, LoadError, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, RuntimeError, digits, load_runtime,
};
use symphony_types::DataType;
use symphony_zoo::{Architecture, Mlp};

/// `None` without ONNX Runtime, unless `SYMPHONY_TEST_REQUIRE=onnxruntime` demands it.
fn runtime() -> Option<Runtime> {
    match load_runtime(None) {
        Ok(runtime) => Some(runtime),
        Err(error @ RuntimeError::NotFound { .. }) => {
            let required = std::env::var("SYMPHONY_TEST_REQUIRE").unwrap_or_default();
            assert!(!required.contains("onnxruntime"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_classifier_reads_the_held_out_digits() {
    let Some(runtime) = runtime() else { return };
    let mut executor = OnnxExecutor::from_memory(&runtime, "digits", digits::MODEL, &OnnxOptions::default()).unwrap();
    let shapes: Vec<_> = executor.signature().outputs.iter().map(|o| (o.data_type, o.item_shape.clone())).collect();
    assert_eq!(shapes, [(DataType::Fp32, vec![10]), (DataType::Int64, vec![])]);

    let (mut right, mut outputs) = (0, Vec::new());
    for chunk in digits::test_set().chunks(32) {
        let mut pixels = Vec::new();
        chunk.iter().for_each(|digit| digit.append_input(&mut pixels));
        let batch = BatchInputs { items: chunk.len() as u32, tensors: &[&pixels], start: None };
        executor.run(&batch, &mut outputs).unwrap();
        let labels = outputs[1].as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        right += labels.zip(chunk).filter(|(label, digit)| *label == i64::from(digit.label)).count();
    }
    // Another version of the runtime may round a close call the other way.
    assert!(right.abs_diff(digits::RIGHT_WHEN_MADE) <= 2, "{right} right");
}

#[test]
fn files_that_are_no_models_are_refused_with_their_name() {
    let Some(runtime) = runtime() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.onnx");
    let load = || OnnxExecutor::from_file(&runtime, &path, &OnnxOptions::default()).unwrap_err();

    let missing = load();
    assert!(missing.problem.contains("cannot be read"), "{missing}");
    for content in [&b""[..], b"no model", &digits::MODEL[..digits::MODEL.len() / 2]] {
        std::fs::write(&path, content).unwrap();
        let LoadError { model, problem } = load();
        assert_eq!(model, path.display().to_string());
        assert!(!problem.is_empty());
    }
    std::fs::write(&path, digits::MODEL).unwrap();
    let executor = OnnxExecutor::from_file(&runtime, &path, &OnnxOptions::default()).unwrap();
    assert_eq!(executor.signature().inputs[0].name, "pixels");

    let options = OnnxOptions { batch_max: 0, ..OnnxOptions::default() };
    let error = OnnxExecutor::from_file(&runtime, &path, &options).unwrap_err();
    assert!(error.problem.contains("batch_max is 0; expected 1 to 4096"), "{error}");
}

/// Names the batch dimension of an ONNX file otherwise: same length, so nothing else moves.
fn with_batch_dimension(model: &[u8], dimension: [u8; 3]) -> Vec<u8> {
    // TensorShapeProto.Dimension { dim_param: "N" }: field 2, length 1.
    const NAMED: [u8; 3] = [0x12, 1, b'N'];
    let mut bytes = model.to_vec();
    let mut at = 0;
    while let Some(offset) = bytes[at..].windows(3).position(|window| window == NAMED) {
        at += offset;
        bytes[at..at + 3].copy_from_slice(&dimension);
    }
    assert!(at > 0, "the model has no dimension N");
    bytes
}

#[test]
fn a_model_with_a_fixed_batch_is_refused_with_what_to_do() {
    let Some(runtime) = runtime() else { return };
    let model = Architecture::Mlp(Mlp { width_in: 4, width: 8, hidden: 1, classes: 2 }).build(1).unwrap();
    // dim_value: 1 as a two-byte varint.
    let fixed = with_batch_dimension(model.bytes(), [0x08, 0x81, 0x00]);
    let error = OnnxExecutor::from_memory(&runtime, "fixed", &fixed, &OnnxOptions::default()).unwrap_err();
    let words = "input `input` has a first dimension of 1; expected a dynamic one";
    assert!(error.problem.contains(words) && error.model == "fixed", "{error}");
}

#[test]
fn a_measured_model_makes_a_profile_file() {
    let Some(runtime) = runtime() else { return };
    let shape = Mlp { width_in: 256, width: 1024, hidden: 2, classes: 10 };
    let model = Architecture::Mlp(shape).build(1).unwrap();
    let options = MeasureOptions { batch_max: 8, runs_min: 3, runs_max: 3, ..MeasureOptions::default() };
    let load = || OnnxExecutor::from_memory(&runtime, "mlp", model.bytes(), &OnnxOptions::default());
    let mut reports = 0;
    let measured = measure(load, &options, &mut |_| reports += 1).unwrap();
    assert_eq!(reports, 3 * 6);
    assert_eq!(measured.latency.batch_max(), 8);
    assert!(measured.batches.iter().all(|m| m.wall_min <= m.wall_high));
    // 5.3 MB of weights; pages of the binary and the heap blur it a little.
    assert!((4_000_000..100_000_000).contains(&measured.static_memory_bytes), "{}", measured.static_memory_bytes);

    let gpu = GpuProfile {
        latency: measured.latency,
        static_memory_bytes: measured.static_memory_bytes,
        dynamic_memory_bytes: measured.dynamic_memory_bytes,
        machine: "a test".into(),
    };
    let signature = load().unwrap().signature().clone();
    let file = ProfileFile { model: "mlp".into(), signature, gpus: [("cpu".to_owned(), gpu)].into() };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mlp.toml");
    file.write(&path).unwrap();
    assert_eq!(ProfileFile::read(&path).unwrap(), file);
}
