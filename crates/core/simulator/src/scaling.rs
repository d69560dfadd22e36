//! A virtual cluster whose number of GPUs follows the load: GPUs are ordered, serve, drain and are released.

use std::collections::VecDeque;

use symphony_controllers::{Advice, Autoscaler, KindWindow, Window};
use symphony_fleet::{FleetPlanner, Kind, LatencyTable, Merging, Mix, ServedModel, measured_problem};
use symphony_types::{GpuId, Nanos, Time};
use symphony_workload::{Autoscale, GpuSpec, ModelSpec, Scenario};

use crate::gpus::{Gpus, Run};
use crate::scaling_trace::{CourseStep, ModelCounts, ScalingResult};

/// The state of a GPU in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Absent.
    Away,
    Ordered,
    /// Serving since this time.
    Serving(Time),
    /// Draining: no new plans; it finishes those it has.
    Draining,
}

/// Instructions for the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalingOrder {
    /// The GPU serves from now on.
    Up(GpuId),
    /// The GPU gets no more plans.
    Drain(GpuId),
}

/// The choice of kinds within a budget, by the requests that came.
#[derive(Debug)]
struct Budgeted {
    planner: FleetPlanner,
    budget_per_hour: f64,
    kinds: Vec<Kind>,
    models: Vec<ServedModel>,
    merging: Merging,
    /// Requests since the last step.
    requests: Mix,
}

impl Budgeted {
    fn new(scenario: &Scenario, budget_per_hour: f64) -> Self {
        let kind = |gpu: &GpuSpec| Kind {
            name: gpu.kind.clone(),
            // The scenario is checked: all have one.
            price_per_hour: gpu.price_per_hour.unwrap_or(f64::INFINITY),
            count_max: gpu.count,
        };
        let served = |(number, model): (u32, &ModelSpec)| ServedModel {
            model: number,
            name: model.name.clone(),
            slo: model.slo,
            latencies: scenario
                .gpus
                .iter()
                .map(|gpu| LatencyTable::from_profile(&model.profiles[gpu.class.index()]))
                .collect(),
        };
        Self {
            planner: FleetPlanner::new(),
            budget_per_hour,
            kinds: scenario.gpus.iter().map(kind).collect(),
            models: (0..).zip(&scenario.models).map(served).collect(),
            merging: Merging::of(scenario.policy.merges()),
            requests: Mix::default(),
        }
    }

    fn observe(&mut self, now: Time, autoscaler: &mut Autoscaler, window: &Window) -> Advice {
        let requests = std::mem::take(&mut self.requests);
        let (budget, kinds, models) = (self.budget_per_hour, &self.kinds, &self.models);
        let pose = |mix: &Mix| measured_problem(budget, kinds.clone(), models.clone(), mix);
        self.planner.observe(now, autoscaler, window, &requests, self.merging, pose)
    }
}

/// The autoscaler, its measurements, and the execution of its advice.
#[derive(Debug)]
pub(crate) struct Scaling {
    autoscaler: Autoscaler,
    budgeted: Option<Budgeted>,
    period: Nanos,
    provision: Nanos,
    /// The kind of each GPU, by id.
    kind_of: Vec<usize>,
    uses: Vec<Use>,
    /// Orders with their arrival times, in order.
    ordered: VecDeque<(Time, GpuId)>,
    check_at: Time,
    window_from: Time,
    /// The demand until then.
    demand: Nanos,
    /// The execution time of serving GPUs in the last window.
    busy_time: Nanos,
    models: Vec<ModelCounts>,
    /// Execution time of completed plans on serving GPUs since `window_from`, by kind.
    busy: Vec<Nanos>,
    result: ScalingResult,
    /// GPU time after the warm-up, including draining GPUs.
    counted: Counted,
}

/// Counts after the warm-up.
#[derive(Debug)]
struct Counted {
    from: Time,
    until: Time,
    gpu_time: Nanos,
    /// When the number of GPUs was last counted, and the number.
    last: Time,
    powered: u32,
}

impl Counted {
    fn advance(&mut self, now: Time) {
        let from = self.last.max(self.from);
        self.gpu_time += now.min(self.until).since(from).saturating_mul(self.powered.into());
        self.last = now;
    }
}

impl Scaling {
    pub(crate) fn new(scenario: &Scenario, autoscale: &Autoscale) -> Self {
        let (mut kind_of, mut uses) = (Vec::new(), Vec::new());
        for (kind, (spec, &start)) in scenario.gpus.iter().zip(&autoscale.start).enumerate() {
            kind_of.extend(std::iter::repeat_n(kind, spec.count as usize));
            uses.extend((0..spec.count).map(|gpu| if gpu < start { Use::Serving(Time::ZERO) } else { Use::Away }));
        }
        let from = Time::ZERO + scenario.warmup;
        let powered = autoscale.start.iter().sum();
        Self {
            autoscaler: autoscale.autoscaler.clone(),
            budgeted: autoscale.budget_per_hour.map(|budget| Budgeted::new(scenario, budget)),
            period: autoscale.period,
            provision: autoscale.provision,
            kind_of,
            uses,
            ordered: VecDeque::new(),
            check_at: Time::ZERO + autoscale.period,
            window_from: Time::ZERO,
            demand: Nanos::ZERO,
            busy_time: Nanos::ZERO,
            models: vec![ModelCounts::default(); scenario.models.len()],
            busy: vec![Nanos::ZERO; scenario.gpus.len()],
            result: ScalingResult::default(),
            counted: Counted {
                from,
                until: from + scenario.duration,
                gpu_time: Nanos::ZERO,
                last: Time::ZERO,
                powered,
            },
        }
    }

    /// Whether the GPU takes plans now.
    pub(crate) fn serves(&self, gpu: GpuId) -> bool {
        matches!(self.uses.get(gpu.get() as usize), Some(Use::Serving(_)))
    }

    /// When the next action is due.
    pub(crate) fn next(&self) -> Time {
        self.ordered.front().map_or(self.check_at, |&(at, _)| at.min(self.check_at))
    }

    pub(crate) fn arrived(&mut self, model: usize, items: u32) {
        self.models[model].offered += 1;
        if let Some(budgeted) = &mut self.budgeted {
            budgeted.requests.count(model as u32, items, 1);
        }
    }

    pub(crate) fn dropped(&mut self, model: u32) {
        self.models[model as usize].bad += 1;
    }

    /// A plan has ended; `late` of its requests were answered too late. Returns true if the GPU is no longer used.
    pub(crate) fn ran(&mut self, now: Time, run: &Run, late: u32, idle: bool) -> bool {
        let model = &mut self.models[run.model as usize];
        model.bad += late;
        model.good += run.plan.requests - late;
        let gpu = run.plan.gpu.get() as usize;
        match self.uses[gpu] {
            Use::Serving(_) => {
                self.busy[self.kind_of[gpu]] += run.end.since(run.start.max(self.window_from));
                false
            }
            Use::Draining if idle => {
                self.leave(now, gpu);
                true
            }
            _ => true,
        }
    }

    fn leave(&mut self, now: Time, gpu: usize) {
        self.counted.advance(now);
        self.counted.powered -= 1;
        self.uses[gpu] = Use::Away;
    }

    /// Performs the actions that are due; instructions for the world are appended to `orders`.
    pub(crate) fn step(&mut self, now: Time, gpus: &Gpus, demand: Option<Nanos>, orders: &mut Vec<ScalingOrder>) {
        while let Some(&(at, gpu)) = self.ordered.front().filter(|(at, _)| *at <= now) {
            self.ordered.pop_front();
            self.uses[gpu.get() as usize] = Use::Serving(at);
            self.counted.advance(now);
            self.counted.powered += 1;
            orders.push(ScalingOrder::Up(gpu));
        }
        if now >= self.check_at {
            let window = self.measure(now, gpus, demand);
            let advice = match &mut self.budgeted {
                None => self.autoscaler.observe(now, &window),
                Some(budgeted) => budgeted.observe(now, &mut self.autoscaler, &window),
            };
            self.record(now, &window, &advice);
            self.apply_advice(now, gpus, &advice, orders);
            self.check_at = now + self.period;
        }
    }

    /// The busy time of the GPUs; with deferred batches if the policy reports its `demand` so far.
    fn measure(&mut self, now: Time, gpus: &Gpus, demand: Option<Nanos>) -> Window {
        let mut kinds = vec![KindWindow::default(); self.busy.len()];
        for ((gpu, used), &kind) in (0_u32..).zip(&self.uses).zip(&self.kind_of) {
            match *used {
                Use::Serving(since) => {
                    let kind = &mut kinds[kind];
                    kind.serving.push(GpuId::new(gpu));
                    kind.gpu_time += now.since(since.max(self.window_from));
                    let running = gpus.running_since(GpuId::new(gpu), now).map(|since| since.max(self.window_from));
                    kind.busy_time += running.map_or(Nanos::ZERO, |since| now.since(since));
                }
                Use::Ordered => kinds[kind].ordered += 1,
                Use::Away | Use::Draining => {}
            }
        }
        for (kind, ended) in kinds.iter_mut().zip(&mut self.busy) {
            kind.busy_time += std::mem::take(ended);
        }
        self.busy_time = kinds.iter().map(|kind| kind.busy_time).fold(Nanos::ZERO, |sum, busy| sum + busy);
        if let Some(demand) = demand {
            let added = (demand - std::mem::replace(&mut self.demand, demand)).as_secs_f64();
            let there: f64 = kinds.iter().map(|kind| kind.gpu_time.as_secs_f64()).sum();
            for kind in &mut kinds {
                kind.busy_time =
                    Nanos::from_secs_f64(added * kind.gpu_time.as_secs_f64() / there.max(f64::MIN_POSITIVE));
            }
        }
        let sum = |count: fn(&ModelCounts) -> u32| self.models.iter().map(|model| u64::from(count(model))).sum();
        Window {
            length: now.since(self.window_from),
            good: sum(|model| model.good),
            bad: sum(|model| model.bad),
            kinds,
        }
    }

    /// Records the window and starts the next one.
    fn record(&mut self, now: Time, window: &Window, advice: &Advice) {
        let length_s = window.length.as_secs_f64();
        let gpus = |part: fn(&KindWindow) -> Nanos| {
            window.kinds.iter().map(|kind| part(kind).as_secs_f64()).sum::<f64>() / length_s
        };
        let draining = self.uses.iter().filter(|used| **used == Use::Draining).count() as u32;
        self.result.course.push(CourseStep {
            at_s: now.as_secs_f64(),
            models: self.models.clone(),
            serving: gpus(|kind| kind.gpu_time),
            busy: self.busy_time.as_secs_f64() / length_s,
            ordered: self.ordered.len() as u32,
            draining,
            pressure: advice.pressure,
            add: advice.kinds.iter().map(|kind| kind.add).sum(),
            release: advice.kinds.iter().map(|kind| kind.release.len() as u32 + kind.cancel).sum(),
            reason: advice.reason,
        });
        self.models.fill(ModelCounts::default());
        self.window_from = now;
        self.counted.advance(now);
        if now > self.counted.from && now <= self.counted.until {
            let powered = self.counted.powered;
            let (least, most) = self.result.gpus_range.unwrap_or((powered, powered));
            self.result.gpus_range = Some((least.min(powered), most.max(powered)));
            self.result.ups += u64::from(advice.adds());
            self.result.downs += u64::from(advice.changes() && !advice.adds());
        }
    }

    fn apply_advice(&mut self, now: Time, gpus: &Gpus, advice: &Advice, orders: &mut Vec<ScalingOrder>) {
        for (kind, advice) in advice.kinds.iter().enumerate() {
            let of_kind = |uses: &[Use], kind_of: &[usize], wanted: Use| -> Vec<usize> {
                (0..uses.len()).filter(|&gpu| kind_of[gpu] == kind && uses[gpu] == wanted).collect()
            };
            // Lowest ids first, in the order of use. Draining GPUs are ordered again after they are gone.
            for gpu in of_kind(&self.uses, &self.kind_of, Use::Away).into_iter().take(advice.add as usize) {
                self.uses[gpu] = Use::Ordered;
                self.ordered.push_back((now + self.provision, GpuId::new(gpu as u32)));
            }
            let ordered = of_kind(&self.uses, &self.kind_of, Use::Ordered);
            for gpu in ordered.into_iter().rev().take(advice.cancel as usize) {
                self.uses[gpu] = Use::Away;
                self.ordered.retain(|order| order.1.get() as usize != gpu);
            }
            for &gpu in &advice.release {
                self.uses[gpu.get() as usize] = Use::Draining;
                orders.push(ScalingOrder::Drain(gpu));
                if gpus.is_idle(gpu) {
                    self.leave(now, gpu.get() as usize);
                }
            }
        }
    }

    /// The trace, and the GPU time while requests counted.
    pub(crate) fn into_result(mut self) -> (ScalingResult, Nanos) {
        let Counted { from, until, .. } = self.counted;
        self.counted.advance(until.max(self.counted.last));
        let duration_s = until.since(from).as_secs_f64();
        if let Some(Budgeted { planner, .. }) = &self.budgeted {
            self.result.fleet = planner.plan().map(|plan| plan.counts.clone());
            self.result.fleet_refused = planner.refused().map(str::to_owned);
        }
        self.result.gpus_mean = self.counted.gpu_time.as_secs_f64() / duration_s;
        (self.result, self.counted.gpu_time)
    }
}
