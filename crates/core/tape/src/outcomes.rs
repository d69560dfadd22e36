//! What became of recorded requests: the batches and drops that were decided, and the ends that backends reported.

use std::collections::{BTreeMap, VecDeque};

use symphony_scheduler::{Plan, Request};
use symphony_types::{GpuId, ModelId, Nanos, RequestId, Time};

use crate::recorded::{RecordedBatch, RecordedModel, RecordedOutcome};

/// Batches of a model without a report that are remembered; a sub-cluster's GPUs have fewer.
const RUNNING_MAX: usize = 1 << 13;

/// The longest that a report is expected to take, also on a machine that is busy with other things.
const REPORT_TAKES_MAX: Nanos = Nanos::from_millis(10);

/// Which plan ended.
pub(crate) enum Which {
    /// The one with this GPU and start.
    At(GpuId, Time),
    /// The plan that was to take this long. Of several with equal sizes it is the one whose end was just now. One that
    /// was not late may have begun early, and its report does not say how early: it is the first that is not overdue by
    /// more than a report takes.
    Taking(Nanos),
}

/// The models by their ids.
type Models = BTreeMap<ModelId, RecordedModel>;

/// The requests of one tape that have no outcome yet.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// Where each is among the requests of its model.
    open: BTreeMap<RequestId, (ModelId, usize)>,
    running: BTreeMap<ModelId, VecDeque<Running>>,
}

struct Running {
    gpu: GpuId,
    start: Time,
    predicted: Nanos,
    requests: Vec<RequestId>,
}

impl Outcomes {
    pub(crate) fn arrived(&mut self, id: RequestId, model: ModelId, position: usize) {
        self.open.insert(id, (model, position));
    }

    /// A plan, with the requests of its step, of which plans may still have this many. A tape is not trusted: if plans
    /// shared requests, they would take far more memory than the tape has bytes.
    pub(crate) fn planned(&mut self, model: ModelId, plan: &Plan, planned: &[Request], left: &mut usize) {
        let first = plan.first as usize;
        let requests = planned.get(first..first.saturating_add(plan.requests as usize));
        let requests = requests.filter(|requests| requests.len() <= *left).unwrap_or_default();
        *left -= requests.len();
        let running = self.running.entry(model).or_default();
        if running.len() >= RUNNING_MAX {
            running.pop_front();
        }
        running.push_back(Running {
            gpu: plan.gpu,
            start: plan.start,
            predicted: plan.end.since(plan.start),
            requests: requests.iter().map(|request| request.id).collect(),
        });
    }

    /// A request waits again: its plan did not run, or was of a GPU that was lost.
    pub(crate) fn returned(&mut self, model: ModelId, id: RequestId) {
        let Some(running) = self.running.get_mut(&model) else { return };
        let Some(at) = running.iter().position(|plan| plan.requests.contains(&id)) else { return };
        running[at].requests.retain(|&own| own != id);
        if running[at].requests.is_empty() {
            running.remove(at);
        }
    }

    /// The GPU was stopped: what it had did not run to its end.
    pub(crate) fn stopped(&mut self, gpu: GpuId) {
        self.running.values_mut().for_each(|running| running.retain(|plan| plan.gpu != gpu));
    }

    pub(crate) fn ended(
        &mut self,
        models: &mut Models,
        now: Time,
        (model, which): (ModelId, &Which),
        (start_late, took): (Nanos, Nanos),
    ) {
        let Some(running) = self.running.get_mut(&model) else { return };
        let at = match *which {
            Which::At(gpu, start) => running.iter().position(|plan| plan.gpu == gpu && plan.start == start),
            Which::Taking(predicted) => {
                let off = |plan: &Running| {
                    let end = plan.start + start_late + took;
                    let overdue = now.since(end);
                    match start_late {
                        Nanos::ZERO if overdue <= REPORT_TAKES_MAX => (false, end.since(Time::ZERO)),
                        Nanos::ZERO => (true, overdue),
                        _ => (false, overdue.max(end.since(now))),
                    }
                };
                let of_this_size = running.iter().enumerate().filter(|(_, plan)| plan.predicted == predicted);
                of_this_size.min_by_key(|(_, plan)| off(plan)).map(|(at, _)| at)
            }
        };
        let Some(plan) = at.and_then(|at| running.remove(at)) else { return };
        if let Some(model) = models.get_mut(&model) {
            // At the latest, if it was not late: its report takes its time.
            let start = if start_late == Nanos::ZERO { plan.start.min(now - took) } else { plan.start + start_late };
            model.batches.push(RecordedBatch { start, took });
        }
        for id in plan.requests {
            self.close(models, id, |at| RecordedOutcome::Ran(now.since(at)));
        }
    }

    pub(crate) fn dropped(&mut self, models: &mut Models, id: RequestId) {
        self.close(models, id, |_| RecordedOutcome::Dropped);
    }

    pub(crate) fn cancelled(&mut self, models: &mut Models, id: RequestId) {
        self.close(models, id, |_| RecordedOutcome::Cancelled);
    }

    /// `outcome` gets the time at which the request arrived.
    fn close(&mut self, models: &mut Models, id: RequestId, outcome: impl Fn(Time) -> RecordedOutcome) {
        let Some((model, position)) = self.open.remove(&id) else { return };
        if let Some(request) = models.get_mut(&model).and_then(|model| model.requests.get_mut(position)) {
            request.outcome = outcome(request.at);
        }
    }
}
