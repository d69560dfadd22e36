//! A drop and a late answer, planted by hand, and what the explanation says of them.

use std::fmt::Write;

use symphony_explain::Explanation;
use symphony_simulator::{Ask, simulate, simulate_explained};
use symphony_workload::Scenario;

fn scenario(more: &str, overrides: &[&str], trace: &str) -> Scenario {
    let text = format!(
        "
        name = 'planted'
        policy = 'symphony'
        duration_s = 8
        warmup_s = 0
        seeds = [1]
        gpu = [{{ kind = 'x', count = 1 }}]
        model = [{{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }}]
        {more}"
    );
    let overrides: Vec<_> = overrides.iter().map(|&key| key.to_owned()).collect();
    Scenario::parse("t.toml", &text, &overrides, &|_| Ok(trace.to_owned())).unwrap()
}

fn explained(scenario: &Scenario, ask: Ask) -> Vec<Explanation> {
    let (run, explanations) = simulate_explained(scenario, 1, scenario.rate_rps, ask).unwrap();
    assert_eq!(run, simulate(scenario, 1, scenario.rate_rps).unwrap(), "looking changes nothing");
    explanations
}

/// Ten requests every 20 ms, ℓ(b) = b + 5 ms: batches of ten that run from 9 to 24 ms after each burst, and a target of
/// 6 (5 + b + b / 0.5 per ms ≤ 25). Then eight at +9.5 ms, while the GPU is busy, and eight at +20 ms.
fn planted() -> (Scenario, u64) {
    let mut trace = String::from("time_s\n");
    let mut burst = |at_ms: f64, requests: u32| {
        for _ in 0..requests {
            writeln!(trace, "{}", at_ms / 1e3).unwrap();
        }
    };
    for at in 0..=300 {
        burst(f64::from(at) * 20.0, 10);
    }
    burst(6009.5, 8);
    burst(6020.0, 8);
    let workload = "workload = { arrival = { trace_csv = 'trace.csv', time_scale = 1.0 } }";
    (scenario(workload, &[], &trace), 301 * 10)
}

#[test]
fn a_drop_is_explained_by_the_batch_that_it_would_have_shrunk() {
    let (scenario, first) = planted();
    let [dropped] = &explained(&scenario, Ask::Requests(vec![first]))[..] else { panic!("one explanation") };
    let story = dropped.dropped.as_ref().unwrap();
    assert_eq!((dropped.outcome, story.reason), ("dropped", "protect_batch"));
    // Due at 6034.5; a batch of six takes 11 ms, so it is given up right after 6023.5, having waited 14 ms.
    let close = |ms: Option<f64>, expected: f64| assert!((ms.unwrap() - expected).abs() < 1e-4, "{ms:?}: {dropped}");
    assert_eq!((story.batch, story.target, story.waiting), (Some(6), Some(6), Some(16)), "{dropped}");
    close(story.waited_ms, 14.0);
    close(story.must_end_by_ms, 11.0);
    close(story.batch_end_ms, 11.0);
    close(story.alone_end_ms, 6.0);
    assert!(story.batch_end_ms > story.must_end_by_ms && story.alone_end_ms < story.must_end_by_ms);
    let text = dropped.to_string();
    for expected in
        ["request f0/1/3010 (1 item) for m: dropped, protect_batch", "a batch of 6 (aimed at 6)", "16 requests"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_served_request_is_explained_by_window_gpu_and_times() {
    let (scenario, first) = planted();
    let [served] = &explained(&scenario, Ask::Requests(vec![first - 10]))[..] else { panic!("one explanation") };
    let batch = served.batch.as_ref().unwrap();
    assert_eq!((served.outcome, batch.items, batch.requests, batch.left), ("in_time", 10, 10, Some(0)), "{served}");
    // Frontrun is D − ℓ(11) = 9 ms after the arrival, latest 1 ms later. The GPU was busy with the burst before until
    // 4 ms after this one's arrival, so the candidate was due at frontrun and found it.
    assert_eq!((batch.window.frontrun_ms, batch.window.latest_ms, batch.planned.start_ms), (Some(0.0), 1.0, 0.0));
    assert_eq!((batch.gpu.matched, batch.gpu.choice, batch.gpu.others_idle), ("at_its_start", "lowest_id", 0));
    assert_eq!(batch.rivals.as_ref().map(|rivals| rivals.count), Some(0));
    let actual = batch.actual.unwrap();
    assert_eq!((actual.start_late_ms, actual.execution_ms, actual.end_ms), (0.0, 15.0, 15.0));
    assert!(served.to_string().contains("1.000 ms left to send the answer"), "{served}");
}

#[test]
fn the_worst_are_found_dropped_before_late_and_the_most_missing_first() {
    let noisy = "workload = { rate_rps = 700, arrival = 'poisson' }";
    let noise = "execution={ noise = { lognormal_sigma = 0.3 } }";
    let worst = explained(&scenario(noisy, &[noise], ""), Ask::Worst(5));
    assert_eq!(worst.len(), 5);
    let missing: Vec<_> = worst
        .iter()
        .map(|explanation| {
            let story = explanation.dropped.as_ref().unwrap_or_else(|| panic!("{explanation}"));
            story.batch_end_ms.unwrap() - story.must_end_by_ms.unwrap()
        })
        .collect();
    assert!(missing.is_sorted_by(|a, b| a >= b), "{missing:?}");
    // Where nothing is dropped, late ones are found.
    let calm = "workload = { rate_rps = 100, arrival = 'poisson' }";
    let late = explained(&scenario(calm, &[noise], ""), Ask::Worst(3));
    let is_late = |explanation: &Explanation| explanation.outcome == "late" || explanation.dropped.is_some();
    assert!(!late.is_empty() && late.iter().all(is_late), "{late:?}");
}

#[test]
fn policies_that_say_nothing_of_single_decisions_are_told_by_their_rules_and_unknown_requests_are_left_out() {
    let load = "workload = { rate_rps = 600, arrival = 'poisson' }";
    for policy in ["clockwork", "nexus", "shepherd", "kairos", "ribbon", "drs", "clkwrk", "auto", "eager"] {
        let scenario = scenario(load, &[&format!("policy={policy}")], "");
        let ask = Ask::Requests(vec![0, 5, 1_000_000]);
        let explanations = explained(&scenario, ask);
        // A preempted batch is told of, and so is the next one of its requests.
        let is_explained = |id: &str| explanations.iter().any(|explanation| explanation.request.as_deref() == Some(id));
        assert!(
            is_explained("f0/1/0") && is_explained("f0/1/5") && !is_explained("f0/1/1000000"),
            "{policy}: {explanations:?}"
        );
        for explanation in &explanations {
            let words = explanation.to_string();
            let by_rule = ["gives", "goes", "drops"].iter().any(|does| words.contains(&format!("{policy} {does}")));
            assert_eq!(by_rule, !["auto", "eager"].contains(&policy), "{words}");
            assert!(!words.contains("does not say"), "{words}");
        }
    }
}

#[test]
fn a_request_that_lost_its_gpu_has_a_history() {
    let load = "
        failure = [{ gpu = 0, at_s = 1.0, for_s = 0.002 }]
        workload = { rate_rps = 500, arrival = 'poisson' }";
    let scenario = scenario(load, &[], "");
    let all = explained(&scenario, Ask::Requests((450..550).collect()));
    let lost: Vec<_> = all.iter().filter(|explanation| explanation.outcome == "lost").collect();
    assert!(!lost.is_empty());
    for lost in lost {
        let again = all.iter().filter(|explanation| explanation.request == lost.request).count();
        assert_eq!(again, 2, "{lost}");
    }
}
