//! The result is a contract: keys, nulls, and the same bytes for the same seed.

use serde_json::Value;
use symphony_simulator::{Goodput, RunResult, SimulationResult, meets_slo, simulate};
use symphony_workload::Scenario;

const TEXT: &str = "
    name = 'format'
    duration_s = 2
    warmup_s = 0.5
    seeds = [1, 2]
    gpu = [{ kind = 'x', count = 2 }]
    model = [
        { name = 'served', alpha_ms = 1, beta_ms = 5, slo_ms = 25 },
        { name = 'hopeless', alpha_ms = 1, beta_ms = 5, slo_ms = 3, weight = 0.1 },
        { name = 'silent', alpha_ms = 1, beta_ms = 5, slo_ms = 25, weight = 0 },
    ]
    workload = { rate_rps = 400, arrival = 'poisson' }";

fn scenario(overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("format.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

fn runs(scenario: &Scenario) -> Vec<RunResult> {
    scenario.seeds.iter().map(|&seed| simulate(scenario, seed, scenario.rate_rps).unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn keys_are_those_of_the_contract() {
    let scenario = scenario(&[]);
    let result = SimulationResult::new(&scenario, runs(&scenario), None, 1_000, 0.5);
    let json: Value = serde_json::from_str(&serde_json::to_string(&result).unwrap()).unwrap();
    assert_eq!(keys(&json), ["goodput_rps", "policy", "runs", "scenario", "sim_requests_per_second"]);
    assert_eq!((&json["scenario"], &json["policy"]), (&"format".into(), &"auto".into()));
    assert_eq!((&json["goodput_rps"], &json["sim_requests_per_second"]), (&Value::Null, &2000.0.into()));
    // A search reports lower rates that fail, or that none does.
    let searched = Goodput { rate_rps: 300.0, fails_below_rps: Vec::new() };
    let searched = SimulationResult::new(&scenario, Vec::new(), Some(searched), 1_000, 0.5);
    let searched = serde_json::to_value(&searched).unwrap();
    assert_eq!((&searched["goodput_rps"], &searched["fails_below_rps"]), (&300.0.into(), &Value::Array(Vec::new())));
    let run = &json["runs"][0];
    assert_eq!(
        keys(run),
        [
            "bad_rate",
            "batch_size_by_request",
            "demand_fraction",
            "good_rps",
            "gpu_utilization",
            "gpus_used",
            "idle_fraction",
            "models",
            "offered_rps",
            "queueing_ms",
            "seed",
        ]
    );
    assert_eq!(keys(&run["queueing_ms"]), ["max", "p50", "p99"]);
    let model = &run["models"][0];
    assert_eq!(keys(model), ["dropped", "good", "late", "mean_batch", "name", "offered", "p50_ms", "p99_ms", "shed"]);
    assert!(run["batch_size_by_request"].as_object().unwrap().keys().all(|batch| batch.parse::<u32>().is_ok()));
}

#[test]
fn numbers_agree_with_each_other() {
    let scenario = scenario(&[]);
    for run in runs(&scenario) {
        let sum = |count: fn(&symphony_simulator::ModelResult) -> u64| run.models.iter().map(count).sum::<u64>() as f64;
        assert_eq!((run.offered_rps, run.good_rps), (sum(|m| m.offered) / 2.0, sum(|m| m.good) / 2.0));
        assert!(run.models.iter().all(|m| m.good + m.late + m.dropped == m.offered));
        assert_eq!(run.batch_size_by_request.values().sum::<u64>() as f64, sum(|m| m.good + m.late));
        assert!((run.bad_rate - (1.0 - run.good_rps / run.offered_rps)).abs() < 1e-12);
        let [served, hopeless, silent] = &run.models[..] else { panic!("three models") };
        // Met: the p99 is within the SLO. Dropped counts as infinite. Nothing asked, nothing known.
        assert!(served.p99_ms.unwrap() <= 25.0 && served.p50_ms.unwrap() <= served.p99_ms.unwrap(), "{served:?}");
        assert!(served.mean_batch.unwrap() >= 1.0);
        assert_eq!((hopeless.p50_ms, hopeless.p99_ms, hopeless.mean_batch), (None, None, None));
        assert_eq!(hopeless.dropped, hopeless.offered);
        assert_eq!((silent.offered, silent.p99_ms), (0, None));
        assert!((run.gpu_utilization + run.idle_fraction - 1.0).abs() < 1e-12);
        assert!(run.demand_fraction.is_some_and(|demand| demand > 0.0), "every policy of queues measures it");
    }
}

#[test]
fn the_demand_is_that_of_the_counted_time() {
    // Batches that start early keep GPUs busier than the demand, and what was asked in the warm-up is no part of it.
    let of = |more: &[&str]| {
        let scenario = scenario(&[&["policy=auto", "duration_s=10", "model.1.weight=0"], more].concat());
        simulate(&scenario, 1, scenario.rate_rps).unwrap()
    };
    let run = of(&[]);
    let demand = run.demand_fraction.unwrap();
    assert!((0.1..run.gpu_utilization).contains(&demand), "{demand} with {} executing", run.gpu_utilization);
    let warmed = of(&["warmup_s=5"]).demand_fraction.unwrap();
    assert!((warmed - demand).abs() < 0.05, "{warmed} after a longer warm-up, {demand} after a short one");
    let overloaded = of(&["workload.rate_rps=4000"]);
    assert!(overloaded.demand_fraction.unwrap() > 1.2, "{:?}", overloaded.demand_fraction);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    let scenario = scenario(&[]);
    let bytes = |runs: &[RunResult]| serde_json::to_string(runs).unwrap();
    let (first, second) = (runs(&scenario), runs(&scenario));
    assert_eq!(bytes(&first), bytes(&second));
    assert_ne!(bytes(&first[..1]), bytes(&first[1..]).replace("\"seed\":2", "\"seed\":1"));
}

#[test]
fn a_verdict_says_what_the_full_run_says_and_failure_is_found_early() {
    for rate_rps in [100.0, 250.0, 1_000.0, 4_000.0] {
        let scenario = scenario(&["model.1.slo_ms=25"]);
        let full = simulate(&scenario, 1, rate_rps).unwrap();
        let verdict = meets_slo(&scenario, 1, rate_rps).unwrap();
        let met = full.models.iter().all(|m| m.offered == 0 || m.p99_ms.is_some_and(|p99| p99 <= 25.0));
        assert_eq!(verdict.passed, met, "at {rate_rps} r/s");
        if met {
            assert_eq!(verdict.simulated_requests, full.simulated_requests);
        } else {
            assert!(verdict.simulated_requests < full.simulated_requests / 2, "{verdict:?}");
        }
    }
}
