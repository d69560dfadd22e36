//! Leads learn from the ends of batches: a GPU that becomes slow gets none for a while, and a profile that is wrong is corrected.

mod profile;
mod straggler;

use symphony_tests::{Shape, TestCluster};

/// One sub-cluster with four emulated GPUs whose pace is in a file, and a lead that learns in a hurry.
fn paced(settings: &[&str]) -> Shape {
    let mut shape = Shape::emulated(&["pool"]).with("backend.executor=emulated").with("backend.pace_file=pace");
    shape.backends[0].gpus = 4;
    settings.iter().fold(shape, |shape, setting| shape.with(&format!("scheduler.learning.{setting}")))
}

/// GPUs from 0, and how many times as long as their profiles they take from now on.
pub(crate) fn set_pace(cluster: &TestCluster, factors: &[(u32, f64)]) {
    let lines: String = factors.iter().map(|(gpu, factor)| format!("{gpu} {factor}\n")).collect();
    // Whoever reads meanwhile reads the old or the new one.
    let next = cluster.workspace.write("pace.next", &lines).unwrap();
    std::fs::rename(next, cluster.workspace.file("pace")).unwrap();
}

/// Loads `m`: a batch of 16 takes 100 ms by its profile.
fn load_model(cluster: &TestCluster, slo_ms: &str) {
    let mut model = vec!["model", "load", "m", "--emulated", "--subcluster", "pool", "--slo-ms", slo_ms];
    model.extend(["--alpha-ms", "5", "--beta-ms", "20", "--batch-max", "16"]);
    let _ = cluster.cli(&model).ended_with(0);
    cluster.wait_until_it_serves("m").unwrap();
}
