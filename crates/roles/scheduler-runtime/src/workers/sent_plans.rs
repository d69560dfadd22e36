//! The plans that a model worker has sent, until their ends are reported.

use std::collections::HashSet;

use symphony_scheduler::{Plan, Request};
use symphony_types::{FailReason, ModelId, Nanos, RequestId, Time};

use crate::workers::messages::{PlanId, SealNumber};

/// Plans without a report this long after their predicted end are forgotten.
const PLAN_MEMORY: Nanos = Nanos::from_millis(10_000);

/// A GPU is silent if a plan is late by its predicted duration and by at least this: execution times vary by less, and
/// reports do not travel for so long.
const SILENT_AFTER: Nanos = Nanos::from_millis(300);

/// Empty request lists kept for reuse: enough for a burst of reports.
const SPARE_LISTS_MAX: usize = 256;

/// A plan as it was sent.
#[derive(Debug)]
pub(crate) struct SentPlan {
    pub(crate) model: ModelId,
    pub(crate) end: Time,
    pub(crate) predicted: Nanos,
    pub(crate) requests: Vec<Request>,
    /// Its number in the recorder, if it is recorded.
    pub(crate) record: Option<u64>,
}

/// What part of a plan ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// All of it.
    Whole,
    /// A batch of this many items: the inputs of the others had not come.
    Items(u32),
    /// Nothing, or without a result: the batch failed.
    Failed,
}

impl SentPlan {
    /// When it began, if its report came `now`. Backends report how late they were, not how early: a plan that was not
    /// late ended before its report came, so it began at the latest by its latency before.
    pub(crate) fn began(&self, now: Time, start_late: Nanos, latency: Nanos) -> Time {
        let planned = self.end - self.predicted;
        if start_late == Nanos::ZERO { planned.min(now - latency) } else { planned + start_late }
    }

    /// The model of one of its requests: the plan's own, or another one that shares its trunk.
    pub(crate) const fn model_of(&self, request: &Request) -> ModelId {
        if request.variant == 0 { self.model } else { ModelId::new(request.variant) }
    }

    /// Whether it has rows of several models.
    pub(crate) fn is_mixed(&self) -> bool {
        self.requests.iter().any(|request| self.model_of(request) != self.model)
    }

    /// Items of the plan.
    pub(crate) fn items(&self) -> u32 {
        self.requests.iter().map(|request| request.items).sum()
    }

    /// The part of the plan that ran, by the requests that failed and their reasons.
    pub(crate) fn ran(&self, failed: &[(RequestId, FailReason)]) -> Ran {
        if failed.is_empty() {
            return Ran::Whole;
        }
        if failed.iter().any(|(_, reason)| *reason == FailReason::ExecutionFailed) {
            return Ran::Failed;
        }
        let ran = self.requests.iter().filter(|request| !failed.iter().any(|(id, _)| *id == request.id));
        Ran::Items(ran.map(|request| request.items).sum())
    }
}

/// Plans by GPU. A GPU has at most two or three (the rank worker ensures it), so look-ups are linear.
#[derive(Debug, Default)]
pub(crate) struct SentPlans {
    by_gpu: Vec<Vec<(PlanId, SentPlan)>>,
    spare: Vec<Vec<Request>>,
    /// Every request in `by_gpu`, built on demand and dropped with the next change: needed only while a frontend
    /// announces its requests again, thousands at a time.
    requests: Option<HashSet<RequestId>>,
}

impl SentPlans {
    /// Records a plan that was sent at `now`.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        id: PlanId,
        model: ModelId,
        plan: &Plan,
        requests: &[Request],
        record: Option<u64>,
    ) {
        self.requests = None;
        let gpu = id.gpu as usize;
        if gpu >= self.by_gpu.len() {
            self.by_gpu.resize_with(gpu + 1, Vec::new);
        }
        let mut list = self.spare.pop().unwrap_or_default();
        list.extend_from_slice(requests);
        let plans = &mut self.by_gpu[gpu];
        plans.retain(|(_, plan)| plan.end + PLAN_MEMORY > now);
        let (end, predicted) = (plan.end, plan.end.since(plan.start));
        plans.push((id, SentPlan { model, end, predicted, requests: list, record }));
    }

    /// Removes a plan.
    pub(crate) fn take(&mut self, id: PlanId) -> Option<SentPlan> {
        let plans = self.by_gpu.get_mut(id.gpu as usize)?;
        let index = plans.iter().position(|(other, _)| *other == id)?;
        self.requests = None;
        Some(plans.swap_remove(index).1)
    }

    /// Removes the oldest plan that a GPU got under `seal`.
    pub(crate) fn take_oldest(&mut self, gpu: u32, seal: SealNumber) -> Option<SentPlan> {
        let plans = self.by_gpu.get(gpu as usize)?;
        let under_seal = plans.iter().map(|(id, _)| *id).filter(|id| id.seal == seal);
        let oldest = under_seal.min_by_key(|id| id.sequence)?;
        self.take(oldest)
    }

    /// Whether a GPU has a plan under `seal` whose report is long overdue.
    pub(crate) fn is_silent(&self, now: Time, gpu: u32, seal: SealNumber) -> bool {
        let overdue =
            |(id, plan): &(PlanId, SentPlan)| id.seal == seal && plan.end + plan.predicted.max(SILENT_AFTER) < now;
        self.by_gpu.get(gpu as usize).is_some_and(|plans| plans.iter().any(overdue))
    }

    /// Keeps a finished plan's memory for reuse.
    pub(crate) fn recycle(&mut self, plan: SentPlan) {
        if self.spare.len() < SPARE_LISTS_MAX {
            let mut list = plan.requests;
            list.clear();
            self.spare.push(list);
        }
    }

    /// Whether a request is in one of the plans.
    pub(crate) fn has(&mut self, id: RequestId) -> bool {
        let plans = &self.by_gpu;
        let all =
            || plans.iter().flatten().flat_map(|(_, plan)| plan.requests.iter().map(|request| request.id)).collect();
        self.requests.get_or_insert_with(all).contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::GpuId;

    use super::*;

    const MODEL: ModelId = ModelId::new(1);

    fn plan(gpu: u32, seal: SealNumber, sequence: u64) -> PlanId {
        PlanId { gpu, seal, sequence }
    }

    fn runs(start_ms: u64, end_ms: u64) -> Plan {
        let (gpu, start, end) = (GpuId::new(0), at(start_ms), at(end_ms));
        Plan { gpu, start, end, batch: 1, must_end_by: end, first: 0, requests: 1, why: None }
    }

    fn request(sequence: u64) -> Request {
        let id = RequestId { sequence, ..RequestId::default() };
        Request { id, deadline: Time::from_nanos(1), items: 1, weight: symphony_types::RequestValue::ONE, variant: 0 }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn a_plan_is_found_by_its_whole_name_and_once() {
        let mut sent = SentPlans::default();
        sent.insert(at(0), plan(3, 7, 1), MODEL, &runs(1, 4), &[request(1), request(2)], None);
        assert!(sent.take(plan(3, 8, 1)).is_none());
        assert!(sent.take(plan(4, 7, 1)).is_none());
        assert!(sent.has(request(2).id) && !sent.has(request(3).id));
        let taken = sent.take(plan(3, 7, 1)).unwrap();
        assert_eq!((taken.predicted, taken.requests.len()), (Nanos::from_millis(3), 2));
        assert!(sent.take(plan(3, 7, 1)).is_none());
        assert!(!sent.has(request(2).id));
    }

    #[test]
    fn a_plan_that_was_not_late_began_at_the_latest_by_its_latency_before_its_report() {
        let mut sent = SentPlans::default();
        sent.insert(at(0), plan(3, 7, 1), MODEL, &runs(4, 9), &[request(1)], None);
        let sent = sent.take(plan(3, 7, 1)).unwrap();
        let began = |now, start_late| sent.began(at(now), Nanos::from_millis(start_late), Nanos::from_millis(5));
        assert_eq!(began(6, 0), at(1), "three milliseconds early");
        assert_eq!(began(10, 0), at(4), "its report took a millisecond");
        assert_eq!(began(13, 2), at(6), "its report took two");
    }

    #[test]
    fn a_gpu_is_silent_that_should_have_reported_long_ago() {
        let mut sent = SentPlans::default();
        sent.insert(at(0), plan(1, 7, 1), MODEL, &runs(1, 4), &[request(1)], None);
        sent.insert(at(0), plan(2, 7, 1), MODEL, &runs(1, 401), &[request(2)], None);
        let silent = |sent: &SentPlans, ms| [1, 2].map(|gpu| sent.is_silent(at(ms), gpu, 7));
        assert_eq!(silent(&sent, 304), [false, false]);
        assert_eq!(silent(&sent, 305), [true, false]);
        assert_eq!(silent(&sent, 801), [true, false], "twice as long as predicted");
        assert_eq!(silent(&sent, 802), [true, true]);
        assert!(!sent.is_silent(at(900), 1, 8) && !sent.is_silent(at(900), 9, 7), "another seal, another GPU");
        sent.take(plan(1, 7, 1)).unwrap();
        assert_eq!(silent(&sent, 900), [false, true]);
    }

    #[test]
    fn a_lost_gpu_gives_its_plans_back_in_order_and_keeps_those_of_the_next_seal() {
        let mut sent = SentPlans::default();
        for (seal, sequence) in [(7, 2), (8, 1), (7, 1)] {
            sent.insert(at(0), plan(0, seal, sequence), MODEL, &runs(1, 4), &[request(10 * seal + sequence)], None);
        }
        let lost: Vec<_> =
            std::iter::from_fn(|| sent.take_oldest(0, 7)).map(|plan| plan.requests[0].id.sequence).collect();
        assert_eq!(lost, [71, 72]);
        assert!(sent.take(plan(0, 8, 1)).is_some());
    }

    #[test]
    fn plans_never_heard_of_are_forgotten_with_the_next_one_on_their_gpu() {
        let mut sent = SentPlans::default();
        sent.insert(at(0), plan(0, 1, 1), MODEL, &runs(1, 4), &[request(1)], None);
        sent.insert(at(10_004), plan(0, 1, 2), MODEL, &runs(10_005, 10_008), &[request(2)], None);
        assert!(sent.take(plan(0, 1, 1)).is_none());
        assert!(sent.take(plan(0, 1, 2)).is_some());
    }

    #[test]
    fn what_ran_of_a_plan_is_told_by_why_the_others_failed() {
        let requests = [request(1), Request { items: 4, ..request(2) }, request(3)];
        let plan =
            SentPlan { model: MODEL, end: at(1), predicted: Nanos::ZERO, requests: requests.to_vec(), record: None };
        let failed = |which: &[(usize, FailReason)]| {
            let failed: Vec<_> = which.iter().map(|&(place, reason)| (requests[place].id, reason)).collect();
            plan.ran(&failed)
        };
        use FailReason::{ExecutionFailed, GpuLost, OutOfMemory, PayloadLost};
        assert_eq!(failed(&[]), Ran::Whole);
        assert_eq!(failed(&[(1, PayloadLost)]), Ran::Items(2));
        assert_eq!(failed(&[(0, PayloadLost), (1, PayloadLost), (2, PayloadLost)]), Ran::Items(0));
        assert_eq!(failed(&[(0, ExecutionFailed), (1, PayloadLost), (2, ExecutionFailed)]), Ran::Failed);
        // Other reports cover these reasons, or the GPU is not to blame.
        for reason in [GpuLost, OutOfMemory] {
            assert_eq!(failed(&[0, 1, 2].map(|place| (place, reason))), Ran::Items(0));
        }
    }

    #[test]
    fn lists_are_used_again_empty() {
        let mut sent = SentPlans::default();
        sent.insert(at(0), plan(0, 1, 1), MODEL, &runs(1, 4), &[request(1), request(2)], None);
        let done = sent.take(plan(0, 1, 1)).unwrap();
        sent.recycle(done);
        sent.insert(at(0), plan(0, 1, 2), MODEL, &runs(1, 4), &[request(3)], None);
        assert_eq!(sent.take(plan(0, 1, 2)).unwrap().requests, [request(3)]);
    }
}
