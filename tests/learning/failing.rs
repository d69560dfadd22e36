//! One of four GPUs fails whatever it is given, at once: it would be given everything, being free all the time.

use std::time::Duration;

use symphony_testkit::wait_until;
use symphony_tests::{phase, tell};

use super::{AS_GIVEN, load_model, paced, set_aside, set_pace};

const LOAD: &str = "m=100";
const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn a_gpu_that_fails_is_set_aside_and_comes_back_when_it_is_well() {
    let settings = ["quarantine_s=4", "profiles=false"];
    tell("failing", &paced(&settings), |cluster| {
        set_pace(cluster, AS_GIVEN);
        load_model(cluster, "1000");
        let load = cluster.spawn_load_until_ended("load", &[LOAD]).unwrap();
        cluster.wait_for_more(500).unwrap();
        assert_eq!(set_aside(cluster), Vec::<u64>::new());

        phase("the first GPU, which has the most to do, fails");
        let first = cluster.view().unwrap().backends.values().flat_map(|b| &b.gpus).map(|gpu| gpu.id.get()).min();
        set_pace(cluster, &[(0, "fails")]);
        wait_until("it to be set aside", WITHIN, || {
            let out = set_aside(cluster);
            anyhow::ensure!(out.iter().copied().eq(first.map(u64::from)), "set aside: {out:?}");
            Ok(())
        })
        .unwrap();
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        assert!(events.out.contains("of its batches failed, those of its peers do not"), "{events:?}");

        phase("it is well again");
        set_pace(cluster, AS_GIVEN);
        wait_until("it to serve again", WITHIN, || {
            let out = set_aside(cluster);
            anyhow::ensure!(out.is_empty(), "set aside: {out:?}");
            Ok(())
        })
        .unwrap();

        phase("few requests were lost by it");
        cluster.wait_for_more(1000).unwrap();
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("m", 0.2).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
