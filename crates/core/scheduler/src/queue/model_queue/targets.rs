//! Targets of a queue: batch sizes from rate and profile, and the time reserved for delays.

use symphony_types::{GpuClass, GpuClasses, LatencyProfile, Nanos};

use super::ModelQueue;
use crate::actions::{ModelAction, ModelActions};
use crate::meters::lateness_meter::Overrun;
use crate::pool::shedding::Shedding;
use crate::queue::class_windows::ClassWindows;
use crate::queue::recent_budgets::RecentBudgets;
use crate::queue::target_batch::target_batch_of;
use crate::{DataDelay, DelaySource, DropRule};

/// Start lateness and overrun together take at most this share of the planned budget: one in four. However bad the
/// machine is, most of what requests have remains for batching.
const LATENESS_SHARE_MAX: u64 = 4;

/// Measured lateness and measured input delay each take at most this share of the planned budget less ℓ(1) on the
/// fastest class: one in two.
const SPARE_SHARE: u64 = 2;

impl ModelQueue {
    /// Sets the profile of a GPU class. It triggers no decision: [`ModelInput::Classes`](crate::ModelInput::Classes)
    /// tells which classes exist.
    pub fn set_profile(&mut self, class: GpuClass, profile: LatencyProfile) {
        let at = self.windows.position(class);
        if let Some(at) = at {
            self.windows[at].set_profile(profile.clone());
        }
        self.config.profiles.set(class, profile);
        self.batch_max = self.windows.batch_max();
        if at.is_some() {
            self.update_targets();
        }
    }

    /// Sets the SLO that batches are planned for until the requests that arrive from now on are seen to have another
    /// budget; requests keep their deadlines. Returns whether it has changed: then the host should follow it with
    /// [`ModelInput::Wake`](crate::ModelInput::Wake), so that the present offer is renewed as well.
    pub fn set_slo(&mut self, slo: Nanos) -> bool {
        if self.config.slo == slo {
            return false;
        }
        self.config.slo = slo;
        (self.planned_budget, self.budgets) = (slo, RecentBudgets::default());
        self.expect_lateness();
        self.update_targets();
        true
    }

    /// Sets the input delay for later decisions. The host should follow it with
    /// [`ModelInput::Wake`](crate::ModelInput::Wake), so that the present offer is renewed as well.
    pub fn set_data_delay(&mut self, data: DataDelay) {
        self.given_data_delay = data;
        self.update_targets();
    }

    /// Records the measurements of a plan. Returns whether the planned lateness has changed.
    pub(super) fn record_run(&mut self, start_late: Nanos, latency: Nanos, predicted: Nanos) -> bool {
        // Neither early starts nor fast executions make up for late ones: deadlines are promised for each plan.
        self.lateness.record(start_late, latency - predicted, predicted) && self.expect_lateness()
    }

    /// Plans for the recent quantiles of start lateness and overrun (docs/adr/0007-measured-lateness.md); the overrun
    /// is that of all models while this one has few plans. Returns whether the planned lateness has changed.
    pub(super) fn expect_lateness(&mut self) -> bool {
        let budget = self.planned_budget;
        let spare = budget - self.least();
        // Measurements must not make every request unreachable: then no plan would run, and nothing could correct them.
        let most = Nanos::new((budget.get() / LATENESS_SHARE_MAX).min(spare.get() / SPARE_SHARE));
        let start_late = self.lateness.start_late().min(most);
        let overrun = if self.rules.overrun { self.lateness.overrun(self.usual_overrun) } else { Overrun::NONE };
        let mut changed = false;
        for window in self.windows.iter_mut() {
            let planned = (overrun, most - start_late);
            changed |= (window.overrun, window.overrun_max) != planned;
            (window.overrun, window.overrun_max) = planned;
        }
        if start_late == self.start_late {
            return changed;
        }
        let delays = &mut self.config.delays;
        delays.reply = delays.reply - self.start_late + start_late;
        self.start_late = start_late;
        for queued in &mut self.queue {
            queued.apply_delays(delays);
        }
        true
    }

    /// What one item takes at least: the delays without what was measured, and ℓ(1) on the fastest class.
    #[inline]
    pub(super) fn least(&self) -> Nanos {
        let reply = self.config.delays.reply - self.start_late;
        let fastest = self.windows.iter().map(|window| window.profile.latency(1)).min().unwrap_or(Nanos::ZERO);
        self.config.delays.control + reply + fastest
    }

    /// Uses these GPU classes, as far as they have profiles; if none has, the classes stay as they are.
    pub(super) fn set_classes(&mut self, classes: GpuClasses, out: &mut ModelActions) {
        let items = self.queue.iter().map(|queued| u64::from(queued.request.items)).sum();
        // Withdraws the offers to classes that are gone.
        for gone in self.windows.set_classes(classes, &self.config.profiles, items) {
            out.list.push(ModelAction::Offer { answered: self.answered, class: gone.class, candidate: None });
        }
        self.batch_max = self.windows.batch_max();
        self.expect_lateness();
        self.update_targets();
    }

    /// Whether the load exceeds the GPUs and has done so for too long to pass by itself.
    pub(super) fn overload_lasts(&self) -> bool {
        self.shedding.as_ref().is_some_and(Shedding::overload_lasts)
    }

    /// Measurements must not make every request unreachable: without plans no inputs would be read, and nothing could
    /// correct them.
    pub(super) fn bound_inputs(&mut self) {
        let (delays, fastest) = (&mut self.config.delays, self.windows.iter().map(|window| window.takes(1)).min());
        let spare = self.planned_budget - delays.control - delays.reply - fastest.unwrap_or(Nanos::ZERO);
        let max = match self.given_data_delay.source {
            DelaySource::Configured => self.given_data_delay.max,
            DelaySource::Assumed | DelaySource::Measured => {
                self.given_data_delay.max.min(Nanos::new(spare.get() / SPARE_SHARE))
            }
        };
        delays.data = DataDelay { max, ..self.given_data_delay };
    }

    /// Computes the target batches from the newest rate and the budgets that requests have.
    pub(super) fn update_targets(&mut self) {
        let budgets = self.budgets.read();
        let planned = if self.rules.budget { budgets.nearest_to(self.config.slo) } else { self.config.slo };
        if planned != self.planned_budget {
            self.planned_budget = planned;
            self.expect_lateness();
        }
        self.bound_inputs();
        let delays = &self.config.delays;
        let budget = |within: Nanos| within - delays.reply - delays.control;
        let longest = budgets.longest.max(planned);
        let joining = self.request_items.recent_mean();
        // The requests given up for a larger batch would be given up a moment later otherwise: smaller batches save
        // none.
        let overload_lasts = self.overload_lasts();
        let adaptive = self.gaps.is_some();
        if let Some(gaps) = &mut self.gaps {
            gaps.update();
        }
        for window in self.windows.iter_mut() {
            // GPUs that are too slow for the planned budget serve requests with later deadlines, if any.
            let within = if window.takes(1) <= budget(planned) { planned } else { longest };
            let rate = self.rate.per_second();
            let batch_max = window.profile.batch_max();
            window.target = target_batch_of(batch_max, |batch| window.takes(batch), rate, budget(within), delays.data);
            window.whole_target = window.target;
            let target_s = window.profile.latency(window.target).as_secs_f64();
            window.below_one_gpu = rate * target_s < f64::from(window.target);
            window.joining = joining;
            if let DropRule::Window(share) = self.config.policy.drop
                && !(overload_lasts && adaptive)
            {
                window.target = share.of(window.target);
            }
            window.backlog = if longest > planned { (rate * planned.as_secs_f64()) as u64 } else { u64::MAX };
        }
        if let Some(shedding) = &mut self.shedding {
            shedding.set_item_time(item_time(&self.windows));
        }
    }
}

/// The GPU time of an item in target batches, on the class where it is shortest.
pub(super) fn item_time(windows: &ClassWindows) -> Nanos {
    let times =
        windows.iter().map(|window| window.profile.latency(window.target).get() / u64::from(window.target.max(1)));
    Nanos::new(times.min().unwrap_or(0))
}
