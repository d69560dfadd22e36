//! The smallest executor, to copy from: its model adds up the numbers of each item. The steps from here to an executor
//! that a backend can be told to use are in docs/internals/recipes/executor.md.

use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor};
use symphony_types::{DataType, Signature, TensorSpec};

/// Numbers in an item.
const NUMBERS: usize = 16;

#[derive(Debug)]
pub(crate) struct Skeleton {
    signature: Signature,
    batch_max: u32,
}

impl Skeleton {
    pub(crate) fn new(batch_max: u32) -> Self {
        let spec = |name: &str, numbers: usize| TensorSpec {
            name: name.into(),
            data_type: DataType::Fp32,
            item_shape: vec![numbers as u32],
        };
        let signature = Signature { inputs: vec![spec("numbers", NUMBERS)], outputs: vec![spec("sum", 1)] };
        Self { signature, batch_max }
    }
}

impl ModelExecutor for Skeleton {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        // All executors refuse the same batches.
        batch.check(&self.signature, self.batch_max)?;
        // The buffers come from the batch before; what they held is of no use, their memory is.
        outputs.resize_with(1, Vec::new);
        outputs[0].clear();
        let (numbers, _) = batch.tensors[0].as_chunks::<4>();
        for item in numbers.chunks(NUMBERS) {
            let sum: f32 = item.iter().map(|number| f32::from_le_bytes(*number)).sum();
            outputs[0].extend(sum.to_le_bytes());
        }
        Ok(())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.batch_max
    }

    fn kind(&self) -> &'static str {
        "skeleton"
    }
}
