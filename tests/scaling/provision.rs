//! The loop is closed: the load rises, the answers to KEDA say so, backends start; it falls, and the highest GPUs stop.

use std::collections::BTreeSet;
use std::time::Duration;

use symphony_protocol::view::View;
use symphony_tests::{Shape, TestCluster, phase, tell};
use symphony_types::GpuId;

/// Requests per second: a GPU takes 100 ms for a batch of 16, so it answers 160 in a second.
const LITTLE: &str = "m=40";
const MUCH: &str = "m=380";
/// Replicas that it started may drain for a minute.
const STOPPED_WITHIN: Duration = Duration::from_secs(150);

/// No backends: they are provisioned. An autoscaler that has no minute to wait.
fn nobody_serves() -> Shape {
    Shape { schedulers: 3, frontends: 1, ..Shape::default() }.with("scheduler.loop_speedup=10")
}

/// The GPUs that are up and take plans.
fn working(view: &View) -> BTreeSet<GpuId> {
    let working = view.backends.values().filter(|backend| backend.up && backend.duty.takes_work());
    working.flat_map(|backend| &backend.gpus).map(|gpu| gpu.id).collect()
}

/// The replicas' metrics of the advice for the sub-cluster: only the Raft leader has any.
fn scraped_advice(cluster: &TestCluster) -> Vec<String> {
    let replicas = ["scheduler-1", "scheduler-2", "scheduler-3"].map(|name| cluster.metrics_of(name).unwrap());
    let lines = replicas.iter().flat_map(|text| text.lines()).filter(|line| line.contains("subcluster=\"pool\""));
    lines.filter(|line| line.starts_with("symphony_control_")).map(str::to_owned).collect()
}

#[test]
fn backends_come_with_the_load_and_the_highest_gpus_go_with_it_and_no_request_fails() {
    tell("provision", &nobody_serves(), |cluster| {
        phase("one replica from the beginning");
        let mut provision = cluster.spawn_provision("pool", "pool", (1, 3)).unwrap();
        cluster.wait_for_view("one GPU", |view| (working(view).len() == 1).then_some(())).unwrap();
        let mut model = vec!["model", "load", "m", "--emulated", "--subcluster", "pool", "--slo-ms", "1500"];
        model.extend(["--alpha-ms", "5", "--beta-ms", "20", "--batch-max", "16"]);
        let _ = cluster.cli(&model).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();
        let failed_before = cluster.failed().unwrap();

        phase("more than one GPU can do");
        let load = cluster.spawn_load_until_ended("much", &[MUCH]).unwrap();
        let all = cluster.wait_for_view("three GPUs", |view| {
            let working = working(view);
            (working.len() == 3).then_some(working)
        });
        let all = all.unwrap();
        let advised = scraped_advice(cluster);
        for series in ["gpus_wanted", "gpus_there", "gpus_releasable"] {
            let line = format!("symphony_control_{series}{{subcluster=\"pool\",gpu_kind=");
            assert_eq!(advised.iter().filter(|shown| shown.starts_with(&line)).count(), 1, "{series}: {advised:?}");
        }
        let demanded = "symphony_control_gpus_demanded{subcluster=\"pool\"} ";
        assert_eq!(advised.iter().filter(|shown| shown.starts_with(demanded)).count(), 1, "{advised:?}");
        let reasons = advised.iter().filter(|shown| shown.starts_with("symphony_control_scaling_reason{"));
        let ends = |end: &str| reasons.clone().filter(|shown| shown.ends_with(end)).count();
        assert_eq!((ends(" 1"), ends(" 0")), (1, 6), "{advised:?}");
        cluster.end_load(load).unwrap().check_safety().unwrap();

        phase("less than one GPU can do");
        let load = cluster.spawn_load_until_ended("little", &[LITTLE]).unwrap();
        let mut before = all.clone();
        cluster
            .wait_for_view("the lowest GPU is left", |view| {
                let now = working(view);
                assert!(now.is_subset(&all), "{now:?} of {all:?}");
                // Whatever goes is above whatever stays.
                assert_eq!(now, before.iter().copied().take(now.len()).collect(), "of {before:?}");
                before = now;
                (before.len() == 1).then_some(())
            })
            .unwrap();
        cluster
            .wait_for_view("the others have stopped", |view| {
                (view.backends.values().filter(|backend| backend.up).count() == 1).then_some(())
            })
            .unwrap();

        phase("nobody noticed that they went");
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("m", 0.05).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);

        phase("it ends with those that it started");
        assert!(provision.stop(STOPPED_WITHIN).unwrap().success(), "{}", provision.log_tail());
        let stdout = provision.stdout().unwrap();
        for word in ["start pool-0", "start pool-2", "drain pool-2", "stop pool-2", "drain pool-1", "stop pool-1"] {
            assert!(stdout.contains(word), "{word}: {stdout}");
        }
        assert!(stdout.find("drain pool-2") < stdout.find("drain pool-1"), "{stdout}");
        cluster
            .wait_for_view("nobody serves", |view| view.backends.values().all(|backend| !backend.up).then_some(()))
            .unwrap();
    });
}

#[test]
fn mistakes_in_provisioning_are_named() {
    tell("provision-words", &Shape::emulated(&["pool"]), |cluster| {
        let config = cluster.workspace.file("backend-pool.toml").display().to_string();
        let provision = |more: &[&str]| {
            let mut args = vec!["provision", "--config", config.as_str()];
            args.extend(more);
            cluster.cli(&args).ended_with(2)
        };
        let _ = provision(&["--min", "3", "--max", "2"]).complains(&["--min 3", "--max 2"]);
        let _ = provision(&["--min", "0", "--max", "2"]).complains(&["--min"]);
        let _ = provision(&["--max", "2", "--tolerance", "7"]).complains(&["tolerance", "0 to 1"]);
        let kinds =
            "backend.gpus=[{ kind = \"a\", count = 1, memory_mb = 1 }, { kind = \"b\", count = 1, memory_mb = 1 }]";
        let _ = provision(&["--max", "2", "--set", kinds]).complains(&["backend.gpus", "one kind"]);
    });
}
