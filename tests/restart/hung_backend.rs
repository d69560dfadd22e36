//! Backends hang under load: their connections stay open, and no message is answered.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use symphony_config::ExecutorKind;
use symphony_protocol::view::View;
use symphony_testkit::wait_until;
use symphony_tests::{BackendShape, Shape, TestCluster, emulated_model, phase, tell};

const HANGS: &str = "backend-default";
const SEEN_WITHIN: Duration = Duration::from_secs(60);

fn is_up(view: &View, name: &str) -> bool {
    view.backends.values().any(|backend| backend.name == name && backend.up)
}

/// How many GPUs there are, by the metrics of the Raft leader.
fn gpus_there(cluster: &TestCluster) -> anyhow::Result<String> {
    let leader = cluster.view()?.control_leader.map_or(0, |node| node.get());
    let metrics = cluster.metrics_of(&format!("scheduler-{leader}"))?;
    let there = metrics.lines().find(|line| line.starts_with("symphony_control_gpus_there{"));
    Ok(there.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned())
}

fn sees_gpus(cluster: &TestCluster, count: u64) {
    wait_until(&format!("{count} GPUs"), SEEN_WITHIN, || {
        let there = gpus_there(cluster)?;
        ensure!(there == count.to_string(), "{there} GPUs are there by the metrics");
        let top = cluster.cli(&["top", "--once", "-o", "json"]).ended_with(0).json();
        ensure!(top["subclusters"][0]["gpus"] == count, "{top}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_backend_that_hangs_is_down_and_its_gpus_are_not_there_until_it_wakes() {
    let mut shape = Shape::emulated(&["default"]);
    let (name, subcluster) = ("backend-other".to_owned(), "default".to_owned());
    shape.backends.push(BackendShape { name, subcluster, executor: ExecutorKind::Emulated, gpus: 2 });
    tell("hung-backend", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        sees_gpus(cluster, 4);
        let load = cluster.spawn_load_until_ended("load", &["resnet=40"]).unwrap();
        cluster.wait_for_more(40).unwrap();

        phase("it hangs: it is down for everybody, and the other one serves");
        cluster.pause(HANGS).unwrap();
        cluster.wait_for_view("a backend that is down", |view| (!is_up(view, HANGS)).then_some(())).unwrap();
        assert!(is_up(&cluster.view().unwrap(), "backend-other"));
        sees_gpus(cluster, 2);
        let members = cluster.cli(&["get", "members"]).ended_with(0).out;
        assert!(members.lines().any(|line| line.contains(HANGS) && line.contains("down")), "{members}");
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("it wakes: it is up again by itself, and of use");
        cluster.resume(HANGS).unwrap();
        cluster.wait_for_view("a backend that is up", |view| is_up(view, HANGS).then_some(())).unwrap();
        sees_gpus(cluster, 4);
        cluster.wait_for_more(40).unwrap();
        cluster.end_load(load).unwrap().check_safety().unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}

/// Requests that did not go well so far, by reason.
fn reasons(cluster: &TestCluster) -> BTreeMap<String, u64> {
    let metrics = cluster.metrics_of("frontend").unwrap();
    let counted = metrics.lines().filter(|line| line.starts_with("symphony_frontend_requests_total{"));
    let mut reasons = BTreeMap::new();
    for line in counted {
        let Some((_, reason)) = line.split_once("reason=\"") else { continue };
        let reason = reason.split('"').next().unwrap_or_default().to_owned();
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).unwrap_or_default();
        *reasons.entry(reason).or_default() += count as u64;
    }
    reasons
}

#[test]
fn where_the_only_backend_hangs_nobody_is_told_of_overload() {
    tell("only-backend-hangs", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let load = cluster.spawn_load_until_ended("load", &["resnet=40"]).unwrap();
        cluster.wait_for_more(40).unwrap();

        phase("it hangs, until it is known to be down");
        let before = reasons(cluster);
        cluster.pause(HANGS).unwrap();
        cluster.wait_for_view("a backend that is down", |view| (!is_up(view, HANGS)).then_some(())).unwrap();
        let of = |reasons: &BTreeMap<String, u64>, reason: &str| reasons.get(reason).copied().unwrap_or_default();
        wait_until("a word of the backend", SEEN_WITHIN, || {
            let now = reasons(cluster);
            ensure!(of(&now, "no_gpu") > of(&before, "no_gpu"), "{now:?}");
            Ok(())
        })
        .unwrap();
        let after = reasons(cluster);
        let models = cluster.cli(&["get", "models"]).ended_with(0).out;
        assert!(models.contains("no GPU takes it: all its backends are down"), "{models}");
        for overload in ["protect_batch", "queue_expired", "shed", "slo_unreachable"] {
            assert_eq!(of(&after, overload), of(&before, overload), "{overload}: {before:?}, then {after:?}");
        }

        phase("it wakes, and serves");
        cluster.resume(HANGS).unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("it is drained, which its operator is warned of: that is no overload either");
        let before = reasons(cluster);
        let output = cluster.cli(&["drain", HANGS]).ended_with(0);
        assert!(output.err.contains("is the last backend that takes resnet"), "{output:?}");
        wait_until("refusals", SEEN_WITHIN, || {
            let refused = cluster.one_good_request("resnet").unwrap_err().to_string();
            ensure!(refused.contains("no_gpu") && refused.contains("cordoned or draining"), "{refused}");
            Ok(())
        })
        .unwrap();
        let ready = cluster.block_on(async { cluster.rest().get("/v2/models/resnet/ready").await }).unwrap();
        assert_eq!(ready.status, 503, "{ready:?}");
        let models = cluster.cli(&["get", "models"]).ended_with(0).out;
        assert!(models.contains("cordoned or draining"), "{models}");
        let after = reasons(cluster);
        for overload in ["protect_batch", "queue_expired", "shed", "slo_unreachable", "model_not_ready"] {
            assert_eq!(of(&after, overload), of(&before, overload), "{overload}: {before:?}, then {after:?}");
        }
        let _ = cluster.cli(&["uncordon", HANGS]).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.end_load(load).unwrap().check_safety().unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
