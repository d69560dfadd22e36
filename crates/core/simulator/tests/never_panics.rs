//! Whatever a small scenario asks for, the run ends with a result, and every invariant holds on the way.

use proptest::prelude::*;
use symphony_simulator::simulate;
use symphony_workload::Scenario;

fn policies() -> impl Strategy<Value = String> {
    let trigger = prop::sample::select(vec![
        "'eager'",
        "'frontrun'",
        "'adaptive'",
        "'latest'",
        "'beta_lambda'",
        "{ timeout_ms = 3 }",
    ]);
    let drop = prop::sample::select(vec!["window", "prune"]);
    let choice = prop::sample::select(vec!["lowest_id", "earliest_free"]);
    let order = prop::sample::select(vec!["latest", "frontrun", "start", "deadline"]);
    let symphony = (trigger, drop, choice, order).prop_map(|(trigger, drop, choice, order)| {
        format!(
            "{{ name = 'symphony', trigger = {trigger}, drop = '{drop}', gpu_choice = '{choice}', ready_order = '{order}' }}"
        )
    });
    let others = [
        "'auto'",
        "'timeout'",
        "'clipper'",
        "'clockwork'",
        "{ name = 'clockwork', commit_ms = 0, early_ms = 0 }",
        "'nexus'",
        "{ name = 'nexus', frontends = 3 }",
        "'shepherd'",
        "{ name = 'shepherd', preempt_factor = 1 }",
        "'kairos'",
        "{ name = 'kairos', learn = true }",
        "'ribbon'",
        "'drs'",
        "'clkwrk'",
    ];
    prop_oneof![symphony, prop::sample::select(others.map(str::to_owned).to_vec())]
}

fn arrivals() -> impl Strategy<Value = String> {
    let fixed = ["'poisson'", "'uniform'", "{ gamma = 0.05 }", "{ gamma = 3.0 }", "{ trace_csv = 't' }"];
    prop::sample::select(fixed.map(str::to_owned).to_vec())
}

/// What reality may do, and what requests may be like.
fn extras() -> impl Strategy<Value = String> {
    let noise = prop::sample::select(vec![
        "",
        "[execution]\nnoise = { lognormal_sigma = 0.3 }\n",
        "[execution]\nspike = { probability = 0.1, factor = 5.0 }\n",
    ]);
    let failure = prop::sample::select(vec![
        "",
        "[[failure]]\ngpu = 0\nat_s = 0.2\nfor_s = 0.1\n",
        "[[failure]]\ngpu = 0\nat_s = 0.3\n",
    ]);
    (noise, failure).prop_map(|(noise, failure)| format!("{noise}{failure}"))
}

fn laws() -> impl Strategy<Value = String> {
    let deadline = prop::sample::select(vec![
        "",
        ", deadline = { uniform_ms = [1, 90] }",
        ", deadline = [{ share = 1, slo_ms = 3 }, { share = 2, slo_ms = 70 }]",
    ]);
    let items = prop::sample::select(vec![
        "",
        ", batch_max = 8, items = { uniform = [1, 4] }",
        ", batch_max = 8, items = [{ share = 1, items = 1 }, { share = 1, items = 8 }]",
    ]);
    (deadline, items).prop_map(|(deadline, items)| format!("{deadline}{items}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn small_runs_end_with_every_request_decided(
        policy in policies(),
        arrival in arrivals(),
        (gpus, models) in (1_u32..5, 1_u32..4),
        (alpha_ms, beta_ms, slo_ms) in (0.0..5.0_f64, 0.0..20.0_f64, 0.01..80.0_f64),
        (ctrl_us, data_us, reply_us) in (0.0..5000.0_f64, 0.0..500.0_f64, 0.0..5000.0_f64),
        rate_rps in 1.0..5000.0_f64,
        seed in any::<u64>(),
        (extras, laws) in (extras(), laws()),
    ) {
        let text = format!(
            "name = 'p'\npolicy = {policy}\nduration_s = 0.5\nwarmup_s = 0.1\n\
             network = {{ ctrl_us = {ctrl_us}, data_us_per_item = {data_us}, reply_us = {reply_us} }}\n\
             gpu = [{{ kind = 'x', count = {gpus} }}]\n\
             model = [{{ name = 'm', count = {models}, alpha_ms = {alpha_ms}, beta_ms = {beta_ms}, slo_ms = {slo_ms}{laws} }}]\n\
             workload = {{ rate_rps = {rate_rps}, arrival = {arrival}, popularity = {{ zipf = 0.9 }} }}\n{extras}"
        );
        let trace = |_: &str| Ok("time_s,items,slo_ms\n0.11,1,5\n0.11,,\n0.2,3,\n0.3,,40\n0.9,,\n".to_owned());
        let scenario = match Scenario::parse("p.toml", &text, &[], &trace) {
            Ok(scenario) => scenario,
            // α + β below half a nanosecond makes no profile.
            Err(error) => {
                prop_assert!(error.to_string().contains("a line that makes a profile"), "{}", error);
                return Err(TestCaseError::reject("no profile"));
            }
        };
        let run = simulate(&scenario, seed, scenario.rate_rps).map_err(|error| TestCaseError::fail(error.to_string()))?;
        for model in &run.models {
            prop_assert_eq!(model.offered, model.good + model.late + model.dropped);
        }
        prop_assert!((0.0..=1.0 + 1e-9).contains(&run.gpu_utilization), "{}", run.gpu_utilization);
        prop_assert!((0.0..=1.0).contains(&run.bad_rate));
    }
}
