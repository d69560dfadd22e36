//! Forms the batch that a queue would run now, and offers it.

use symphony_types::{GpuClass, GpuId, Nanos, Time};

use super::ModelQueue;
use crate::actions::{Candidate, ModelAction, ModelActions, Plan};
use crate::auto::early_start::EarlyStart;
use crate::queue::class_window::ClassWindow;
use crate::why::{GrantWhy, PlanWhy};
use crate::{BatchLimit, DropRule, Policy, Trigger};

/// The share of the GPUs that may be taken at once, whatever the pace: one in eight. With a quarter, eight InceptionV3
/// on eight GPUs lose five percent in bursts; with none, a request that follows another at low load waits although all
/// GPUs are idle.
const UNPACED: u64 = 8;
/// A model that keeps less than one GPU busy lets no batch wait longer than this many times ℓ(1), here three, unless
/// early starts are off: its items then cost little more than in the largest batch. With two, for all models, 16
/// DenseNet121 lost 8 %; without a limit models with loose SLOs lose up to a third where GPUs are few.
const WAIT_MAX: u64 = 3;

/// A batch that could run on a GPU class: a number of requests, starting with the first that fits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Formed {
    requests: usize,
    candidate: Candidate,
    head_arrived: Time,
}

impl ModelQueue {
    /// Answers a grant with the batch to run there, if any.
    pub(super) fn plan(
        &mut self,
        now: Time,
        gpu: GpuId,
        class: GpuClass,
        free_at: Time,
        why: GrantWhy,
        out: &mut ModelActions,
    ) -> Option<Plan> {
        let at = self.windows.position(class)?;
        self.drop_unservable(now, Some((at, free_at)), out);
        let formed = self.form(now, at, Some(free_at))?;
        let gpus: u32 = self.windows.iter().map(|window| self.gpus.0[window.class.index()]).sum();
        let takes = self.plan_takes(at, &formed);
        let window = &mut self.windows[at];
        let (from, candidate) = (window.from, formed.candidate);
        let cut = from + formed.requests < self.queue.len();
        window.aimd.formed(candidate.batch, cut, window.profile.batch_max());
        let end = candidate.start + takes;
        // A single GPU sets its own pace.
        if gpus > 1 {
            window.pace(candidate.start, end.since(candidate.start), self.gpus.0[class.index()]);
        }
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

    /// What a plan of this batch takes: ℓ(b), or what the variants of a family take in it. After an over-estimate the
    /// next plan would be sent later than the GPU could run it.
    fn plan_takes(&mut self, at: usize, formed: &Formed) -> Nanos {
        let window = &self.windows[at];
        let worst = window.profile.latency(formed.candidate.batch);
        let Some(families) = &mut self.families else { return worst };
        let requests = self.queue.range(window.from..window.from + formed.requests).map(|queued| &queued.request);
        families.exact(window.class, requests).unwrap_or(worst)
    }

    /// Forms a candidate per class and offers those that changed.
    pub(super) fn publish(&mut self, now: Time, out: &mut ModelActions) {
        self.drop_unservable(now, None, out);
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

    /// Forms the candidate of one class and offers it if it changed. Returns when the candidate expires and has to
    /// shrink or be replaced: after `latest − lead`.
    #[inline(always)]
    fn publish_for(&mut self, at: usize, now: Time, out: &mut ModelActions) -> Time {
        let candidate = self.form(now, at, None).map(|formed| formed.candidate);
        let window = &mut self.windows[at];
        if window.offered != Some((self.answered, candidate)) {
            window.offered = Some((self.answered, candidate));
            out.list.push(ModelAction::Offer { answered: self.answered, class: window.class, candidate });
        }
        candidate.map_or(Time::NEVER, |c| c.latest - c.lead + Nanos::new(1))
    }

    /// The batch for a GPU of the window's class: a granted GPU that is free at the given time, or any GPU if none was
    /// granted. Call [`ModelQueue::drop_unservable`] first.
    #[inline(always)]
    fn form(&self, now: Time, at: usize, granted: Option<Time>) -> Option<Formed> {
        let (window, delays) = (&self.windows[at], &self.config.delays);
        let gpu_free = granted.unwrap_or(Time::ZERO);
        let head = self.queue.get(window.from)?;
        if window.floor == 0 && gpu_free > now && !window.fits(delays, head, now, gpu_free) {
            return None;
        }
        let (must_end_by, head_arrived) = (head.must_end_by, head.arrived);
        let is_behind = self.shedding.as_ref().is_some_and(|shedding| shedding.is_behind(now, head.request.weight));
        let (requests, batch) = self.batch_from(window, now, gpu_free, must_end_by);
        let lead = delays.lead(batch);
        let latest = must_end_by - window.takes(batch);
        let frontrun = window.frontrun(delays, must_end_by, batch);
        // A GPU that was granted early is used early.
        let trigger = match (&self.gaps, granted) {
            (Some(_), Some(_)) => now,
            _ => self.trigger(window, now, head_arrived, batch, (latest, frontrun)),
        };
        let start = (now + lead).max(gpu_free).max(trigger.min(latest));
        // Moved ahead by all the time that it may have, the candidate precedes all except others of its kind. Its first
        // request is the one that is lost if it comes too late.
        let ahead = if is_behind { self.config.slo.max(self.planned_budget) } else { Nanos::ZERO };
        let Policy { ready_order, gpu_choice, .. } = self.config.policy;
        let candidate = Candidate { batch, start, latest, frontrun, must_end_by, lead, ahead, ready_order, gpu_choice };
        Some(Formed { requests, candidate, head_arrived })
    }

    /// When a batch of `batch` items should start, apart from GPUs.
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
            Trigger::Adaptive => self.adaptive(window, frontrun),
            Trigger::Latest => latest - guard,
            Trigger::BetaLambda if f64::from(batch) >= self.beta_lambda(window) => now,
            Trigger::BetaLambda => frontrun,
            Trigger::Timeout(wait) if self.is_full(window, batch, wait) => now,
            Trigger::Timeout(wait) => arrived + wait,
        }
    }

    /// Starts at the pool's early start before frontrun, or earlier once another arrival before frontrun has become
    /// unlikely or the wait is long enough; but batches start no faster than GPUs become free.
    #[inline]
    fn adaptive(&self, window: &ClassWindow, frontrun: Time) -> Time {
        let alone = window.takes(1);
        let wait = self.planned_budget - alone;
        let affordable = if self.overload_lasts() {
            // All GPUs are busy all the time: a GPU that becomes free waits for the next full batch.
            EarlyStart::NONE
        } else if self.rules.load {
            self.early_start
        } else {
            EarlyStart::AT_ONCE
        };
        let mut early = affordable.of(wait);
        if window.below_one_gpu && affordable != EarlyStart::NONE && self.rules.short_waits {
            early = early.max(wait - alone.saturating_mul(WAIT_MAX));
        }
        let mut start = frontrun - early;
        if let Some(unlikely) = self.gaps.as_ref().and_then(|gaps| gaps.stop_waiting_at(frontrun))
            && self.rules.gaps
        {
            let most = affordable.where_unlikely().of(wait).max(wait - alone);
            start = start.min(unlikely.max(frontrun - most));
        }
        if !self.rules.spacing {
            return start;
        }
        start.max((window.paced_until - Nanos::new(alone.get() / UNPACED)).min(frontrun))
    }

    /// β·λ: the items that arrive per GPU during β, if the model runs target batches (the Symphony paper, section 4.3).
    /// It keeps n = rate·ℓ(b)/b GPUs busy, so each gets rate/n = b/ℓ(b), or the whole rate if n < 1.
    fn beta_lambda(&self, window: &ClassWindow) -> f64 {
        let per_gpu = f64::from(window.target) / window.profile.latency(window.target).as_secs_f64();
        window.beta_s * self.rate.per_second().min(per_gpu)
    }

    /// Whether one more item would end later than requests can wait, after a wait of `wait`. False if the wait alone
    /// leaves no room for any batch.
    fn is_full(&self, window: &ClassWindow, batch: u32, wait: Nanos) -> bool {
        let delays = &self.config.delays;
        let room = self.planned_budget - delays.reply - delays.control - wait;
        let needs = |batch: u32| window.takes(batch) + delays.data.of(batch);
        batch >= window.profile.batch_max() || (needs(1) <= room && needs(batch + 1) > room)
    }

    /// Requests and items of a class's batch: the batch worth protecting, and more items as long as its first request
    /// is still met.
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

    /// Whether the window's first request shares a batch with all requests behind it, so that all of them are one
    /// batch.
    #[inline]
    pub(super) fn all_fit(&self, window: &ClassWindow) -> bool {
        window.from == window.split
            && window.items <= u64::from(window.profile.batch_max())
            && matches!(self.config.policy.drop, DropRule::Window(_))
    }
}
