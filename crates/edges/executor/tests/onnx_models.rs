//! ONNX models: the embedded classifier is right, broken and unsuitable files are refused with the reason.

use symphony_executor::profile::{GpuProfile, MeasureOptions, ProfileFile, measure};
use symphony_executor::{
    BATCH_SIZES_KEY, BatchInputs, LoadError, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, canvas, digits, f16,
    load_runtime,
};
use symphony_testkit::needed;
use symphony_types::{DataType, Signature, TensorSpec};
use symphony_zoo::{Architecture, Mlp, Precision, layer};

fn runtime() -> Option<Runtime> {
    needed("onnxruntime", load_runtime(None))
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

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// The region of a canvas as the classifier takes it.
fn cut_out(canvas: &canvas::Canvas, corners: &[f32]) -> Vec<u8> {
    let [left, top, right, bottom] = [0, 1, 2, 3].map(|side| corners[side] as usize);
    assert_eq!((right - left, bottom - top), (8, 8), "{corners:?}");
    let rows = (top..bottom).flat_map(|row| &canvas.pixels[row * canvas::SIDE + left..row * canvas::SIDE + right]);
    rows.flat_map(|&pixel| (f32::from(pixel) * 16.0 / 255.0).to_le_bytes()).collect()
}

#[test]
fn the_detector_finds_the_held_out_digits_and_the_classifier_reads_them() {
    let Some(runtime) = runtime() else { return };
    let options = OnnxOptions::default();
    let mut detector = OnnxExecutor::from_memory(&runtime, "detect", canvas::DETECTOR, &options).unwrap();
    let mut classifier = OnnxExecutor::from_memory(&runtime, "digits", digits::MODEL, &options).unwrap();
    let shapes: Vec<_> = detector.signature().outputs.iter().map(|output| output.item_shape.clone()).collect();
    assert_eq!(shapes, [vec![16, 4], vec![16]]);

    let (mut found, mut wrong, mut right) = (0, 0, 0);
    for chunk in canvas::canvases(canvas::CANVASES_WHEN_MADE).chunks(8) {
        let (mut input, mut outputs) = (Vec::new(), Vec::new());
        chunk.iter().for_each(|canvas| canvas.append_input(&mut input));
        detector
            .run(&BatchInputs { items: chunk.len() as u32, tensors: &[&input], start: None }, &mut outputs)
            .unwrap();
        let (boxes, scores) = (floats(&outputs[0]), floats(&outputs[1]));
        let (mut cut, mut places) = (Vec::new(), Vec::new());
        for (at, _) in scores.iter().enumerate().filter(|(_, score)| **score > 0.5) {
            let (canvas, place) = (&chunk[at / canvas::PLACES], at % canvas::PLACES);
            let is_there = canvas.digits[place].is_some();
            found += usize::from(is_there);
            wrong += usize::from(!is_there);
            cut.extend(cut_out(canvas, &boxes[4 * at..4 * at + 4]));
            places.push((canvas, place));
        }
        let batch = BatchInputs { items: places.len() as u32, tensors: &[&cut], start: None };
        let mut read = Vec::new();
        classifier.run(&batch, &mut read).unwrap();
        let labels = read[1].as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        right += labels.zip(&places).filter(|(label, (canvas, place))| canvas.shows(*place, *label)).count();
    }
    // Another version of the runtime may round a close call the other way.
    assert!(found.abs_diff(canvas::DIGITS_WHEN_MADE) <= 2 && wrong <= 2, "{found} found, and {wrong} that are none");
    assert!(right.abs_diff(canvas::RIGHT_WHEN_MADE) <= 3, "{right} right");
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

/// An MLP of four numbers to two.
fn small() -> symphony_zoo::OnnxModel {
    Architecture::Mlp(Mlp { width_in: 4, width: 8, hidden: 1, classes: 2 }).build(1).unwrap()
}

/// Items that differ, one after another.
fn items(count: u32) -> Vec<u8> {
    (0..count * 4).flat_map(|element| (element as f32 / 7.0 - 1.0).to_le_bytes()).collect()
}

fn run(executor: &mut OnnxExecutor, count: u32) -> Vec<f32> {
    let (input, mut outputs) = (items(count), Vec::new());
    executor.run(&BatchInputs { items: count, tensors: &[&input], start: None }, &mut outputs).unwrap();
    outputs[0].as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

#[test]
fn a_graph_of_a_fixed_batch_answers_every_batch_up_to_it() {
    let Some(runtime) = runtime() else { return };
    let model = small();
    let load = |bytes: &[u8], batch_max| {
        let options = OnnxOptions { batch_max, ..OnnxOptions::default() };
        OnnxExecutor::from_memory(&runtime, "model", bytes, &options).unwrap()
    };
    // dim_value: 8 as a two-byte varint.
    let fixed = with_batch_dimension(model.bytes(), [0x08, 0x88, 0x00]);
    let (mut free, mut fixed) = (load(model.bytes(), 64), load(&fixed, 64));
    assert_eq!((fixed.batch_max(), fixed.batch_sizes().unwrap().largest()), (8, 8));
    assert!(free.batch_sizes().is_none());
    for count in [3, 1, 8, 2] {
        let (whole, filled) = (run(&mut free, count), run(&mut fixed, count));
        assert_eq!(filled.len(), 2 * count as usize, "the answer is cut");
        assert!(whole.iter().zip(&filled).all(|(a, b)| (a - b).abs() < 1e-5), "{count}: {whole:?} {filled:?}");
    }
    let input = items(9);
    let error = fixed.run(&BatchInputs { items: 9, tensors: &[&input], start: None }, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("at most 8"), "{error}");
}

/// The file with an entry of its own metadata: protobuf takes fields in any order.
fn with_metadata(model: &[u8], key: &str, value: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    // ModelProto.metadata_props is field 14, of StringStringEntryProto { key = 1, value = 2 }.
    [model, &field(14, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())].concat()
}

#[test]
fn a_model_that_declares_batch_sizes_is_filled_up_to_them_and_measured_so() {
    let Some(runtime) = runtime() else { return };
    let model = with_metadata(small().bytes(), BATCH_SIZES_KEY, "2, 8");
    let load = || OnnxExecutor::from_memory(&runtime, "model", &model, &OnnxOptions::default());
    let mut executor = load().unwrap();
    assert_eq!(executor.batch_max(), 8);
    let (one, three) = (run(&mut executor, 1), run(&mut executor, 3));
    assert_eq!((one.len(), three.len()), (2, 6));
    assert!(one.iter().zip(&three).all(|(a, b)| (a - b).abs() < 1e-5), "{one:?} {three:?}");

    let options = MeasureOptions { batch_max: 32, runs_min: 2, runs_max: 2, ..MeasureOptions::default() };
    let measured = measure(load, &options, &mut |_| ()).unwrap();
    assert_eq!(measured.batches.iter().map(|m| m.batch).collect::<Vec<_>>(), [2, 8]);
    let latency = &measured.latency;
    assert_eq!(
        (latency.batch_max(), latency.latency(1), latency.latency(3)),
        (8, latency.latency(2), latency.latency(8))
    );
    assert_eq!(executor.batch_sizes().unwrap().check(latency), Ok(()), "what is measured accounts for it");

    let wrong = with_metadata(small().bytes(), BATCH_SIZES_KEY, "8, 2");
    let error = OnnxExecutor::from_memory(&runtime, "model", &wrong, &OnnxOptions::default()).unwrap_err();
    assert!(error.problem.contains("its metadata `symphony.batch_sizes` is [8, 2]; expected"), "{error}");
}

#[test]
fn numbers_of_half_precision_go_in_and_out() {
    let Some(runtime) = runtime() else { return };
    let load = |model: &[u8]| OnnxExecutor::from_memory(&runtime, "layer", model, &OnnxOptions::default()).unwrap();
    let half = with_metadata(layer(Precision::Half, 1).bytes(), BATCH_SIZES_KEY, "1, 4");
    let (mut half, mut single) = (load(&half), load(layer(Precision::Single, 1).bytes()));
    let types = |specs: &[TensorSpec]| specs.iter().map(|spec| (spec.data_type, spec.item_bytes())).collect::<Vec<_>>();
    assert_eq!(types(&half.signature().inputs), [(DataType::Fp16, 8)]);
    assert_eq!(types(&half.signature().outputs), [(DataType::Fp16, 4)]);
    // Numbers that both know exactly; three items are filled up to four.
    let numbers: Vec<_> = (0..12_u8).map(|number| f32::from(number) / 4.0 - 1.5).collect();
    let run = |executor: &mut OnnxExecutor, input: &[u8]| {
        let mut outputs = Vec::new();
        executor.run(&BatchInputs { items: 3, tensors: &[input], start: None }, &mut outputs).unwrap();
        outputs.remove(0)
    };
    let bytes: Vec<_> = numbers.iter().flat_map(|&number| f16::from_f32(number).to_le_bytes()).collect();
    let halves: Vec<_> = run(&mut half, &bytes).as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect();
    let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let singles: Vec<_> = run(&mut single, &bytes).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    assert_eq!((halves.len(), singles.len()), (6, 6));
    let near = halves.iter().zip(&singles).all(|(a, b)| (a - b).abs() <= 0.01 * b.abs().max(1.0));
    assert!(near && singles.iter().any(|number| number.abs() > 0.1), "{halves:?} {singles:?}");

    let options = MeasureOptions { batch_max: 8, runs_min: 2, runs_max: 2, ..MeasureOptions::default() };
    let model = layer(Precision::Half, 1);
    let measured = measure(|| Ok::<_, LoadError>(load(model.bytes())), &options, &mut |_| ()).unwrap();
    assert_eq!((measured.latency.batch_max(), measured.dependence), (8, None), "rounding is no dependence");
}

#[test]
fn a_signature_may_ask_for_other_shapes_and_fewer_outputs() {
    let Some(runtime) = runtime() else { return };
    let tensor = |name: &str, data_type, item_shape: &[u32]| TensorSpec {
        name: name.into(),
        data_type,
        item_shape: item_shape.to_vec(),
    };
    let load = |inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>| {
        let options = OnnxOptions { signature: Some(Signature { inputs, outputs }), ..OnnxOptions::default() };
        OnnxExecutor::from_memory(&runtime, "digits", digits::MODEL, &options)
    };
    let pixels = tensor("pixels", DataType::Fp32, &[8, 8]);
    let label = tensor("label", DataType::Int64, &[1]);
    let mut executor = load(vec![pixels.clone()], vec![label.clone()]).unwrap();
    let (digit, mut input, mut outputs) = (digits::test_set()[0], Vec::new(), Vec::new());
    digit.append_input(&mut input);
    executor.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut outputs).unwrap();
    assert_eq!(outputs, [i64::from(digit.label).to_le_bytes().to_vec()]);
    let error = load(vec![pixels], vec![tensor("logits", DataType::Fp32, &[10])]).unwrap_err();
    assert_eq!(error.problem, "has no output `logits`, but probabilities, label");
    let error = load(vec![tensor("pixels", DataType::Fp32, &[63])], vec![label]).unwrap_err();
    assert!(error.problem.contains("has input `pixels` as FP32 [64]; asked for was FP32 [63]"), "{error}");
}

#[test]
fn memory_is_measured_when_a_model_is_loaded_and_when_batches_grow() {
    let Some(runtime) = runtime() else { return };
    let shape = Mlp { width_in: 64, width: 2048, hidden: 2, classes: 10 };
    let model = Architecture::Mlp(shape).build(1).unwrap();
    let mut executor = OnnxExecutor::from_memory(&runtime, "mlp", model.bytes(), &OnnxOptions::default()).unwrap();
    let before = executor.memory().unwrap();
    assert!(before.static_bytes >= model.bytes().len() as u64 && before.dynamic_bytes == 0, "{before:?}");
    let (input, mut outputs) = (vec![0_u8; 64 * 4 * 64], Vec::new());
    executor.run(&BatchInputs { items: 64, tensors: &[&input], start: None }, &mut outputs).unwrap();
    let after = executor.memory().unwrap();
    assert_eq!(after.static_bytes, before.static_bytes);
    assert!(after.dynamic_bytes < 1 << 30, "{after:?}");
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
        raised_batches: measured.raised_batches,
    };
    let signature = load().unwrap().signature().clone();
    let file = ProfileFile { model: "mlp".into(), signature, gpus: [("cpu".to_owned(), gpu)].into() };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mlp.toml");
    file.write(&path).unwrap();
    assert_eq!(ProfileFile::read(&path).unwrap(), file);
}
