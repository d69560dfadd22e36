//! How a batch is run: in one call, or in steps on a device, which receives the next batch's inputs meanwhile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use symphony_executor::{ExecuteError, ModelExecutor, Segment, StagedExecutor};
use symphony_types::ModelId;

use crate::batch::{Batch, NotRun};
use crate::order_queue::OrderQueue;

/// The models of a GPU.
pub(crate) type Models = HashMap<ModelId, Box<dyn ModelExecutor>>;

/// How often a device is polled for the end of a batch. A longer pause would end batches late; without a pause the
/// thread would take a whole core.
const POLL_EVERY: Duration = Duration::from_micros(20);

/// Begins to copy a batch's inputs to its device, unless that is done or there is no device.
pub(crate) fn stage(models: &mut Models, model: ModelId, batch: &Batch, start: Instant) -> Result<(), NotRun> {
    guarded(models, model, |executor| match executor.in_steps() {
        Some(steps) if steps.staged() == 0 => batch.given(start, |inputs| steps.stage(inputs)),
        _ => Ok(()),
    })
}

/// Runs a batch, and stages the next plan of the queue, if one is given, while it runs.
pub(crate) fn run(
    models: &mut Models,
    mut order_queue: Option<&mut OrderQueue<'_>>,
    (model, batch, start): (ModelId, &Batch, Instant),
    outputs: &mut Vec<Vec<u8>>,
) -> Result<(), NotRun> {
    if models.get_mut(&model).is_some_and(|executor| executor.in_steps().is_none()) {
        return guarded(models, model, |executor| batch.given(start, |inputs| executor.run(inputs, outputs)));
    }
    guarded_step(models, model, |steps| steps.launch())?;
    loop {
        let mut done = false;
        guarded_step(models, model, |steps| steps.is_done().map(|is| done = is))?;
        if done {
            return guarded_step(models, model, |steps| steps.finish(outputs));
        }
        if !order_queue.as_deref_mut().is_some_and(|order_queue| stage_next(models, order_queue)) {
            std::thread::sleep(POLL_EVERY);
        }
    }
}

/// Runs a batch of rows of several models through the trunk that this model shares with them.
pub(crate) fn run_family(
    models: &mut Models,
    model: ModelId,
    (batch, start): (&Batch, Instant),
    segments: &[Segment],
    outputs: &mut Vec<Vec<Vec<u8>>>,
) -> Result<(), NotRun> {
    guarded(models, model, |executor| match executor.in_family() {
        Some(member) => batch.given(start, |inputs| member.run_mixed(inputs, segments, outputs)),
        None => {
            Err(ExecuteError::Failed { items: batch.items, reason: "the model shares its trunk with no other".into() })
        }
    })
}

/// Stages the next plan if its inputs have arrived; false if there was nothing to do.
fn stage_next(models: &mut Models, order_queue: &mut OrderQueue<'_>) -> bool {
    let Some(next) = order_queue.next_plan().filter(|next| next.batch.is_none() && !next.plan.is_mixed()) else {
        return false;
    };
    let model = next.plan.model;
    let Some(executor) = models.get_mut(&model) else { return false };
    if executor.in_steps().is_none_or(|steps| steps.staged() > 0) || !next.gather_now() {
        return false;
    }
    let inputs = std::mem::take(&mut next.inputs);
    let batch = Batch::gather(&next.plan.requests, inputs, executor.signature());
    if batch.items > 0
        && let Err(error) = stage(models, model, &batch, next.inputs_at)
    {
        // It is tried again when its turn comes, and an error counts then.
        tracing::warn!(%error, "the next batch was not staged");
    }
    next.batch = Some(batch);
    true
}

/// [`guarded`], for a model with steps.
fn guarded_step(
    models: &mut Models,
    model: ModelId,
    step: impl FnOnce(&mut dyn StagedExecutor) -> Result<(), ExecuteError>,
) -> Result<(), NotRun> {
    guarded(models, model, |executor| executor.in_steps().map_or(Ok(()), step))
}

/// Calls a model's executor and catches panics. If a GPU thread died, the backend would accept plans and run none. An
/// executor that panicked is reset, or removed if it cannot be.
fn guarded(
    models: &mut Models,
    model: ModelId,
    call: impl FnOnce(&mut dyn ModelExecutor) -> Result<(), ExecuteError>,
) -> Result<(), NotRun> {
    let Some(executor) = models.get_mut(&model) else { return Err("the model is gone".into()) };
    if let Ok(ran) = catch_unwind(AssertUnwindSafe(|| call(executor.as_mut()))) {
        return ran.map_err(NotRun::from);
    }
    let reset = || executor.in_steps().map_or((), |steps| steps.reset());
    if catch_unwind(AssertUnwindSafe(reset)).is_ok() {
        return Err("the executor panicked".into());
    }
    let lost = models.remove(&model);
    if catch_unwind(AssertUnwindSafe(|| drop(lost))).is_err() {
        tracing::error!(%model, "the executor panicked when it was dropped; its memory may be lost");
    }
    Err("the executor panicked, also when it was reset: its model is not used any more, load it again".into())
}
