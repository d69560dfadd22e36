//! How a batch is run: in one, or in steps on a device, to which the next batch's inputs travel meanwhile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use symphony_executor::{ExecuteError, ModelExecutor};
use symphony_types::ModelId;

use crate::ahead::Ahead;
use crate::batch::Batch;

/// The models of a GPU.
pub(crate) type Models = HashMap<ModelId, Box<dyn ModelExecutor>>;

/// How often a device is asked whether a batch has ended. Less often, and batches end late; without a pause the thread would take
/// a core for looking.
const POLL_EVERY: Duration = Duration::from_micros(20);

/// Begins to bring a batch's inputs to its device, unless that has been done, or it has none.
pub(crate) fn stage(executor: &mut dyn ModelExecutor, batch: &Batch, start: Instant) -> Result<(), String> {
    guarded(|| match executor.in_steps() {
        Some(steps) if steps.staged() == 0 => batch.given(start, |inputs| steps.stage(inputs)),
        _ => Ok(()),
    })
}

/// Runs a batch, and stages the next plan while it runs.
pub(crate) fn run(
    models: &mut Models,
    ahead: &mut Ahead<'_>,
    (model, batch, start): (ModelId, &Batch, Instant),
    outputs: &mut Vec<Vec<u8>>,
) -> Result<(), String> {
    let gone = || "the model is gone".to_owned();
    let executor = models.get_mut(&model).ok_or_else(gone)?;
    let Some(steps) = executor.in_steps() else {
        return guarded(|| batch.given(start, |inputs| executor.run(inputs, outputs)));
    };
    guarded(|| steps.launch())?;
    loop {
        let steps = models.get_mut(&model).and_then(|executor| executor.in_steps()).ok_or_else(gone)?;
        let mut done = false;
        guarded(|| steps.is_done().map(|is| done = is))?;
        if done {
            return guarded(|| steps.finish(outputs));
        }
        if !stage_next(models, ahead) {
            std::thread::sleep(POLL_EVERY);
        }
    }
}

/// Stages the next plan if its inputs are there; false if there is nothing to do.
fn stage_next(models: &mut Models, ahead: &mut Ahead<'_>) -> bool {
    let Some(next) = ahead.next_plan().filter(|next| next.batch.is_none()) else { return false };
    let Some(executor) = models.get_mut(&next.plan.model) else { return false };
    if executor.in_steps().is_none_or(|steps| steps.staged() > 0) || !next.gather_now() {
        return false;
    }
    let inputs = std::mem::take(&mut next.inputs);
    let batch = Batch::gather(&next.plan.requests, inputs, executor.signature());
    if batch.items > 0
        && let Err(error) = stage(executor.as_mut(), &batch, next.plan.start)
    {
        // It is tried again when its turn comes, and then it counts.
        tracing::warn!(%error, "the next batch was not staged");
    }
    next.batch = Some(batch);
    true
}

/// A GPU thread that dies would leave a backend that accepts plans and runs none.
fn guarded(run: impl FnOnce() -> Result<(), ExecuteError>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ran) => ran.map_err(|error| error.to_string()),
        Err(_) => Err("the executor panicked".to_owned()),
    }
}
