//! GPUs with memory for one copy only, and slow loading: an arriving model waits for a leaving one, and plans show the
//! measured loading time.

use symphony_tests::{Shape, TestCluster, phase, tell};
use symphony_types::LatencyProfile;

use super::load_sized;

/// Of the 4096 MB of a GPU: two do not fit.
const MODEL_MB: u64 = 2500;
const LOADED_MB_PER_S: f64 = 500.0;
/// What counts before anything was measured.
const ASSUMED_MB_PER_S: f64 = 1024.0;

/// Loads a model of that size.
fn load_large(cluster: &TestCluster, name: &str, subcluster: &str) {
    load_sized(cluster, (name, subcluster), MODEL_MB, LatencyProfile::from_line(5.0, 20.0, 16).unwrap());
}

/// Seconds that moving the model to the right would take, according to a plan.
fn planned_seconds(cluster: &TestCluster, model: &str) -> f64 {
    let _ = cluster.cli(&["plan", "move", "--model", model, "--to", "right", "--propose"]).ended_with(0);
    let shown = cluster.cli(&["plan", "show", "-o", "json"]).ended_with(0).json();
    shown["cost"]["seconds"].as_f64().unwrap()
}

#[test]
fn a_model_is_loaded_where_another_one_was_when_that_has_gone_and_its_time_is_measured() {
    let mut shape = Shape::emulated(&["left", "right"]);
    shape.backends.iter_mut().for_each(|backend| backend.gpus = 1);
    let shape = shape.with(&format!("backend.emulated_load_mb_per_s={LOADED_MB_PER_S:.0}"));
    let shape = shape.with("backend.executor=emulated").with("scheduler.epochs.mode=off");
    tell("memory", &shape, |cluster| {
        load_large(cluster, "first", "left");
        cluster.wait_until_it_serves("first").unwrap();
        let load = cluster.spawn_load_until_ended("load", &["first=100"]).unwrap();
        cluster.wait_for_more(100).unwrap();

        phase("another one takes its place, while batches of the first one run");
        let _ = cluster.cli(&["model", "unload", "first"]).ended_with(0);
        load_large(cluster, "second", "left");
        // A GPU that has no room for both would have failed to load it, for good.
        cluster.wait_until_it_serves("second").unwrap();
        // What came after the first one went is refused: the load is there to keep the GPU busy.
        let _ = cluster.end_load(load);

        phase("before anything was loaded on the right, plans tell what is assumed; then what was measured");
        let size = MODEL_MB as f64;
        assert!((planned_seconds(cluster, "second") - size / ASSUMED_MB_PER_S).abs() < 0.01);
        load_large(cluster, "third", "right");
        cluster.wait_until_it_serves("third").unwrap();
        let _ = cluster.cli(&["model", "unload", "third"]).ended_with(0);
        // A busy machine takes longer, and none takes less.
        assert!(planned_seconds(cluster, "second") >= 0.99 * size / LOADED_MB_PER_S);
    });
}
