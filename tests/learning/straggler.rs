//! One of four GPUs becomes twice as slow: it is set aside, requests stay in time, and it comes back when it has
//! recovered.

use std::time::Duration;

use symphony_testkit::wait_until;
use symphony_tests::{phase, tell};

use super::{AS_GIVEN, load_model, paced, set_aside, set_pace};

/// Three GPUs do 480 requests per second, with batches of 16.
const LOAD: &str = "m=300";
const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn a_gpu_that_becomes_slow_is_set_aside_and_comes_back_when_it_is_well() {
    let settings = ["quarantine_s=4", "profiles=false"];
    tell("straggler", &paced(&settings), |cluster| {
        set_pace(cluster, AS_GIVEN);
        load_model(cluster, "1000");
        let load = cluster.spawn_load_until_ended("load", &[LOAD]).unwrap();
        // The usual latency is known after some batches.
        cluster.wait_for_more(2000).unwrap();
        assert_eq!(set_aside(cluster), Vec::<u64>::new());

        phase("the first GPU, which has the most to do, becomes slow");
        let first = cluster.view().unwrap().backends.values().flat_map(|b| &b.gpus).map(|gpu| gpu.id.get()).min();
        set_pace(cluster, &[(0, 2.0)]);
        wait_until("it to be set aside", WITHIN, || {
            let out = set_aside(cluster);
            anyhow::ensure!(out.iter().copied().eq(first.map(u64::from)), "set aside: {out:?}");
            Ok(())
        })
        .unwrap();
        let shown = cluster.cli(&["get", "gpus"]).ended_with(0);
        assert!(shown.out.contains("slower than its peers"), "{shown:?}");
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        assert!(events.out.contains("is set aside for"), "{events:?}");

        phase("it is well again");
        set_pace(cluster, AS_GIVEN);
        wait_until("it to serve again", WITHIN, || {
            let out = set_aside(cluster);
            anyhow::ensure!(out.is_empty(), "set aside: {out:?}");
            Ok(())
        })
        .unwrap();
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        assert!(events.out.contains("gets batches again: on trial"), "{events:?}");

        phase("nearly all requests were in time");
        cluster.wait_for_more(2000).unwrap();
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("m", 0.05).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(set_aside(cluster), Vec::<u64>::new());
    });
}
