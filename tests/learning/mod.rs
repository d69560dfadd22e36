//! Leads learn from the ends of batches: a GPU that becomes slow, or fails, gets none for a while, and a profile that
//! is wrong is corrected.

mod failing;
mod profile;
mod straggler;

use std::fmt::Display;

use symphony_tests::{Shape, TestCluster};

/// GPUs as fast as their profiles.
pub(crate) const AS_GIVEN: &[(u32, f64)] = &[];

/// One sub-cluster with four emulated GPUs whose pace is in a file, and a lead that learns in a hurry.
fn paced(settings: &[&str]) -> Shape {
    let mut shape = Shape::emulated(&["pool"]).with("backend.executor=emulated").with("backend.pace_file=pace");
    shape.backends[0].gpus = 4;
    let shape = shape.with("scheduler.loop_speedup=10");
    settings.iter().fold(shape, |shape, setting| shape.with(&format!("scheduler.learning.{setting}")))
}

/// GPUs from 0, and how many times as long as their profiles they take from now on, or `fails`.
pub(crate) fn set_pace<F: Display>(cluster: &TestCluster, factors: &[(u32, F)]) {
    let lines: String = factors.iter().map(|(gpu, factor)| format!("{gpu} {factor}\n")).collect();
    // A concurrent reader gets the old file or the new one.
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

/// The GPUs that are set aside, by id.
fn set_aside(cluster: &TestCluster) -> Vec<u64> {
    let gpus = cluster.cli(&["get", "gpus", "-o", "json"]).ended_with(0).json();
    let out = gpus.as_array().unwrap().iter().filter(|gpu| !gpu["quarantined"].is_null());
    out.map(|gpu| gpu["id"].as_u64().unwrap()).collect()
}
