//! What would show nothing, or break a limit, is refused in words before it is run; whatever can show something is not.

use symphony_simulator::{find_goodput, preflight};
use symphony_workload::Scenario;

const TEXT: &str = "
    name = 'preflight'
    duration_s = 1
    warmup_s = 0.1
    seeds = [1]
    network = { ctrl_us = 100, data_us_per_item = 50, reply_us = 2000 }
    gpu = [{ kind = 'slow', count = 1 }, { kind = 'fast', count = 1 }]
    model = [
        { name = 'easy', alpha_ms = 1, beta_ms = 5, slo_ms = 25 },
        { name = 'hard', alpha_ms = { slow = 2, fast = 1 }, beta_ms = { slow = 10, fast = 5 }, slo_ms = 25 },
    ]
    workload = { rate_rps = 100, arrival = 'poisson' }";

const TRACE: &str = "time_s,model,items,slo_ms\n0.05,easy,,\n0.3,easy,,\n0.9,hard,2,7\n";

fn scenario(overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("preflight.toml", TEXT, &overrides, &|_| Ok(TRACE.to_owned())).unwrap()
}

#[track_caller]
fn refused(overrides: &[&str], words: &str) {
    let error = preflight(&scenario(overrides)).expect_err("it should be refused").to_string();
    assert_eq!(error, words);
}

#[track_caller]
fn passes(overrides: &[&str]) {
    assert_eq!(preflight(&scenario(overrides)), Ok(()));
}

#[test]
fn an_slo_that_no_gpu_can_meet_is_refused_with_what_it_takes() {
    passes(&[]);
    passes(&["model.1.slo_ms=8.15"]);
    let delays = "and delays (network.ctrl_us, data_us_per_item, reply_us) take";
    let never = "so that no request could be answered in time";
    let hard = format!(
        "model `hard`: expected an SLO of at least 8.15 ms, got 8.1 ms: a batch of 1 takes ℓ(1) = 6 ms on the fastest \
         GPU kind, `fast`, {delays} 2.15 ms, {never}"
    );
    refused(&["model.1.slo_ms=8.1"], &hard);
    let all_slow = format!(
        "model `hard`: expected an SLO of at least 14.15 ms, got 14 ms: a batch of 1 takes ℓ(1) = 12 ms, {delays} \
         2.15 ms, {never}"
    );
    passes(&["model.1.slo_ms=14", "policy=nexus"]);
    refused(&["model.1.slo_ms=14", "profiles=slowest_kind"], &all_slow);
    passes(&["model.1.slo_ms=14"]);
    let four = format!(
        "model `easy`: expected an SLO of at least 11.3 ms, got 11 ms: a batch of 4 takes ℓ(4) = 9 ms, {delays} \
         2.3 ms, {never}"
    );
    let of_easy = ["model.1.alpha_ms=1", "model.1.beta_ms=5", "model.0.slo_ms=11"];
    refused(&[&of_easy[..], &["model.0.items={ uniform = [4, 6] }"]].concat(), &four);
    passes(&[&of_easy[..], &["model.0.items={ uniform = [1, 6] }"]].concat());
    // It gets no requests.
    passes(&["model.1.slo_ms=8", "model.1.weight=0"]);
}

#[test]
fn where_requests_are_more_patient_than_the_slo_they_are_what_counts() {
    let deadlines = "model.1.deadline={ uniform_ms = [5, 40] }";
    passes(&["model.1.slo_ms=8", deadlines]);
    let short = "model.1.deadline={ uniform_ms = [5, 7] }";
    let error = preflight(&scenario(&[short])).unwrap_err().to_string();
    assert!(error.contains("model `hard`: expected a longest deadline of at least 8.15 ms, got 7 ms"), "{error}");
    // The search asks the GPUs and not the SLO, which nothing meets.
    let patient = ["model.1.slo_ms=8", "model.1.deadline={ uniform_ms = [30, 40] }"];
    assert!(find_goodput(&scenario(&patient)).unwrap() > 50.0);
}

#[test]
fn the_rows_of_a_trace_say_what_is_asked() {
    let trace = "workload.arrival={ trace_csv = 't' }";
    // Its one row allows 7 ms, and its law more.
    passes(&[trace]);
    let error = preflight(&scenario(&[trace, "model.1.slo_ms=6"])).unwrap_err().to_string();
    assert!(error.contains("expected a longest deadline of at least 8.15 ms, got 7 ms"), "{error}");
    passes(&[trace, "model.1.slo_ms=6", "network={}"]);
}

#[test]
fn a_trace_that_is_over_before_anything_counts_is_refused_with_both_durations() {
    let trace = "workload.arrival={ trace_csv = 't' }";
    passes(&[trace, "warmup_s=0.9"]);
    refused(
        &[trace, "warmup_s=1"],
        "the trace lasts 0.9 s, and the warm-up 1 s: nothing would be measured; expected a lower warmup_s, or a higher \
         workload.arrival.time_scale",
    );
    passes(&[trace, "warmup_s=1", "workload.arrival.time_scale=2"]);
}

#[test]
fn a_rate_that_the_simulator_cannot_keep_requests_for_is_refused_by_the_name_of_the_limit() {
    let limit = |rate: &str, which: &str| {
        format!(
            "key `workload.rate_rps`: expected at most {which}, so that no more than 16777216 (OPEN_SPAN_MAX) arrive \
             within the longest deadline, 25 ms, got {rate}"
        )
    };
    refused(&["workload.rate_rps=1e9"], &limit("1000000000", "671088640 requests per second"));
    passes(&["workload.rate_rps=6.7e8"]);
    passes(&["workload.rate_rps=1e9", "model.0.slo_ms=16", "model.1.slo_ms=16"]);
    // Peaks are what has to fit.
    let twice = ["workload.rate_rps=5e8", "workload.rate_profile=[[0, 1], [0.5, 2]]"];
    let error = preflight(&scenario(&twice)).unwrap_err().to_string();
    assert!(
        error.contains("at most 335544320 requests per second") && error.contains("at 2 times the rate"),
        "{error}"
    );
}

#[test]
fn a_search_that_meets_a_limit_before_an_slo_says_so() {
    // GPUs for 100 000 r/s, and 16 777 requests per second fill the simulator within an SLO of a thousand seconds.
    let model = "model=[{ name = 'm', alpha_ms = 0.01, beta_ms = 0, slo_ms = 1e6 }]";
    let all = [model, "gpu=[{ kind = 'x', count = 1 }]", "network={}", "duration_s=0.2"];
    let error = find_goodput(&scenario(&all)).unwrap_err().to_string();
    assert!(
        error.starts_with("no goodput: every SLO is still met at 16777 r/s, and the simulator runs at most 16777"),
        "{error}"
    );
    assert!(error.contains("OPEN_SPAN_MAX") && error.contains("longest deadline, 1000000 ms"), "{error}");
    assert_eq!(error.matches("workload.rate_rps=").count(), 1, "{error}");
}
