//! All GPUs are slower than the profile says: batches are late until the profile is corrected, and then they are not.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use symphony_testkit::wait_until;
use symphony_tests::{TestCluster, phase, tell};

use super::{load_model, paced, set_pace};

const LOAD: &str = "m=120";
const LOAD_S: u32 = 12;
const WITHIN: Duration = Duration::from_secs(120);

/// The measured latency of the model over that of its profile.
fn measured(cluster: &TestCluster) -> Option<f64> {
    let models = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0).json();
    models[0]["measured"][0]["factor"].as_f64()
}

/// How many times as long as its profile the last batches were planned to take.
fn planned(cluster: &TestCluster) -> Vec<f64> {
    let reply = cluster.cli(&["explain", "--batch", "m", "--last", "10", "-o", "json"]).ended_with(0).json();
    let factor = |explanation: &serde_json::Value| {
        let batch = &explanation["batch"];
        let (items, planned_ms) = (batch["items"].as_f64()?, batch["planned"]["execution_ms"].as_f64()?);
        Some(planned_ms / (5.0 * items + 20.0))
    };
    reply
        .as_array()
        .unwrap()
        .iter()
        .map(|explanation| factor(explanation).unwrap_or_else(|| panic!("{explanation}")))
        .collect()
}

#[test]
fn a_profile_that_is_wrong_is_corrected_and_requests_are_in_time_again() {
    tell("profile", &paced(&["stragglers=false"]), |cluster| {
        phase("GPUs take twice as long as the profile says");
        set_pace(cluster, &[(0, 2.0), (1, 2.0), (2, 2.0), (3, 2.0)]);
        load_model(cluster, "600");
        let load = cluster.spawn_load_until_ended("learns", &[LOAD]).unwrap();
        let learnt = wait_until("it to be measured", WITHIN, || {
            let factor = measured(cluster);
            factor.filter(|factor| *factor >= 1.7).with_context(|| format!("measured: {factor:?}"))
        });
        let learnt = learnt.unwrap();
        let corrected = wait_until("the last batches to be planned so", WITHIN, || {
            let corrected = planned(cluster);
            ensure!(corrected.iter().all(|factor| *factor >= 1.7), "{corrected:?}");
            Ok(corrected)
        });
        let corrected = corrected.unwrap();
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        // A machine that was busy made batches take longer still.
        let is_close = learnt < 2.4 && corrected.iter().all(|factor| *factor < 2.6);
        assert!(is_close || report.machine_was_busy().unwrap(), "measured {learnt}, planned {corrected:?}");

        phase("what is planned is what happens");
        let load = cluster.spawn_load("knows", &[LOAD], LOAD_S).unwrap();
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("m", 0.02).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
