//! A sub-cluster of several GPU kinds: as good as its kinds in sub-clusters of their own, with every invariant watched.

use std::path::Path;

use symphony_simulator::{RunResult, find_goodput, simulate};
use symphony_workload::Scenario;

/// Figures of `--find-goodput` for each kind alone, 4 GPUs each (docs/adr/0010): 1080Ti and A100, by policy.
const ALONE_RPS: [(&str, f64, f64); 3] =
    [("symphony", 1197.0, 10_902.0), ("auto", 1238.0, 10_848.0), ("eager", 1075.0, 8614.0)];

fn run(file: &str, overrides: &[String]) -> RunResult {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/scenarios").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let short = ["duration_s=3", "warmup_s=2", "seeds=[1]"].map(str::to_owned);
    let overrides: Vec<_> = short.into_iter().chain(overrides.iter().cloned()).collect();
    let scenario = Scenario::parse(file, &text, &overrides, &|_| Err("no files".to_owned())).unwrap();
    simulate(&scenario, 1, scenario.rate_rps).unwrap_or_else(|error| panic!("{error}"))
}

fn at(policy: &str, rate_rps: f64, more: &[&str]) -> Vec<String> {
    let more = more.iter().map(|&other| other.to_owned());
    [format!("policy={policy}"), format!("workload.rate_rps={rate_rps}")].into_iter().chain(more).collect()
}

#[test]
fn two_kinds_together_serve_what_each_serves_alone() {
    for (policy, slow, fast) in ALONE_RPS {
        let together = run("mixed-resnet50.toml", &at(policy, 0.98 * (slow + fast), &[]));
        // One per cent is what goodput allows; a run this short needs a little more.
        assert!(together.bad_rate < 0.015, "{policy}: {together:?}");
        assert_eq!(together.gpus_used, 8, "{policy}");
        // The slower profile for all, as it was before, cannot serve a third of that.
        let slowest = run("mixed-resnet50.toml", &at(policy, 0.98 * (slow + fast), &["profiles=slowest_kind"]));
        assert!(slowest.good_rps < 0.33 * together.good_rps, "{policy}: {} good", slowest.good_rps);
    }
}

#[test]
fn under_overload_both_kinds_are_busy_and_good_answers_stay_at_the_peak() {
    for (policy, slow, fast) in ALONE_RPS {
        let peak = slow + fast;
        let overload = run("mixed-resnet50.toml", &at(policy, 1.5 * peak, &[]));
        assert!(overload.good_rps > 0.98 * peak, "{policy}: {} of {peak}", overload.good_rps);
        assert!(overload.gpu_utilization > 0.98, "{policy}: {}", overload.gpu_utilization);
    }
}

#[test]
fn gpus_too_slow_for_any_request_take_nothing_from_an_uneven_pool() {
    let goodput = |gpus: &str, alpha_ms: &str, beta_ms: &str| {
        let text = format!(
            "name = 'uneven'
            policy = 'auto'
            duration_s = 8
            warmup_s = 1
            seeds = [1, 2, 3]
            gpu = [{gpus}]
            model = [{{ name = 'densenet121', count = 8, alpha_ms = {alpha_ms}, beta_ms = {beta_ms}, slo_ms = 20 }}]
            workload = {{ rate_rps = 1000, arrival = 'poisson', popularity = {{ zipf = 0.9 }} }}"
        );
        find_goodput(&Scenario::parse("uneven.toml", &text, &[], &|_| Err("no files".to_owned())).unwrap()).unwrap()
    };
    let alone = goodput("{ kind = 'x', count = 14 }", "1.061", "10.312");
    let two_kinds = "{ kind = 'x', count = 14 }, { kind = 'cpu', count = 2 }";
    let with = goodput(two_kinds, "{ x = 1.061, cpu = 20.0 }", "{ x = 10.312, cpu = 60.0 }");
    // Where they kept models from telling what company is worth to them: 2286 of 2658.
    assert!(with > 0.99 * alone, "{with} of {alone}");
}

/// A queue of requests that may wait for 400 ms takes seconds to find its length.
const SETTLED: &str = "duration_s=20";

#[test]
fn a_kind_too_slow_for_the_slo_serves_those_who_can_wait_also_under_overload() {
    // With 16 CPUs or without them: alone, they serve 640 patient requests per second.
    let a100_only = "gpu=[{ kind = 'a100', count = 4 }]";
    for policy in ["symphony", "auto"] {
        let with = run("mixed-slow-kind.toml", &at(policy, 15_000.0, &[SETTLED]));
        let without = run("mixed-slow-kind.toml", &at(policy, 15_000.0, &[SETTLED, a100_only]));
        let gain = with.good_rps - without.good_rps;
        assert!(gain > 0.9 * 638.0, "{policy}: {gain} more good answers per second");
        assert_eq!((with.gpus_used, without.gpus_used), (20, 4));
    }
}

#[test]
fn under_overload_batches_stay_whole_where_half_of_the_requests_are_patient() {
    // Goodput of `auto` on the A100 alone; protecting three quarters of the target leaves 0.93 of it.
    let (peak, a100_only) = (10_211.0, "gpu=[{ kind = 'a100', count = 4 }]");
    for load in [1.25, 1.5, 2.0] {
        let good = run("mixed-slow-kind.toml", &at("auto", load * peak, &[SETTLED, a100_only])).good_rps;
        assert!(good > 0.98 * peak, "{good} good answers per second at {load} times the peak of {peak}");
    }
}

/// Three kinds behind a network, with noise, items and deadlines.
const REALITY: [&str; 7] = [
    "model.0.alpha_ms={ 1080ti = 2.05, a100 = 0.268, cpu = 12.0 }",
    "model.0.beta_ms={ 1080ti = 5.378, a100 = 5.172, cpu = 9.0 }",
    "model.0.count=3",
    "model.0.items={ uniform = [1, 3] }",
    "model.0.deadline={ uniform_ms = [15.0, 60.0] }",
    "network={ ctrl_us = 200, data_us_per_item = 20, reply_us = 100 }",
    "execution.noise={ lognormal_sigma = 0.05 }",
];
const KINDS: [&str; 3] =
    ["{ kind = '1080ti', count = 3 }", "{ kind = 'a100', count = 2 }", "{ kind = 'cpu', count = 3 }"];
/// More than they can do.
const OVERLOAD_RPS: f64 = 6_000.0;

fn in_reality(policy: &str, rate_rps: f64, kinds: &[&str], failures: &str) -> RunResult {
    let (gpus, failures) = (format!("gpu=[{}]", kinds.join(", ")), format!("failure=[{failures}]"));
    let more: Vec<&str> = REALITY.into_iter().chain([&*gpus, &*failures]).collect();
    run("mixed-resnet50.toml", &at(policy, rate_rps, &more))
}

#[test]
fn three_kinds_with_delays_noise_and_failures_break_no_invariant() {
    // Both A100 for half a second each, and a 1080Ti for the last two: 3 of 24 seconds of GPU time.
    let failures =
        "{ gpu = 3, at_s = 2.5, for_s = 0.5 }, { gpu = 4, at_s = 2.7, for_s = 0.5 }, { gpu = 0, at_s = 3.0 }";
    for policy in ["symphony", "auto", "eager", "timeout", "clipper", "clockwork", "nexus", "shepherd"] {
        for (rate_rps, floor, is_overload) in [(500.0, 0.8, false), (OVERLOAD_RPS, 0.65, true)] {
            let whole = in_reality(policy, rate_rps, &KINDS, "");
            let failed = in_reality(policy, rate_rps, &KINDS, failures);
            for model in &failed.models {
                assert_eq!(model.offered, model.good + model.late + model.dropped, "{policy} at {rate_rps}");
                assert!(model.good > 0, "{policy} at {rate_rps}: {model:?}");
            }
            let (good, of) = (failed.good_rps, whole.good_rps);
            assert!(good > floor * of, "{policy} at {rate_rps}: {good}, without failures {of}");
            if is_overload {
                // Every GPU is busy whenever it is present; with `auto`, which gives up its part before it gathers
                // batches again, a GPU that comes back waits a little (0.963, with 0.2 more good answers than when it
                // did not).
                assert!(good < of, "{policy}: {good}, without failures {of}");
                let (there, busy) = (1.0 - 3.0 / 24.0, failed.gpu_utilization);
                // `nexus` packs each class separately, and what does not fill a duty cycle idles (0.929).
                let share = if policy == "nexus" { 0.92 } else { 0.97 };
                assert!(whole.gpu_utilization > share, "{policy}: {}", whole.gpu_utilization);
                assert!(busy > (share - 0.02) * there && busy < there, "{policy}: {busy} of {there}");
            }
        }
    }
}

#[test]
fn three_kinds_with_delays_and_noise_serve_what_each_serves_alone() {
    // Only policies that know of kinds.
    for policy in ["symphony", "auto", "eager", "timeout", "clipper"] {
        let together = in_reality(policy, OVERLOAD_RPS, &KINDS, "").good_rps;
        let alone: f64 = KINDS.iter().map(|kind| in_reality(policy, OVERLOAD_RPS, &[kind], "").good_rps).sum();
        assert!(together > 0.9 * alone, "{policy}: {together} of {alone}");
    }
}
