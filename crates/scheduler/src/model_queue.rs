//! The requests of one model, and the batch they would make now.

use std::collections::VecDeque;

use symphony_types::{DropReason, LatencyProfile, Nanos, RequestId, Time};

use crate::actions::{Candidate, ModelAction, ModelActions, ModelInput, Plan, Request};
use crate::aimd::Aimd;
use crate::anticipation::Anticipation;
use crate::lateness_meter::LatenessMeter;
use crate::rate_meter::RateMeter;
use crate::target_batch::target_batch;
use crate::why::{DropCause, PlanWhy};
use crate::{BatchLimit, Delays, DropRule, Policy, Trigger};

/// The most requests one queue may be configured to hold: a second of the highest rate one model thread serves.
pub const QUEUE_REQUESTS_MAX: usize = 1 << 20;

/// Withdrawn requests that wait for the next ones, at most.
const LEAVING_MAX: usize = 4096;

/// Measured lateness takes at most this part of a model's SLO: one in four. However bad the machine is, most of the budget
/// stays for batching.
const LATENESS_SHARE_MAX: u64 = 4;

/// What a queue needs to know about its model.
#[derive(Clone, Debug)]
pub struct ModelQueueConfig {
    /// ℓ(b) on the slowest kind of GPU that serves the model.
    pub profile: LatencyProfile,
    /// The model's SLO; requests may carry other deadlines, the target batch follows this one.
    pub slo: Nanos,
    /// How it is scheduled.
    pub policy: Policy,
    /// Delays on the way.
    pub delays: Delays,
    /// The most requests that wait; one more is dropped. At most [`QUEUE_REQUESTS_MAX`].
    pub requests_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    request: Request,
    /// The deadline less the reply delay.
    must_end_by: Time,
    arrived: Time,
}

/// A batch that could run: a prefix of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Formed {
    requests: usize,
    candidate: Candidate,
    must_end_by: Time,
    head_arrived: Time,
}

/// Owner of one model's requests (seed 000, `ModelThread`): forms the candidate, answers grants with plans, and decides
/// which requests to give up.
#[derive(Clone, Debug)]
pub struct ModelQueue {
    config: ModelQueueConfig,
    /// Ordered by `must_end_by`; equal deadlines keep the order of arrival.
    queue: VecDeque<Queued>,
    /// `queue[..split]` is at risk: its requests ride along if they can, but no batch is shrunk for them.
    split: usize,
    /// Items in `queue[split..]`, the window.
    window_items: u64,
    /// Queued requests with more than one item; zero allows counting by index.
    multi_item: usize,
    rate: RateMeter,
    lateness: LatenessMeter,
    /// What is planned for because plans end late; part of `config.delays.reply`.
    late: Nanos,
    /// Kept by the adaptive trigger only.
    anticipation: Option<Box<Anticipation>>,
    target: u32,
    /// Where [`BatchLimit::Aimd`] stands.
    aimd: Aimd,
    /// Withdrawn requests that leave with the next input.
    leaving: Vec<RequestId>,
    answered: u64,
    offered: Option<(u64, Option<Candidate>)>,
    wake_at: Time,
}

impl ModelQueue {
    /// An empty queue. `requests_max` beyond [`QUEUE_REQUESTS_MAX`] is cut to it.
    #[must_use]
    pub fn new(mut config: ModelQueueConfig) -> Self {
        config.requests_max = config.requests_max.clamp(1, QUEUE_REQUESTS_MAX);
        let adaptive = config.policy.trigger == Trigger::Adaptive;
        Self {
            anticipation: adaptive.then(Box::default),
            config,
            queue: VecDeque::new(),
            split: 0,
            window_items: 0,
            multi_item: 0,
            rate: RateMeter::default(),
            lateness: LatenessMeter::default(),
            late: Nanos::ZERO,
            target: 1,
            aimd: Aimd::new(),
            leaving: Vec::new(),
            answered: 0,
            offered: None,
            wake_at: Time::NEVER,
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Items per second that arrived lately.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.rate.per_second()
    }

    /// The batch size that the window drop protects.
    #[must_use]
    pub const fn target_batch(&self) -> u32 {
        self.target
    }

    /// Ends the queue: everything that still waits, for the host to answer.
    pub fn into_requests(self) -> impl Iterator<Item = Request> {
        self.queue.into_iter().map(|queued| queued.request)
    }

    /// Plans ahead for plans that end later than predicted, as often as they lately did (DESIGN section 6: measured
    /// quantiles). True if what is planned for has changed.
    fn learn(&mut self, start_late: Nanos, latency: Nanos, predicted: Nanos) -> bool {
        // Early execution does not make up for a late start: the next plan on the GPU has its own start.
        let Some(late) = self.lateness.note(start_late + (latency - predicted)) else { return false };
        let late = late.min(Nanos::new(self.config.slo.get() / LATENESS_SHARE_MAX));
        if late == self.late {
            return false;
        }
        let delays = &mut self.config.delays;
        delays.reply = delays.reply - self.late + late;
        self.late = late;
        for queued in &mut self.queue {
            queued.must_end_by = must_end_by(&queued.request, delays);
        }
        true
    }

    /// One decision: time and input come in, orders go out (appended to `out`).
    pub fn step(&mut self, now: Time, input: ModelInput, out: &mut ModelActions) {
        if let ModelInput::Cancel(id) | ModelInput::CancelWithNext(id) = input {
            self.leaving.push(id);
        }
        if matches!(input, ModelInput::CancelWithNext(_)) && self.leaving.len() < LEAVING_MAX {
            return;
        }
        self.take_leave();
        match input {
            ModelInput::Arrive(request) => {
                // What no batch can hold says nothing about the batches to come.
                let counted = request.items.min(self.config.profile.batch_max());
                if self.rate.count(now, counted) {
                    self.aim();
                }
                if let Some(anticipation) = &mut self.anticipation {
                    anticipation.arrived(now);
                }
                if !self.admit(now, request, out) {
                    return;
                }
            }
            ModelInput::Return(request) => {
                if !self.admit(now, request, out) {
                    return;
                }
            }
            ModelInput::Cancel(_) | ModelInput::CancelWithNext(_) => {}
            ModelInput::Withdraw { frontend, boot } => {
                self.remove_where(|id| id.frontend == frontend && id.boot == boot);
            }
            ModelInput::Grant { gpu, free_at, why } => {
                self.answered += 1;
                let mut free_again = free_at;
                if let Some(formed) = self.form(now, Some(free_at), out) {
                    let cut = formed.requests < self.queue.len();
                    self.aimd.formed(formed.candidate.batch, cut, self.config.profile.batch_max());
                    let end = formed.candidate.start + self.config.profile.latency(formed.candidate.batch);
                    let first = out.planned.len() as u32;
                    for _ in 0..formed.requests {
                        let request = self.pop_front();
                        out.planned.push(request);
                    }
                    free_again = end;
                    out.list.push(ModelAction::Execute(Plan {
                        gpu,
                        start: formed.candidate.start,
                        end,
                        batch: formed.candidate.batch,
                        must_end_by: formed.must_end_by,
                        first,
                        requests: formed.requests as u32,
                        why: Some(PlanWhy {
                            frontrun: formed.candidate.frontrun,
                            latest: formed.candidate.latest,
                            head_arrived: formed.head_arrived,
                            target: self.target,
                            left: self.queue.len() as u32,
                            grant: why,
                        }),
                    }));
                }
                out.list.push(ModelAction::Release { gpu, free_at: free_again });
            }
            ModelInput::Done { start_late, latency, predicted } => {
                if !self.learn(start_late, latency, predicted) {
                    return;
                }
            }
            ModelInput::Wake => self.wake_at = Time::NEVER,
        }
        self.publish(now, out);
    }

    /// Forms the candidate and says what changed.
    fn publish(&mut self, now: Time, out: &mut ModelActions) {
        let mut candidate = self.form(now, None, out).map(|formed| formed.candidate);
        if let (Some(candidate), Some(anticipation)) = (&mut candidate, &self.anticipation) {
            candidate.growth = Some(anticipation.growth(now, candidate, &self.config.profile));
        }
        if self.offered != Some((self.answered, candidate)) {
            self.offered = Some((self.answered, candidate));
            out.list.push(ModelAction::Offer { answered: self.answered, candidate });
        }
        // After `latest − lead` the candidate cannot be met any more and has to shrink or give way.
        let wake_at = candidate.map_or(Time::NEVER, |c| c.latest - c.lead + Nanos::new(1));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ModelAction::WakeAt(wake_at));
        }
    }

    /// The batch that would run on a GPU that is granted and free at that time, or on any one if no GPU is in sight.
    fn form(&mut self, now: Time, granted: Option<Time>, out: &mut ModelActions) -> Option<Formed> {
        let gpu_free = granted.unwrap_or(Time::ZERO);
        let floor = match self.config.policy.drop {
            DropRule::Window(_) => self.slide_window(now, gpu_free),
            DropRule::Prune => 1,
        };
        if floor == 0 {
            // Not even the youngest can be met here. Without a GPU in sight that is final, on a particular GPU it is not:
            // there the head runs if it can. Returning a GPU that suits the head would bring it back at once, for ever.
            if gpu_free <= now {
                self.drop_unreachable(now, out);
            } else if !self.queue.front().is_some_and(|head| self.fits(head, now, gpu_free, 1)) {
                return None;
            }
        }
        self.drop_heads(now, gpu_free, floor.max(1), out);
        let head = self.queue.front()?;
        let (must_end_by, head_arrived) = (head.must_end_by, head.arrived);
        let (requests, batch) = self.prefix(now, gpu_free, floor.max(1), must_end_by);
        let lead = self.config.delays.lead(batch);
        let latest = must_end_by - self.config.profile.latency(batch);
        let frontrun = must_end_by - self.config.profile.latency(batch + 1) - self.config.delays.data_per_item;
        // Whoever grants a GPU early wants the batch to start early.
        let trigger = match (&self.anticipation, granted) {
            (Some(_), Some(_)) => now,
            _ => self.trigger(now, head_arrived, batch, must_end_by),
        };
        let start = (now + lead).max(gpu_free).max(trigger.min(latest));
        let candidate = Candidate { batch, start, latest, frontrun, must_end_by, lead, growth: None };
        Some(Formed { requests, candidate, must_end_by, head_arrived })
    }

    /// When a batch of `batch` items wants to start, GPUs aside.
    fn trigger(&self, now: Time, arrived: Time, batch: u32, must_end_by: Time) -> Time {
        let profile = &self.config.profile;
        let guard = self.config.delays.guard;
        let frontrun = || must_end_by - profile.latency(batch + 1) - self.config.delays.data_per_item - guard;
        match self.config.policy.trigger {
            Trigger::Eager => now,
            Trigger::Frontrun => frontrun(),
            Trigger::Adaptive => self.anticipation.as_ref().map_or_else(frontrun, |known| known.start(frontrun())),
            Trigger::Latest => must_end_by - profile.latency(batch) - guard,
            Trigger::BetaLambda if f64::from(batch) >= self.beta_lambda() => now,
            Trigger::BetaLambda => frontrun(),
            Trigger::Timeout(wait) if self.is_full(batch, wait) => now,
            Trigger::Timeout(wait) => arrived + wait,
        }
    }

    /// β·λ: the items that arrive for one GPU during β, if the model runs batches of the target size (seed 000, section 4.3).
    /// Then it keeps rate·ℓ(b)/b GPUs busy, and one of them gets b/ℓ(b); or all, where less than one is busy.
    fn beta_lambda(&self) -> f64 {
        let profile = &self.config.profile;
        let largest = profile.batch_max();
        let alpha = match largest {
            1 => 0.0,
            _ => (profile.latency(largest) - profile.latency(1)).as_secs_f64() / f64::from(largest - 1),
        };
        let beta = (profile.latency(1).as_secs_f64() - alpha).max(0.0);
        let per_gpu = f64::from(self.target) / profile.latency(self.target).as_secs_f64();
        beta * self.rate.per_second().min(per_gpu)
    }

    /// Whether one more item would not leave the SLO intact after a wait of `wait`. A wait that leaves no room at all is no
    /// measure of a batch.
    fn is_full(&self, batch: u32, wait: Nanos) -> bool {
        let delays = &self.config.delays;
        let room = self.config.slo - delays.reply - delays.control - wait;
        let needs =
            |batch: u32| self.config.profile.latency(batch) + delays.data_per_item.saturating_mul(u64::from(batch));
        batch >= self.config.profile.batch_max() || (needs(1) <= room && needs(batch + 1) > room)
    }

    /// The end of a batch of `batch` items decided now.
    fn finish(&self, now: Time, gpu_free: Time, batch: u32) -> Time {
        (now + self.config.delays.lead(batch)).max(gpu_free) + self.config.profile.latency(batch)
    }

    /// Whether the request can ride in a batch of `floor` items, or be met alone if it is larger.
    fn fits(&self, queued: &Queued, now: Time, gpu_free: Time, floor: u32) -> bool {
        queued.must_end_by >= self.finish(now, gpu_free, floor.max(queued.request.items))
    }

    /// Moves the split until the first request of the window could ride with everyone behind it, and returns the batch
    /// size worth protecting: the target, or the whole window if that is smaller.
    fn slide_window(&mut self, now: Time, gpu_free: Time) -> u32 {
        let batch_max = u64::from(self.config.profile.batch_max());
        while let Some(first) = self.queue.get(self.split) {
            let together = self.window_items.min(batch_max) as u32;
            if first.must_end_by >= self.finish(now, gpu_free, together) {
                break;
            }
            self.window_items -= u64::from(first.request.items);
            self.split += 1;
        }
        self.window_items.min(u64::from(self.target)) as u32
    }

    /// Gives up queue heads that cannot ride in a batch of `floor` items (or be met alone, if they are larger).
    fn drop_heads(&mut self, now: Time, gpu_free: Time, floor: u32, out: &mut ModelActions) {
        while let Some(head) = self.queue.front() {
            if self.fits(head, now, gpu_free, floor) {
                break;
            }
            // Heads inside the window were found to fit; a plain prune has no window and looks at every head.
            let reason = self.reason(now, head);
            let batch = floor.max(head.request.items);
            let cause = self.cause(now, head, batch, self.finish(now, gpu_free, batch));
            let request = self.pop_front();
            out.list.push(ModelAction::Drop { request, reason, cause });
        }
    }

    /// Gives up every request that cannot be met even alone, wherever it stands.
    fn drop_unreachable(&mut self, now: Time, out: &mut ModelActions) {
        let mut index = 0;
        while let Some(queued) = self.queue.get(index) {
            if queued.must_end_by >= self.finish(now, Time::ZERO, queued.request.items) {
                index += 1;
                continue;
            }
            let (request, reason) = (queued.request, self.reason(now, queued));
            let cause = self.cause(now, queued, request.items, self.finish(now, Time::ZERO, request.items));
            self.remove_at(index);
            out.list.push(ModelAction::Drop { request, reason, cause });
        }
    }

    fn reason(&self, now: Time, queued: &Queued) -> DropReason {
        if queued.request.deadline <= now {
            DropReason::QueueExpired
        } else if queued.must_end_by < self.finish(now, Time::ZERO, queued.request.items) {
            DropReason::SloUnreachable
        } else {
            DropReason::ProtectBatch
        }
    }

    /// What a request is given up for: it would have to ride in a batch of `batch` items, which ends at `batch_end`.
    fn cause(&self, now: Time, queued: &Queued, batch: u32, batch_end: Time) -> DropCause {
        DropCause {
            arrived: queued.arrived,
            must_end_by: queued.must_end_by,
            batch,
            target: self.target,
            batch_end,
            alone_end: self.finish(now, Time::ZERO, queued.request.items),
            waiting: self.queue.len() as u32,
        }
    }

    /// Requests and items of the batch: `floor` items from the front, and more as long as the head still makes it.
    fn prefix(&self, now: Time, gpu_free: Time, floor: u32, must_end_by: Time) -> (usize, u32) {
        let limit = match self.config.policy.limit {
            BatchLimit::None => u32::MAX,
            BatchLimit::Aimd => self.aimd.limit(),
        };
        if self.multi_item == 0 {
            let waiting = self.queue.len().min(limit as usize) as u32;
            let mut batch = floor.min(waiting);
            while batch < waiting && self.finish(now, gpu_free, batch + 1) <= must_end_by {
                batch += 1;
            }
            return (batch as usize, batch);
        }
        let (mut requests, mut batch) = (0, 0_u32);
        for queued in &self.queue {
            let larger = batch.saturating_add(queued.request.items);
            let too_large = larger > limit || larger > floor && self.finish(now, gpu_free, larger) > must_end_by;
            if requests > 0 && too_large {
                break;
            }
            requests += 1;
            batch = larger;
        }
        (requests, batch)
    }

    /// Queues a request, or drops it if the queue is full.
    fn admit(&mut self, now: Time, request: Request, out: &mut ModelActions) -> bool {
        let fits = self.queue.len() < self.config.requests_max;
        if fits {
            self.insert(now, request);
        } else {
            let cause = self.cause(now, &self.queued(now, request), 0, Time::NEVER);
            out.list.push(ModelAction::Drop { request, reason: DropReason::QueueFull, cause });
        }
        fits
    }

    fn queued(&self, now: Time, request: Request) -> Queued {
        Queued { request, must_end_by: must_end_by(&request, &self.config.delays), arrived: now }
    }

    fn insert(&mut self, now: Time, request: Request) {
        let queued = self.queued(now, Request { items: request.items.max(1), ..request });
        let request = queued.request;
        let index = match self.queue.back() {
            Some(last) if last.must_end_by > queued.must_end_by => {
                self.queue.partition_point(|q| q.must_end_by <= queued.must_end_by)
            }
            _ => self.queue.len(),
        };
        if index == self.queue.len() {
            self.queue.push_back(queued);
        } else {
            self.queue.insert(index, queued);
        }
        if index < self.split {
            self.split += 1;
        } else {
            self.window_items += u64::from(request.items);
        }
        self.multi_item += usize::from(request.items > 1);
    }

    fn pop_front(&mut self) -> Request {
        self.remove_at(0)
    }

    fn remove_at(&mut self, index: usize) -> Request {
        let queued = if index == 0 { self.queue.pop_front() } else { self.queue.remove(index) };
        let request = queued.expect("the caller saw it").request;
        if index < self.split {
            self.split -= 1;
        } else {
            self.window_items -= u64::from(request.items);
        }
        self.multi_item -= usize::from(request.items > 1);
        request
    }

    fn remove_where(&mut self, leaves: impl Fn(RequestId) -> bool) {
        let Self { queue, split, window_items, multi_item, .. } = self;
        let (mut index, at_risk) = (0, *split);
        queue.retain(|Queued { request, .. }| {
            index += 1;
            if !leaves(request.id) {
                return true;
            }
            if index <= at_risk {
                *split -= 1;
            } else {
                *window_items -= u64::from(request.items);
            }
            *multi_item -= usize::from(request.items > 1);
            false
        });
    }

    /// Withdrawn requests leave in one pass, however many they are.
    fn take_leave(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.sort_unstable();
        let (first, last) = (leaving[0], leaving[leaving.len() - 1]);
        self.remove_where(|id| first <= id && id <= last && leaving.binary_search(&id).is_ok());
        leaving.clear();
        self.leaving = leaving;
    }

    /// Computes the target batch from the newest rate.
    fn aim(&mut self) {
        let delays = &self.config.delays;
        let budget = self.config.slo - delays.reply - delays.control;
        self.target = target_batch(&self.config.profile, self.rate.per_second(), budget, delays.data_per_item);
        if let Some(anticipation) = &mut self.anticipation {
            anticipation.learn(&self.rate, &self.config.profile, self.target, self.config.slo);
        }
        if let DropRule::Window(share) = self.config.policy.drop {
            self.target = share.of(self.target);
        }
    }
}

/// A deadline at the end of time is taken for the moment before it: [`Time::NEVER`] is also the end of what is
/// impossible, and nothing impossible may seem to be met.
fn must_end_by(request: &Request, delays: &Delays) -> Time {
    (request.deadline - delays.reply).min(Time::NEVER - Nanos::new(1))
}
