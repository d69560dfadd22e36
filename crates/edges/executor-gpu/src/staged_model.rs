//! One model on one device, as an executor.

use symphony_executor::{
    BatchInputs, BatchSizes, ExecuteError, MemoryUse, ModelExecutor, StagedExecutor, item_checksum,
};
use symphony_types::Signature;

use crate::overlap::{Device, DeviceError, Extent, Pipeline, Spans, Trouble};

/// What a device's outputs mean to the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The model's outputs.
    AsTheyAre,
    /// The inputs, which came back from the device: the answer is each item's checksum, as that of an emulated GPU.
    Checksums,
}

/// Called before each batch that a load runs, with its items: waits until the GPU has time for it, if the GPU has other
/// users.
pub type Turn<'a> = &'a dyn Fn(u32);

/// An executor over a [`Pipeline`]. [`ModelExecutor::run`] does one batch after the other; in steps the next one is
/// copied meanwhile.
#[derive(Debug)]
pub struct StagedModel<D> {
    pipeline: Pipeline<D>,
    kind: &'static str,
    signature: Signature,
    batch_max: u32,
    sizes: Option<BatchSizes>,
    answers: Answers,
    /// Items of the batches that are under way, the oldest first.
    items: Vec<u32>,
    memory: Option<MemoryUse>,
    /// The largest batch so far, and bytes in use before it: only a larger one makes the device take more.
    largest: (u32, Option<u64>),
    /// What came back from the device, if it is not the answer itself.
    raw: Vec<Vec<u8>>,
}

impl<D: Device> StagedModel<D> {
    /// A model on a device that has it; `static_bytes` of the device's memory were taken by that, if it can tell.
    pub fn new(device: D, kind: &'static str, signature: Signature, batch_max: u32, answers: Answers) -> Self {
        let pipeline = Pipeline::new(device);
        let (items, raw) = (Vec::new(), Vec::new());
        Self {
            pipeline,
            kind,
            signature,
            batch_max,
            sizes: None,
            answers,
            items,
            memory: None,
            largest: (0, None),
            raw,
        }
    }

    /// This model with batches that are filled up to some sizes.
    #[must_use]
    pub fn with_sizes(self, sizes: Option<BatchSizes>) -> Self {
        Self { sizes, ..self }
    }

    /// This model with the memory that it took of its device.
    #[must_use]
    pub fn with_memory(self, static_bytes: u64) -> Self {
        Self { memory: Some(MemoryUse { static_bytes, dynamic_bytes: 0 }), ..self }
    }

    /// The pipeline, to keep spans, or to change what the device computes.
    pub const fn pipeline_mut(&mut self) -> &mut Pipeline<D> {
        &mut self.pipeline
    }

    /// Runs a batch of zeros of each size that it runs. What a runtime does when it first sees a size is done before
    /// requests wait for it: ONNX Runtime tries all kernels for each convolution then, for seconds.
    ///
    /// # Errors
    /// If a batch fails.
    pub fn warm_up(&mut self, turn: Turn<'_>) -> Result<(), ExecuteError> {
        let zeros: Vec<_> =
            self.signature.inputs.iter().map(|s| vec![0; s.item_bytes() * self.batch_max as usize]).collect();
        let items: Vec<_> = self.signature.inputs.iter().map(|s| s.item_bytes()).collect();
        let (mut run, mut outputs) = (0, Vec::new());
        for batch in 1..=self.batch_max {
            let filled = self.filled(batch);
            if filled > run {
                turn(batch);
                let tensors: Vec<_> =
                    zeros.iter().zip(&items).map(|(zeros, item)| &zeros[..item * batch as usize]).collect();
                self.run(&BatchInputs { items: batch, tensors: &tensors, start: None }, &mut outputs)?;
                run = filled;
            }
        }
        Ok(())
    }

    /// Items that the model runs for a batch of this size.
    fn filled(&self, items: u32) -> u32 {
        self.sizes.as_ref().and_then(|sizes| sizes.filled(items)).unwrap_or(items)
    }

    /// Runs batches with the same inputs one after the other, each staged while the previous one runs, and returns when
    /// each was copied and computed on the device.
    ///
    /// # Errors
    /// If a batch fails.
    pub fn trace(&mut self, batch: &BatchInputs<'_>, batches: u32) -> Result<Vec<(Extent, Spans)>, ExecuteError> {
        let mut outputs = Vec::new();
        let failed =
            |error: crate::overlap::DeviceError| ExecuteError::Failed { items: batch.items, reason: error.to_string() };
        self.pipeline.keep_spans().map_err(failed)?;
        if batches > 0 {
            self.stage(batch)?;
        }
        for done in 1..=batches {
            self.launch()?;
            if done < batches {
                self.stage(batch)?;
            }
            self.finish(&mut outputs)?;
        }
        Ok(self.pipeline.take_spans())
    }

    fn failed(&mut self, items: u32, trouble: &Trouble) -> ExecuteError {
        if matches!(trouble, Trouble::Device(_)) {
            self.items.clear();
        }
        failure(items, trouble)
    }

    /// Notes what the device had in use before a batch that is larger than all before it.
    fn before(&mut self, filled: u32) {
        if self.memory.is_some() && filled > self.largest.0 {
            self.largest = (filled, self.pipeline.device().used_bytes());
        }
    }

    /// What it has in use more since then; others on it are counted too, as little as they come in between.
    fn grown(&mut self) {
        if let (Some(memory), Some(before)) = (&mut self.memory, self.largest.1.take()) {
            let after = self.pipeline.device().used_bytes().unwrap_or(before);
            memory.dynamic_bytes += after.saturating_sub(before);
        }
    }
}

impl<D: Device> ModelExecutor for StagedModel<D> {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.stage(batch)?;
        self.launch()?;
        self.finish(outputs)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.batch_max
    }

    fn batch_sizes(&self) -> Option<&BatchSizes> {
        self.sizes.as_ref()
    }

    fn memory(&self) -> Option<MemoryUse> {
        self.memory
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        Some(self)
    }

    fn device_memory(&self) -> Option<MemoryUse> {
        self.memory
    }
}

impl<D: Device> StagedExecutor for StagedModel<D> {
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        let items = batch.items;
        let filled = self.filled(items);
        self.before(filled);
        match self.pipeline.stage(Extent { items, filled }, batch.tensors) {
            Ok(()) => {
                self.items.push(items);
                Ok(())
            }
            // The batches before it are still under way.
            Err(trouble) => Err(failure(items, &trouble)),
        }
    }

    fn staged(&self) -> usize {
        self.pipeline.waiting()
    }

    fn launch(&mut self) -> Result<(), ExecuteError> {
        let items = self.items.get(self.pipeline.running()).copied().unwrap_or_default();
        self.pipeline.launch().map_err(|trouble| self.failed(items, &trouble))
    }

    fn is_done(&mut self) -> Result<bool, ExecuteError> {
        let items = self.items.first().copied().unwrap_or_default();
        self.pipeline.is_done().map_err(|trouble| self.failed(items, &trouble))
    }

    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        let items = self.items.first().copied().unwrap_or_default();
        let raw = if self.answers == Answers::Checksums { &mut self.raw } else { &mut *outputs };
        if let Err(trouble) = self.pipeline.finish(raw) {
            return Err(self.failed(items, &trouble));
        }
        self.items.remove(0);
        self.grown();
        if self.answers == Answers::Checksums {
            checksums(&self.signature, &self.raw, items, outputs);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.pipeline.abandon();
        self.items.clear();
    }
}

pub(crate) fn failure(items: u32, trouble: &Trouble) -> ExecuteError {
    let reason = trouble.to_string();
    match trouble {
        Trouble::Device(DeviceError::OutOfMemory(_)) => ExecuteError::OutOfMemory { items, reason },
        Trouble::Device(DeviceError::Lost(_)) => ExecuteError::DeviceLost { items, reason },
        _ => ExecuteError::Failed { items, reason },
    }
}

/// The answers of an emulated GPU, from the inputs that came back.
fn checksums(signature: &Signature, inputs: &[Vec<u8>], items: u32, outputs: &mut Vec<Vec<u8>>) {
    outputs.resize_with(signature.outputs.len(), Vec::new);
    outputs.iter_mut().for_each(Vec::clear);
    for item in 0..items as usize {
        let slices = signature.inputs.iter().zip(inputs).map(|(spec, bytes)| {
            let size = spec.item_bytes();
            &bytes[item * size..(item + 1) * size]
        });
        let answer = item_checksum(slices).to_le_bytes();
        for (spec, output) in signature.outputs.iter().zip(outputs.iter_mut()) {
            output.extend(answer.iter().cycle().take(spec.item_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use symphony_executor::default_signature;

    use super::*;
    use crate::overlap::{DeviceError, FakeDevice, FakeFault, FakePace};

    const ITEM: usize = 64;

    fn model(faults: Vec<FakeFault>) -> StagedModel<FakeDevice> {
        let device = FakeDevice::new(&[ITEM], FakePace::default(), 9).with_faults(faults);
        StagedModel::new(device, "fake", default_signature(), 4, Answers::Checksums)
    }

    fn batch(items: u32, tensors: &[&[u8]], run: impl FnOnce(&BatchInputs<'_>)) {
        run(&BatchInputs { items, tensors, start: None });
    }

    fn answer(input: &[u8]) -> Vec<Vec<u8>> {
        vec![input.chunks(ITEM).flat_map(|item| item_checksum([item]).to_le_bytes()).collect()]
    }

    #[test]
    fn batches_in_steps_have_their_own_answers() {
        let mut model = model(Vec::new());
        let inputs: Vec<Vec<u8>> = (1..=5).map(|n| vec![n; ITEM * (usize::from(n) % 4 + 1)]).collect();
        let mut outputs = Vec::new();
        let stage = |model: &mut StagedModel<FakeDevice>, input: &[u8]| {
            batch((input.len() / ITEM) as u32, &[input], |batch| model.stage(batch).unwrap());
        };
        stage(&mut model, &inputs[0]);
        for (index, input) in inputs.iter().enumerate() {
            model.launch().unwrap();
            if let Some(next) = inputs.get(index + 1) {
                stage(&mut model, next);
                assert_eq!(model.staged(), 1);
            }
            while !model.is_done().unwrap() {}
            model.finish(&mut outputs).unwrap();
            assert_eq!(outputs, answer(input));
        }
        assert!(model.is_done().unwrap() && model.staged() == 0);
    }

    #[test]
    fn a_failure_says_how_many_items_it_cost_and_the_next_batch_runs() {
        let full = DeviceError::OutOfMemory("2 MB asked for".into());
        let mut model = model(vec![FakeFault::Compute(0, full)]);
        let (input, mut outputs) = (vec![1; ITEM * 3], Vec::new());
        batch(3, &[&input], |batch| {
            let error = model.run(batch, &mut outputs).unwrap_err();
            assert_eq!(
                error.to_string(),
                "3 items need more memory than there is for batches: out of memory on the device: 2 MB asked for"
            );
            model.run(batch, &mut outputs).unwrap();
            assert_eq!(outputs, answer(&input));
        });
        let refused = model.launch().unwrap_err();
        assert!(refused.to_string().contains("no batch is staged"), "{refused}");
    }

    #[test]
    fn after_a_reset_the_next_batch_is_the_first() {
        let mut model = model(Vec::new());
        let (old, new, mut outputs) = (vec![1; ITEM * 3], vec![2; ITEM * 2], Vec::new());
        batch(3, &[&old], |batch| {
            model.stage(batch).unwrap();
            model.launch().unwrap();
            model.stage(batch).unwrap();
        });
        model.reset();
        assert!(model.staged() == 0 && model.is_done().unwrap());
        batch(2, &[&new], |batch| model.run(batch, &mut outputs).unwrap());
        assert_eq!(outputs, answer(&new));
    }

    #[test]
    fn every_size_that_is_run_is_warmed_up_once() {
        for (sizes, batches) in [(None, 4), (Some("2, 4"), 2), (Some("8"), 1)] {
            // The computation after the last of them would fail, and does if there is one more.
            let broken = |after| vec![FakeFault::Compute(after, DeviceError::Failed("planted".into()))];
            let sizes = || sizes.map(|sizes| BatchSizes::parse(sizes).unwrap());
            let turns = Cell::new(0);
            let turn = |_| turns.set(turns.get() + 1);
            assert_eq!(model(broken(batches)).with_sizes(sizes()).warm_up(&turn), Ok(()), "{:?}", sizes());
            assert_eq!(turns.get(), batches, "each has its turn");
            let refused = model(broken(batches - 1)).with_sizes(sizes()).warm_up(&turn).unwrap_err();
            assert!(refused.to_string().contains("planted"), "{refused}");
        }
    }

    #[test]
    fn a_trace_has_every_batch() {
        let mut model = model(Vec::new());
        let input = vec![1; ITEM * 4];
        batch(4, &[&input], |batch| {
            let trace = model.trace(batch, 6).unwrap();
            assert_eq!(trace.len(), 6);
            assert!(trace.windows(2).all(|pair| pair[0].1.compute.until <= pair[1].1.compute.from));
        });
    }
}
