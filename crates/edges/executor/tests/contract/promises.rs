//! The promises of the port. `symphony-executor-gpu` runs them against its executors too.

use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor};
use symphony_types::DataType;

/// The largest batch of the executors that are tried.
pub(crate) const BATCH_MAX: u32 = 8;
/// Sums may be taken in another order in another batch.
const TOLERANCE: f32 = 1e-5;

/// Item `index` of every input: numbers that differ from item to item and fit every model here.
fn item(executor: &dyn ModelExecutor, index: u32) -> Vec<Vec<u8>> {
    let inputs = &executor.signature().inputs;
    let value = |element: u32| ((index * 31 + element * 7) % 17) as f32;
    inputs
        .iter()
        .map(|spec| {
            assert_eq!(spec.data_type, DataType::Fp32);
            let elements = (spec.item_bytes() / 4) as u32;
            (0..elements).flat_map(|element| value(element).to_le_bytes()).collect()
        })
        .collect()
}

fn joined(items: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    (0..items[0].len()).map(|input| items.iter().flat_map(|item| item[input].clone()).collect()).collect()
}

fn run(executor: &mut dyn ModelExecutor, items: &[Vec<Vec<u8>>], out: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
    let tensors = joined(items);
    let tensors: Vec<_> = tensors.iter().map(Vec::as_slice).collect();
    executor.run(&BatchInputs { items: items.len() as u32, tensors: &tensors, start: None }, out)
}

#[track_caller]
fn assert_same(executor: &dyn ModelExecutor, batched: &[Vec<u8>], alone: &[Vec<u8>]) {
    assert_eq!(batched.len(), alone.len());
    for ((spec, batched), alone) in executor.signature().outputs.iter().zip(batched).zip(alone) {
        assert_eq!(batched.len(), alone.len(), "{}", spec.name);
        if spec.data_type == DataType::Fp32 {
            let floats =
                |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect::<Vec<_>>();
            for (b, a) in floats(batched).into_iter().zip(floats(alone)) {
                assert!((b - a).abs() <= TOLERANCE * (1.0 + a.abs()), "{}: {b} in the batch, {a} alone", spec.name);
            }
        } else {
            assert_eq!(batched, alone, "{}", spec.name);
        }
    }
}

pub(crate) fn batches_give_what_single_items_give(executor: &mut dyn ModelExecutor) {
    const ITEMS: u32 = 24;
    let items: Vec<_> = (0..ITEMS).map(|index| item(executor, index)).collect();
    let mut alone = Vec::new();
    for item in &items {
        let mut outputs = Vec::new();
        run(executor, std::slice::from_ref(item), &mut outputs).unwrap();
        alone.push(outputs);
    }
    assert_ne!(alone[0], alone[1], "items with different inputs must be told apart");

    // One pair of buffers for all batches, which grow and shrink: nothing of a batch may stay for the next.
    let mut outputs = vec![vec![0xaa; 999]; 3];
    let mut first = 0;
    for size in [1, 8, 2, 5, 3, 4, 1] {
        run(executor, &items[first..first + size], &mut outputs).unwrap();
        assert_same(executor, &outputs, &joined(&alone[first..first + size]));
        first += size;
    }
    assert_eq!(first, ITEMS as usize);
}

pub(crate) fn what_does_not_fit_is_refused(executor: &mut dyn ModelExecutor) {
    let items: Vec<_> = (0..=BATCH_MAX).map(|index| item(executor, index)).collect();
    let mut outputs = Vec::new();
    let error = run(executor, &items, &mut outputs).unwrap_err();
    assert_eq!(error, ExecuteError::TooLarge { items: BATCH_MAX + 1, batch_max: executor.batch_max() });

    let whole = joined(&items[..2]);
    let bytes = whole[0].as_slice();
    let name = executor.signature().inputs[0].name.clone();
    for given in [&bytes[..bytes.len() - 1], &bytes[..bytes.len() / 2], &[]] {
        let batch = BatchInputs { items: 2, tensors: &[given], start: None };
        let expected =
            ExecuteError::InputLength { name: name.clone(), given: given.len(), expected: bytes.len(), items: 2 };
        assert_eq!(executor.run(&batch, &mut outputs), Err(expected));
    }
    let batch = BatchInputs { items: 0, tensors: &[&[]], start: None };
    assert_eq!(executor.run(&batch, &mut outputs), Err(ExecuteError::Empty));
    for tensors in [&[][..], &[bytes, bytes]] {
        let batch = BatchInputs { items: 2, tensors, start: None };
        let expected = ExecuteError::InputCount { given: tensors.len(), expected: 1 };
        assert_eq!(executor.run(&batch, &mut outputs), Err(expected));
    }
    // A refusal leaves the executor usable.
    run(executor, &items[..1], &mut outputs).unwrap();
}

pub(crate) fn outputs_have_the_signature_s_size(executor: &mut dyn ModelExecutor) {
    let items: Vec<_> = (0..3).map(|index| item(executor, index)).collect();
    let mut outputs = Vec::new();
    run(executor, &items, &mut outputs).unwrap();
    let sizes: Vec<_> = executor.signature().outputs.iter().map(|spec| spec.item_bytes() * 3).collect();
    assert_eq!(outputs.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
    assert_eq!(executor.batch_max(), BATCH_MAX);
    assert!(!executor.kind().is_empty());
}
