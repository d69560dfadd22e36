//! What every executor promises, kept by the one for GPUs: on a fake of a device everywhere, on a GPU where there is
//! one (`cuda_device.rs`).

#[path = "../../executor/tests/contract/promises.rs"]
mod promises;

use promises::BATCH_MAX;
use symphony_executor::default_signature;
use symphony_executor_gpu::overlap::{FakeDevice, FakePace};
use symphony_executor_gpu::{Answers, StagedModel};

fn on_fake() -> StagedModel<FakeDevice> {
    let device = FakeDevice::new(&[64], FakePace::default(), 2);
    StagedModel::new(device, "fake", default_signature(), BATCH_MAX, Answers::Checksums)
}

#[test]
fn batches_give_what_single_items_give() {
    promises::batches_give_what_single_items_give(&mut on_fake());
}

#[test]
fn what_does_not_fit_is_refused() {
    promises::what_does_not_fit_is_refused(&mut on_fake());
}

#[test]
fn outputs_have_the_signature_s_size() {
    promises::outputs_have_the_signature_s_size(&mut on_fake());
}
