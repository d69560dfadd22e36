//! The contract of executors, run against each of them.

use symphony_executor::{EmulatedExecutor, OnnxExecutor, OnnxOptions, default_signature, digits, load_runtime};
use symphony_testkit::needed;
use symphony_types::LatencyProfile;

pub(crate) mod family_promises;
mod promises;
mod skeleton;

use promises::BATCH_MAX;

fn emulated() -> EmulatedExecutor {
    EmulatedExecutor::new(LatencyProfile::from_line(0.01, 0.05, BATCH_MAX).unwrap(), default_signature())
}

fn onnx() -> Option<OnnxExecutor> {
    let runtime = needed("onnxruntime", load_runtime(None))?;
    let options = OnnxOptions { batch_max: BATCH_MAX, ..OnnxOptions::default() };
    Some(OnnxExecutor::from_memory(&runtime, "digits", digits::MODEL, &options).unwrap())
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
        mod smallest {
            $(#[test] fn $promise() { super::promises::$promise(&mut super::skeleton::Skeleton::new(super::BATCH_MAX)); })*
        }
    };
}

contract! {
    batches_give_what_single_items_give
    what_does_not_fit_is_refused
    outputs_have_the_signature_s_size
}
