//! The requests of one model and the batch that they would form now.

mod dropping;
mod forming;
mod insert_remove;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use symphony_policy::AutoRule;
use symphony_types::{FamilyProfile, GpuClass, Nanos, RequestId, Time};

use crate::actions::{ModelAction, ModelActions, ModelInput, Request};
use crate::auto::demand::item_times;
use crate::auto::early_start::EarlyStart;
use crate::auto::gap_meter::GapMeter;
use crate::auto::rules::Rules;
use crate::meters::lateness_meter::{LatenessMeter, Overrun};
use crate::meters::rate_meter::RateMeter;
use crate::pool::account::Account;
use crate::pool::shedding::Shedding;
use crate::queue::class_profiles::ClassProfiles;
use crate::queue::class_windows::ClassWindows;
use crate::queue::families::Families;
use crate::queue::queued::Queued;
use crate::queue::recent_budgets::RecentBudgets;
use crate::queue::request_items::RequestItems;
use crate::ranker::gpu_counts::GpuCounts;
use crate::{DataDelay, Delays, Policy, Shed, Trigger};
use targets::item_time;

/// The largest configurable queue: one second of the highest rate that one model worker serves.
pub const QUEUE_REQUESTS_MAX: usize = 1 << 20;

/// Requests for which memory is reserved from the start, so that a burst that a quiet model sees once an hour does not
/// allocate.
const ROOM: usize = 64;

/// The most cancelled requests that are collected for removal in one pass.
const CANCELLED_MAX: usize = 4096;

/// The configuration of a model's queue.
#[derive(Clone, Debug)]
pub struct ModelQueueConfig {
    /// ℓ(b) for each GPU class that serves the model; at least one.
    pub profiles: ClassProfiles,
    /// The model's SLO. Requests may carry other deadlines; batches are planned for the SLO until requests are seen to
    /// have another budget.
    pub slo: Nanos,
    /// How the model is scheduled.
    pub policy: Policy,
    /// Delays between frontend, scheduler and GPU.
    pub delays: Delays,
    /// The most waiting requests; further ones are dropped. At most [`QUEUE_REQUESTS_MAX`].
    pub requests_max: usize,
}

/// Owns one model's requests (the Symphony paper, `ModelThread`): forms the candidate, answers grants with plans, and
/// decides which requests to give up.
#[derive(Clone, Debug)]
pub struct ModelQueue {
    config: ModelQueueConfig,
    /// The input delay as the host set it; `config.delays` has the part of it that can be planned for.
    given_data_delay: DataDelay,
    /// Ordered by `must_end_by`; equal deadlines keep the order of arrival.
    queue: VecDeque<Queued>,
    /// One window per GPU class of the sub-cluster.
    windows: ClassWindows,
    /// The largest batch of any of them.
    batch_max: u32,
    /// Queued requests with more than one item; while zero, items are counted by index.
    multi_item: usize,
    rate: RateMeter,
    budgets: RecentBudgets,
    /// The time from arrival to deadline that batches are planned for.
    planned_budget: Nanos,
    request_items: RequestItems,
    lateness: LatenessMeter,
    /// The overrun of all models' plans, from the last pool signal.
    usual_overrun: Overrun,
    /// The start lateness to plan for; included in `config.delays.reply`.
    start_late: Nanos,
    /// Only used by the adaptive trigger.
    gaps: Option<Box<GapMeter>>,
    /// The early start, from the last pool signal.
    early_start: EarlyStart,
    /// The number of GPUs in the sub-cluster, from the last pool signal.
    gpus: GpuCounts,
    rules: Rules,
    /// Items that arrived since the last account.
    items_arrived: u64,
    /// Only used by policies that shed.
    shedding: Option<Shedding>,
    /// Cancelled requests that are removed with the next input.
    cancelled: Vec<RequestId>,
    /// If the requests are of models that share a trunk.
    families: Option<Box<Families>>,
    answered: u64,
    wake_at: Time,
}

impl ModelQueue {
    /// An empty queue, for GPUs of all classes that `config` has profiles for. `requests_max` beyond
    /// [`QUEUE_REQUESTS_MAX`] is cut to it.
    ///
    /// # Panics
    /// If there is no profile: an error of the host.
    #[must_use]
    pub fn new(mut config: ModelQueueConfig) -> Self {
        config.requests_max = config.requests_max.clamp(1, QUEUE_REQUESTS_MAX);
        let adaptive = config.policy.trigger == Trigger::Adaptive;
        let windows = ClassWindows::new(&config.profiles);
        let windows = windows.expect("a queue needs a profile for at least one class of GPUs");
        let shedding = match config.policy.shed {
            Shed::None => None,
            Shed::Proportional(value) => Some(Shedding::new(value, item_time(&windows))),
        };
        let mut queue = Self {
            gaps: adaptive.then(Box::default),
            early_start: EarlyStart::AT_ONCE,
            gpus: GpuCounts::default(),
            rules: Rules::ALL,
            items_arrived: 0,
            shedding,
            given_data_delay: config.delays.data,
            planned_budget: config.slo,
            config,
            queue: VecDeque::with_capacity(ROOM),
            batch_max: windows.batch_max(),
            windows,
            multi_item: 0,
            rate: RateMeter::default(),
            budgets: RecentBudgets::default(),
            request_items: RequestItems::default(),
            lateness: LatenessMeter::default(),
            usual_overrun: Overrun::NONE,
            start_late: Nanos::ZERO,
            cancelled: Vec::new(),
            families: None,
            answered: 0,
            wake_at: Time::NEVER,
        };
        queue.bound_inputs();
        queue
    }

    /// Switches off rules of `auto`, for experiments; to be called before the first input.
    pub fn leave_out(&mut self, rules: &[AutoRule]) {
        self.rules = Rules::without(rules);
    }

    /// Serves models that share a trunk, on GPUs of this class: windows and drops go by what batches take at worst,
    /// plans by what the variants of their requests take. To be called before the first input, for each class with a
    /// profile; a profile that is set later ends at the worst, and not at the exact latency.
    pub fn share_trunk(&mut self, class: GpuClass, family: FamilyProfile) {
        self.set_profile(class, family.worst().clone());
        self.families.get_or_insert_with(Box::default).set(class, family);
    }

    /// Requests name the variants of the family like this and not by their places in it; in ascending order. To be
    /// called before the first input.
    pub fn name_variants(&mut self, names: &[u32]) {
        self.families.get_or_insert_with(Box::default).set_names(names);
    }

    /// The waiting requests, the earliest deadline first.
    pub fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter().map(|queued| &queued.request)
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The recent arrival rate in items per second.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.rate.per_second()
    }

    /// The batch size that the window drop protects, on the class with the largest one.
    #[must_use]
    pub fn target_batch(&self) -> u32 {
        self.windows.iter().map(|window| window.target).max().unwrap_or(1)
    }

    /// The input delay that is planned for.
    #[must_use]
    pub const fn data_delay(&self) -> DataDelay {
        self.config.delays.data
    }

    /// The profiles that it plans by.
    #[must_use]
    pub const fn profiles(&self) -> &ClassProfiles {
        &self.config.profiles
    }

    /// The account since the last call.
    pub fn take_account(&mut self) -> Account {
        let mut account = self.shedding.as_mut().map(Shedding::take_account).unwrap_or_default();
        (account.longer, account.predicted) = self.lateness.take_totals();
        let items = std::mem::take(&mut self.items_arrived);
        if items > 0 {
            let delays = &self.config.delays;
            let budget = self.planned_budget - delays.reply - delays.control;
            let rate = self.rate.per_second();
            for window in self.windows.iter() {
                let times = item_times(window, rate, budget, delays.data);
                let alone_share = window.takes(1).as_secs_f64() / budget.as_secs_f64();
                account.demand.add(window.class, items, &times, alone_share);
            }
        }
        account
    }

    /// Ends the queue and returns the waiting requests, which the host must answer.
    pub fn into_requests(self) -> impl Iterator<Item = Request> {
        self.queue.into_iter().map(|queued| queued.request)
    }

    /// One decision: takes time and input, and appends its orders to `out`.
    pub fn step(&mut self, now: Time, input: ModelInput, out: &mut ModelActions) {
        if let ModelInput::Cancel(id) | ModelInput::CancelWithNext(id) = input {
            self.cancelled.push(id);
        }
        if matches!(input, ModelInput::CancelWithNext(_)) && self.cancelled.len() < CANCELLED_MAX {
            return;
        }
        self.remove_cancelled();
        match input {
            ModelInput::Arrive(request) => {
                self.budgets.record(request.deadline.since(now));
                // A request larger than any batch says nothing about future batches.
                let counted = request.items.min(self.batch_max);
                self.request_items.record(counted);
                self.items_arrived += u64::from(counted);
                let due = self.shedding.as_mut().and_then(|shedding| shedding.arrived(now, counted, request.weight));
                let lasts = self.overload_lasts();
                if let Some(shed) = due.filter(|_| !lasts) {
                    // Before it is counted: the rate covers admitted requests only.
                    self.shed(now, Queued::new(request, now, &self.config.delays), shed, out);
                    return;
                }
                if self.rate.count(now, counted) {
                    self.update_targets();
                }
                if let Some(gaps) = &mut self.gaps {
                    gaps.count(now);
                }
                let Some(request) = self.shed_oldest(now, request, due, out) else { return };
                if !self.insert_or_drop(now, Queued::new(request, now, &self.config.delays), out) {
                    return;
                }
            }
            ModelInput::Return(request) | ModelInput::ReturnWithNext(request) => {
                let queued = Queued::new(request, now, &self.config.delays);
                // If the last one finds no room, those before it still want a candidate.
                let _ = self.insert_or_drop(now, Queued { returned: true, ..queued }, out);
                if matches!(input, ModelInput::ReturnWithNext(_)) {
                    return;
                }
            }
            ModelInput::Cancel(_) | ModelInput::CancelWithNext(_) => {}
            ModelInput::Withdraw { frontend, boot } => {
                self.remove_where(|id| id.frontend == frontend && id.boot == boot);
            }
            ModelInput::Grant { gpu, class, free_at, why } => {
                self.answered += 1;
                let plan = self.plan(now, gpu, class, free_at, why, out);
                out.list.extend(plan.map(ModelAction::Execute));
                let free_at = plan.map_or(free_at, |plan| plan.end);
                out.list.push(ModelAction::Release { gpu, free_at });
            }
            ModelInput::Classes(classes) => self.set_classes(classes, out),
            ModelInput::Done { start_late, latency, predicted } => {
                if !self.record_run(start_late, latency, predicted) {
                    return;
                }
            }
            ModelInput::Pool(signal) => {
                if let Some(shedding) = &mut self.shedding {
                    shedding.press(now, signal.pressure);
                }
                self.usual_overrun = signal.overrun;
                let longer = self.expect_lateness();
                let earlier = std::mem::replace(&mut self.early_start, signal.early_start) != signal.early_start;
                let other_gpus = std::mem::replace(&mut self.gpus, signal.gpus) != signal.gpus;
                // The new signal applies to the waiting requests, too.
                if !(longer || earlier || other_gpus) {
                    return;
                }
            }
            ModelInput::Wake => self.wake_at = Time::NEVER,
        }
        self.publish(now, out);
    }
}
