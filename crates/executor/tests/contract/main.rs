//! What every executor promises, run against each of them.

use symphony_executor::{
    EmulatedExecutor, OnnxExecutor, OnnxOptions, RuntimeError, default_signature, digits, load_runtime,
};
use symphony_types::LatencyProfile;

mod promises;

use promises::BATCH_MAX;

fn emulated() -> EmulatedExecutor {
    EmulatedExecutor::new(LatencyProfile::from_line(0.01, 0.05, BATCH_MAX).unwrap(), default_signature())
}

/// `None` without ONNX Runtime: the default tests need no library. `SYMPHONY_TEST_REQUIRE=onnxruntime` turns its
/// absence into a failure.
fn onnx() -> Option<OnnxExecutor> {
    match load_runtime(None) {
        Ok(runtime) => {
            let options = OnnxOptions { batch_max: BATCH_MAX, ..OnnxOptions::default() };
            Some(OnnxExecutor::from_memory(&runtime, "digits", digits::MODEL, &options).unwrap())
        }
        Err(error @ RuntimeError::NotFound { .. }) => {
            let required = std::env::var("SYMPHONY_TEST_REQUIRE").unwrap_or_default();
            assert!(!required.contains("onnxruntime"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

macro_rules! contract {
    ($($promise:ident)*) => {
        mod emulated_gpu {
            $(#[test] fn $promise() { super::promises::$promise(&mut super::emulated()); })*
        }
        mod onnx_on_cpu {
            $(#[test] fn $promise() {
                if let Some(mut executor) = super::onnx() {
                    super::promises::$promise(&mut executor);
                }
            })*
        }
    };
}

contract! {
    batches_give_what_single_items_give
    what_does_not_fit_is_refused
    outputs_have_the_signature_s_size
}
