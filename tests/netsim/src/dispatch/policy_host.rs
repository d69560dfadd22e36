//! Hosts a policy that decides for a whole sub-cluster, as the scheduler's policy worker does: it tells the policy what
//! happens, has each step checked by the referee (S1 to S5) before it carries out any of it, and ends all decisions at
//! the first fault, which it reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use symphony_control_plane::{LeadReport, PolicyFailure};
use symphony_protocol::dispatch::RequestHeader;
use symphony_protocol::execute::{Done, PlannedRequest};
use symphony_protocol::view::SubclusterView;
use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterReferee, GuardedPolicy, Plan,
    PolicyFault, PolicyRegistry, Request,
};
use symphony_types::{
    BootId, GpuClass, GpuId, LatencyProfile, ModelId, Nanos, RequestId, RequestValue, SubclusterId, Time, Token,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::DEADLINE;
use super::faulty_policy::{FAULTY, Overlapping};
use super::plan_link::PlanLink;
use crate::cluster::Cluster;
use crate::plant::Plant;

/// The slot of the one model that all requests are for. It is in no view.
const MODEL: u32 = 0;
/// About how many requests for it come in a second.
const RATE: f64 = 25.0;

/// A plan that was sent and has not ended.
struct Sent {
    sequence: u64,
    start: Time,
    /// The requests that are still wanted.
    requests: Vec<Request>,
}

/// A GPU that the policy may plan on.
struct Gpu {
    link: PlanLink,
    /// In the order in which they were sent.
    sent: VecDeque<Sent>,
}

/// The policy of one lead.
pub(super) struct SimulatedPolicyHost {
    cluster: Cluster,
    lead: (SubclusterId, Token),
    reports: mpsc::UnboundedSender<LeadReport>,
    policy: GuardedPolicy,
    referee: ClusterReferee,
    /// Nothing is decided here any more.
    is_over: bool,
    /// The origin of its times.
    began: Instant,
    wake_at: Time,
    /// By id. Policies expect small numbers, which ids are.
    gpus: BTreeMap<GpuId, Gpu>,
}

impl SimulatedPolicyHost {
    /// For a new lead of the sub-cluster; none if each model has its own policy, as after a fault.
    pub(super) fn new(
        cluster: &Cluster,
        (id, subcluster): (SubclusterId, &SubclusterView),
        reports: mpsc::UnboundedSender<LeadReport>,
    ) -> Option<Self> {
        let agreed = subcluster.policy.as_ref().filter(|policy| policy.failed.is_none())?;
        let (registry, facts) = (PolicyRegistry::new(), ClusterFacts::default());
        // What the operator sets, every program has.
        let mut policy = registry.build(&registry.parse(&agreed.text).ok()?, &facts).ok()?;
        if policy.name() == FAULTY || cluster.plants.has(Plant::PlansOverlap) {
            policy = GuardedPolicy::new(policy.name().to_owned(), Box::new(Overlapping::default()));
        }
        let profile = LatencyProfile::from_line(1.0, 2.0, 8).ok()?;
        let known = Arc::new(ClusterModel::new(profile, DEADLINE.into()).with_rate(RATE));
        let mut this = Self {
            cluster: cluster.clone(),
            lead: (id, subcluster.token),
            reports,
            policy,
            referee: ClusterReferee::new(facts),
            is_over: false,
            began: Instant::now(),
            wake_at: Time::NEVER,
            gpus: BTreeMap::new(),
        };
        this.step(ClusterInput::Model { model: MODEL, known });
        Some(this)
    }

    fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.began.elapsed())
    }

    /// A request is announced, for the first time or again.
    pub(super) fn announced(&mut self, id: RequestId, header: &RequestHeader) {
        let mut sent = self.gpus.values().flat_map(|gpu| &gpu.sent).flat_map(|plan| &plan.requests);
        if sent.any(|request| request.id == id) || self.referee.owned(id).is_some() {
            return;
        }
        let request = Request {
            id,
            deadline: self.now() + Nanos::new(header.budget),
            items: header.items.max(1),
            weight: RequestValue::from_thousandths(header.weight).unwrap_or_default(),
            variant: header.model,
        };
        let model = MODEL;
        let is_new = header.attempt <= 1;
        let new = ClusterInput::Arrive { model, request };
        self.step(if is_new { new } else { ClusterInput::Return { model, request } });
    }

    /// The requests that wait for a plan.
    pub(super) fn waiting(&self) -> impl Iterator<Item = RequestId> {
        let owned = if self.is_over { Vec::new() } else { self.referee.all_owned() };
        owned.into_iter().map(|(_, request)| request.id)
    }

    /// These requests are wanted no longer: they wait no more, and do not come back if their plan is lost.
    pub(super) fn withdraw(&mut self, leaves: impl Fn(RequestId) -> bool) {
        for plan in self.gpus.values_mut().flat_map(|gpu| &mut gpu.sent) {
            plan.requests.retain(|request| !leaves(request.id));
        }
        for (model, request) in self.referee.all_owned() {
            // At each cancel the policy may decide about others of them.
            if leaves(request.id) && self.referee.owned(request.id).is_some() {
                self.step(ClusterInput::Cancel { model, request });
            }
        }
    }

    /// A GPU is sealed; `ran` are requests that it has run or runs, which are not run again.
    pub(super) fn sealed(&mut self, link: PlanLink, ran: &BTreeSet<RequestId>) {
        let gpu = link.gpu;
        self.gpu_lost(gpu);
        self.withdraw(|id| ran.contains(&id));
        self.gpus.insert(gpu, Gpu { link, sent: VecDeque::new() });
        let free_at = self.now();
        self.step(ClusterInput::GpuUp { gpu, class: GpuClass::FIRST, free_at });
    }

    /// A boot of a backend is out of reach, with its GPUs.
    pub(super) fn lost(&mut self, boot: BootId) {
        let of_boot = self.gpus.iter().filter(|(_, gpu)| gpu.link.boot == boot);
        let gone: Vec<_> = of_boot.map(|(&id, _)| id).collect();
        gone.into_iter().for_each(|gpu| self.gpu_lost(gpu));
    }

    /// What was planned there comes back.
    fn gpu_lost(&mut self, gpu: GpuId) {
        let Some(Gpu { sent, .. }) = self.gpus.remove(&gpu) else { return };
        self.step(ClusterInput::GpuDown(gpu));
        sent.into_iter().for_each(|plan| self.give_back(plan));
    }

    fn give_back(&mut self, plan: Sent) {
        for request in plan.requests {
            self.step(ClusterInput::Return { model: MODEL, request });
        }
    }

    /// A plan has ended.
    pub(super) fn done(&mut self, &Done { gpu, sequence, start_late, latency, .. }: &Done) {
        let Some(Sent { start, .. }) = self.ended(gpu, sequence) else { return };
        let (model, start_late, latency) = (MODEL, Nanos::new(start_late), Nanos::new(latency));
        self.step(ClusterInput::Done { gpu, model, start, start_late, latency });
    }

    /// A plan will not run.
    pub(super) fn refused(&mut self, gpu: GpuId, sequence: u64) {
        let Some(plan) = self.ended(gpu, sequence) else { return };
        self.step(ClusterInput::Refused { gpu, model: MODEL, start: plan.start });
        self.give_back(plan);
    }

    fn ended(&mut self, gpu: GpuId, sequence: u64) -> Option<Sent> {
        let sent = &mut self.gpus.get_mut(&gpu)?.sent;
        let at = sent.iter().position(|plan| plan.sequence == sequence)?;
        sent.remove(at)
    }

    /// Some time has passed: perhaps until the moment that the policy asked for.
    pub(super) fn tick(&mut self) {
        if self.wake_at <= self.now() {
            self.wake_at = Time::NEVER;
            self.step(ClusterInput::Wake);
        }
    }

    /// The lead hangs: it decides nothing any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// One decision, carried out.
    fn step(&mut self, input: ClusterInput) {
        if self.is_over {
            return;
        }
        let (now, mut actions) = (self.now(), ClusterActions::default());
        if let Err(fault) = self.checked(now, input, &mut actions) {
            self.fail(&fault);
            return;
        }
        let mut unreached = BTreeSet::new();
        for action in &actions.list {
            match action {
                ClusterAction::Execute { plan, .. } => {
                    if !self.execute(now, plan, actions.requests_of(plan)) {
                        unreached.insert(plan.gpu);
                    }
                }
                ClusterAction::WakeAt(at) => self.wake_at = *at,
                // Its frontend counts it as dropped at its deadline.
                ClusterAction::Drop { .. } => {}
                // No backend can; the referee has refused it.
                ClusterAction::Preempt(_) => {}
            }
        }
        unreached.into_iter().for_each(|gpu| self.gpu_lost(gpu));
    }

    /// One decision, checked. A step with a fault has no effect.
    fn checked(&mut self, now: Time, input: ClusterInput, actions: &mut ClusterActions) -> Result<(), PolicyFault> {
        self.referee.observe(now, &input);
        self.policy.step(now, input, actions)?;
        let waiting = self.policy.waiting();
        self.referee.ordered(now, actions, waiting).map_err(|violation| self.policy.violated(violation))
    }

    /// Sends a plan; false if its link has ended.
    fn execute(&mut self, now: Time, plan: &Plan, requests: &[Request]) -> bool {
        // The referee has found it.
        let Some(Gpu { link, sent }) = self.gpus.get_mut(&plan.gpu) else { return true };
        let row = |&Request { id, items, .. }: &Request| PlannedRequest { id, items, model: ModelId::default() };
        let times = (plan.start.since(now), plan.end.since(plan.start));
        let is_sent = link.send(times, requests.iter().map(row).collect()).is_ok();
        if !is_sent {
            // The next plan would be out of sequence.
            link.sender.close();
        }
        sent.push_back(Sent { sequence: link.sequence, start: plan.start, requests: requests.to_vec() });
        link.sequence += 1;
        *self.cluster.planned.borrow_mut().entry(self.policy.name().to_owned()).or_default() += requests.len() as u64;
        is_sent
    }

    /// The policy is at fault: the lead ends, by the control group's agreement.
    fn fail(&mut self, fault: &PolicyFault) {
        self.is_over = true;
        let (subcluster, token) = self.lead;
        self.cluster.trace.note(format_args!("{subcluster} under {token}: {fault}"));
        if self.policy.name() != FAULTY {
            self.cluster.faults.borrow_mut().push(fault.to_string());
        }
        let failure = match fault {
            PolicyFault::Panicked { .. } => PolicyFailure::Panicked,
            PolicyFault::TooManyOrders { .. } => PolicyFailure::TooManyOrders,
            PolicyFault::Violated { .. } => PolicyFailure::BrokeRule,
        };
        if !self.cluster.plants.has(Plant::PolicyFaultsUnreported) {
            let _ = self.reports.send(LeadReport::PolicyFailed { subcluster, token, failure });
        }
    }
}
