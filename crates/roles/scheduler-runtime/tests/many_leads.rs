//! What it costs loaded leads that there are others. Prints figures and promises none:
//! `cargo test --release -p symphony-scheduler-runtime --test integration many_leads -- --ignored --nocapture`.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::RequestHeader;
use symphony_protocol::execute::Execute;
use symphony_scheduler::{Delays, ModelQueueConfig, Policy};
use symphony_scheduler_runtime::{DecisionConfig, DecisionThreads, InProcess, Orders};
use symphony_telemetry::DurationCounts;
use symphony_types::{GpuClass, LatencyProfile, Nanos, Time};

const SLO: Nanos = Nanos::from_millis(25);
/// Distance of the requests of a lead: the GPU could take four times as many.
const EVERY: Nanos = Nanos::from_millis(2);
const WARMUP: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(8);

/// A lead of one model and one GPU.
struct Lead {
    scheduler: InProcess,
    orders: Orders,
    next: Time,
    sequence: u64,
    running: VecDeque<(Time, Execute)>,
    free_at: Time,
}

impl Lead {
    fn new(threads: &Arc<DecisionThreads>) -> Self {
        let (mut scheduler, orders) = InProcess::on(threads, None).unwrap();
        let delays = Delays { guard: Nanos::from_millis(2), ..Delays::default() };
        let config = ModelQueueConfig {
            profiles: LatencyProfile::from_line(0.5, 2.0, 16).unwrap().into(),
            slo: SLO,
            policy: Policy::SYMPHONY,
            delays,
            requests_max: 1000,
        };
        scheduler.add_model(0, config);
        scheduler.add_gpu(GpuClass::FIRST);
        let next = scheduler.clock().now();
        Self { scheduler, orders, next, sequence: 0, running: VecDeque::new(), free_at: Time::ZERO }
    }

    /// Sends what is due and plays the GPU.
    fn play(&mut self) {
        let now = self.scheduler.clock().now();
        if self.next <= now {
            self.next += EVERY;
            self.sequence += 1;
            let header = RequestHeader {
                sequence: self.sequence,
                model: 0,
                items: 1,
                budget: SLO.get(),
                attempt: 1,
                weight: 1000,
            };
            self.scheduler.announce(0, now, vec![header]).unwrap();
        }
        while let Some(plan) = self.orders.plan() {
            self.free_at = self.free_at.max(now + Nanos::new(plan.start_in)) + Nanos::new(plan.latency);
            self.running.push_back((self.free_at, plan));
        }
        while self.running.front().is_some_and(|(ends, _)| *ends <= now) {
            let Some((ended, plan)) = self.running.pop_front() else { break };
            self.scheduler.done(&plan, Nanos::ZERO, Nanos::new(plan.latency), ended.max(now));
        }
        self.orders.ended();
    }

    fn count(&self, name: &str) -> u64 {
        self.scheduler.counters().into_iter().find(|(counter, _)| *counter == name).unwrap().1
    }
}

/// Processor time of the decision threads of this process, in milliseconds.
fn decision_cpu_ms() -> u64 {
    const TICK_MS: u64 = 10;
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let of_decisions = stats.filter(|stat| stat.contains("(decide-"));
    let ticks = |stat: String| {
        let rest = stat.rsplit_once(')').unwrap().1.to_owned();
        rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
    };
    of_decisions.map(ticks).sum::<u64>() * TICK_MS
}

fn run(title: &str, mut loaded: Vec<Lead>) {
    // Out of step with each other.
    let leads = loaded.len() as u64;
    for (index, lead) in (0..).zip(&mut loaded) {
        let phase = Nanos::new(EVERY.get() * index / leads);
        lead.next = lead.scheduler.clock().now() + phase;
    }
    // The longest time between two visits of the generator to a lead: its own delay.
    let mut held_up = Duration::ZERO;
    let mut play = |lasts: Duration| {
        let (begun, mut last) = (Instant::now(), Instant::now());
        held_up = Duration::ZERO;
        while begun.elapsed() < lasts {
            loaded.iter_mut().for_each(Lead::play);
            held_up = held_up.max(last.elapsed());
            last = Instant::now();
        }
        let mut late = DurationCounts::default();
        for durations in loaded.iter().flat_map(|lead| lead.scheduler.durations()) {
            late.merge(&durations.timers_late);
        }
        let sum = |name| loaded.iter().map(|lead| lead.count(name)).sum::<u64>();
        (late, sum("requests"), sum("dropped_requests"), decision_cpu_ms())
    };
    let before = play(WARMUP);
    let after = play(LASTS);
    let late = after.0.since(&before.0);
    let us = |quantile| late.quantile(quantile).get() as f64 / 1e3;
    println!(
        "{title}: {} timers late by p50 {:.0}, p99 {:.0}, p99.9 {:.0} us; {} of {} requests dropped; {:.1} % of a core; generator held up {held_up:?}",
        late.count(),
        us(0.5),
        us(0.99),
        us(0.999),
        after.2 - before.2,
        after.1 - before.1,
        (after.3 - before.3) as f64 / LASTS.as_millis() as f64 * 100.0
    );
}

/// Each with a thread for itself, as it was before they were shared.
fn alone(leads: usize) -> Vec<Lead> {
    let threads = || Arc::new(DecisionThreads::new(DecisionConfig { shared_threads: 1, ..DecisionConfig::default() }));
    (0..leads).map(|_| Lead::new(&threads())).collect()
}

fn shared(leads: usize, shared_threads: u32) -> (Arc<DecisionThreads>, Vec<Lead>) {
    let threads = Arc::new(DecisionThreads::new(DecisionConfig { shared_threads, ..DecisionConfig::default() }));
    let leads = (0..leads).map(|_| Lead::new(&threads)).collect();
    (threads, leads)
}

#[test]
#[ignore = "measures, and wants the machine for itself"]
fn loaded_leads_on_threads_of_their_own_and_on_shared_ones() {
    for round in 1..=3 {
        println!("round {round}");
        run("1 lead alone", alone(1));
        {
            let (_threads, mut leads) = shared(1000, 0);
            let one = leads.pop().unwrap();
            run("1 lead beside 999 idle ones, shared threads", vec![one]);
        }
        {
            let mut leads = alone(1000);
            let one = leads.pop().unwrap();
            run("1 lead beside 999 idle ones, a thread each", vec![one]);
        }
        for leads in [50, 200] {
            run(&format!("{leads} leads, a thread each"), alone(leads));
            for threads in [2, 4, 16] {
                let (_threads, loaded) = shared(leads, threads);
                run(&format!("{leads} leads, {threads} shared threads"), loaded);
            }
        }
    }
}
