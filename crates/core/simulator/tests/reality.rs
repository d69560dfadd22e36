//! What happens where GPUs do not do what profiles say: noise, spikes, failures. Predictions stay honest (the referee
//! sees to that at every event); only reality is late.

use symphony_simulator::{RunResult, simulate};
use symphony_workload::Scenario;

const TEXT: &str = "
    name = 'reality'
    duration_s = 20
    warmup_s = 5
    seeds = [1]
    gpu = [{ kind = 'x', count = 8 }]
    model = [{ name = 'm', alpha_ms = 1.053, beta_ms = 5.072, slo_ms = 25 }]
    workload = { rate_rps = 4000, arrival = 'poisson' }";

fn run(overrides: &[&str]) -> RunResult {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse("reality.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).unwrap();
    simulate(&scenario, 1, scenario.rate_rps).unwrap()
}

fn late(run: &RunResult) -> u64 {
    run.models.iter().map(|model| model.late).sum()
}

#[test]
fn exact_executions_are_never_late_and_noisy_ones_are_but_the_lateness_is_learnt() {
    // A policy that defers leaves no slack: half of all batches take longer than planned, and without learning half
    // would be late.
    let run = |overrides: &[&str]| run(&[&["policy=symphony"], overrides].concat());
    let exact = run(&[]);
    assert_eq!(late(&exact), 0);
    assert!(exact.bad_rate < 0.001, "{}", exact.bad_rate);
    // No noise by another name.
    assert_eq!(run(&["execution.noise={ lognormal_sigma = 0.0 }"]), exact);
    let noisy = run(&["execution.noise={ lognormal_sigma = 0.05 }"]);
    assert!(late(&noisy) > 0 && noisy.bad_rate < 0.03, "{}", noisy.bad_rate);
    let wild = run(&["execution.noise={ lognormal_sigma = 0.2 }"]);
    assert!(wild.bad_rate > noisy.bad_rate && wild.bad_rate < 0.2, "{}", wild.bad_rate);
}

#[test]
fn a_spike_hurts_its_batch_and_little_else() {
    let spiky = run(&["execution.spike={ probability = 0.002, factor = 3.0 }"]);
    assert!(late(&spiky) > 0 && spiky.bad_rate < 0.02, "{}", spiky.bad_rate);
}

#[test]
fn noise_is_seeded_and_changes_no_arrival() {
    let noise = "execution.noise={ lognormal_sigma = 0.1 }";
    let (first, second) = (run(&[noise]), run(&[noise]));
    assert_eq!(first, second);
    assert_eq!(first.models[0].offered, run(&[]).models[0].offered);
}

#[test]
fn a_failed_gpu_loses_its_batch_and_its_requests_get_another_chance() {
    // At a third of the load seven GPUs suffice: what the eighth loses has time to run elsewhere.
    let light = ["workload.rate_rps=1500", "policy=eager"];
    let whole = run(&light);
    assert_eq!(whole.bad_rate, 0.0);
    let failing = "failure=[{ gpu = 0, at_s = 8.0, for_s = 2.0 }, { gpu = 1, at_s = 9.0 }]";
    let failed = run(&[light[0], light[1], failing]);
    let lost = failed.models[0].offered - failed.models[0].good;
    assert!(lost <= 30, "two batches were lost, and {lost} requests with them");
    assert_eq!(failed.models[0].offered, whole.models[0].offered);
    // Without any GPU nothing is served, and the run still ends.
    let all: Vec<String> = (0..8).map(|gpu| format!("{{ gpu = {gpu}, at_s = 15.0 }}")).collect();
    let dark = run(&[light[0], light[1], &format!("failure=[{}]", all.join(", "))]);
    assert!((dark.bad_rate - 0.5).abs() < 0.02, "{}", dark.bad_rate);
    assert_eq!(late(&dark), 0);
}

#[test]
fn failures_and_noise_together_keep_every_invariant() {
    let failing: Vec<String> =
        (0..200).map(|n| format!("{{ gpu = {}, at_s = {}, for_s = 0.05 }}", n % 8, 0.1 * f64::from(n))).collect();
    let failure = format!("failure=[{}]", failing.join(", "));
    let noise = "execution.noise={ lognormal_sigma = 0.1 }";
    let of_models = ["symphony", "auto", "eager", "clipper"];
    let of_clusters = ["clockwork", "nexus", "shepherd", "kairos", "ribbon", "drs", "clkwrk"];
    for policy in of_models.into_iter().chain(of_clusters) {
        for rate in [2000, 6000] {
            let run = run(&[noise, &failure, &format!("policy={policy}"), &format!("workload.rate_rps={rate}")]);
            let model = &run.models[0];
            assert_eq!(model.offered, model.good + model.late + model.dropped);
        }
    }
}
