//! Checks invariants S1, S2, S3 and S5 at every event of a run (docs/internals/invariants.md), for any policy.

use symphony_scheduler::{Delays, Plan, PlanCheck, Request, Violation};
use symphony_types::{FamilyProfile, GpuClass, GpuId, Invariant, LatencyProfile, Nanos, RequestId, Time, VariantRows};

use crate::open_requests::{OpenRequest, OpenRequests, RequestOrigin};

/// Checks the orders of the policy with records of its own.
#[derive(Debug)]
pub(crate) struct Referee {
    plans: PlanCheck,
    requests: OpenRequests,
    gpu_classes: Vec<GpuClass>,
    delays: Delays,
}

fn violated<T>(invariant: Invariant, detail: String) -> Result<T, Violation> {
    Err(Violation { invariant, detail })
}

/// What a batch of these requests takes, by a count of its own.
fn composed(family: &FamilyProfile, requests: &[Request]) -> Nanos {
    let mut rows = VariantRows::new(family.variants());
    requests.iter().for_each(|request| rows.add(request.variant, request.items));
    family.exact(&rows).unwrap_or(Nanos::MAX)
}

impl Referee {
    pub(crate) fn new(gpu_classes: Vec<GpuClass>, delays: Delays) -> Self {
        Self { plans: PlanCheck::new(gpu_classes.len() as u32), requests: OpenRequests::new(), gpu_classes, delays }
    }

    /// Requests without an outcome.
    pub(crate) fn open(&self) -> u64 {
        self.requests.len()
    }

    /// A request arrives. Returns the oldest open one if it is too old for both to be kept.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        model: u32,
        request: &Request,
        origin: RequestOrigin,
    ) -> Option<OpenRequest> {
        let open = OpenRequest {
            arrived: now,
            deadline: request.deadline,
            model,
            items: request.items as u16,
            variant: request.variant as u16,
            origin,
            planned: false,
        };
        self.requests.open(request.id.sequence, open)
    }

    /// The policy drops a request.
    #[inline]
    pub(crate) fn dropped(&mut self, model: u32, id: RequestId) -> Result<OpenRequest, Violation> {
        self.requests.close(id.sequence, model, false).map_or_else(|| not_its_own(model, id), Ok)
    }

    /// A pipeline withdraws a request; `None` if the policy does not hold it: it is on a GPU, or has its outcome.
    pub(crate) fn withdrawn(&mut self, model: u32, id: RequestId) -> Option<OpenRequest> {
        self.requests.close(id.sequence, model, false)
    }

    /// A GPU has answered a request of its plan.
    #[inline]
    pub(crate) fn finished(&mut self, model: u32, sequence: u64) -> Option<OpenRequest> {
        self.requests.close(sequence, model, true)
    }

    /// A GPU returns a request of its plan unanswered.
    pub(crate) fn given_back(&mut self, model: u32, sequence: u64) -> Option<OpenRequest> {
        self.requests.set_planned(sequence, model, false)
    }

    /// The GPU can start a new plan from `until` on, whatever its earlier plans were; never while it has failed.
    pub(crate) fn busy_until(&mut self, gpu: GpuId, until: Time) {
        self.plans.busy_until(gpu, until);
    }

    /// What a GPU is.
    pub(crate) fn class_of(&self, gpu: GpuId) -> GpuClass {
        self.gpu_classes.get(gpu.get() as usize).copied().unwrap_or_default()
    }

    /// A plan of a model with these profiles by class is sent at `now`; of models that share a trunk, with these of the
    /// family. It is checked against the profile of its GPU's real class, whatever the policy assumes.
    pub(crate) fn planned(
        &mut self,
        now: Time,
        (profiles, family): (&[LatencyProfile], Option<&[FamilyProfile]>),
        plan: &Plan,
        requests: &[Request],
    ) -> Result<(), Violation> {
        self.plans.check(now, plan)?;
        let items: u64 = requests.iter().map(|request| u64::from(request.items)).sum();
        let class = self.gpu_classes.get(plan.gpu.get() as usize);
        let Some(profile) = class.and_then(|class| profiles.get(class.index())) else {
            let detail =
                format!("a plan of {} is for {}; there are {} GPUs", plan.batch, plan.gpu, self.gpu_classes.len());
            return violated(Invariant::S5, detail);
        };
        if plan.batch > profile.batch_max() || items != u64::from(plan.batch) {
            let detail = format!(
                "a plan of {} on {} carries {items} items, and the largest batch is {}",
                plan.batch,
                plan.gpu,
                profile.batch_max(),
            );
            return violated(Invariant::S5, detail);
        }
        let family = family.and_then(|family| family.get(self.class_of(plan.gpu).index()));
        let takes = match family {
            Some(family) => composed(family, requests),
            None => profile.latency(plan.batch),
        };
        let reaches = now + self.delays.lead(plan.batch);
        if plan.start < reaches || plan.end != plan.start + takes {
            let detail = format!(
                "a plan of {} made at {now} reaches its GPU at {reaches} and takes {takes}; it says from {} to {}",
                plan.batch, plan.start, plan.end,
            );
            return violated(Invariant::S2, detail);
        }
        Ok(())
    }

    /// Checks a request of a plan that was sent: it can be in time, and waits as it arrived.
    #[inline]
    pub(crate) fn planned_request(&mut self, model: u32, plan: &Plan, request: &Request) -> Result<(), Violation> {
        if plan.end + self.delays.reply > request.deadline {
            let detail = format!(
                "request {} is due at {}, its plan ends at {} and the reply takes {}",
                request.id, request.deadline, plan.end, self.delays.reply
            );
            return violated(Invariant::S2, detail);
        }
        let id = request.id;
        match self.requests.set_planned(id.sequence, model, true) {
            Some(open)
                if open.deadline == request.deadline
                    && u32::from(open.items) == request.items
                    && u32::from(open.variant) == request.variant =>
            {
                Ok(())
            }
            Some(open) => violated(
                Invariant::S2,
                format!(
                    "request {id} is planned with {} items of variant {} for {}, it has {} of {} and is due at {}",
                    request.items, request.variant, request.deadline, open.items, open.variant, open.deadline
                ),
            ),
            None => not_its_own(model, id),
        }
    }

    /// The number of requests that the policy claims to hold after a step.
    #[inline]
    pub(crate) fn waiting(&self, waiting: usize) -> Result<(), Violation> {
        if self.requests.waiting() == waiting as u64 {
            return Ok(());
        }
        let open = self.requests.waiting();
        violated(
            Invariant::S3,
            format!("{open} requests have neither an outcome nor a plan, the policy holds {waiting}"),
        )
    }
}

#[cold]
fn not_its_own<T>(model: u32, id: RequestId) -> Result<T, Violation> {
    violated(Invariant::S3, format!("model {model} decides request {id}, which is not open or not its own"))
}
