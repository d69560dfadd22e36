//! Pipelines in virtual time, with every invariant watched.

use symphony_simulator::{
    PreflightError, RunResult, TimelineRange, find_goodput, preflight, simulate, simulate_timeline,
};
use symphony_types::{Nanos, Time};
use symphony_workload::Scenario;

/// Detect, then recognise cars and faces beside each other.
const TEXT: &str = "
    name = 'pipelines'
    policy = 'auto'
    duration_s = 10
    warmup_s = 2
    seeds = [1]
    gpu = [{ kind = 'x', count = 2 }]
    workload = { rate_rps = 60, arrival = 'poisson' }
    [network]
    ctrl_us = 200
    data_us_per_item = 50
    reply_us = 100
    [[model]]
    name = 'cars'
    alpha_ms = 1
    beta_ms = 5
    slo_ms = 100
    [[pipeline]]
    name = 'traffic'
    slo_ms = 200
    hop_ms = 0.5
    [[pipeline.stage]]
    name = 'detect'
    alpha_ms = 2
    beta_ms = 10
    pre_ms = 1
    post_ms = 0.4
    [[pipeline.stage]]
    name = 'recognise'
    model = 'cars'
    pre_ms = 0.3
    post_ms = 0.7
    [[pipeline.stage]]
    name = 'faces'
    alpha_ms = 1
    beta_ms = 2
    [[pipeline.edge]]
    from = 'detect'
    to = 'recognise'
    gamma = 2.5
    [[pipeline.edge]]
    from = 'detect'
    to = 'faces'
    gamma = 0.5";

/// The first of three stages finds twice as many rows from the tenth second on.
const GAMMA_DOUBLES: &str = include_str!("../../../../../deploy/scenarios/pipeline-gamma-doubles.toml");

fn scenario(overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("pipelines.toml", TEXT, &overrides, &|_| Err("no files".to_owned()))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn run(overrides: &[&str]) -> RunResult {
    let scenario = scenario(overrides);
    let result = simulate(&scenario, 1, scenario.rate_rps).unwrap_or_else(|error| panic!("{overrides:?}: {error}"));
    for model in &result.models {
        assert_eq!(model.offered, model.good + model.late + model.dropped + model.withdrawn, "{model:?}");
    }
    for pipeline in &result.pipelines {
        assert_eq!(pipeline.offered, pipeline.good + pipeline.late + pipeline.dropped, "{pipeline:?}");
    }
    result
}

#[test]
fn alone_a_request_takes_the_sum_of_its_longest_path() {
    let uniform = "workload.arrival=uniform";
    let one_each = ["pipeline.0.edge.0.gamma=1", "pipeline.0.edge.1.gamma=1"];
    let result = run(&["policy=eager", "workload.rate_rps=10", uniform, one_each[0], one_each[1]]);
    let pipeline = &result.pipelines[0];
    assert!(pipeline.offered >= 99 && pipeline.good == pipeline.offered, "{pipeline:?}");
    // Pre-processing, the stage with the network, post-processing and hop; and the same of the longer branch.
    let network = 0.2 + 0.05 + 0.1;
    let sum = 1.0 + (12.0 + network) + 0.4 + 0.5 + 0.3 + (6.0 + network) + 0.7;
    for found in [pipeline.p50_ms, pipeline.p99_ms] {
        assert!((found.unwrap() / sum - 1.0).abs() < 0.006, "{found:?}, not {sum} ms");
    }
    // Both branches are asked once per request, and clients ask for nothing but the pipeline.
    let offered: Vec<_> = result.models.iter().map(|model| model.offered).collect();
    assert!(offered.iter().all(|&offered| offered.abs_diff(pipeline.offered) <= 1), "{offered:?}");
    assert!((result.offered_rps - 10.0).abs() < 0.2, "{}", result.offered_rps);
}

#[test]
fn stages_are_asked_as_often_as_gamma_says_and_equal_seeds_give_equal_results() {
    let (first, again) = (run(&[]), run(&[]));
    assert_eq!(first, again);
    assert!(first.bad_rate < 0.01, "{first:?}");
    let requests = first.pipelines[0].offered as f64;
    // In the order of the scenario: its own model first.
    for (model, gamma) in first.models.iter().zip([2.5, 1.0, 0.5]) {
        let found = model.offered as f64 / requests;
        assert!((found / gamma - 1.0).abs() < 0.15, "{}: {found} for {gamma}", model.name);
    }
    // Every policy sees the same rows in the same results.
    let eager = run(&["policy=eager"]);
    let rows = |result: &RunResult| result.models[0].offered.abs_diff(first.models[0].offered);
    assert!(rows(&eager) < 20, "{eager:?}");
}

#[test]
fn under_overload_requests_end_early_and_their_siblings_are_withdrawn() {
    let rate = "workload.rate_rps=400";
    let whole = run(&[rate]);
    let withdrawn = |result: &RunResult| result.models.iter().map(|model| model.withdrawn).sum::<u64>();
    assert!(withdrawn(&whole) > 0, "{whole:?}");
    assert!(whole.pipelines[0].dropped > 0 && whole.pipelines[0].good > 0, "{:?}", whole.pipelines);
    let partial = run(&[rate, "pipeline.0.partial=true"]);
    assert_eq!(withdrawn(&partial), 0, "nothing is in vain where parts are answers");
    assert!(partial.pipelines[0].good > whole.pipelines[0].good, "{:?}", partial.pipelines);
    // Such answers are incomplete, and counted separately.
    let incomplete = |result: &RunResult| result.pipelines[0].incomplete;
    assert!(incomplete(&partial) > 0 && incomplete(&whole) == 0, "{:?}", partial.pipelines);
    assert!(incomplete(&partial) <= partial.pipelines[0].good, "{:?}", partial.pipelines);
}

#[test]
fn any_policy_keeps_the_invariants_whatever_happens() {
    let all = ["auto", "symphony", "eager", "timeout", "clipper", "clockwork", "nexus", "shepherd", "kairos"];
    let noise = "execution.noise={ lognormal_sigma = 0.05 }";
    let fails = "failure=[{ gpu = 0, at_s = 4, for_s = 0.5 }, { gpu = 1, at_s = 6, for_s = 0.5 }]";
    let join = "pipeline=[{ slo_ms = 200, partial = true, stage = [\
                { name = 'detect', alpha_ms = 2, beta_ms = 10 }, { name = 'a', model = 'cars' }, \
                { name = 'b', model = 'cars' }, { name = 'join', alpha_ms = 1, beta_ms = 2 }], edge = [\
                { from = 'detect', to = 'a', gamma = 2 }, { from = 'detect', to = 'b' }, \
                { from = 'a', to = 'join' }, { from = 'b', to = 'join' }] }]";
    for policy in all {
        let policy = format!("policy={policy}");
        for split in ["deferred", "waiting", "execution", "even"] {
            let split = format!("pipeline.0.split={split}");
            run(&[&policy, &split, noise, fails, "split_epoch_s=1.5", "pipeline.0.resplit=false"]);
        }
        let joined = run(&[&policy, join, noise, fails]);
        assert!(joined.models[2].offered > 0, "{policy}: nothing is joined");
    }
}

#[test]
fn clients_and_pipelines_share_a_model_and_are_judged_by_themselves() {
    let result = run(&["model.0.weight=1", "workload.rate_rps=100"]);
    assert!((result.offered_rps - 100.0).abs() < 10.0, "{}", result.offered_rps);
    let [cars, ..] = &result.models[..] else { panic!("no models") };
    let (clients, requests) = (500.0, result.pipelines[0].offered as f64);
    assert!((cars.offered as f64 / (clients + 2.5 * requests) - 1.0).abs() < 0.1, "{cars:?}, {requests}");
}

#[test]
fn goodput_is_judged_by_pipelines() {
    let short = ["duration_s=5", "warmup_s=1"];
    let found = |split: &str| find_goodput(&scenario(&[short[0], short[1], split])).unwrap();
    let (by_cost, even) = (found("pipeline.0.split=deferred"), found("pipeline.0.split=even"));
    // Its own requests are what it is judged by: at that rate one in a hundred is bad at most, beyond it more are.
    let bad_rate = |rate_rps: f64| {
        let run = simulate(&scenario(&short), 1, rate_rps).unwrap();
        let [pipeline] = &run.pipelines[..] else { panic!("one pipeline") };
        1.0 - pipeline.good as f64 / pipeline.offered as f64
    };
    let (at, beyond) = (bad_rate(by_cost), bad_rate(by_cost * 1.2));
    assert!(at < 0.0101 && beyond > 0.0101, "{by_cost}: {at}, and {beyond} at a fifth more");
    assert!(even < by_cost * 1.1, "{even} with equal shares, {by_cost} by cost");
}

#[test]
fn gpus_follow_a_gamma_that_doubles_within_two_epochs() {
    let doubled = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
        let scenario = Scenario::parse("doubles.toml", GAMMA_DOUBLES, &overrides, &|_| Err(String::new())).unwrap();
        simulate(&scenario, 1, scenario.rate_rps).unwrap()
    };
    let [nexus, split, rate] = ["policy=nexus", "pipeline.0.split=waiting", "workload.rate_rps=350"];
    let with = doubled(&[nexus, split, rate, "split_epoch_s=5"]).bad_rate;
    let without = doubled(&[nexus, split, rate]).bad_rate;
    assert!(with < 0.01 && without > 0.03, "{with} with epochs, {without} without");
    // Queues share all GPUs: the load finds its GPUs without an epoch, and whether or not what is left is split again.
    let (resplit, fixed) = (doubled(&[]), doubled(&["pipeline.0.resplit=false"]));
    let bad = (resplit.bad_rate, fixed.bad_rate);
    assert!(bad.0 < 0.01 && bad.1 < 0.01, "{} split again, {} with fixed deadlines", bad.0, bad.1);
    assert_ne!(resplit.models, fixed.models, "the second of three stages has another deadline");
}

#[test]
fn a_budget_that_cannot_be_split_is_refused_before_the_run() {
    let refused = |overrides: &[&str]| preflight(&scenario(overrides)).unwrap_err().to_string();
    let words = refused(&["pipeline.0.slo_ms=20"]);
    assert!(words.contains("pipeline `traffic`") && words.contains("detect → recognise"), "{words}");
    assert!(matches!(preflight(&scenario(&["pipeline.0.slo_ms=20"])), Err(PreflightError::Unsplittable { .. })));
    assert!(refused(&["pipeline.0.slo_ms=24", "pipeline.0.split=even"]).contains("cannot be met"));
    assert_eq!(preflight(&scenario(&[])), Ok(()));
    // Run all the same, it shows what comes of it.
    let run = run(&["pipeline.0.slo_ms=20"]);
    assert_eq!((run.pipelines[0].good, run.bad_rate), (0, 1.0));
}

#[test]
fn a_timeline_shows_requests_with_their_stages() {
    let at = |ms: u64| Time::ZERO + Nanos::from_millis(ms);
    let range = TimelineRange { from: at(3000), until: at(3500) };
    let scenario = scenario(&[]);
    let (_, timeline) = simulate_timeline(&scenario, 1, scenario.rate_rps, range).unwrap();
    let trace = timeline.to_trace_json();
    for words in ["requests of pipelines", "\"name\":\"detect\"", "\"name\":\"recognise\"", "\"cat\":\"traffic\""] {
        assert!(trace.contains(words), "{words}");
    }
    assert_eq!(trace.matches("\"ph\":\"b\"").count(), trace.matches("\"ph\":\"e\"").count());
}
