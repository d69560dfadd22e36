//! Real ONNX models that load and then fail: each failure is a batch's, the model runs the next one, and others are not
//! touched.

use std::time::Duration;

use symphony_executor::{
    BatchInputs, ExecuteError, ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, Stop, load_runtime,
};
use symphony_testkit::needed;
use symphony_zoo::Fault;

fn runtime() -> Option<Runtime> {
    needed("onnxruntime", load_runtime(None))
}

fn load(runtime: &Runtime, fault: Fault) -> OnnxExecutor {
    OnnxExecutor::from_memory(runtime, "fault", fault.build().bytes(), &OnnxOptions::default()).unwrap()
}

/// Runs items of which all four numbers are the same.
fn run(executor: &mut OnnxExecutor, items: &[f32]) -> Result<Vec<f32>, ExecuteError> {
    let input: Vec<u8> = items.iter().flat_map(|number| number.to_le_bytes().repeat(4)).collect();
    let mut outputs = Vec::new();
    executor.run(&BatchInputs { items: items.len() as u32, tensors: &[&input], start: None }, &mut outputs)?;
    Ok(outputs[0].as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect())
}

fn reason(failed: Result<Vec<f32>, ExecuteError>, expected_items: u32) -> String {
    match failed.unwrap_err() {
        ExecuteError::Failed { items, reason } if items == expected_items => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_index_beyond_its_table_fails_the_batch_that_has_it() {
    let Some(runtime) = runtime() else { return };
    let (mut model, mut other) = (load(&runtime, Fault::IndexOutOfRange), load(&runtime, Fault::NotANumber));
    let rows = run(&mut model, &[0.0, 7.0]).unwrap();
    assert_eq!(rows.len(), 4);
    let words = reason(run(&mut model, &[0.0, 8.0, 7.0]), 3);
    assert!(words.contains("Gather") && words.contains("out of data bounds"), "{words}");
    assert_eq!(run(&mut model, &[0.0, 7.0]).unwrap(), rows, "the next batch is right");
    assert_eq!(run(&mut other, &[4.0]).unwrap(), [2.0; 4], "another model does not notice");
}

#[test]
fn a_shape_that_does_not_fit_fails_the_batch_that_has_it() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, Fault::ReshapeMismatch);
    let words = reason(run(&mut model, &[1.0, 2.0]), 2);
    assert!(words.contains("Reshape"), "{words}");
    let three = run(&mut model, &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!((three.len(), three[0], three[11]), (12, 1.0, 3.0));
}

#[test]
fn more_output_than_was_promised_is_no_answer() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, Fault::OutputTooLong);
    let error = run(&mut model, &[1.0, 2.0]).unwrap_err();
    assert_eq!(error.to_string(), "output `output` has 64 bytes; expected 32 for 2 items");
}

#[test]
fn what_is_not_a_number_is_an_answer_and_stays_with_its_item() {
    let Some(runtime) = runtime() else { return };
    let mut model = load(&runtime, Fault::NotANumber);
    let roots = run(&mut model, &[9.0, -1.0, 4.0]).unwrap();
    assert_eq!((roots[0], roots[11]), (3.0, 2.0));
    assert!(roots[4..8].iter().all(|root| root.is_nan()), "{roots:?}");
}

#[test]
fn memory_that_is_not_there_fails_the_batch_and_not_the_process() {
    let Some(runtime) = runtime() else { return };
    let (mut model, mut other) = (load(&runtime, Fault::OutOfMemory), load(&runtime, Fault::NotANumber));
    for _ in 0..2 {
        let error = run(&mut model, &[1.0]).unwrap_err();
        assert!(matches!(&error, ExecuteError::OutOfMemory { items: 1, .. }), "{error:?}");
        assert_eq!(run(&mut other, &[4.0]).unwrap(), [2.0; 4]);
    }
}

/// A loop without an end is ended by a stop, or after its time, and the next batch runs.
#[test]
fn a_batch_that_never_ends_is_ended() {
    let Some(runtime) = runtime() else { return };
    let model = symphony_zoo::endless_above(0.0);
    let load = |stop: &Stop, within| {
        let model = OnnxExecutor::from_memory(&runtime, "endless", model.bytes(), &OnnxOptions::default()).unwrap();
        model.ended_by(stop.clone(), within)
    };
    let mut model = load(&Stop::default(), Duration::from_secs(1));
    for _ in 0..2 {
        assert_eq!(run(&mut model, &[-1.0]), Ok(vec![-1.0; 4]));
        let ended = run(&mut model, &[-1.0, 1.0]).unwrap_err();
        assert!(ended.to_string().contains("it may never end"), "{ended}");
    }

    let stop = Stop::default();
    let mut model = load(&stop, Duration::from_secs(3600));
    assert_eq!(run(&mut model, &[-1.0]), Ok(vec![-1.0; 4]));
    let giving_up = std::thread::spawn(move || stop.give_up());
    let ended = run(&mut model, &[1.0]).unwrap_err();
    assert!(ended.to_string().contains("the model is given up"), "{ended}");
    giving_up.join().unwrap();
    assert!(matches!(run(&mut model, &[-1.0]), Err(ExecuteError::Ended { .. })), "nothing is begun any more");
}
