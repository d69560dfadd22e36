//! What the simulator finds agrees with queueing theory, with the staggered bound, and with the paper's Table 4.

use symphony_simulator::{RunResult, TimelineRange, find_goodput, fluid_bound_rps, simulate, simulate_timeline};
use symphony_types::{Nanos, Time};
use symphony_workload::Scenario;

const TABLE4_RESNET50: &str = include_str!("../../../../deploy/scenarios/table4-resnet50.toml");
const TABLE4_INCEPTION: &str = include_str!("../../../../deploy/scenarios/table4-inceptionresnetv2.toml");

fn scenario(text: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("theory.toml", text, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

fn run(scenario: &Scenario) -> RunResult {
    simulate(scenario, scenario.seeds[0], scenario.rate_rps).unwrap()
}

#[test]
fn one_server_with_fixed_service_is_an_m_d_1_queue() {
    // Service s = 10 ms; Pollaczek–Khinchine: the mean wait is λ·s²/(2(1 − ρ)).
    let service_s = 0.010;
    for (load, tolerance) in [(0.5, 0.03), (0.8, 0.05)] {
        let text = format!(
            "name = 'md1'\npolicy = 'eager'\nduration_s = 3000\nwarmup_s = 10\nseeds = [1]\n\
             gpu = [{{ kind = 'x', count = 1 }}]\n\
             model = [{{ name = 'm', alpha_ms = 0, beta_ms = 10, slo_ms = 100000, batch_max = 1 }}]\n\
             workload = {{ rate_rps = {}, arrival = 'poisson' }}",
            load / service_s
        );
        let found = run(&scenario(&text, &[]));
        let theory_ms = load / service_s * service_s * service_s / (2.0 * (1.0 - load)) * 1e3;
        let mean_ms = found.queueing_ms.mean.unwrap();
        assert!(
            (mean_ms / theory_ms - 1.0).abs() < tolerance,
            "load {load}: mean wait {mean_ms} ms, theory {theory_ms} ms"
        );
        assert!((found.gpu_utilization - load).abs() < 0.02, "load {load}: utilization {}", found.gpu_utilization);
        assert_eq!(found.bad_rate, 0.0);
        assert_eq!(found.batch_size_by_request.keys().copied().collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn the_fluid_bound_of_one_model_is_the_papers_staggered_bound() {
    assert_eq!(fluid_bound_rps(&scenario(TABLE4_RESNET50, &[])).round(), 5839.0);
    assert_eq!(fluid_bound_rps(&scenario(TABLE4_INCEPTION, &[])).round(), 1083.0);
    // Delays shorten the budget, and what cannot be met has no rate at all.
    assert!(fluid_bound_rps(&scenario(TABLE4_RESNET50, &["network.reply_us=2000"])) < 5700.0);
    assert_eq!(fluid_bound_rps(&scenario(TABLE4_RESNET50, &["model.0.slo_ms=6"])), 0.0);
}

#[test]
fn evenly_spaced_arrivals_come_close_to_the_staggered_bound() {
    let even = scenario(TABLE4_RESNET50, &["workload.arrival=uniform", "duration_s=10", "seeds=[1]"]);
    let (goodput, bound) = (find_goodput(&even).unwrap(), fluid_bound_rps(&even));
    // One percent may be dropped, so the offered rate can exceed the bound by that; what is served cannot.
    assert!(goodput > 0.985 * bound && 0.99 * goodput < 1.001 * bound, "goodput {goodput}, bound {bound}");
}

#[test]
fn table_4_is_reproduced_with_eight_gpus() {
    // The Symphony paper, Table 4, measured on real GPUs: 5169 and 907 r/s.
    // Deferral comes close to the authors' own code in virtual time (5340 and 943), `auto` to the bound.
    // As long as the record of `auto` in docs/internals/performance.md: 5533 and 987.
    let symphony = [(TABLE4_RESNET50, "symphony", 20, 5250.0), (TABLE4_INCEPTION, "symphony", 20, 925.0)];
    let auto = [(TABLE4_RESNET50, "auto", 30, 5480.0), (TABLE4_INCEPTION, "auto", 30, 975.0)];
    for (text, policy, duration_s, least_rps) in symphony.into_iter().chain(auto) {
        let scenario = scenario(text, &[&format!("duration_s={duration_s}"), &format!("policy={policy}")]);
        let goodput = find_goodput(&scenario).unwrap();
        let bound = fluid_bound_rps(&scenario);
        assert!(goodput >= least_rps && goodput < bound, "{}: goodput {goodput}, bound {bound}", scenario.name);
    }
}

#[test]
fn idle_time_follows_the_load_and_no_choice_of_gpus_would_touch_fewer() {
    // The peak is 20 000 requests per second.
    let text = include_str!("../../../../deploy/scenarios/load-proportional.toml");
    for load in [0.1, 0.25, 0.5, 0.75, 0.9] {
        let rate = format!("workload.rate_rps={}", 20_000.0 * load);
        let idle = run(&scenario(text, &["policy=symphony", &rate, "duration_s=20"])).idle_fraction;
        assert!((idle - (1.0 - load)).abs() < 0.05, "load {load}: idle {idle}");
        // Whatever GPU a batch gets, there must be as many as run at once; the lowest that is free never takes one
        // more. Counting them takes far longer than the run, so it is a short one.
        let short = scenario(text, &["policy=symphony", &rate, "warmup_s=1", "duration_s=4"]);
        let range = TimelineRange { from: Time::ZERO, until: Time::ZERO + Nanos::from_millis(5_000) };
        let (found, timeline) = simulate_timeline(&short, 1, short.rate_rps, range).unwrap();
        let at_once = most_at_once(&timeline.to_trace_json());
        assert!(found.gpus_used <= at_once, "load {load}: {} GPUs for {at_once} batches", found.gpus_used);
    }
}

/// The most batches that run at the same time, by a trace in microseconds with three digits.
fn most_at_once(trace: &str) -> u32 {
    let trace: serde_json::Value = serde_json::from_str(trace).unwrap();
    let mut changes = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X") {
        let ns = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        // A batch that ends where another one begins does not run beside it.
        changes.extend([(ns("ts"), 1), (ns("ts") + ns("dur"), -1)]);
    }
    changes.sort_unstable();
    let (mut running, mut most) = (0, 0);
    for (_, change) in changes {
        running += change;
        most = most.max(running);
    }
    most as u32
}

#[test]
fn deferral_leaves_whole_gpus_idle_in_proportion_to_spare_load_and_eager_does_not() {
    // Twenty models at half of what 32 GPUs serve: the paper's condition for load-proportional use (section 4.3).
    let text = include_str!("../../../../deploy/scenarios/zipf-20-models.toml");
    let half = ["workload.rate_rps=9800", "workload.popularity=uniform", "duration_s=5", "seeds=[1]"];
    let deferred = run(&scenario(text, &[&half[..], &["policy=symphony"]].concat()));
    let eager = run(&scenario(text, &[&half[..], &["policy=eager"]].concat()));
    assert!(deferred.bad_rate < 0.01 && eager.bad_rate < 0.01);
    assert!(deferred.idle_fraction > 0.4, "deferred idles {}", deferred.idle_fraction);
    assert!(eager.idle_fraction < 0.25, "eager idles {}", eager.idle_fraction);
    assert!(deferred.gpus_used < 32, "deferred uses {} of 32 GPUs", deferred.gpus_used);
}

#[test]
fn auto_leaves_whole_gpus_idle_where_it_is_told_to() {
    let text = include_str!("../../../../deploy/scenarios/load-proportional.toml");
    for load in [0.1, 0.25, 0.75] {
        let rate = format!("workload.rate_rps={}", 20_000.0 * load);
        let set = ["policy=auto", "consolidate=true", "duration_s=10", "seeds=[1]", &rate];
        let run = run(&scenario(text, &set));
        assert!(run.idle_fraction > 0.95 - load, "at {load} it idles {}", run.idle_fraction);
    }
}

#[test]
fn delays_of_the_network_come_off_the_slo() {
    let goodput = |overrides: &[&str]| {
        let mut all = vec!["duration_s=5", "seeds=[1]"];
        all.extend(overrides);
        find_goodput(&scenario(TABLE4_RESNET50, &all)).unwrap()
    };
    let (none, reply, control) =
        (goodput(&[]), goodput(&["network.reply_us=3000"]), goodput(&["network.ctrl_us=3000"]));
    assert!(reply < 0.97 * none, "3 ms of reply delay: {reply} of {none}");
    assert!(control < 0.97 * none, "3 ms of control delay: {control} of {none}");
}
