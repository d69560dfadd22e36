//! Plans with rows of several models: those whose models share a trunk that is loaded here are one batch; others, if a
//! family has dissolved since the plan was made, are a batch for each model, one after another.

use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_protocol::execute::PlannedRequest;
use symphony_types::{FailReason, GpuId, ModelId};

use crate::accepted_plan::AcceptedPlan;
use crate::batch::{Batch, Fate, NotRun};
use crate::steps::{self, Models};

/// What a mixed plan came to.
pub(crate) struct MixedRun {
    /// Of each request.
    pub(crate) fates: Vec<Fate>,
    /// Rows that ran.
    pub(crate) items: u32,
    pub(crate) begun: Instant,
    pub(crate) latency: Duration,
    /// Batches that ran one trunk for several models.
    pub(crate) through_one_trunk: u64,
    /// Batches that had to be aborted.
    pub(crate) hung: u64,
}

/// Runs a plan. Nothing is staged for the next one meanwhile.
pub(crate) fn run(gpu: GpuId, models: &mut Models, plan: &AcceptedPlan, mut inputs: Vec<Option<Bytes>>) -> MixedRun {
    // Inputs are joined before the batch begins, as for one model: that is no part of what it takes.
    let mut gathered = Vec::new();
    for (model, rows) in parts(models, plan) {
        let requests: Vec<PlannedRequest> = rows.iter().map(|&row| plan.requests[row]).collect();
        let inputs: Vec<_> = rows.iter().map(|&row| inputs.get_mut(row).and_then(Option::take)).collect();
        let batch = models.get(&model).map(|executor| Batch::gather(&requests, inputs, executor.signature()));
        gathered.push((model, requests, batch));
    }
    let begun = Instant::now();
    let fates = Vec::with_capacity(plan.requests.len());
    let mut done = MixedRun { fates, items: 0, begun, latency: Duration::ZERO, through_one_trunk: 0, hung: 0 };
    for (model, requests, batch) in gathered {
        let Some(batch) = batch else {
            done.fates.extend(requests.iter().map(|&request| (request, Err(FailReason::ModelNotReady))));
            continue;
        };
        let is_mixed = requests.iter().any(|request| request.model_in(plan.model) != model);
        // The parts before it have taken their time.
        let batch_at = (&batch, Instant::now());
        let (fates, ran) =
            if is_mixed { run_family(models, model, batch_at, plan.model) } else { run_one(models, model, batch_at) };
        if let Err(error) = &ran {
            batch.log_failure(gpu, model, error);
        }
        done.hung += u64::from(ran.is_err_and(|error| error.hung));
        done.through_one_trunk += u64::from(is_mixed && batch.items > 0);
        done.items = done.items.saturating_add(batch.items);
        done.fates.extend(fates);
    }
    done.latency = begun.elapsed();
    done
}

/// The rows of a plan by what runs them, each with one of its models.
fn parts(models: &Models, plan: &AcceptedPlan) -> Vec<(ModelId, Vec<usize>)> {
    let mut parts: Vec<(ModelId, Vec<usize>)> = Vec::new();
    let member = |model: ModelId| models.get(&model).and_then(|executor| executor.in_family());
    for (row, request) in plan.requests.iter().enumerate() {
        let model = request.model_in(plan.model);
        let runs_with = |other: ModelId| {
            let shares =
                || member(model).zip(member(other)).is_some_and(|(one, two)| one.trunk_place() == two.trunk_place());
            other == model || shares()
        };
        match parts.iter_mut().find(|(other, _)| runs_with(*other)) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((model, vec![row])),
        }
    }
    parts
}

/// Rows of several models through their trunk, which one of them names.
fn run_family(
    models: &mut Models,
    model: ModelId,
    (batch, start): (&Batch, Instant),
    plan: ModelId,
) -> (Vec<Fate>, Result<(), NotRun>) {
    let (segments, mut outputs) = (batch.segments(plan), Vec::new());
    let mut ran = Ok(());
    if batch.items > 0 {
        ran = steps::run_family(models, model, (batch, start), &segments, &mut outputs);
    }
    (batch.family_fates(ran.clone(), &outputs), ran)
}

/// Rows of one model.
fn run_one(models: &mut Models, model: ModelId, (batch, start): (&Batch, Instant)) -> (Vec<Fate>, Result<(), NotRun>) {
    let (mut ran, mut outputs) = (Ok(()), Vec::new());
    if batch.items > 0 {
        ran = steps::stage(models, model, batch, start)
            .and_then(|()| steps::run(models, None, (model, batch, start), &mut outputs));
    }
    // Gone if it panicked and could not be reset.
    let fates = match models.get(&model) {
        Some(executor) => batch.fates(executor.as_ref(), ran.clone(), &outputs),
        None => batch.lost(),
    };
    (fates, ran)
}
