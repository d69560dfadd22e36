//! What a device has to do: asked of a GPU by `cuda_device.rs`, and of a double of one by `cuda_double.rs`.

pub(crate) mod families;
#[path = "../../../executor/tests/contract/family_promises.rs"]
pub(crate) mod family_promises;
pub(crate) mod moves;
#[path = "../../../executor/tests/contract/promises.rs"]
pub(crate) mod promises;

use promises::BATCH_MAX;
use symphony_executor::{BatchInputs, ModelExecutor, StagedExecutor, default_signature, item_checksum};
use symphony_executor_gpu::{Cuda, GemmModel, GpuLoadError};
use symphony_types::{DataType, LatencyProfile, Nanos, Signature, TensorSpec};

/// A device, and how models are loaded on it.
pub(crate) struct Bench {
    pub(crate) gpu: Cuda,
    pub(crate) loads: fn(&Cuda, &LatencyProfile, Signature) -> Result<GemmModel, GpuLoadError>,
    /// How many of many batches are checked.
    pub(crate) batches: u32,
}

impl Bench {
    /// Loads a model that takes `alpha_ms` per item and `beta_ms` per batch.
    pub(crate) fn load(&self, profile: (f64, f64, u32), signature: Signature) -> GemmModel {
        self.try_load(profile, signature).unwrap()
    }

    pub(crate) fn try_load(
        &self,
        (alpha_ms, beta_ms, batch_max): (f64, f64, u32),
        signature: Signature,
    ) -> Result<GemmModel, GpuLoadError> {
        (self.loads)(&self.gpu, &LatencyProfile::from_line(alpha_ms, beta_ms, batch_max).unwrap(), signature)
    }
}

/// Items of this many bytes, a multiple of four.
pub(crate) fn items_of(bytes: u32) -> Signature {
    let tensor = |name: &str, data_type, width| TensorSpec { name: name.into(), data_type, item_shape: vec![width] };
    Signature {
        inputs: vec![tensor("INPUT0", DataType::Fp32, bytes / 4)],
        outputs: vec![tensor("OUTPUT0", DataType::Uint32, 1)],
    }
}

/// 224 × 224 pixels of three floats.
const PICTURE_BYTES: u32 = 3 * 224 * 224 * 4;

pub(crate) fn a_model_keeps_the_contract(bench: &Bench) {
    let mut model = bench.load((0.5, 3.0, BATCH_MAX), default_signature());
    promises::batches_give_what_single_items_give(&mut model);
    promises::what_does_not_fit_is_refused(&mut model);
    promises::outputs_have_the_signature_s_size(&mut model);
}

pub(crate) fn copies_fall_into_computations(bench: &Bench) {
    let signature = items_of(PICTURE_BYTES);
    let mut model = bench.load((0.5, 3.0, 16), signature.clone());
    let input = vec![3; signature.inputs[0].item_bytes() * 16];
    let spans = model.trace(&BatchInputs { items: 16, tensors: &[&input], start: None }, 16).unwrap();
    assert_eq!(spans.len(), 16);
    for pair in spans.windows(2) {
        let (this, next) = (pair[0].1, pair[1].1);
        assert!(next.copy_in.shared_with(this.compute) > Nanos::ZERO, "{this:?} {next:?}");
        assert!(next.compute.from >= this.compute.until, "batches are computed one after the other: {this:?} {next:?}");
        assert!(next.compute.from >= next.copy_in.until, "inputs are there before they are used: {next:?}");
    }
}

/// Items of batch `batch`, with bytes that no other batch has.
fn input(batch: u32, items: u32, item_bytes: usize) -> Vec<u8> {
    let words = item_bytes as u32 / 4 * items;
    (0..words).flat_map(|n| (n.wrapping_mul(0x9e37_79b9) ^ batch).to_le_bytes()).collect()
}

/// How a batch's items are staged, and which answers they have to have.
struct Batches<'a> {
    model: &'a mut GemmModel,
    items_max: u32,
    item_bytes: usize,
    wrong: u32,
}

impl Batches<'_> {
    fn input(&self, batch: u32) -> Vec<u8> {
        input(batch, 1 + batch % self.items_max, self.item_bytes)
    }

    fn stage(&mut self, batch: u32) {
        let input = self.input(batch);
        let items = (input.len() / self.item_bytes) as u32;
        self.model.stage(&BatchInputs { items, tensors: &[&input], start: None }).unwrap();
    }

    fn finish(&mut self, batch: u32) {
        let mut outputs = Vec::new();
        self.model.finish(&mut outputs).unwrap();
        let input = self.input(batch);
        let answers = input.chunks(self.item_bytes).flat_map(|item| item_checksum([item]).to_le_bytes());
        self.wrong += u32::from(outputs != [answers.collect::<Vec<u8>>()]);
    }
}

/// Runs these batches, each staged while the previous one runs, and then as many with as much under way as there is
/// room for: two that were launched and one that is staged. Says how many were answered with something else than their
/// own inputs.
pub(crate) fn wrong_answers(model: &mut GemmModel, item_bytes: usize, items_max: u32, batches: u32) -> u32 {
    let mut run = Batches { model, items_max, item_bytes, wrong: 0 };
    run.stage(0);
    for batch in 0..batches {
        run.model.launch().unwrap();
        if batch + 1 < batches {
            run.stage(batch + 1);
        }
        while !run.model.is_done().unwrap() {}
        run.finish(batch);
    }
    for batch in 0..2 {
        run.stage(batch);
        run.model.launch().unwrap();
    }
    run.stage(2);
    for batch in 0..batches {
        run.finish(batch);
        if batch + 2 < batches {
            run.model.launch().unwrap();
        }
        if batch + 3 < batches {
            run.stage(batch + 3);
        }
    }
    run.wrong
}

pub(crate) fn batches_that_are_staged_while_others_run_have_their_own_answers(bench: &Bench) {
    let signature = items_of(PICTURE_BYTES);
    let mut model = bench.load((0.2, 2.0, BATCH_MAX), signature.clone());
    assert_eq!(wrong_answers(&mut model, signature.inputs[0].item_bytes(), BATCH_MAX, bench.batches), 0);
}

pub(crate) fn models_beside_each_other_give_their_memory_back(bench: &Bench) {
    const ITEM_BYTES: u32 = 1 << 20;
    const ITEMS: u32 = 16;
    // What a batch of 16 MB takes to be copied out and read by the host is part of ℓ(b).
    const PROFILE: (f64, f64, u32) = (0.1, 12.0, ITEMS);
    let (gpu, signature) = (&bench.gpu, items_of(ITEM_BYTES));
    // The matrices stay with the GPU: they are there before it is measured.
    drop(bench.load((0.5, 12.0, 1), default_signature()));
    let (before, _) = gpu.memory().unwrap();
    let mut model = bench.load(PROFILE, signature.clone());
    let mut other = bench.load(PROFILE, signature.clone());
    let (both, _) = gpu.memory().unwrap();
    // Each has inputs and outputs of two batches. The driver takes and gives back memory in pieces of its own.
    let take = 2 * 2 * 2 * u64::from(ITEMS * ITEM_BYTES);
    assert!(both >= before + take / 2, "{before} bytes without, {both} with them; they take {take}");
    let static_bytes = other.memory().unwrap().static_bytes;
    assert!(static_bytes >= take / 4, "{static_bytes} bytes were seen to be taken of {}", take / 2);
    promises::batches_give_what_single_items_give(&mut other);
    drop(other);
    let input = vec![1; signature.inputs[0].item_bytes()];
    model.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut Vec::new()).unwrap();
    drop(model);
    // What was given back in a lane is free when the lane has come there.
    promises::batches_give_what_single_items_give(&mut bench.load((0.5, 3.0, BATCH_MAX), default_signature()));
    let (after, _) = gpu.memory().unwrap();
    assert!(after < before + take / 4, "{before} bytes before they came, {both} with them, {after} after they went");
}

pub(crate) fn what_there_is_not_the_memory_for_is_refused_and_it_goes_on(bench: &Bench) {
    // 4096 items of 64 MB: no GPU has that, and no pool of pinned memory either.
    let refused = bench.try_load((0.001, 3.0, 4096), items_of(64 << 20)).unwrap_err();
    assert!(refused.lacks_memory() && refused.to_string().contains("out of memory"), "{refused}");
    promises::batches_give_what_single_items_give(&mut bench.load((0.5, 3.0, BATCH_MAX), default_signature()));
}
