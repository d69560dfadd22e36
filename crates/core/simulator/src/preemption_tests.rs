//! The world with policies that queue several plans on a GPU and stop them.

use symphony_scheduler::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy, Plan, Request};
use symphony_types::{GpuId, Invariant, Nanos, Time};
use symphony_workload::Scenario;

use crate::error::Error;
use crate::hosted::Hosted;
use crate::world::World;

const GPU: GpuId = GpuId::new(0);
const SERVICE: Nanos = Nanos::from_millis(10);

/// Requests arrive at 100, 104 and 108 ms; each takes 10 ms alone on the one GPU.
fn scenario() -> Scenario {
    let text = "
        name = 'preempted'
        duration_s = 1
        warmup_s = 0
        seeds = [1]
        gpu = [{ kind = 'x', count = 1 }]
        model = [{ name = 'm', alpha_ms = 0, beta_ms = 10, slo_ms = 100, batch_max = 1 }]
        workload = { arrival = { trace_csv = 't' } }";
    let trace = |_: &str| Ok("time_s\n0.1\n0.104\n0.108\n".to_owned());
    Scenario::parse("preempted.toml", text, &[], &trace).unwrap()
}

/// Sends each request on arrival, behind the GPU's plans. At the third one it stops the GPU and sends all of them
/// again, newest first. `done` are the reported ends.
#[derive(Default)]
struct Impatient {
    free_at: Time,
    sent: Vec<Request>,
    done: Vec<(Time, Nanos, Nanos)>,
    /// Whether it forgets that it owns stopped requests again.
    forgets: bool,
}

impl Impatient {
    fn send(&mut self, now: Time, request: Request, out: &mut ClusterActions) {
        let start = self.free_at.max(now);
        self.free_at = start + SERVICE;
        let (end, first) = (self.free_at, out.planned.len() as u32);
        let must_end_by = request.deadline;
        out.planned.push(request);
        let plan = Plan { gpu: GPU, start, end, batch: 1, must_end_by, first, requests: 1, why: None };
        out.list.push(ClusterAction::Execute { model: 0, plan });
    }
}

impl ClusterPolicy for Impatient {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { request, .. } | ClusterInput::Return { request, .. } => {
                self.sent.push(request);
                if self.sent.len() < 3 {
                    self.send(now, request, out);
                } else {
                    out.list.push(ClusterAction::Preempt(GPU));
                    self.free_at = now;
                    let again = if self.forgets { 1 } else { 3 };
                    for request in self.sent.clone().into_iter().rev().take(again) {
                        self.send(now, request, out);
                    }
                }
            }
            ClusterInput::Done { start_late, latency, .. } => self.done.push((now, start_late, latency)),
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        0
    }
}

impl Hosted for Impatient {}

/// The GPU is down when the second and third requests arrive.
fn scenario_with_failure() -> Scenario {
    let mut scenario = scenario();
    let (at, until) = (Time::from_nanos(102_000_000), Time::from_nanos(150_000_000));
    scenario.failures = vec![symphony_workload::Failure { gpu: GPU, at, until }];
    scenario
}

fn run(scenario: &Scenario, policy: Impatient) -> (Result<(), Error>, World<'_, Impatient>) {
    let mut world = World::new(scenario, 1, scenario.rate_rps, policy);
    (world.run(), world)
}

#[test]
fn what_a_gpu_was_stopped_at_runs_again_and_its_time_counts_as_busy() {
    let scenario = scenario();
    let (ended, world) = run(&scenario, Impatient::default());
    ended.unwrap();
    let ends: Vec<_> = world.policy().done.iter().map(|&(at, late, latency)| (at.as_nanos(), late, latency)).collect();
    let done = |ms: u64| (ms * 1_000_000, Nanos::ZERO, SERVICE);
    assert_eq!(ends, [done(118), done(128), done(138)]);
    let result = world.into_result();
    assert_eq!((result.models[0].good, result.models[0].dropped), (3, 0));
    // 8 ms before the stop, 30 ms after it.
    assert!((result.gpu_utilization - 0.038).abs() < 1e-9, "{}", result.gpu_utilization);
    assert_eq!(result.queueing_ms.max, Some(28.0), "the first request started 28 ms late, for the second time");
}

#[test]
fn a_policy_that_loses_what_it_stopped_is_found() {
    let scenario = scenario();
    let (ended, _) = run(&scenario, Impatient { forgets: true, ..Impatient::default() });
    let error = ended.unwrap_err();
    let Error::Violation { violation, .. } = &error else { panic!("another error: {error}") };
    assert_eq!(violation.invariant, Invariant::S3, "{error}");
    assert!(violation.detail.contains("2 requests have neither an outcome nor a plan"), "{error}");
}

#[test]
fn s1_a_plan_for_a_gpu_that_has_failed() {
    let scenario = scenario_with_failure();
    let (ended, _) = run(&scenario, Impatient::default());
    let error = ended.unwrap_err();
    let Error::Violation { violation, .. } = &error else { panic!("another error: {error}") };
    assert_eq!(violation.invariant, Invariant::S1, "{error}");
    assert!(violation.detail.contains("is busy until never"), "{error}");
}

/// Keeps requests while the GPU is down and sends them when it is back.
#[derive(Default)]
struct Patient {
    sends: Impatient,
    kept: Vec<Request>,
    away: bool,
    events: Vec<&'static str>,
}

impl ClusterPolicy for Patient {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Return { request, .. } => {
                self.events.push("back");
                self.kept.push(request);
            }
            ClusterInput::Arrive { request, .. } if self.away => {
                self.events.push("kept");
                self.kept.push(request);
            }
            ClusterInput::Arrive { request, .. } => {
                self.events.push("sent");
                self.sends.send(now, request, out);
            }
            ClusterInput::GpuUp { free_at, .. } => {
                (self.away, self.sends.free_at) = (false, free_at);
                self.events.push("up");
                for request in std::mem::take(&mut self.kept) {
                    self.sends.send(now, request, out);
                }
            }
            ClusterInput::GpuDown(_) => {
                self.events.push("down");
                self.away = true;
            }
            ClusterInput::Done { .. } => self.events.push("done"),
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        self.kept.len()
    }
}

impl Hosted for Patient {}

#[test]
fn what_a_failed_gpu_ran_comes_back_with_its_old_deadlines() {
    let scenario = scenario_with_failure();
    let mut world = World::new(&scenario, 1, scenario.rate_rps, Patient::default());
    world.run().unwrap();
    // The first request arrives, runs for 2 ms and comes back; all three run when the GPU is back.
    let expected = ["up", "sent", "down", "back", "kept", "kept", "up", "done", "done", "done"];
    assert_eq!(world.policy().events, expected);
    let result = world.into_result();
    assert_eq!((result.models[0].good, result.models[0].late), (3, 0));
    assert!((result.gpu_utilization - 0.032).abs() < 1e-9, "{}", result.gpu_utilization);
}
