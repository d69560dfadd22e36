//! Queues plan for the budget that all arriving requests have. The leader of a cluster knows the SLO of a stage's model
//! only; what the pipeline leaves to the stage is in the deadlines of its requests, as here.

use std::path::Path;

use symphony_simulator::{RunResult, simulate};
use symphony_workload::Scenario;

/// The rule that makes the difference, left out.
const BY_THE_SLO: &str = "without=['budget']";

fn run(text: &str, overrides: &[&str]) -> RunResult {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse("budgets.toml", text, &overrides, &|_| Err("no files".to_owned())).unwrap();
    simulate(&scenario, 1, scenario.rate_rps).unwrap_or_else(|error| panic!("{overrides:?}: {error}"))
}

/// Good answers per second where the model's SLO is 50 ms, and its requests have 200.
#[test]
fn a_stage_whose_requests_have_more_than_its_slo_serves_half_as_many_again_under_overload() {
    // Target batches for 50 ms are of 24 items, for 200 ms of 144: 24 / 44 and 144 / 164 items per millisecond and GPU.
    let text = "
        name = 'more'
        policy = 'symphony'
        duration_s = 4
        warmup_s = 2
        gpu = [{ kind = 'x', count = 4 }]
        model = [{ name = 'stage', alpha_ms = 1, beta_ms = 20, slo_ms = 50, deadline = [{ share = 1, slo_ms = 200 }] }]
        workload = { rate_rps = 4000, arrival = 'poisson' }";
    let good_rps = |overrides: &[&str]| run(text, overrides).good_rps;
    let (planned, by_the_slo) = (good_rps(&[]), good_rps(&[BY_THE_SLO]));
    assert!(planned > 1.4 * by_the_slo, "{planned} good answers per second, {by_the_slo} by the SLO");
    let told = good_rps(&["model.0.slo_ms=200"]);
    assert!(planned > 0.98 * told, "{planned} good answers per second, {told} where it is the SLO");
}

/// Good answers per second where the model's SLO is 200 ms, and its requests have 50.
#[test]
fn a_stage_whose_requests_have_less_than_its_slo_is_served_where_one_batch_in_ten_takes_ten_times_as_long() {
    // Plans leave room for that, up to a quarter of the planned budget; a quarter of the SLO is all that requests have.
    let text = "
        name = 'less'
        duration_s = 4
        warmup_s = 6
        gpu = [{ kind = 'x', count = 8 }]
        model = [{ name = 'stage', alpha_ms = 1, beta_ms = 5, slo_ms = 200, deadline = [{ share = 1, slo_ms = 50 }] }]
        execution = { spike = { probability = 0.1, factor = 10 } }
        workload = { rate_rps = 400, arrival = 'poisson' }";
    for policy in ["policy=symphony", "policy=auto"] {
        let good_rps = |overrides: &[&str]| run(text, &[&[policy], overrides].concat()).good_rps;
        let (planned, by_the_slo) = (good_rps(&[]), good_rps(&[BY_THE_SLO]));
        assert!(planned > 300.0, "{policy}: {planned} good answers per second of 400");
        assert!(
            by_the_slo < 100.0,
            "{policy}: {by_the_slo} good answers per second by the SLO, {planned} by what is left"
        );
    }
}

#[test]
fn nothing_changes_where_requests_have_the_slo_or_some_have_more() {
    // In the last two a fifth and half of the requests can wait longer.
    for file in ["table4-resnet50", "mixed-resnet50", "rough-day", "mixed-slow-kind"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../deploy/scenarios/{file}.toml"));
        let text = std::fs::read_to_string(path).unwrap();
        for policy in ["policy=symphony", "policy=auto"] {
            let brief = ["duration_s=2", "warmup_s=1", policy];
            assert_eq!(run(&text, &brief), run(&text, &[&brief[..], &[BY_THE_SLO]].concat()), "{file}, {policy}");
        }
    }
}
