//! The generator of a stress run: sends requests on their schedule, plays the GPUs, and watches for lag.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use symphony_explain::RecorderLimits;
use symphony_protocol::dispatch::RequestHeader;
use symphony_scheduler_runtime::{Clock, DecisionConfig, InProcess, Orders, ThreadPolicy, WorkerDurations};
use symphony_telemetry::DurationHistogram;
use symphony_types::{GpuClass, Nanos, Time};

use super::arrivals::Arrivals;
use super::gpus::Gpus;
use super::{StressPlan, StressReport};

/// Requests in a frame, as links have it.
const FRAME_REQUESTS_MAX: usize = symphony_protocol::dispatch::ANNOUNCED_REQUESTS_MAX;
/// After the last arrival, what is queued may run this much longer than its SLO before it is missed.
const GRACE: Nanos = Nanos::from_millis(100);

/// Runs the plan to its end, or to the first request that lags.
///
/// # Errors
/// If the plan makes no sense or the system refuses a thread. Lag is no error here: the report says so.
pub fn run(plan: &StressPlan) -> anyhow::Result<StressReport> {
    // On a thread of its own: the core that it is bound to is not the caller's for ever.
    std::thread::scope(|scope| {
        let generator = std::thread::Builder::new().name("generator".into());
        let generator = generator.spawn_scoped(scope, || generate(plan)).context("cannot start the generator")?;
        generator.join().map_err(|_| anyhow::anyhow!("the generator panicked"))?
    })
}

fn generate(plan: &StressPlan) -> anyhow::Result<StressReport> {
    let pin = plan.first_core.is_some();
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = plan.first_core {
        anyhow::ensure!(core > 0, "core 0 is the generator's: decision threads begin at core 1 or later");
        let needed = core + 1 + plan.model_threads as usize;
        anyhow::ensure!(needed <= cores.len(), "{needed} cores are needed and there are {}", cores.len());
    }
    let config = DecisionConfig {
        model_threads: plan.model_threads,
        threads: ThreadPolicy { spin: plan.spin, pin },
        first_core: plan.first_core.unwrap_or(0),
        recorder: (!plan.no_recorder).then_some(RecorderLimits::WORKER),
        ..DecisionConfig::default()
    };
    let (mut scheduler, orders) = InProcess::start(&config).context("cannot start decision threads")?;
    if let Some(core) = plan.first_core {
        core_affinity::set_for_current(cores[core - 1]);
    }
    let model = plan.model()?;
    (0..plan.models).for_each(|id| scheduler.add_model(id, model.clone()));
    (0..plan.gpus).for_each(|_| {
        scheduler.add_gpu(GpuClass::FIRST);
    });
    let mut generator = Generator::new(plan, scheduler, orders);
    generator.run();
    Ok(generator.report)
}

/// Requests handed to a model thread that have not been seen to be taken in: how many were handed over up to here, and
/// when the oldest of the frame was due.
type Handed = (u64, Time);

struct Generator<'a> {
    plan: &'a StressPlan,
    scheduler: InProcess,
    orders: Orders,
    clock: Clock,
    arrivals: Arrivals,
    gpus: Gpus,
    frames: Vec<Vec<RequestHeader>>,
    /// When the oldest request of each frame was due.
    oldest: Vec<Time>,
    handed: Vec<(u64, VecDeque<Handed>)>,
    /// Deadlines by sequence number, in a ring.
    deadlines: Vec<Time>,
    sequence: u64,
    /// The first request that counts.
    first: u64,
    lags: DurationHistogram,
    measured_from: Time,
    report: StressReport,
}

impl<'a> Generator<'a> {
    fn new(plan: &'a StressPlan, scheduler: InProcess, orders: Orders) -> Self {
        let clock = scheduler.clock();
        let threads = scheduler.model_threads();
        // Every thread's first messages are models and GPUs; they are not part of the load.
        let start = clock.now() + Nanos::from_millis(200);
        // A request has its outcome within its SLO, or is late: twice that is enough to remember.
        let seconds = plan.slo.as_secs_f64().min((plan.warmup + plan.duration).as_secs_f64());
        let ring = (plan.rate_rps * seconds * 2.0) as usize;
        Self {
            plan,
            orders,
            clock,
            arrivals: Arrivals::new(plan.rate_rps, plan.models, plan.seed, start),
            gpus: Gpus::new(plan.gpus),
            frames: vec![Vec::new(); threads],
            oldest: vec![Time::NEVER; threads],
            handed: vec![(0, VecDeque::new()); threads],
            deadlines: vec![Time::ZERO; ring.max(1 << 16).next_power_of_two()],
            sequence: 0,
            first: 0,
            lags: DurationHistogram::default(),
            measured_from: start + plan.warmup.into(),
            report: StressReport::new(plan),
            scheduler,
        }
    }

    fn run(&mut self) {
        let ends = self.measured_from + self.plan.duration.into();
        let started = self.clock.now();
        let (mut before, mut measured_from) = (Snapshot::of(&self.scheduler), None);
        loop {
            let now = self.clock.now();
            if measured_from.is_none() && now >= self.measured_from {
                measured_from = Some(now);
                before = Snapshot::of(&self.scheduler);
                self.lags = DurationHistogram::default();
                self.first = self.sequence + 1;
                (self.report.sent, self.report.met, self.report.late_requests) = (0, 0, 0);
                (self.report.dropped, self.gpus.late) = (0, 0);
            }
            if now >= ends || self.report.lagged.is_some() {
                break;
            }
            self.send_due(now);
            self.play(now);
            self.watch(now);
        }
        let after = Snapshot::of(&self.scheduler);
        // A run that lags while it warms up shows what there is.
        let lasted = self.clock.now().since(measured_from.unwrap_or(started));
        // The last requests have their outcomes a little later; it only has to be looked at.
        let until = self.clock.now() + self.plan.slo + GRACE;
        while !self.plan.hang && self.report.lagged.is_none() && self.clock.now() < until {
            let now = self.clock.now();
            self.play(now);
            std::thread::sleep(Duration::from_micros(100));
        }
        self.report.late_plans = self.gpus.late;
        self.report.out_of_sequence = self.gpus.out_of_sequence;
        self.report.resident_mb = resident_mb();
        self.report.conclude(self.plan, &before, &after, lasted, &self.lags.read());
    }

    /// Puts what is due into frames, and sends frames that are old or large enough.
    fn send_due(&mut self, now: Time) {
        while self.arrivals.due() <= now {
            let (due, model) = self.arrivals.take();
            let thread = model as usize % self.frames.len();
            self.sequence += 1;
            let slot = self.sequence as usize & (self.deadlines.len() - 1);
            let deadline = due + self.plan.slo;
            self.deadlines[slot] = deadline;
            if self.frames[thread].is_empty() {
                self.oldest[thread] = due;
            }
            // The budget counts from when the frame is sent; its share of the frame's age is taken off there.
            let header = RequestHeader {
                sequence: self.sequence,
                model,
                items: 1,
                budget: deadline.as_nanos(),
                attempt: 1,
                weight: 1000,
            };
            self.frames[thread].push(header);
            if self.frames[thread].len() >= FRAME_REQUESTS_MAX {
                self.send(now, thread);
            }
        }
        for thread in 0..self.frames.len() {
            if !self.frames[thread].is_empty() && self.oldest[thread] + self.plan.frame <= now {
                self.send(now, thread);
            }
        }
    }

    fn send(&mut self, now: Time, thread: usize) {
        let mut requests = std::mem::replace(&mut self.frames[thread], Vec::with_capacity(64));
        for request in &mut requests {
            request.budget = Time::from_nanos(request.budget).since(now).get();
        }
        let count = requests.len() as u64;
        let oldest = self.oldest[thread];
        let counts = requests.iter().filter(|request| request.sequence >= self.first).count() as u64;
        if self.scheduler.announce(thread, now, requests).is_err() {
            self.report.lagged = Some(format!("the inbox of model thread {thread} is full"));
            return;
        }
        self.report.sent += counts;
        let (total, handed) = &mut self.handed[thread];
        *total += count;
        handed.push_back((*total, oldest));
    }

    /// Takes plans, and reports those that have ended.
    fn play(&mut self, now: Time) {
        if !self.plan.hang {
            self.gpus.report(now, &self.scheduler);
        }
        while let Some(plan) = self.orders.plan() {
            let ends = self.gpus.end_of(now, &plan);
            let sequences = plan.requests.iter().map(|request| request.id.sequence);
            for sequence in sequences.filter(|&sequence| sequence >= self.first) {
                let deadline = self.deadlines[sequence as usize & (self.deadlines.len() - 1)];
                let outcome = if ends <= deadline { &mut self.report.met } else { &mut self.report.late_requests };
                *outcome += 1;
            }
            self.gpus.take(now, plan);
        }
        self.report.dropped += self.orders.ended() as u64;
    }

    /// Looks how long requests wait to be taken in.
    fn watch(&mut self, now: Time) {
        for ((_, handed), taken_in) in self.handed.iter_mut().zip(self.scheduler.taken_in()) {
            while let Some(&(total, due)) = handed.front() {
                let lag = now.since(due);
                if total > taken_in {
                    if lag > self.plan.lag_max {
                        self.report.lagged =
                            Some(format!("a request was not taken in for {:.2} ms", lag.as_millis_f64()));
                    }
                    break;
                }
                handed.pop_front();
                self.lags.record(lag);
                if lag > self.plan.lag_max {
                    self.report.lagged = Some(format!("a request was taken in {:.2} ms late", lag.as_millis_f64()));
                }
            }
        }
    }
}

/// The scheduler's counts at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) counters: Vec<(&'static str, u64)>,
    pub(crate) durations: Vec<WorkerDurations>,
}

impl Snapshot {
    fn of(scheduler: &InProcess) -> Self {
        Self { counters: scheduler.counters(), durations: scheduler.durations() }
    }
}

/// Memory of this process in megabytes, generator included; nothing where the system does not report it.
fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
