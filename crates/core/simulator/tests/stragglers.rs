//! Slow GPUs in virtual time, and the production objects that find them.

use symphony_simulator::{LearningResult, RunResult, find_goodput, simulate};
use symphony_workload::Scenario;

/// Eight GPUs, of which the first, which has the most to do, becomes twice as slow.
const TEXT: &str = "
    name = 'stragglers'
    policy = 'symphony'
    duration_s = 40
    warmup_s = 5
    seeds = [1]
    gpu = [{ kind = 'x', count = 8 }]
    model = [{ name = 'm', count = 4, alpha_ms = 1, beta_ms = 5, slo_ms = 50 }]
    workload = { rate_rps = 3000, arrival = 'poisson' }
    slow = [{ gpu = 0, factor = 2, at_s = 3 }]";

/// Longer than the run.
const SET_ASIDE: &str = "learning={ profiles = false, quarantine_s = 600 }";

fn scenario(overrides: &[&str]) -> Scenario {
    let overrides: Vec<_> = overrides.iter().map(|&assignment| assignment.to_owned()).collect();
    Scenario::parse("stragglers.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

fn run(overrides: &[&str]) -> RunResult {
    let scenario = scenario(overrides);
    simulate(&scenario, 1, scenario.rate_rps).unwrap()
}

#[test]
fn a_slow_gpu_costs_requests_until_it_is_set_aside() {
    let (not_looked_for, set_aside) = (run(&[]), run(&[SET_ASIDE]));
    assert_eq!(not_looked_for.learning, None);
    assert_eq!(set_aside.learning, Some(LearningResult { quarantines: 1, profiles_corrected: 0 }));
    assert!(not_looked_for.bad_rate > 0.02, "{}", not_looked_for.bad_rate);
    assert!(set_aside.bad_rate < 0.001, "{}", set_aside.bad_rate);
    assert_eq!(set_aside.gpus_used, 7, "it was found before counting began");
}

#[test]
fn goodput_with_a_slow_gpu_is_that_of_the_others_if_it_is_set_aside_and_less_if_not() {
    let goodput = |overrides: &[&str]| find_goodput(&scenario(overrides)).unwrap();
    let seven_well = goodput(&["slow=[]", "gpu.0.count=7"]);
    let (not_looked_for, set_aside) = (goodput(&[]), goodput(&[SET_ASIDE]));
    assert!(set_aside > 0.97 * seven_well, "{set_aside} of {seven_well}");
    assert!(set_aside > 1.2 * not_looked_for, "{set_aside} and {not_looked_for}");
}

#[test]
fn a_gpu_that_is_well_again_is_tried_and_serves() {
    // Slow from 3 to 13 s, tried from about 13 s on.
    let set_aside = run(&["slow=[{ gpu = 0, factor = 2, at_s = 3, for_s = 10 }]", "learning={ quarantine_s = 10 }"]);
    assert_eq!((set_aside.learning.unwrap().quarantines, set_aside.gpus_used), (1, 8));
    assert!(set_aside.bad_rate < 0.005, "{}", set_aside.bad_rate);
}

#[test]
fn gpus_that_are_all_slow_have_a_profile_that_is_corrected_and_nobody_is_blamed() {
    let all: Vec<_> = (0..8).map(|gpu| format!("{{ gpu = {gpu}, factor = 2, at_s = 0 }}")).collect();
    let slow = format!("slow=[{}]", all.join(","));
    let light = "workload.rate_rps=1500";
    let (believed, measured) = (run(&[&slow, light]), run(&[&slow, light, "learning={}"]));
    let LearningResult { quarantines, profiles_corrected } = measured.learning.unwrap();
    assert!(quarantines == 0 && profiles_corrected >= 4, "{:?}", measured.learning);
    assert!(measured.bad_rate < 0.02 && measured.bad_rate < believed.bad_rate / 5.0, "{measured:?}, {believed:?}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |overrides: &[&str]| {
        let overrides: Vec<_> = overrides.iter().map(|&assignment| assignment.to_owned()).collect();
        let parsed = Scenario::parse("stragglers.toml", TEXT, &overrides, &|_| Err("no files".to_owned()));
        parsed.unwrap_err().to_string()
    };
    for (overrides, words) in [
        (&["slow.0.gpu=8"][..], "slow.0.gpu"),
        (&["slow.0.factor=0"], "slow.0.factor"),
        (&["slow=[{ gpu = 1, factor = 2, at_s = 1 }, { gpu = 1, factor = 2, at_s = 5 }]"], "do not overlap"),
        (&["learning={ quarantine_s = 0 }"], "learning.quarantine_s"),
        (&["learning={ slow_percent = 1 }"], "learning.slow_percent"),
        (&["learning={ quarantined_percent_max = 60 }"], "learning.quarantined_percent_max"),
        (&["learning={}", "policy=nexus"], "learns from its batches"),
        (&["learning={}", "autoscale={}"], "[autoscale]"),
        (&["learning={ unknown = 1 }"], "unknown"),
    ] {
        let error = refused(overrides);
        assert!(error.contains(words), "{overrides:?}: {error}");
    }
}
