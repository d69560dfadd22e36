//! Models that share a trunk, served together and separately, with every invariant watched; and pipelines.

use symphony_simulator::{RunResult, simulate};
use symphony_workload::Scenario;

/// Ten heads on a ResNet-50, one GPU.
const TEXT: &str = "
    name = 'family'
    policy = 'auto'
    duration_s = 5
    warmup_s = 2
    seeds = [1]
    gpu = [{ kind = 'x', count = 1 }]
    workload = { rate_rps = 550, arrival = 'poisson' }
    [[model]]
    name = 'head'
    alpha_ms = 1.053
    beta_ms = 5.072
    slo_ms = 100
    variants = { count = 10, suffix_alpha_ms = 0.01, suffix_beta_ms = 0.1, popularity = { zipf = 0.9 } }";

fn run(overrides: &[&str]) -> RunResult {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse("family.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).unwrap();
    simulate(&scenario, 1, scenario.rate_rps).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn one_batch_of_all_variants_serves_what_batches_of_each_cannot() {
    for policy in ["auto", "symphony", "eager"] {
        let policy = format!("policy={policy}");
        let shared = run(&[&policy]);
        assert_eq!(shared.models.len(), 1);
        assert!(shared.bad_rate < 0.01, "{policy}: {shared:?}");
        let apart = run(&[&policy, "model.0.variants.shared=false"]);
        assert_eq!(apart.models.len(), 10);
        assert!(apart.bad_rate > 0.05, "{policy}: {} of the requests are bad", apart.bad_rate);
    }
}

#[test]
fn noise_failures_and_two_kinds_of_gpus_break_no_invariant() {
    let kinds = "gpu=[{ kind = 'x', count = 1 }, { kind = 'y', count = 1 }]";
    let suffix = "model.0.variants.suffix_beta_ms={ x = 0.1, y = 0.4 }";
    let fails = "failure=[{ gpu = 0, at_s = 3, for_s = 0.5 }]";
    let noise = "execution.noise={ lognormal_sigma = 0.03 }";
    let items = ["model.0.items={ uniform = [1, 4] }", "workload.rate_rps=300"];
    for more in [&[][..], &["profiles=slowest_kind"][..], &items[..]] {
        let result = run(&[&[kinds, suffix, fails, noise][..], more].concat());
        assert!(result.good_rps > 200.0, "{more:?}: {result:?}");
    }
}
