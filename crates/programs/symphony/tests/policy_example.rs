//! The example of a policy of one's own: through random stories, and in the simulator.

// Its `main` is not called here.
#[allow(dead_code)]
#[path = "../examples/policy.rs"]
mod policy;

use policy::Edf;
use symphony_scheduler::{ClusterFacts, GuardedPolicy, PolicyRegistry, policy_kit};
use symphony_simulator::simulate;
use symphony_workload::Scenario;

#[test]
fn it_keeps_every_rule_through_random_stories() {
    let mut ran = 0;
    for seed in 0..100 {
        let policy = GuardedPolicy::new("edf", Box::new(Edf::default()));
        match policy_kit::drive(policy, &ClusterFacts::default(), seed) {
            Ok(report) => ran += report.ran,
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!(ran > 1_000, "{ran}");
}

#[test]
fn it_serves_in_the_simulator_under_its_name() {
    let text = "
        name = 'example'
        policy = 'edf'
        duration_s = 5
        warmup_s = 0
        seeds = [1]
        gpu = [{ kind = 'x', count = 4 }]
        model = [{ name = 'm', count = 3, alpha_ms = 1, beta_ms = 5, slo_ms = 50 }]
        workload = { rate_rps = 800, arrival = 'poisson' }";
    let policies = PolicyRegistry::new().with("edf", |_, _| Ok(Box::new(Edf::default())));
    let scenario = Scenario::parse_among("example.toml", text, &[], &|_| Err(String::new()), &policies).unwrap();
    let result = simulate(&scenario, 1, 800.0).unwrap();
    assert!(result.bad_rate < 0.05, "{}", result.bad_rate);
    assert_eq!(scenario.policy.to_string(), "edf");
}
