//! Models whose batches share one limited memory.

use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor, OnnxExecutor, OnnxOptions, load_runtime};
use symphony_testkit::needed;

const MB: u64 = 1 << 20;
/// What an item takes in each of two tensors.
const ITEM_BYTES: u64 = 16 * MB;
/// Room for batches of four, which take 128 MB, and not of eight.
const LIMIT: u64 = 192 * MB;
const MODELS: usize = 4;

/// Runs items of which all four numbers are four.
fn run(executor: &mut OnnxExecutor, items: u32) -> Result<(), ExecuteError> {
    let (input, mut outputs) = (4_f32.to_le_bytes().repeat(4 * items as usize), Vec::new());
    executor.run(&BatchInputs { items, tensors: &[&input], start: None }, &mut outputs)?;
    assert_eq!(outputs, [2_f32.to_le_bytes().repeat(4 * items as usize)]);
    Ok(())
}

fn lacks_memory(ran: &Result<(), ExecuteError>, expected_items: u32) -> bool {
    matches!(ran, Err(ExecuteError::OutOfMemory { items, .. }) if *items == expected_items)
}

/// Bytes of this process in physical memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

// One test: the limit is the process's.
#[test]
fn models_take_turns_with_the_memory_of_batches_and_none_gets_more() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    assert_eq!(runtime.share_batch_memory(LIMIT), Ok(LIMIT));
    assert_eq!(runtime.share_batch_memory(2 * LIMIT), Ok(LIMIT), "the first limit holds");
    let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
    let model = symphony_zoo::hungry(ITEM_BYTES);
    let load = || OnnxExecutor::from_memory(&runtime, "hungry", model.bytes(), &options).unwrap();
    let mut models: Vec<_> = std::iter::repeat_with(load).take(MODELS).collect();

    // Memory of loaded models does not count.
    let mut other = load();
    let before = resident_bytes();
    other.keep_clear_of_batches(LIMIT / 2).unwrap();
    let written = resident_bytes().saturating_sub(before);
    assert!(written < 8 * MB, "{} MB are written for what is kept clear", written / MB);
    assert!(lacks_memory(&run(&mut models[0], 4), 4), "there is room for 96 MB");
    drop(other);

    let before = resident_bytes();
    for model in &mut models {
        run(model, 4).unwrap();
    }
    let grown = resident_bytes().saturating_sub(before);
    // Each with a memory of its own would have grown the process by 512 MB.
    assert!(grown < 2 * 128 * MB, "{} MB for {MODELS} models of 128 MB", grown / MB);

    for _ in 0..2 {
        assert!(lacks_memory(&models[0].warm_up(), 8));
        for model in &mut models {
            run(model, 4).unwrap();
        }
    }
    let refused = models[0].keep_clear_of_batches(LIMIT).unwrap_err();
    assert!(refused.contains("Available memory of"), "batches have had it: {refused}");
}
