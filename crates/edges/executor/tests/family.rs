//! Twenty heads on one trunk: they answer as the whole models do, come and go by themselves, and take the memory of one
//! trunk.

use std::time::Duration;

use bytes::Bytes;
use symphony_executor::{
    BatchInputs, CpuLoader, ExecuteError, FamilyError, FamilyExecutor, FamilyFile, FamilyMember, MemberOptions,
    ModelExecutor, OnnxExecutor, OnnxOptions, PartShares, Runtime, SharingExecutor as _, Stop, digits, load_runtime,
};
use symphony_onnx_graph::onnx::TypeProto;
use symphony_onnx_graph::onnx::type_proto::{Tensor, Value};
use symphony_onnx_graph::{Model, common_cut};
use symphony_testkit::needed;
use symphony_types::Signature;
use symphony_zoo::{Architecture, Mlp, OnnxModel};

use crate::contract::family_promises::{self, Heads, segment};

const HEADS: u32 = 20;
const WIDTH_IN: u32 = 12;
/// As in the comparison when the family forms.
const TOLERANCE: f32 = 1e-3;

/// By the next function.
const CLASSES_OF_FOUR: usize = 6;

/// Head `number` has 2 to 6 classes.
fn head(number: u32, trunk: u64) -> OnnxModel {
    let shape = Mlp { width_in: WIDTH_IN, width: 256, hidden: 3, classes: 2 + number % 5 };
    Architecture::mlp_head(shape, trunk, 100 + u64::from(number)).unwrap()
}

fn bytes(number: u32, trunk: u64) -> Bytes {
    head(number, trunk).bytes().to_vec().into()
}

fn bytes_of(number: u32) -> Vec<u8> {
    head(number, 1).bytes().to_vec()
}

/// The heads, beside a model with another trunk, for the promises that all families keep.
fn with_heads(runtime: &Runtime, keep: impl FnOnce(FamilyExecutor, &Heads<'_>)) {
    let whole = |number| -> Box<dyn ModelExecutor> {
        let model = bytes_of(number);
        Box::new(OnnxExecutor::from_memory(runtime, "whole", &model, &OnnxOptions::default()).unwrap())
    };
    let stranger = head(0, 2).bytes().to_vec();
    let heads = Heads { file: &bytes_of, whole: &whole, stranger, tolerance: TOLERANCE };
    keep(heads.family(CpuLoader::new(runtime, &OnnxOptions::default()), HEADS), &heads);
}

/// Rows that differ.
fn rows(count: u32) -> Vec<u8> {
    (0..count * WIDTH_IN).flat_map(|element| ((element * 7 % 23) as f32 / 11.0 - 1.0).to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

#[test]
fn a_batch_of_many_variants_answers_as_the_whole_models_do() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    with_heads(&runtime, |mut family, heads| {
        family_promises::mixed_batches_answer_as_the_whole_models_do(&mut family, heads);
    });
}

#[test]
fn a_variant_comes_and_goes_and_the_others_stay() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    with_heads(&runtime, |mut family, heads| {
        family_promises::a_variant_comes_and_goes_and_the_others_stay(&mut family, heads);
    });
}

#[test]
fn models_without_a_common_trunk_are_no_family() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let formed = FamilyExecutor::form(&runtime, &[("a", bytes(0, 1)), ("b", bytes(0, 2))], &OnnxOptions::default());
    assert_eq!(formed.unwrap_err(), FamilyError::NoTrunk { first: "a".to_owned(), models: 2 });
    let empty = FamilyExecutor::form(&runtime, &[], &OnnxOptions::default());
    assert_eq!(empty.unwrap_err(), FamilyError::Empty);
}

#[test]
fn what_is_no_batch_of_the_family_is_refused_and_the_next_one_runs() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    with_heads(&runtime, |mut family, _| {
        family_promises::what_is_no_batch_of_the_family_is_refused_and_the_next_one_runs(&mut family);
    });
}

#[test]
fn the_trunk_is_in_memory_once() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    with_heads(&runtime, |family, _| counts_the_trunk_once(family));
}

fn counts_the_trunk_once(mut family: FamilyExecutor) {
    // No session counts as less than its file, and growth of the process depends on what was free before: so by files.
    let one = bytes(0, 1).len() as u64;
    let parts = bytes_of_parts();
    assert!(family.memory().static_bytes >= parts, "{:?}, files of {parts} bytes", family.memory());
    let weights_of_heads: u64 = (0..HEADS).map(|number| u64::from(257 * (2 + number % 5) * 4)).sum();
    assert!(parts < one + 2 * weights_of_heads, "trunk and suffixes are {parts} bytes, one model {one}");
    let before = family.memory().static_bytes;
    assert!(family.unload(7));
    let freed = before - family.memory().static_bytes;
    assert!(freed > 0 && freed < before, "{freed} of {before}: a variant is its suffix");
}

/// Bytes of the files of the trunk and of all suffixes.
fn bytes_of_parts() -> u64 {
    let models: Vec<_> = (0..HEADS).map(|number| Model::read(bytes(number, 1)).unwrap()).collect();
    let cuts = common_cut(&models.iter().collect::<Vec<_>>()).unwrap();
    let tensor = TypeProto { value: Some(Value::TensorType(Tensor::default())), ..TypeProto::default() };
    let split = models.iter().zip(cuts).map(|(model, cut)| model.split(&cut.value, Some(tensor.clone())).unwrap());
    let sizes: Vec<_> = split.map(|(trunk, suffix)| (trunk.len() as u64, suffix.len() as u64)).collect();
    sizes[0].0 + sizes.iter().map(|size| size.1).sum::<u64>()
}

#[test]
fn the_file_of_a_head_tells_where_it_can_be_cut_and_is_checked_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = |number: u32, trunk: u64| {
        let path = dir.path().join(format!("{number}-{trunk}.onnx"));
        std::fs::write(&path, bytes(number, trunk)).unwrap();
        FamilyFile::read(&path).unwrap()
    };
    let (one, two, stranger) = (file(1, 1), file(2, 1), file(1, 7));
    let (cuts, others) = (one.cuts().unwrap(), two.cuts().unwrap());
    let shared = *cuts.iter().rev().find(|cut| others.contains(cut)).unwrap();
    assert!(!stranger.cuts().unwrap().contains(&shared));
    let cannot = FamilyFile::read(dir.path()).unwrap_err().to_string();
    assert!(cannot.contains("cannot be taken apart") && cannot.contains("expected a regular file"), "{cannot}");
    std::fs::write(dir.path().join("none.onnx"), "no model").unwrap();
    let none = FamilyFile::read(&dir.path().join("none.onnx")).unwrap();
    assert!(matches!(none.cuts(), Err(FamilyError::Graph { .. })));

    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
    let (stop, within) = (Stop::default(), Duration::from_secs(60));
    assert_eq!(one.check(&runtime, shared, &options, (&stop, within)), Ok(()));
    assert_eq!(two.check(&runtime, shared, &options, (&stop, within)), Ok(()));
    let other = stranger.check(&runtime, shared, &options, (&stop, within)).unwrap_err();
    assert!(matches!(other, FamilyError::OtherTrunk { .. }), "{other}");
    stop.give_up();
    let given_up = one.check(&runtime, shared, &options, (&stop, within)).unwrap_err();
    let is_ended = matches!(given_up, FamilyError::Incomparable { problem: ExecuteError::Ended { .. }, .. });
    assert!(is_ended, "no batch goes on: {given_up}");
}

#[test]
fn models_whose_rows_depend_on_each_other_share_no_trunk() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |head: u64| {
        let path = dir.path().join(format!("{head}.onnx"));
        symphony_zoo::mingled_head(1, head).write(&path).unwrap();
        FamilyFile::read(&path).unwrap()
    };
    let (one, two) = (file(1), file(2));
    let (cuts, others) = (one.cuts().unwrap(), two.cuts().unwrap());
    let shared = *cuts.iter().rev().find(|cut| others.contains(cut)).unwrap();
    let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
    let checked = one.check(&runtime, shared, &options, (&Stop::default(), Duration::from_secs(60))).unwrap_err();
    assert!(
        matches!(checked, FamilyError::Dependent { .. }) && checked.to_string().contains("mixes the rows"),
        "{checked}"
    );
}

#[test]
fn models_join_one_trunk_are_run_together_and_leave_one_by_one() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |number: u32, trunk: u64| {
        let path = dir.path().join(format!("{number}-{trunk}.onnx"));
        std::fs::write(&path, bytes(number, trunk)).unwrap();
        FamilyFile::read(&path).unwrap()
    };
    let (cuts, others) = (file(1, 1).cuts().unwrap(), file(2, 1).cuts().unwrap());
    let trunk = *cuts.iter().rev().find(|cut| others.contains(cut)).unwrap();
    let options = |batch_max, signature| MemberOptions {
        onnx: OnnxOptions { batch_max, signature, ..OnnxOptions::default() },
        stop: Stop::default(),
        run_within: Duration::from_secs(60),
    };
    let load = |number: u32, batch_max| {
        file(number, 1).member(&runtime, (number, trunk), &options(batch_max, None), &|_| ()).unwrap()
    };
    let mut host = load(1, 8);
    let shared = host.shared_trunk();
    let mut guest = load(2, 8).join(&shared).unwrap();
    assert!(host.trunk_place() == guest.trunk_place() && host.trunk_place() != load(3, 8).trunk_place());
    let shares = guest.shares();
    assert!(shares.trunk + shares.suffix >= PartShares::ALL && shares.suffix < PartShares::ALL, "{shares:?}");
    assert!(guest.trunk_memory().static_bytes > 0 && guest.memory().is_some());

    // A batch of both is what each answers alone.
    let alone = |member: &mut FamilyMember, input: &[u8]| {
        let mut outputs = Vec::new();
        let items = input.len() as u32 / WIDTH_IN / 4;
        member.run(&BatchInputs { items, tensors: &[input], start: None }, &mut outputs).unwrap();
        floats(&outputs[0])
    };
    let (all, row) = (rows(3), WIDTH_IN as usize * 4);
    let mut together = Vec::new();
    let batch = BatchInputs { items: 3, tensors: &[&all], start: None };
    host.run_mixed(&batch, &[segment(1, 1), segment(2, 2)], &mut together).unwrap();
    for (answer, expected) in together.iter().zip([alone(&mut host, &all[..row]), alone(&mut guest, &all[row..])]) {
        let answer = floats(&answer[0]);
        assert_eq!(answer.len(), expected.len());
        assert!(answer.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= TOLERANCE), "{answer:?} {expected:?}");
    }

    // One with larger batches brings a trunk that takes them.
    let mut larger = load(4, 16).join(&shared).unwrap();
    assert_eq!(larger.trunk_place(), host.trunk_place());
    assert_eq!(alone(&mut larger, &rows(16)).len(), 16 * CLASSES_OF_FOUR);
    host.run_mixed(&batch, &[segment(1, 1), segment(4, 2)], &mut together).unwrap();
    drop(larger);

    // Who cannot share it is told why; the trunk stays until the last one has gone.
    let refused = |member: FamilyMember| member.join(&shared).unwrap_err().to_string();
    assert!(refused(load(2, 8)).contains("loaded already"));
    let asked_as = |signature| {
        let member = file(5, 1).member(&runtime, (5, trunk), &options(8, Some(signature)), &|_| ());
        member.unwrap_err().to_string()
    };
    let mut asked = guest.signature().clone();
    asked.outputs[0].name = "votes".to_owned();
    assert!(asked_as(asked.clone()).contains("has no output `votes`, but logits"), "{}", asked_as(asked));
    let asked = Signature { inputs: vec![], ..guest.signature().clone() };
    assert!(asked_as(asked.clone()).contains("with other inputs"), "{}", asked_as(asked));
    let before = alone(&mut guest, &all);
    drop(host);
    assert_eq!(alone(&mut guest, &all), before);
    let gone = guest.run_mixed(&batch, &[segment(1, 3)], &mut together).unwrap_err().to_string();
    assert!(gone.contains("variant 1 is not loaded"), "{gone}");
    drop(guest);
    assert!(!shared.is_loaded());
    assert!(refused(load(1, 8)).contains("has gone"));
}

#[test]
fn a_model_that_is_asked_for_some_of_its_outputs_shares_a_trunk_and_gives_these() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/models/heads");
    let file = |name: &str| FamilyFile::read(&folder.join(format!("{name}.onnx"))).unwrap();
    let (even, prime) = (file("even"), file("prime"));
    let (cuts, others) = (even.cuts().unwrap(), prime.cuts().unwrap());
    let trunk = *cuts.iter().rev().find(|cut| others.contains(cut)).unwrap();
    let member = |file: &FamilyFile, variant: u32, signature: Option<Signature>| {
        let onnx = OnnxOptions { batch_max: 8, signature, ..OnnxOptions::default() };
        let options = MemberOptions { onnx, stop: Stop::default(), run_within: Duration::from_secs(60) };
        file.member(&runtime, (variant, trunk), &options, &|_| ()).unwrap()
    };
    let host = member(&even, 1, None);
    let Signature { inputs, outputs } = host.signature().clone();
    let (probabilities, label) = (outputs[0].clone(), outputs[1].clone());
    let asked = |outputs: Vec<_>| Some(Signature { inputs: inputs.clone(), outputs });
    let mut some = member(&prime, 2, asked(vec![label.clone()])).join(&host.shared_trunk()).unwrap();
    let turned = member(&prime, 3, asked(vec![label.clone(), probabilities])).join(&host.shared_trunk()).unwrap();
    assert_eq!(some.signature().outputs, [label]);
    let mut input = Vec::new();
    let image = digits::test_set().into_iter().next().unwrap();
    (0..3).for_each(|_| image.append_input(&mut input));
    let (mut mixed, mut alone) = (Vec::new(), Vec::new());
    let batch = BatchInputs { items: 3, tensors: &[&input], start: None };
    turned.run_mixed(&batch, &[segment(1, 1), segment(2, 1), segment(3, 1)], &mut mixed).unwrap();
    let lengths = |outputs: &[Vec<u8>]| outputs.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!((lengths(&mixed[0]), lengths(&mixed[1]), lengths(&mixed[2])), (vec![8, 8], vec![8], vec![8, 8]));
    assert_eq!(mixed[1][0], mixed[2][0], "the same model's label");
    let one = BatchInputs { items: 1, tensors: &[&input[..input.len() / 3]], start: None };
    some.run(&one, &mut alone).unwrap();
    assert_eq!(alone, mixed[1]);
    let whole = std::fs::read(folder.join("prime.onnx")).unwrap();
    let mut whole = OnnxExecutor::from_memory(&runtime, "prime", &whole, &OnnxOptions::default()).unwrap();
    let mut expected = Vec::new();
    whole.run(&one, &mut expected).unwrap();
    assert_eq!(alone[0], expected[1], "an integer");
}

/// What the table of the heads of digits says of one.
#[derive(serde::Deserialize)]
struct KeptHead {
    name: String,
    digits: Vec<u8>,
    right: usize,
}

#[derive(serde::Deserialize)]
struct KeptHeads {
    head: Vec<KeptHead>,
}

#[test]
fn heads_of_digits_share_the_classifiers_trunk_and_are_right_as_often_as_when_they_were_made() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/models/heads");
    let table = std::fs::read_to_string(folder.join("heads.toml")).unwrap();
    let KeptHeads { head: heads } = toml::from_str(&table).unwrap();
    assert_eq!(heads.len(), HEADS as usize);
    let bytes = |head: &KeptHead| Bytes::from(std::fs::read(folder.join(format!("{}.onnx", head.name))).unwrap());
    let mut models = vec![("digits", Bytes::from_static(digits::MODEL))];
    models.extend(heads.iter().map(|head| (head.name.as_str(), bytes(head))));
    let mut family = FamilyExecutor::form(&runtime, &models, &OnnxOptions::default()).unwrap();
    // Each image is a row of every head, and of the classifier.
    let mut right = vec![0; models.len()];
    for image in digits::test_set() {
        let mut input = Vec::new();
        let segments: Vec<_> = (0..models.len() as u32).map(|variant| segment(variant, 1)).collect();
        segments.iter().for_each(|_| image.append_input(&mut input));
        let (items, mut outputs) = (segments.len() as u32, Vec::new());
        family.run(&BatchInputs { items, tensors: &[&input], start: None }, &segments, &mut outputs).unwrap();
        let label = |variant: usize| i64::from_le_bytes(outputs[variant][1][..].try_into().unwrap());
        right[0] += usize::from(label(0) == i64::from(image.label));
        for (place, head) in heads.iter().enumerate() {
            right[place + 1] += usize::from((label(place + 1) == 1) == head.digits.contains(&image.label));
        }
    }
    // Where two answers are equally likely, another order of additions may tip the scales.
    let near = |right: usize, when_made: usize| right.abs_diff(when_made) <= 1;
    assert!(near(right[0], digits::RIGHT_WHEN_MADE), "{} of the classifier's", right[0]);
    for (head, &right) in heads.iter().zip(&right[1..]) {
        assert!(near(right, head.right), "{}: {right}, and {} when it was made", head.name, head.right);
    }
}
