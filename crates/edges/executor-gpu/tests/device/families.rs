//! Models that share a trunk on a device.

use std::time::Duration;

use symphony_executor::{
    BatchInputs, ExecuteError, FamilyExecutor, FamilyFile, FamilyRunError, LoadError, MemberOptions, ModelExecutor,
    OnnxOptions, PartLoader, PartShares, SharingExecutor, Stop,
};
use symphony_executor_gpu::Cuda;
use symphony_zoo::{Architecture, Mlp};

use super::family_promises::{self, Heads, run, segment};
use super::moves::{MovesLoader, ROWS_MAX};

/// Numbers in a row of which each begins where a tensor may, and of one of which they do not.
const WIDTHS: [usize; 2] = [64, 12];
/// Heads of a family.
pub(crate) const HEADS: u32 = 5;

/// A head as an ONNX file.
pub(crate) fn head_file(number: u32, trunk: u64) -> Vec<u8> {
    let shape = Mlp { width_in: 8, width: 256, hidden: 2, classes: 2 + number % 5 };
    Architecture::mlp_head(shape, trunk, 100 + u64::from(number)).unwrap().bytes().to_vec()
}

/// Hands on a family, and what it has to answer as.
pub(crate) fn with_heads(loader: &MovesLoader, keep: impl FnOnce(FamilyExecutor<MovesLoader>, &Heads<'_>)) {
    let whole = |number: u32| -> Box<dyn ModelExecutor> {
        let name = format!("head-{number}");
        Box::new(loader.load(&name, &[]).unwrap())
    };
    let file = |number| head_file(number, 1);
    let heads = Heads { file: &file, whole: &whole, stranger: head_file(0, 2), tolerance: 0.0 };
    keep(heads.family(loader.clone(), HEADS), &heads);
}

pub(crate) fn a_family_keeps_its_promises(gpu: &Cuda) {
    for width in WIDTHS {
        with_heads(&MovesLoader::new(gpu, width), |mut family, heads| {
            family_promises::mixed_batches_answer_as_the_whole_models_do(&mut family, heads);
            family_promises::a_variant_comes_and_goes_and_the_others_stay(&mut family, heads);
            family_promises::what_is_no_batch_of_the_family_is_refused_and_the_next_one_runs(&mut family);
        });
    }
}

pub(crate) fn a_suffix_that_refuses_fails_its_batch_only(gpu: &Cuda) {
    let loader = MovesLoader::new(gpu, WIDTHS[0]);
    with_heads(&loader, |mut family, heads| {
        let segments = [segment(0, 2), segment(2, 1), segment(4, 1)];
        loader.refuse_once(2);
        let planted = ExecuteError::Failed { items: 1, reason: "planted".into() };
        assert_eq!(run(&mut family, &segments), Err(FamilyRunError::Execute(planted)));
        heads.answer_as_whole(&mut family, &segments, |variant| variant);
    });
}

/// Drops a family whose batch has failed by one suffix, while another one has yet to read what the trunk gives. `begin`
/// is called before the batch. Says what becomes of the next load.
pub(crate) fn load_after_a_family_has_gone_in_a_batch(gpu: &Cuda, begin: impl FnOnce()) -> Result<(), LoadError> {
    let loader = MovesLoader::new(gpu, WIDTHS[0]);
    with_heads(&loader, |mut family, _| {
        begin();
        loader.slow_down_once(0);
        loader.refuse_once(2);
        let planted = ExecuteError::Failed { items: 1, reason: "planted".into() };
        assert_eq!(run(&mut family, &[segment(0, 2), segment(2, 1)]), Err(FamilyRunError::Execute(planted)));
    });
    loader.load("head-0", &[]).map(drop)
}

pub(crate) fn models_join_a_trunk_are_run_together_and_leave_one_by_one(gpu: &Cuda) {
    let dir = tempfile::tempdir().unwrap();
    let file = |number: u32| {
        let path = dir.path().join(format!("head-{number}.onnx"));
        std::fs::write(&path, head_file(number, 1)).unwrap();
        FamilyFile::read(&path).unwrap()
    };
    let (cuts, others) = (file(1).cuts().unwrap(), file(2).cuts().unwrap());
    let trunk = *cuts.iter().rev().find(|cut| others.contains(cut)).unwrap();
    let options = MemberOptions {
        onnx: OnnxOptions { batch_max: ROWS_MAX, ..OnnxOptions::default() },
        stop: Stop::default(),
        run_within: Duration::from_secs(60),
    };
    let loader = MovesLoader::new(gpu, WIDTHS[0]);
    let load = |number| file(number).member_by(loader.clone(), (number, trunk), &options, &|_| ());
    let host = load(1).unwrap();
    let shared = host.shared_trunk();
    let mut guest = load(2).unwrap().join(&shared).unwrap();
    assert_eq!(host.trunk_place(), guest.trunk_place());
    assert!(guest.shares().trunk + guest.shares().suffix >= PartShares::ALL, "{:?}", guest.shares());

    let row_bytes = WIDTHS[0] * 4;
    let rows: Vec<u8> = (0..row_bytes as u32 * 3 / 4).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let batch = BatchInputs { items: 3, tensors: &[&rows], start: None };
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    host.run_mixed(&batch, &[segment(1, 1), segment(2, 2)], &mut together).unwrap();
    let (first, others) = rows.split_at(row_bytes);
    assert_eq!(together, [[loader.answer(1, first)], [loader.answer(2, others)]]);
    drop(host);
    guest.run(&batch, &mut alone).unwrap();
    assert_eq!(alone, [loader.answer(2, &rows)]);
    drop(guest);
    assert!(!shared.is_loaded());
}
