//! Turns the findings of a recorder into explanations.

use symphony_scheduler::{DropCause, IDLE_COUNTED_MAX, Matched, PlanWhy, Request, Rival};
use symphony_types::{FailReason, GpuClass, GpuId, Time};

use crate::explanation::{
    Actual, BatchStory, DropStory, Explanation, GpuStory, InputsStory, Planned, RivalStory, ShedStory, Window,
};
use crate::flight_recorder::Finding;
use crate::records::{BatchEnd, BatchRecord, DropRecord};

/// The host's names of models and GPUs.
pub trait Names {
    /// A model by the host's number.
    fn model(&self, model: u32) -> String;
    /// Its policy, as operators write it; if known.
    fn policy(&self, model: u32) -> Option<String>;
    /// A model by its slot at the ranker.
    fn rival(&self, slot: u32) -> String;
    /// A GPU as the host calls it.
    fn gpu(&self, gpu: GpuId) -> String;
    /// Its kind, if known.
    fn gpu_kind(&self, gpu: GpuId) -> Option<String>;
    /// The GPU kind of this class.
    fn class_kind(&self, class: GpuClass) -> Option<String>;
    /// The rules of a policy that does not explain single decisions.
    fn rules(&self) -> Option<PolicyRules> {
        None
    }
}

/// The policy's rules for sending batches and dropping requests, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyRules {
    /// Why these requests form a batch, now, on this GPU.
    pub batch: &'static str,
    /// Why a request was dropped.
    pub dropped: &'static str,
}

/// How an explanation states the time of its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// As a time before now.
    Now(Time),
    /// As virtual time, whose origin is known.
    Origin,
}

/// Explains findings.
pub struct Explainer<'a> {
    /// Names of models and GPUs.
    pub names: &'a dyn Names,
    /// Times of decisions.
    pub since: Since,
}

impl std::fmt::Debug for Explainer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer").field("since", &self.since).finish_non_exhaustive()
    }
}

/// Milliseconds from `from` to `at`; negative if `at` is earlier.
fn offset_ms(at: Time, from: Time) -> f64 {
    if at >= from { at.since(from).as_millis_f64() } else { -from.since(at).as_millis_f64() }
}

impl Explainer<'_> {
    /// Puts one finding into numbers and names.
    #[must_use]
    pub fn explain(&self, found: &Finding) -> Explanation {
        match found {
            Finding::Batch { number, record, request, requests } => {
                self.of_batch(*number, record, request.as_ref(), requests)
            }
            Finding::Drop(record) => self.of_drop(record),
        }
    }

    fn begin(&self, model: u32, decided: Time, request: Option<&Request>, outcome: &'static str) -> Explanation {
        let (ago, at) = match self.since {
            Since::Now(now) => (Some(now.since(decided).as_millis_f64()), None),
            Since::Origin => (None, Some(decided.as_secs_f64())),
        };
        Explanation {
            request: request.map(|request| request.id.to_string()),
            items: request.map(|request| request.items),
            model: self.names.model(model),
            policy: self.names.policy(model),
            outcome,
            decided_ago_ms: ago,
            decided_at_s: at,
            batch: None,
            dropped: None,
        }
    }

    fn of_batch(
        &self,
        number: u64,
        record: &BatchRecord,
        request: Option<&Request>,
        members: &[Request],
    ) -> Explanation {
        let BatchRecord { model, decided, plan, end } = record;
        let ms = |at: Time| offset_ms(at, *decided);
        let execution = plan.end.since(plan.start);
        let actual = match end {
            BatchEnd::Done { start, at_latest, latency } => Some(Actual {
                at_latest: *at_latest,
                start_late_ms: offset_ms(*start, plan.start),
                execution_ms: latency.as_millis_f64(),
                end_ms: ms(*start + *latency),
            }),
            BatchEnd::Running | BatchEnd::Refused | BatchEnd::Lost => None,
        };
        let due = request.map_or(plan.must_end_by, |request| request.deadline);
        let outcome = match end {
            BatchEnd::Running => "running",
            BatchEnd::Refused => "refused",
            BatchEnd::Lost => "lost",
            BatchEnd::Done { start, latency, .. } if *start + *latency > due => "late",
            BatchEnd::Done { .. } => "in_time",
        };
        let why = plan.why.as_ref();
        // If nothing can join a batch, its D − ℓ(b+k) lies before all other times.
        let frontrun = why.map(|why| why.frontrun).filter(|&frontrun| frontrun > Time::ZERO);
        let batch = BatchStory {
            number,
            items: plan.batch,
            requests: plan.requests,
            target: why.map(|why| why.target),
            skipped: why.map(|why| why.skipped),
            left: why.map(|why| why.left),
            head_waited_ms: why.map(|why| decided.since(why.head_arrived).as_millis_f64()),
            window: Window {
                frontrun_ms: frontrun.map(ms),
                guard_ms: why.map(|why| why.guard.as_millis_f64()),
                latest_ms: ms(why.map_or(plan.must_end_by - execution, |why| why.latest)),
            },
            gpu: self.gpu(plan.gpu, why),
            rule: self.names.rules().filter(|_| why.is_none()).map(|rules| rules.batch),
            rivals: why.filter(|why| why.grant.matched != Matched::Untold).map(|why| self.rivals(why, *decided)),
            inputs: why.map(|why| InputsStory { within_ms: why.inputs.as_millis_f64(), by: why.inputs_by.label() }),
            planned: Planned {
                start_ms: ms(plan.start),
                execution_ms: execution.as_millis_f64(),
                end_ms: ms(plan.end),
                must_end_by_ms: ms(plan.must_end_by),
            },
            actual,
            deadline_ms: request.map(|request| ms(request.deadline)),
            members: members.iter().map(|member| member.id.to_string()).collect(),
        };
        Explanation { batch: Some(batch), ..self.begin(*model, *decided, request, outcome) }
    }

    fn gpu(&self, gpu: GpuId, why: Option<&PlanWhy>) -> GpuStory {
        let grant = why.map(|why| why.grant).unwrap_or_default();
        GpuStory {
            name: self.names.gpu(gpu),
            kind: self.names.gpu_kind(gpu),
            matched: match grant.matched {
                Matched::Untold => "untold",
                Matched::AtItsStart => "at_its_start",
                Matched::FirstInLine => "first_in_line",
            },
            choice: grant.choice.label(),
            others_idle: grant.others_idle,
            others_idle_or_more: grant.others_idle >= IDLE_COUNTED_MAX,
        }
    }

    fn rivals(&self, why: &PlanWhy, decided: Time) -> RivalStory {
        let next = why.grant.next_rival;
        RivalStory {
            count: why.grant.rivals,
            next_model: next.map(|Rival { model, .. }| self.names.rival(model)),
            next_latest_ms: next.map(|Rival { latest, .. }| offset_ms(latest, decided)),
        }
    }

    fn of_drop(&self, record: &DropRecord) -> Explanation {
        let DropRecord { model, decided, request, reason, cause, lost } = record;
        let ms = |at: Time| offset_ms(at, *decided);
        let of = |what: fn(&DropCause) -> Time| cause.as_ref().map(|cause| ms(what(cause)));
        let looked_at = cause.filter(|cause| cause.batch > 0);
        let story = DropStory {
            reason: if *lost { FailReason::NoGpu.label() } else { reason.label() },
            rule: self.names.rules().filter(|_| cause.is_none()).map(|rules| rules.dropped),
            deadline_ms: ms(request.deadline),
            waited_ms: cause.map(|cause| decided.since(cause.arrived).as_millis_f64()),
            must_end_by_ms: of(|cause| cause.must_end_by),
            batch: looked_at.map(|cause| cause.batch),
            kind: looked_at.and_then(|cause| self.names.class_kind(cause.class)),
            target: cause.map(|cause| cause.target),
            // A batch beyond the largest never ends.
            batch_end_ms: looked_at.map(|cause| cause.batch_end).filter(|&end| end < Time::NEVER).map(ms),
            alone_end_ms: of(|cause| cause.alone_end),
            waiting: cause.map(|cause| cause.waiting),
            shed: cause.and_then(|cause| cause.shed).map(|shed| ShedStory {
                pressure: shed.pressure.share(),
                value: shed.value.number(),
                share: shed.pressure.share_of(shed.value),
            }),
        };
        Explanation { dropped: Some(story), ..self.begin(*model, *decided, Some(request), "dropped") }
    }
}

#[cfg(test)]
mod tests {
    use symphony_scheduler::Plan;
    use symphony_types::{Nanos, RequestId, RequestValue};

    use super::*;

    struct Numbers;

    impl Names for Numbers {
        fn model(&self, model: u32) -> String {
            format!("m{model}")
        }

        fn policy(&self, _: u32) -> Option<String> {
            None
        }

        fn rival(&self, slot: u32) -> String {
            format!("m{slot}")
        }

        fn gpu(&self, gpu: GpuId) -> String {
            gpu.to_string()
        }

        fn gpu_kind(&self, _: GpuId) -> Option<String> {
            None
        }

        fn class_kind(&self, _: GpuClass) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_batch_is_judged_and_told_by_when_it_ran_and_not_by_its_plan() {
        let at = |ms| Time::ZERO + Nanos::from_millis(ms);
        // Planned from 4 to 9 ms, due at 10.
        let (start, end, due) = (at(4), at(9), at(10));
        let gpu = GpuId::new(0);
        let plan = Plan { gpu, start, end, batch: 1, must_end_by: due, first: 0, requests: 1, why: None };
        let (id, weight) = (RequestId::default(), RequestValue::ONE);
        let request = Request { id, deadline: due, items: 1, weight, variant: 0 };
        let explainer = Explainer { names: &Numbers, since: Since::Origin };
        let told = |is_live, start_ms, latency_ms| {
            let (start, latency) = (at(start_ms), Nanos::from_millis(latency_ms));
            let end = BatchEnd::Done { start, at_latest: is_live && start_ms <= 4, latency };
            let record = BatchRecord { model: 1, decided: at(1), plan, end };
            let (request, requests) = (Some(request), vec![request]);
            let told = explainer.explain(&Finding::Batch { number: 0, record, request, requests });
            (told.outcome, told.to_string())
        };
        for (start_ms, latency_ms, outcome, actual) in [
            (1, 5, "in_time", "start at least 3.000 ms early, 5.000 ms of execution"),
            // It took too long, and its early start made up for that.
            (1, 8, "in_time", "(3.000 ms more than predicted), end +8.000 ms at the latest"),
            (1, 10, "late", "start at least 3.000 ms early, 10.000 ms of execution"),
            (4, 5, "in_time", "start on time or early, 5.000 ms of execution"),
            (4, 5, "in_time", "at least 1.000 ms left to send the answer"),
            (6, 5, "late", "start 2.000 ms late, 5.000 ms of execution"),
            (6, 5, "late", "(0.000 ms more than predicted), end +10.000 ms\n"),
        ] {
            let (judged, text) = told(true, start_ms, latency_ms);
            assert_eq!(judged, outcome, "{text}");
            assert!(text.contains(actual), "`{actual}` in {text}");
        }
        let (_, simulated) = told(false, 4, 5);
        assert!(
            simulated.contains("start 0.000 ms late, 5.000 ms of") && simulated.contains(": 1.000 ms left"),
            "{simulated}"
        );
    }
}
