//! Holds a policy for a cluster to its rules (docs/internals/invariants.md), with records of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use symphony_types::{GpuClass, GpuId, Invariant, Nanos, RequestId, Time};

use crate::actions::{Plan, Request};
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster::orders::CLUSTER_ORDERS_MAX;
use crate::cluster_policy::{ClusterAction, ClusterActions, ClusterInput};
use crate::plan_check::Violation;

/// A plan that has not ended.
#[derive(Clone, Debug)]
struct Sent {
    model: u32,
    start: Time,
    end: Time,
    /// Kept only where the GPU can be stopped.
    requests: Vec<Request>,
}

/// A GPU that may be planned on.
#[derive(Clone, Debug)]
struct Gpu {
    class: GpuClass,
    free_at: Time,
    plans: VecDeque<Sent>,
}

/// Gets the same inputs as the policy, before it, and its orders, after it.
///
/// It also knows which requests the policy owns: what a host needs to cancel them, and to hand them to another policy.
#[derive(Clone, Debug)]
pub struct ClusterReferee {
    facts: ClusterFacts,
    models: BTreeMap<u32, Arc<ClusterModel>>,
    gpus: BTreeMap<GpuId, Gpu>,
    owned: HashMap<RequestId, (u32, Request)>,
}

fn violated<T>(invariant: Invariant, detail: String) -> Result<T, Violation> {
    Err(Violation { invariant, detail })
}

impl ClusterReferee {
    /// For a policy that was built with these facts.
    #[must_use]
    pub fn new(facts: ClusterFacts) -> Self {
        Self { facts, models: BTreeMap::new(), gpus: BTreeMap::new(), owned: HashMap::new() }
    }

    /// Notes an input that the policy gets next.
    pub fn observe(&mut self, now: Time, input: &ClusterInput) {
        match input {
            ClusterInput::Model { model, known } => {
                self.models.insert(*model, Arc::clone(known));
            }
            ClusterInput::ModelGone(model) => {
                self.models.remove(model);
                self.owned.retain(|_, (of, _)| *of != *model);
            }
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                self.owned.insert(request.id, (*model, *request));
            }
            ClusterInput::Cancel { request, .. } => {
                self.owned.remove(&request.id);
            }
            ClusterInput::GpuUp { gpu, class, free_at } => {
                self.gpus.insert(*gpu, Gpu { class: *class, free_at: *free_at, plans: VecDeque::new() });
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.remove(gpu);
            }
            ClusterInput::Done { gpu, start, .. } | ClusterInput::Refused { gpu, start, .. } => {
                self.ended(now, *gpu, *start);
            }
            ClusterInput::Wake => {}
        }
    }

    /// A plan has ended, or will not run: an early end makes room for the next plan.
    fn ended(&mut self, now: Time, gpu: GpuId, start: Time) {
        let Some(gpu) = self.gpus.get_mut(&gpu) else { return };
        if let Some(at) = gpu.plans.iter().position(|plan| plan.start == start) {
            gpu.plans.remove(at);
        }
        gpu.free_at = gpu.plans.back().map_or(now, |last| last.end);
    }

    /// Checks the orders of a step and books them; `waiting` is what the policy says that it owns after it.
    ///
    /// # Errors
    /// If an order breaks an invariant. Orders before it are booked.
    pub fn ordered(&mut self, now: Time, orders: &ClusterActions, waiting: usize) -> Result<(), Violation> {
        if orders.list.len().max(orders.planned.len()) > CLUSTER_ORDERS_MAX {
            let detail = format!("{} orders in one step; at most {CLUSTER_ORDERS_MAX} are allowed", orders.list.len());
            return violated(Invariant::S5, detail);
        }
        for action in &orders.list {
            match action {
                ClusterAction::Execute { model, plan } => self.planned(now, *model, plan, orders)?,
                ClusterAction::Preempt(gpu) => self.preempted(now, *gpu)?,
                ClusterAction::Drop { model, request, .. } => self.take(*model, request)?,
                ClusterAction::WakeAt(_) => {}
            }
        }
        if self.owned.len() == waiting {
            return Ok(());
        }
        let detail = format!(
            "{} requests have neither an outcome nor a plan, the policy says that it holds {waiting}",
            self.owned.len()
        );
        violated(Invariant::S3, detail)
    }

    fn planned(&mut self, now: Time, model: u32, plan: &Plan, orders: &ClusterActions) -> Result<(), Violation> {
        let Some(known) = self.models.get(&model).cloned() else {
            return violated(Invariant::S5, format!("a plan is for model {model}, which is not here"));
        };
        let Some(gpu) = self.gpus.get(&plan.gpu) else {
            return violated(Invariant::S5, format!("a plan of model {model} is for {}, which is not here", plan.gpu));
        };
        let Some(requests) = requests_of(orders, plan) else {
            let detail = format!(
                "a plan of model {model} has the requests {} to {} of {}",
                plan.first,
                u64::from(plan.first) + u64::from(plan.requests),
                orders.planned.len()
            );
            return violated(Invariant::S5, detail);
        };
        check_plan(now, (model, known.as_ref()), gpu, plan, requests)?;
        if gpu.plans.len() >= self.facts.plans_max as usize {
            let detail = format!("{} has {} plans that have not ended, and gets another", plan.gpu, gpu.plans.len());
            return violated(Invariant::S5, detail);
        }
        for request in requests {
            self.take(model, request)?;
        }
        let kept = if self.facts.can_preempt { requests.to_vec() } else { Vec::new() };
        if let Some(gpu) = self.gpus.get_mut(&plan.gpu) {
            gpu.free_at = plan.end;
            gpu.plans.push_back(Sent { model, start: plan.start, end: plan.end, requests: kept });
        }
        Ok(())
    }

    fn preempted(&mut self, now: Time, gpu: GpuId) -> Result<(), Violation> {
        if !self.facts.can_preempt {
            return violated(Invariant::S4, format!("{gpu} is preempted; its batches cannot be stopped"));
        }
        let Some(known) = self.gpus.get_mut(&gpu) else {
            return violated(Invariant::S4, format!("{gpu} is preempted, which is not here"));
        };
        known.free_at = now;
        for Sent { model, requests, .. } in known.plans.drain(..) {
            self.owned.extend(requests.into_iter().map(|request| (request.id, (model, request))));
        }
        Ok(())
    }

    /// A request leaves the policy.
    fn take(&mut self, model: u32, request: &Request) -> Result<(), Violation> {
        let id = request.id;
        match self.owned.get(&id) {
            Some((of, known)) if *of == model && known == request => {
                self.owned.remove(&id);
                Ok(())
            }
            Some((of, known)) if *of == model => violated(
                Invariant::S3,
                format!(
                    "request {id} is decided with {} items for {}, it has {} and is due at {}",
                    request.items, request.deadline, known.items, known.deadline
                ),
            ),
            _ => {
                violated(Invariant::S3, format!("model {model} decides request {id}, which is not open or not its own"))
            }
        }
    }

    /// The request, if the policy owns it, and its model: what a [`ClusterInput::Cancel`] needs.
    #[must_use]
    pub fn owned(&self, id: RequestId) -> Option<(u32, Request)> {
        self.owned.get(&id).copied()
    }

    /// Every request that the policy owns, and its model, in the order of ids.
    #[must_use]
    pub fn all_owned(&self) -> Vec<(u32, Request)> {
        let mut all: Vec<_> = self.owned.values().copied().collect();
        all.sort_by_key(|(_, request)| request.id);
        all
    }

    /// How many requests the policy owns.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.owned.len()
    }

    /// The present models.
    pub fn models(&self) -> impl Iterator<Item = (u32, &Arc<ClusterModel>)> {
        self.models.iter().map(|(&model, known)| (model, known))
    }
}

/// The requests of a plan, if it names existing ones.
fn requests_of<'a>(orders: &'a ClusterActions, plan: &Plan) -> Option<&'a [Request]> {
    let first = plan.first as usize;
    orders.planned.get(first..first.checked_add(plan.requests as usize)?).filter(|requests| !requests.is_empty())
}

/// S1, S2 and S5 of one plan.
fn check_plan(
    now: Time,
    (model, known): (u32, &ClusterModel),
    gpu: &Gpu,
    plan: &Plan,
    requests: &[Request],
) -> Result<(), Violation> {
    if plan.start < gpu.free_at {
        let detail =
            format!("{} is busy until {}, a plan of {} starts at {}", plan.gpu, gpu.free_at, plan.batch, plan.start);
        return violated(Invariant::S1, detail);
    }
    let items: u64 = requests.iter().map(|request| u64::from(request.items)).sum();
    let batch_max = known.batch_max(gpu.class);
    if items != u64::from(plan.batch) || plan.batch > batch_max {
        let detail = format!(
            "a plan of {} of model {model} on {} ({}) carries {items} items, and the largest batch is {batch_max}",
            plan.batch, plan.gpu, gpu.class
        );
        return violated(Invariant::S5, detail);
    }
    let (reaches, takes) = (now + known.delays.lead(plan.batch), known.latency(gpu.class, plan.batch));
    if plan.start < reaches || plan.end != plan.start + takes || plan.end == Time::NEVER {
        let detail = format!(
            "a plan of {} made at {now} reaches its GPU at {reaches} and takes {takes}; it says from {} to {}",
            plan.batch, plan.start, plan.end
        );
        return violated(Invariant::S2, detail);
    }
    let due = requests.iter().map(|request| known.must_end_by(request)).min().unwrap_or(Time::NEVER - Nanos::new(1));
    if plan.end > due || plan.must_end_by > due {
        let detail = format!(
            "a plan of {} ends at {} and must end by {due}; it says by {}",
            plan.batch, plan.end, plan.must_end_by
        );
        return violated(Invariant::S2, detail);
    }
    Ok(())
}
