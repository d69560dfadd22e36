//! The requests of one model, and the batch they would make now.

use std::collections::VecDeque;

use symphony_types::{DropReason, GpuClass, GpuClasses, GpuId, LatencyProfile, Nanos, RequestId, Time};

use crate::account::Account;
use crate::actions::{Candidate, ModelAction, ModelActions, ModelInput, Plan, Request};
use crate::anticipation::Anticipation;
use crate::class_profiles::ClassProfiles;
use crate::class_window::ClassWindow;
use crate::class_windows::ClassWindows;
use crate::company::Company;
use crate::lateness_meter::LatenessMeter;
use crate::patience::Patience;
use crate::queued::Queued;
use crate::rate_meter::RateMeter;
use crate::shedding::Shedding;
use crate::target_batch::{cheap_batch, target_batch};
use crate::why::{DropCause, GrantWhy, PlanWhy, ShedCause};
use crate::{BatchLimit, DataDelay, DelaySource, Delays, DropRule, Policy, Shed, Trigger};

/// The most requests one queue may be configured to hold: a second of the highest rate one model thread serves.
pub const QUEUE_REQUESTS_MAX: usize = 1 << 20;

/// Requests for which there is room from the start: a burst that a quiet model sees once in an hour need not allocate.
const ROOM: usize = 64;

/// Withdrawn requests that wait for the next ones, at most.
const LEAVING_MAX: usize = 4096;

/// Measured lateness takes at most this part of a model's SLO: one in four. However bad the machine is, most of the budget
/// stays for batching.
const LATENESS_SHARE_MAX: u64 = 4;

/// Measured delays of inputs take at most this part of what the fastest GPUs leave of a model's SLO with one item: one in two.
const SPARE_SHARE: u64 = 2;

/// What a queue needs to know about its model.
#[derive(Clone, Debug)]
pub struct ModelQueueConfig {
    /// ℓ(b) on each class of GPUs that serves the model; at least one.
    pub profiles: ClassProfiles,
    /// The model's SLO; requests may carry other deadlines, the target batch follows this one.
    pub slo: Nanos,
    /// How it is scheduled.
    pub policy: Policy,
    /// Delays on the way.
    pub delays: Delays,
    /// The most requests that wait; one more is dropped. At most [`QUEUE_REQUESTS_MAX`].
    pub requests_max: usize,
}

/// A batch that could run on a class of GPUs: so many requests from the first that fits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Formed {
    requests: usize,
    candidate: Candidate,
    head_arrived: Time,
}

/// Owner of one model's requests (seed 000, `ModelThread`): forms the candidate, answers grants with plans, and decides
/// which requests to give up.
#[derive(Clone, Debug)]
pub struct ModelQueue {
    config: ModelQueueConfig,
    /// How long inputs take, as the host has said; `config.delays` has what of it can be planned for.
    said: DataDelay,
    /// Ordered by `must_end_by`; equal deadlines keep the order of arrival.
    queue: VecDeque<Queued>,
    /// The queue as each class of GPUs sees it that is there.
    windows: ClassWindows,
    /// The largest batch that any of them can run.
    batch_max: u32,
    /// Queued requests with more than one item; zero allows counting by index.
    multi_item: usize,
    rate: RateMeter,
    patience: Patience,
    lateness: LatenessMeter,
    /// What is planned for because plans end late; part of `config.delays.reply`.
    late: Nanos,
    /// Kept by the adaptive trigger only.
    anticipation: Option<Box<Anticipation>>,
    /// Kept by those that shed only.
    shedding: Option<Shedding>,
    /// What the pool said last of how early hope lets batches start.
    hope_max: Nanos,
    /// Withdrawn requests that leave with the next input.
    leaving: Vec<RequestId>,
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
            anticipation: adaptive.then(Box::default),
            shedding,
            said: config.delays.data,
            config,
            queue: VecDeque::with_capacity(ROOM),
            batch_max: windows.batch_max(),
            windows,
            multi_item: 0,
            rate: RateMeter::default(),
            patience: Patience::default(),
            lateness: LatenessMeter::default(),
            late: Nanos::ZERO,
            hope_max: Nanos::MAX,
            leaving: Vec::new(),
            answered: 0,
            wake_at: Time::NEVER,
        };
        queue.bound_inputs();
        queue
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

    /// The batch size that the window drop protects, on the class that runs the largest.
    #[must_use]
    pub fn target_batch(&self) -> u32 {
        self.windows.iter().map(|window| window.target).max().unwrap_or(1)
    }

    /// Says or corrects the profile on a class of GPUs. No decision follows: [`ModelInput::Classes`] says whether there are
    /// such GPUs.
    pub fn set_profile(&mut self, class: GpuClass, profile: LatencyProfile) {
        let at = self.windows.position(class);
        if let Some(at) = at {
            self.windows[at].set_profile(profile.clone());
        }
        self.config.profiles.set(class, profile);
        self.batch_max = self.windows.batch_max();
        if at.is_some() {
            self.aim();
        }
    }

    /// Says or corrects how long inputs take. What is decided next is decided by it: a host lets [`ModelInput::Wake`] follow, so that
    /// what is offered is no longer by the word of before.
    pub fn set_data_delay(&mut self, data: DataDelay) {
        self.said = data;
        self.aim();
    }

    /// How long inputs are given.
    #[must_use]
    pub const fn data_delay(&self) -> DataDelay {
        self.config.delays.data
    }

    /// What it saw and gave up since this was asked last; nothing from queues that do not shed.
    pub fn take_account(&mut self) -> Account {
        let Some(shedding) = &mut self.shedding else { return Account::default() };
        let account = shedding.take_account();
        // Who is asked nothing says nothing by its rate of long ago.
        let asked = account.asked > Nanos::ZERO;
        Account { company: if asked { self.company() } else { Company::default() }, ..account }
    }

    /// What company is worth here, on the class where batches take least.
    fn company(&self) -> Company {
        let Some(anticipation) = &self.anticipation else { return Company::default() };
        let budget = self.config.slo - self.config.delays.reply - self.config.delays.control;
        let companies = self.windows.iter().map(|window| anticipation.company(window, budget));
        companies.min_by_key(|company| company.busy).unwrap_or_default()
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
            queued.follow(delays);
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
                self.patience.note(request.deadline.since(now));
                // What no batch can hold says nothing about the batches to come.
                let counted = request.items.min(self.batch_max);
                let due = self.shedding.as_mut().and_then(|shedding| shedding.arrived(now, counted));
                let lasts = self.overload_lasts();
                if let Some(shed) = due.filter(|_| !lasts) {
                    // Before it is counted: batches are made of what is let in.
                    self.shed(now, Queued::new(request, now, &self.config.delays), shed, out);
                    return;
                }
                if self.rate.count(now, counted) {
                    self.aim();
                }
                if let Some(anticipation) = &mut self.anticipation {
                    anticipation.arrived(now);
                }
                let Some(request) = self.give_way(now, request, due, out) else { return };
                if !self.admit(now, Queued::new(request, now, &self.config.delays), out) {
                    return;
                }
            }
            ModelInput::Return(request) => {
                let queued = Queued::new(request, now, &self.config.delays);
                if !self.admit(now, Queued { returned: true, ..queued }, out) {
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
            ModelInput::Classes(classes) => self.follow_classes(classes, out),
            ModelInput::Done { start_late, latency, predicted } => {
                if !self.learn(start_late, latency, predicted) {
                    return;
                }
            }
            ModelInput::Pool(word) => {
                if let Some(shedding) = &mut self.shedding {
                    shedding.press(now, word.pressure);
                }
                // What waits now waits by the word of before; the next arrival changes that.
                self.hope_max = word.hope_max;
                return;
            }
            ModelInput::Wake => self.wake_at = Time::NEVER,
        }
        self.publish(now, out);
    }

    /// Answers a grant: the batch to run there, if there is one.
    fn plan(
        &mut self,
        now: Time,
        gpu: GpuId,
        class: GpuClass,
        free_at: Time,
        why: GrantWhy,
        out: &mut ModelActions,
    ) -> Option<Plan> {
        let at = self.windows.position(class)?;
        self.look(now, Some((at, free_at)), out);
        let formed = self.form(now, at, Some(free_at))?;
        let window = &mut self.windows[at];
        let (from, candidate) = (window.from, formed.candidate);
        let cut = from + formed.requests < self.queue.len();
        window.aimd.formed(candidate.batch, cut, window.profile.batch_max());
        let end = candidate.start + window.profile.latency(candidate.batch);
        let target = window.protected();
        let first = out.planned.len() as u32;
        self.take_out(from, formed.requests, &mut out.planned);
        Some(Plan {
            gpu,
            start: candidate.start,
            end,
            batch: candidate.batch,
            must_end_by: candidate.must_end_by,
            first,
            requests: formed.requests as u32,
            why: Some(PlanWhy {
                frontrun: candidate.frontrun,
                guard: self.config.delays.guard,
                latest: candidate.latest,
                head_arrived: formed.head_arrived,
                target,
                skipped: from as u32,
                left: self.queue.len() as u32,
                inputs: self.config.delays.data.of(candidate.batch),
                inputs_by: self.config.delays.data.source,
                grant: why,
            }),
        })
    }

    /// Forms a candidate for each class and says what changed.
    fn publish(&mut self, now: Time, out: &mut ModelActions) {
        self.look(now, None, out);
        let (mut at, mut wake_at) = (0, Time::NEVER);
        while at < self.windows.len() {
            wake_at = wake_at.min(self.publish_for(at, now, out));
            at += 1;
        }
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ModelAction::WakeAt(wake_at));
        }
    }

    /// The same for one class. Returns when its candidate cannot be met any more, and has to shrink or give way: after
    /// `latest − lead`.
    #[inline(always)]
    fn publish_for(&mut self, at: usize, now: Time, out: &mut ModelActions) -> Time {
        let mut candidate = self.form(now, at, None).map(|formed| formed.candidate);
        let window = &mut self.windows[at];
        if let (Some(candidate), Some(anticipation)) = (&mut candidate, &self.anticipation) {
            candidate.growth = window.starts_early.then(|| anticipation.growth(now, candidate, window));
        }
        if window.offered != Some((self.answered, candidate)) {
            window.offered = Some((self.answered, candidate));
            out.list.push(ModelAction::Offer { answered: self.answered, class: window.class, candidate });
        }
        candidate.map_or(Time::NEVER, |c| c.latest - c.lead + Nanos::new(1))
    }

    /// Brings what each class sees of the queue up to now, and gives up the requests that are of use to none of them.
    /// `granted` is a window whose GPU is in sight, and when it is free.
    #[inline(always)]
    fn look(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        if !self.windows.is_single() {
            return self.look_at_all(now, granted, out);
        }
        // All GPUs are alike: the first request of use is the head, or it is given up.
        let gpu_free = granted.map_or(Time::ZERO, |(_, free_at)| free_at);
        let floor = self.slide_window(0, now, gpu_free);
        // A head that could ride with everyone is of use: so it is most of the time, and known at once.
        if floor == 0 || self.windows.first.split > 0 || !self.knows_by_sliding() {
            self.look_at_heads(now, granted, gpu_free, out);
        }
    }

    /// Whether a split says all of the requests at it: not that one of many items fits into a batch.
    const fn knows_by_sliding(&self) -> bool {
        self.multi_item == 0 && matches!(self.config.policy.drop, DropRule::Window(_))
    }

    fn look_at_heads(&mut self, now: Time, granted: Option<(usize, Time)>, gpu_free: Time, out: &mut ModelActions) {
        if self.windows.first.floor == 0 {
            // Not even the youngest can be met here. Without a GPU in sight that is final, on a particular GPU it is not:
            // there the batch runs that was offered, if its head can be met. Returning a GPU that suits it would bring it
            // back at once, for ever.
            if gpu_free > now {
                return;
            }
            self.drop_unreachable(now, out);
        }
        while let Some(head) = self.queue.front()
            && !self.windows.first.fits(&self.config.delays, head, now, gpu_free)
        {
            self.drop_head(now, granted, out);
        }
    }

    /// The same with several classes.
    fn look_at_all(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        let (mut hopeless, mut abstains) = (true, None);
        for at in 0..self.windows.len() {
            let gpu_free = free_at(granted, at);
            let floor = self.slide_window(at, now, gpu_free);
            hopeless &= floor == 0;
            if floor == 0 && gpu_free > now {
                abstains = Some(at);
            }
        }
        if hopeless && abstains.is_none() {
            self.drop_unreachable(now, out);
        }
        let mut useless = usize::MAX;
        for (at, window) in self.windows.iter_mut().enumerate() {
            if abstains != Some(at) {
                window.find_first(&self.queue, &self.config.delays, now, free_at(granted, at), self.multi_item > 0);
                useless = useless.min(window.from);
            }
        }
        if abstains.is_none() {
            for _ in 0..useless.min(self.queue.len()) {
                self.drop_head(now, granted, out);
            }
        }
    }

    /// Slides a window, and returns the batch worth protecting.
    #[inline]
    fn slide_window(&mut self, at: usize, now: Time, gpu_free: Time) -> u32 {
        let window = &mut self.windows[at];
        match self.config.policy.drop {
            DropRule::Window(_) => window.slide(&self.queue, &self.config.delays, now, gpu_free),
            DropRule::Prune => window.floor = 1,
        }
        window.floor
    }

    /// The batch that would run on a GPU of a window's class that is granted and free at that time, or on any one if no
    /// GPU is in sight. Follows [`ModelQueue::look`].
    #[inline(always)]
    fn form(&self, now: Time, at: usize, granted: Option<Time>) -> Option<Formed> {
        let (window, delays) = (&self.windows[at], &self.config.delays);
        let gpu_free = granted.unwrap_or(Time::ZERO);
        let head = self.queue.get(window.from)?;
        if window.floor == 0 && gpu_free > now && !window.fits(delays, head, now, gpu_free) {
            return None;
        }
        let (must_end_by, head_arrived) = (head.must_end_by, head.arrived);
        let (requests, batch) = self.batch_from(window, now, gpu_free, must_end_by);
        let lead = delays.lead(batch);
        let latest = must_end_by - window.profile.latency(batch);
        let frontrun = window.frontrun(delays, must_end_by, batch);
        // Whoever grants a GPU early wants the batch to start early.
        let trigger = match (&self.anticipation, granted) {
            (Some(_), Some(_)) => now,
            _ => self.trigger(window, now, head_arrived, batch, (latest, frontrun)),
        };
        let start = (now + lead).max(gpu_free).max(trigger.min(latest));
        // By its whole SLO it is first, but for others like it.
        let is_behind = self.shedding.as_ref().is_some_and(|shedding| shedding.is_behind(now));
        let ahead = if is_behind { self.config.slo } else { Nanos::ZERO };
        let Policy { ready_order, gpu_choice, .. } = self.config.policy;
        let growth = None;
        let candidate =
            Candidate { batch, start, latest, frontrun, must_end_by, lead, growth, ahead, ready_order, gpu_choice };
        Some(Formed { requests, candidate, head_arrived })
    }

    /// When a batch of `batch` items wants to start, GPUs aside.
    #[inline]
    fn trigger(
        &self,
        window: &ClassWindow,
        now: Time,
        arrived: Time,
        batch: u32,
        (latest, frontrun): (Time, Time),
    ) -> Time {
        let guard = self.config.delays.guard;
        let frontrun = frontrun - guard;
        match self.config.policy.trigger {
            Trigger::Eager => now,
            Trigger::Frontrun => frontrun,
            Trigger::Adaptive => match &self.anticipation {
                Some(known) => known.start(now, frontrun, window, batch),
                None => frontrun,
            },
            Trigger::Latest => latest - guard,
            Trigger::BetaLambda if f64::from(batch) >= self.beta_lambda(window) => now,
            Trigger::BetaLambda => frontrun,
            Trigger::Timeout(wait) if self.is_full(window, batch, wait) => now,
            Trigger::Timeout(wait) => arrived + wait,
        }
    }

    /// β·λ: the items that arrive for one GPU during β, if the model runs batches of the target size (seed 000, section 4.3).
    /// Then it keeps rate·ℓ(b)/b GPUs busy, and one of them gets b/ℓ(b); or all, where less than one is busy.
    fn beta_lambda(&self, window: &ClassWindow) -> f64 {
        let per_gpu = f64::from(window.target) / window.profile.latency(window.target).as_secs_f64();
        window.beta_s * self.rate.per_second().min(per_gpu)
    }

    /// Whether one more item would not leave the SLO intact after a wait of `wait`. A wait that leaves no room at all is no
    /// measure of a batch.
    fn is_full(&self, window: &ClassWindow, batch: u32, wait: Nanos) -> bool {
        let delays = &self.config.delays;
        let room = self.config.slo - delays.reply - delays.control - wait;
        let needs = |batch: u32| window.profile.latency(batch) + delays.data.of(batch);
        batch >= window.profile.batch_max() || (needs(1) <= room && needs(batch + 1) > room)
    }

    /// Gives up the head: on no class it can ride in a batch worth protecting, or be met alone if it is larger.
    #[cold]
    fn drop_head(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        let Some(&head) = self.queue.front() else { return };
        let reason = self.reason(now, &head);
        let cause = self.cause(now, granted, &head);
        self.note_loss(now, head);
        let request = self.remove_at(0);
        out.list.push(ModelAction::Drop { request, reason, cause });
    }

    /// Gives up every request that cannot be met even alone, wherever it stands.
    #[cold]
    fn drop_unreachable(&mut self, now: Time, out: &mut ModelActions) {
        let mut index = 0;
        while let Some(queued) = self.queue.get(index) {
            if queued.must_end_by >= self.alone_end(now, queued.request.items) {
                index += 1;
                continue;
            }
            let (request, reason) = (queued.request, self.reason(now, queued));
            let cause = self.cause(now, None, queued);
            self.note_loss(now, *queued);
            self.remove_at(index);
            out.list.push(ModelAction::Drop { request, reason, cause });
        }
    }

    /// When a request of so many items would end alone on an idle GPU of the class that is fastest at it.
    fn alone_end(&self, now: Time, items: u32) -> Time {
        let ends = self.windows.iter().map(|window| window.finish(&self.config.delays, now, Time::ZERO, items));
        ends.min().unwrap_or(Time::NEVER)
    }

    /// Whether more is asked than the GPUs can do, and has been for so long that it will not pass by itself.
    fn overload_lasts(&self) -> bool {
        self.shedding.as_ref().is_some_and(Shedding::overload_lasts)
    }

    /// Gives up the first in line instead of `request`, if one of both is due to be shed, and returns `request` if it stays. In a lasting
    /// overload somebody is given up all the time, and who has waited longest leaves the least time for company: batches are made of
    /// what comes last, all of it.
    fn give_way(
        &mut self,
        now: Time,
        request: Request,
        due: Option<ShedCause>,
        out: &mut ModelActions,
    ) -> Option<Request> {
        let Some(shed) = due else { return Some(request) };
        let arrived = Queued::new(request, now, &self.config.delays);
        let first = self.queue.front().copied().filter(|first| first.must_end_by <= arrived.must_end_by);
        if first.is_some() {
            self.remove_at(0);
        }
        self.shed(now, first.unwrap_or(arrived), shed, out);
        first.is_some().then_some(request)
    }

    /// Gives a request up as this model's part of what has to be given up.
    fn shed(&mut self, now: Time, queued: Queued, shed: ShedCause, out: &mut ModelActions) {
        let could_serve = self.could_serve(&queued);
        if let Some(shedding) = &mut self.shedding {
            shedding.could_have_been_met_on(could_serve);
        }
        let cause = DropCause { shed: Some(shed), ..self.circumstances(now, &queued) };
        out.list.push(ModelAction::Drop { request: queued.request, reason: DropReason::Shed, cause });
    }

    /// A request is dropped: a loss, unless nobody could have met it when it arrived.
    fn note_loss(&mut self, now: Time, queued: Queued) {
        if self.shedding.is_none() {
            return;
        }
        let could_serve = self.could_serve(&queued);
        let (waited, items) = (now.since(queued.arrived), queued.request.items.min(self.batch_max));
        if let Some(shedding) = self.shedding.as_mut().filter(|_| could_serve != GpuClasses::NONE) {
            shedding.dropped(items, waited, could_serve);
        }
    }

    /// The classes of GPUs that would have met the request alone, idle when it arrived.
    fn could_serve(&self, queued: &Queued) -> GpuClasses {
        let end =
            |window: &ClassWindow| window.finish(&self.config.delays, queued.arrived, Time::ZERO, queued.request.items);
        self.windows.iter().filter(|window| queued.must_end_by >= end(window)).map(|window| window.class).collect()
    }

    fn reason(&self, now: Time, queued: &Queued) -> DropReason {
        // What could not be met when it came did not expire for waiting. When what was returned came is not known here.
        if !queued.returned && self.could_serve(queued) == GpuClasses::NONE {
            DropReason::SloUnreachable
        } else if queued.request.deadline <= now {
            DropReason::QueueExpired
        } else if queued.must_end_by < self.alone_end(now, queued.request.items) {
            DropReason::SloUnreachable
        } else {
            DropReason::ProtectBatch
        }
    }

    /// What a request is given up for: it would have to ride in a batch worth protecting, and even the class where that
    /// ends first ends too late.
    fn cause(&self, now: Time, granted: Option<(usize, Time)>, queued: &Queued) -> DropCause {
        let on = |(at, window): (usize, &ClassWindow)| {
            let batch = window.floor.max(1).max(queued.request.items);
            let batch_end = window.finish(&self.config.delays, now, free_at(granted, at), batch);
            (batch_end, batch, window.class, window.protected())
        };
        let best = self.windows.iter().enumerate().map(on).min();
        let (batch_end, batch, class, target) = best.unwrap_or((Time::NEVER, 0, GpuClass::FIRST, 0));
        DropCause { class, batch, batch_end, target, ..self.circumstances(now, queued) }
    }

    /// The same where no batch was looked at.
    fn circumstances(&self, now: Time, queued: &Queued) -> DropCause {
        DropCause {
            arrived: queued.arrived,
            must_end_by: queued.must_end_by,
            class: self.windows.first.class,
            batch: 0,
            target: self.windows.first.protected(),
            batch_end: Time::NEVER,
            alone_end: self.alone_end(now, queued.request.items),
            waiting: self.queue.len() as u32,
            shed: None,
        }
    }

    /// Requests and items of a class's batch: what is worth protecting from its first request on, and more as long as
    /// that one still makes it.
    #[inline]
    fn batch_from(&self, window: &ClassWindow, now: Time, gpu_free: Time, must_end_by: Time) -> (usize, u32) {
        let limit = match self.config.policy.limit {
            BatchLimit::None => u32::MAX,
            BatchLimit::Aimd => window.aimd.limit(),
        };
        let floor = window.floor.max(1);
        let too_late = |batch: u32| window.finish(&self.config.delays, now, gpu_free, batch) > must_end_by;
        if self.multi_item == 0 {
            let waiting = (self.queue.len() - window.from).min(limit as usize) as u32;
            if self.all_fit(window) {
                return (waiting as usize, waiting);
            }
            let mut batch = floor.min(waiting);
            while batch < waiting && !too_late(batch + 1) {
                batch += 1;
            }
            return (batch as usize, batch);
        }
        let (mut requests, mut batch) = (0, 0_u32);
        for queued in self.queue.range(window.from..) {
            let larger = batch.saturating_add(queued.request.items);
            let too_large = larger > limit || larger > floor && too_late(larger);
            if requests > 0 && too_large {
                break;
            }
            requests += 1;
            batch = larger;
        }
        (requests, batch)
    }

    /// Whether the window's first request was found to fit with all behind it, and all are one batch.
    #[inline]
    fn all_fit(&self, window: &ClassWindow) -> bool {
        window.from == window.split
            && window.items <= u64::from(window.profile.batch_max())
            && matches!(self.config.policy.drop, DropRule::Window(_))
    }

    /// Queues a request, or drops it if the queue is full. Inlined, so that it is put together where it waits.
    #[inline(always)]
    fn admit(&mut self, now: Time, queued: Queued, out: &mut ModelActions) -> bool {
        let fits = self.queue.len() < self.config.requests_max;
        if fits {
            self.insert(queued);
        } else {
            let cause = self.circumstances(now, &queued);
            self.note_loss(now, queued);
            out.list.push(ModelAction::Drop { request: queued.request, reason: DropReason::QueueFull, cause });
        }
        fits
    }

    #[inline(always)]
    fn insert(&mut self, mut queued: Queued) {
        queued.request.items = queued.request.items.max(1);
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
        self.windows.inserted(index, queued.request.items);
        self.multi_item += usize::from(queued.request.items > 1);
    }

    /// Moves the requests of a batch to `planned`.
    fn take_out(&mut self, from: usize, requests: usize, planned: &mut Vec<Request>) {
        if from == 0 && self.multi_item == 0 {
            self.windows.removed_first(requests);
            for queued in self.queue.drain(..requests) {
                // One by one, so that room grows by doubling, and has grown when a larger batch comes.
                planned.push(queued.request);
            }
            return;
        }
        // Each leaves a gap that the next one fills, as far as places are concerned; the queue closes it once for all.
        for queued in self.queue.drain(from..from + requests) {
            self.windows.removed(from, queued.request.items);
            self.multi_item -= usize::from(queued.request.items > 1);
            planned.push(queued.request);
        }
    }

    #[inline]
    fn remove_at(&mut self, index: usize) -> Request {
        let queued = if index == 0 { self.queue.pop_front() } else { self.queue.remove(index) };
        let request = queued.expect("the caller saw it").request;
        self.windows.removed(index, request.items);
        self.multi_item -= usize::from(request.items > 1);
        request
    }

    fn remove_where(&mut self, leaves: impl Fn(RequestId) -> bool) {
        let Self { queue, windows, multi_item, .. } = self;
        let mut index = 0;
        queue.retain(|Queued { request, .. }| {
            if !leaves(request.id) {
                index += 1;
                return true;
            }
            // Those before it that leave have left, as far as places are concerned.
            windows.removed(index, request.items);
            *multi_item -= usize::from(request.items > 1);
            false
        });
    }

    /// Serves with GPUs of these classes, as far as it has profiles for them; as before if it has none.
    fn follow_classes(&mut self, classes: GpuClasses, out: &mut ModelActions) {
        let items = self.queue.iter().map(|queued| u64::from(queued.request.items)).sum();
        // What was offered to GPUs that are gone is withdrawn.
        for gone in self.windows.follow(classes, &self.config.profiles, items) {
            out.list.push(ModelAction::Offer { answered: self.answered, class: gone.class, candidate: None });
        }
        self.batch_max = self.windows.batch_max();
        self.aim();
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

    /// What was measured must not make every request hopeless: without plans nothing would be read, and nothing measured that could say
    /// otherwise.
    fn bound_inputs(&mut self) {
        let (delays, fastest) =
            (&mut self.config.delays, self.windows.iter().map(|window| window.profile.latency(1)).min());
        let spare = self.config.slo - delays.control - delays.reply - fastest.unwrap_or(Nanos::ZERO);
        let max = match self.said.source {
            DelaySource::Configured => self.said.max,
            DelaySource::Assumed | DelaySource::Measured => self.said.max.min(Nanos::new(spare.get() / SPARE_SHARE)),
        };
        delays.data = DataDelay { max, ..self.said };
    }

    /// Computes the target batches from the newest rate.
    fn aim(&mut self) {
        self.bound_inputs();
        let (delays, slo) = (&self.config.delays, self.config.slo);
        let budget = |within: Nanos| within - delays.reply - delays.control;
        let longest = self.patience.look().max(slo);
        // What a larger batch would have given up, another one gives up a moment later: nothing is spared by smaller ones.
        let overload_lasts = self.overload_lasts();
        if let Some(anticipation) = &mut self.anticipation {
            anticipation.learn(&self.rate);
        }
        for window in self.windows.iter_mut() {
            // GPUs too slow for the SLO serve those that can wait longer, if there are any.
            let within = if window.profile.latency(1) <= budget(slo) { slo } else { longest };
            let rate = self.rate.per_second();
            window.target = target_batch(&window.profile, rate, budget(within), delays.data);
            window.whole_target = window.target;
            if let Some(anticipation) = &self.anticipation {
                window.demand = Anticipation::demand(&self.rate, &window.profile, window.target, slo);
                window.waits_without_hope = anticipation.waits_without_hope(window, budget(within));
                window.hope_max = anticipation.hope_max(window, self.hope_max);
            }
            window.starts_early = !overload_lasts;
            if let DropRule::Window(share) = self.config.policy.drop
                && !(overload_lasts && self.anticipation.is_some())
            {
                window.target = share.of(window.target);
                if self.anticipation.is_some() {
                    window.target = cheap_batch(&window.profile, window.whole_target, window.target);
                }
            }
            window.backlog = if longest > slo { (rate * slo.as_secs_f64()) as u64 } else { u64::MAX };
        }
        if let Some(anticipation) = &mut self.anticipation
            && self.windows.iter().any(|window| !window.waits_without_hope)
        {
            anticipation.learn_hope();
        }
        if let Some(shedding) = &mut self.shedding {
            shedding.aim(item_time(&self.windows));
        }
    }
}

/// When a window's GPU is free: long since, unless one is in sight.
#[inline]
fn free_at(granted: Option<(usize, Time)>, at: usize) -> Time {
    match granted {
        Some((window, free_at)) if window == at => free_at,
        _ => Time::ZERO,
    }
}

/// What an item takes of a GPU, in batches of the target size, on the class that is fastest at it.
fn item_time(windows: &ClassWindows) -> Nanos {
    let times =
        windows.iter().map(|window| window.profile.latency(window.target).get() / u64::from(window.target.max(1)));
    Nanos::new(times.min().unwrap_or(0))
}
