//! Whatever a scenario file contains, the answer is a scenario or an error.

use proptest::prelude::*;
use symphony_workload::{Scenario, noise_streams, request_streams};

const VALID: &str = include_str!("../../../../deploy/scenarios/zipf-20-models.toml");

fn try_it(text: &str, overrides: &[String], csv: &str) {
    if let Ok(scenario) = Scenario::parse("f", text, overrides, &|_| Ok(csv.to_owned())) {
        for mut stream in request_streams(&scenario, 1, scenario.rate_rps) {
            let (first, second) = (stream.next_request(), stream.next_request());
            assert!(second.is_none_or(|second| first.is_some_and(|first| second.at >= first.at && second.items > 0)));
        }
        for mut stream in noise_streams(&scenario, 1) {
            let _ = stream.stretch(symphony_types::Nanos::from_millis(1));
        }
    }
}

proptest! {
    #[test]
    fn random_text(text in ".{0,200}") {
        try_it(&text, &[], "");
    }

    #[test]
    fn a_valid_scenario_with_bytes_replaced(edits in prop::collection::vec((0..VALID.len(), any::<u8>()), 1..6)) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        try_it(&String::from_utf8_lossy(&bytes), &[], "");
    }

    #[test]
    fn random_overrides(
        key in prop::sample::select(vec![
            "duration_s", "warmup_s", "seeds", "network.ctrl_us", "gpu.0.count", "gpu.0.memory_mb", "model.0.count",
            "model.0.alpha_ms", "model.0.beta_ms", "model.0.slo_ms", "model.0.weight", "model.0.batch_max",
            "model.0.deadline", "model.0.items", "execution.noise", "execution.spike", "failure", "workload.rate_profile",
            "model.0.rate_profile", "autoscale", "autoscale.reserve", "autoscale.period_s", "autoscale.budget_per_hour", "gpu.0.start", "gpu.0.min",
            "gpu.0.price_per_hour",
            "workload.rate_rps", "workload.arrival", "workload.popularity", "policy", "policy.trigger", "x.y", "gpu", "",
            "model.0.variants",
        ]),
        value in prop_oneof![
            any::<f64>().prop_map(|x| format!("{x:e}")),
            any::<i64>().prop_map(|x| x.to_string()),
            Just("nan".to_owned()), Just("inf".to_owned()), Just("{ gamma = 1e-3 }".to_owned()), Just("[]".to_owned()),
            Just("{ uniform_ms = [1, 1e300] }".to_owned()), Just("{ uniform = [1, 4294967295] }".to_owned()),
            Just("[{ share = 1e-300, items = 1 }]".to_owned()), Just("{ lognormal_sigma = 2 }".to_owned()),
            Just("{ probability = 1, factor = 1e4 }".to_owned()), Just("[{ gpu = 0, at_s = 1e6 }]".to_owned()),
            Just("[[0, 1e-300], [1e-9, 1e6]]".to_owned()), Just("[[0, 0], [1, 1]]".to_owned()), Just("{ provision_s = 1e6 }".to_owned()),
            Just("{ zipf = 100.0 }".to_owned()), Just("{ trace_csv = 'x' }".to_owned()), ".{0,20}",
            Just("{ count = 1024, suffix_alpha_ms = 1e-9, suffix_beta_ms = 1e9, popularity = { zipf = 100 } }".to_owned()),
            Just("{ count = 1024, suffix_alpha_ms = 0, suffix_beta_ms = 1e-3, shared = false }".to_owned()),
        ],
    ) {
        try_it(VALID, &[format!("{key}={value}")], "time_s\n1\n2\n");
    }

    #[test]
    fn random_csv(csv in "(gpu_kind,batch,latency_ms\n|time_s,model\n)?([a1,.e\n-]{0,60})") {
        let profile = VALID.replace("alpha_ms = 1.053\nbeta_ms = 5.072", "profile_csv = 'p'");
        prop_assert_ne!(&profile, VALID);
        try_it(&profile.replace("1080ti", "a"), &[], &csv);
        try_it(VALID, &["workload.arrival={trace_csv='t'}".to_owned()], &csv);
    }
}
