//! Invariants S1 to S5 at every event of a run (DESIGN section 11).

use symphony_scheduler::{Delays, ModelAction, Plan, PlanCheck, Request, Violation};
use symphony_types::{GpuId, Invariant, LatencyProfile, RequestId, Time};

use crate::open_requests::{OPEN_SPAN_MAX, OpenRequests};

/// Watches what the decision objects order. Its own books are independent of theirs.
#[derive(Debug)]
pub(crate) struct Referee {
    plans: PlanCheck,
    requests: OpenRequests,
    gpus: u32,
    reply_and_lead: Delays,
}

fn violated<T>(invariant: Invariant, detail: String) -> Result<T, Violation> {
    Err(Violation { invariant, detail })
}

impl Referee {
    pub(crate) fn new(gpus: u32, delays: Delays) -> Self {
        Self { plans: PlanCheck::new(gpus), requests: OpenRequests::new(), gpus, reply_and_lead: delays }
    }

    /// Requests without an outcome.
    pub(crate) fn open(&self) -> u64 {
        self.requests.len()
    }

    #[inline]
    pub(crate) fn arrived(&mut self, model: u32, id: RequestId) -> Result<(), Violation> {
        if self.requests.open(id.sequence, model) {
            return Ok(());
        }
        let detail = format!("request {id} arrives while one {OPEN_SPAN_MAX} arrivals older has no outcome");
        violated(Invariant::S5, detail)
    }

    #[inline]
    pub(crate) fn decided(&mut self, model: u32, id: RequestId) -> Result<(), Violation> {
        if self.requests.close(id.sequence, model) {
            return Ok(());
        }
        let detail = format!("model {model} decides request {id}, which is not open or not its own");
        violated(Invariant::S3, detail)
    }

    /// A plan of `model` is sent at `now`.
    pub(crate) fn executed(
        &mut self,
        now: Time,
        model: u32,
        profile: &LatencyProfile,
        plan: &Plan,
        requests: &[Request],
    ) -> Result<(), Violation> {
        self.plans.check(now, plan)?;
        let items: u64 = requests.iter().map(|request| u64::from(request.items)).sum();
        if plan.gpu.get() >= self.gpus || plan.batch > profile.batch_max() || items != u64::from(plan.batch) {
            let detail = format!(
                "a plan of {} on {} carries {items} items; there are {} GPUs, and the largest batch is {}",
                plan.batch,
                plan.gpu,
                self.gpus,
                profile.batch_max(),
            );
            return violated(Invariant::S5, detail);
        }
        let reaches = now + self.reply_and_lead.lead(plan.batch);
        if plan.start < reaches || plan.end != plan.start + profile.latency(plan.batch) {
            let detail = format!(
                "a plan of {} made at {now} reaches its GPU at {reaches} and takes {}; it says from {} to {}",
                plan.batch,
                profile.latency(plan.batch),
                plan.start,
                plan.end,
            );
            return violated(Invariant::S2, detail);
        }
        for request in requests {
            if plan.end + self.reply_and_lead.reply > request.deadline {
                let detail = format!(
                    "request {} is due at {}, its plan ends at {} and the reply takes {}",
                    request.id, request.deadline, plan.end, self.reply_and_lead.reply
                );
                return violated(Invariant::S2, detail);
            }
            self.decided(model, request.id)?;
        }
        Ok(())
    }

    /// A model answered a grant of `gpu` with these orders.
    pub(crate) fn answered(&self, gpu: GpuId, orders: &[ModelAction]) -> Result<(), Violation> {
        let (mut releases, mut used_until, mut released_at) = (0, None, None);
        for order in orders {
            match order {
                ModelAction::Release { gpu: released, free_at } if *released == gpu => {
                    releases += 1;
                    released_at = Some(*free_at);
                }
                ModelAction::Release { .. } => releases = u32::MAX - 1,
                ModelAction::Execute(plan) if plan.gpu == gpu && used_until.is_none() => used_until = Some(plan.end),
                ModelAction::Execute(_) => releases = u32::MAX - 1,
                _ => {}
            }
        }
        if releases != 1 || used_until.is_some_and(|end| released_at != Some(end)) {
            let detail = format!(
                "the grant of {gpu} was answered by {orders:?}; expected one release, at the plan's end if used"
            );
            return violated(Invariant::S4, detail);
        }
        Ok(())
    }

    /// Orders that do not answer a grant.
    #[inline]
    pub(crate) fn ungranted(&self, orders: &[ModelAction]) -> Result<(), Violation> {
        for order in orders {
            if let ModelAction::Execute(Plan { gpu, .. }) | ModelAction::Release { gpu, .. } = order {
                return violated(Invariant::S4, format!("{gpu} is used or released without a grant: {order:?}"));
            }
        }
        Ok(())
    }

    /// The queue of a model after a step.
    #[inline]
    pub(crate) fn queued(&self, model: u32, len: usize, requests_max: usize) -> Result<(), Violation> {
        if len <= requests_max {
            return Ok(());
        }
        violated(Invariant::S5, format!("model {model} queues {len} requests; at most {requests_max} may wait"))
    }
}
