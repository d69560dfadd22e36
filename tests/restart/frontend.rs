//! A frontend dies and comes back; one that is told to stop drains.

use std::time::Duration;

use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

#[test]
fn a_restarted_frontend_serves_without_anything_else_being_touched() {
    tell("frontend-restart", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let before = cluster.view().unwrap();

        phase("the frontend is killed with requests in flight");
        let mut load = cluster.spawn_load("load", &["resnet=50"], 30).unwrap();
        let accepted = cluster.accepted().unwrap();
        cluster.wait_for_accepted(accepted + 50).unwrap();
        cluster.kill("frontend").unwrap();
        load.kill().unwrap();

        phase("it comes back with a new life");
        cluster.restart("frontend").unwrap();
        cluster
            .wait_for_view("the new life", |view| {
                let (id, was) = before.frontends.first_key_value()?;
                view.frontends.get(id).filter(|now| now.boot != was.boot).map(|_| ())
            })
            .unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        let after = cluster.view().unwrap();
        let leaders = |view: &symphony_protocol::view::View| -> Vec<_> {
            view.subclusters.values().map(|s| (s.leader, s.token)).collect()
        };
        assert_eq!(leaders(&after), leaders(&before), "a frontend's death is no reason to change leaders");
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("told to stop, it ends by itself and with success");
        let status = cluster.stop("frontend", Duration::from_secs(20)).unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        assert_eq!(member(cluster, "frontend")["left"], true, "it has said that it leaves");
    });
}

/// What operators read of a frontend.
fn member(cluster: &TestCluster, name: &str) -> serde_json::Value {
    let members = cluster.cli(&["get", "members", "-o", "json"]).ended_with(0).json();
    let all = members.as_array().unwrap();
    let found = all.iter().find(|member| member["role"] == "frontend" && member["name"] == name);
    found.unwrap_or(&serde_json::Value::Null).clone()
}

#[test]
fn what_is_said_of_a_frontend_is_true_and_one_that_is_gone_can_be_removed() {
    let mut shape = Shape::emulated(&["default"]).with_frontends(2);
    shape.schedulers = 1;
    tell("frontend-members", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        phase("a load generator is a frontend as long as it runs");
        let mut args = vec!["load", "--model", "resnet=20", "--protocol", "native", "--duration-s", "1"];
        args.extend(["--lag-p99-ms", "1000", "--lag-max-ms", "5000", "--identity", "frontend-load"]);
        let _ = cluster.cli(&args).ended_with(0);
        let load = member(cluster, "load");
        assert!(load["left"] == true && load["up"] == false, "{load}");
        let other = member(cluster, "frontend-2");
        assert!(other["left"] == false && other["up"] == true, "{other}");

        phase("one that is up is not removed, and what is none is not found");
        let remove = |name: &str| cluster.cli(&["members", "remove", name]);
        let _ = remove("frontend-2").ended_with(2).complains(&["takes requests", "symphony drain f2"]);
        let _ = remove("nobody").ended_with(2).complains(&["no process is named `nobody`", "frontend-2"]);
        let _ = remove("backend-default").ended_with(2).complains(&["needs no removal"]);
        let _ = remove("load").ended_with(0);
        assert!(member(cluster, "load").is_null());
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        assert!(events.out.contains("remove frontend f3") && events.out.contains("operator/admin"), "{}", events.out);

        phase("one that crashes is silent, and can be removed once it is to take nothing");
        cluster.kill("frontend-2").unwrap();
        let silent = || {
            let member = member(cluster, "frontend-2");
            anyhow::ensure!(member["up"] == false && member["silent_s"].as_f64() > Some(1.0), "{member}");
            anyhow::ensure!(member["left"] == false, "it said nothing");
            Ok(())
        };
        wait_until("the killed one to be silent", Duration::from_secs(60), silent).unwrap();
        let _ = cluster.cli(&["drain", "frontend-2", "--wait-s", "0"]).ended_with(0);
        let _ = cluster.cli(&["members", "remove", "frontend-2"]).ended_with(0);
        assert!(member(cluster, "frontend-2").is_null());

        phase("a forgotten one that still runs ends with words");
        cluster.restart("frontend-2").unwrap();
        let up = || {
            let member = member(cluster, "frontend-2");
            anyhow::ensure!(member["up"] == true, "{member}");
            Ok(())
        };
        wait_until("the restarted one to be up", Duration::from_secs(60), up).unwrap();
        let _ = cluster.cli(&["drain", "frontend-2", "--wait-s", "0"]).ended_with(0);
        let _ = cluster.cli(&["members", "remove", "frontend-2"]).ended_with(0);
        let ended = || {
            let log = cluster.log_of("frontend-2")?;
            anyhow::ensure!(log.contains("has forgotten frontend frontend-2"), "{log}");
            Ok(())
        };
        wait_until("the forgotten one to end", Duration::from_secs(60), ended).unwrap();
    });
}
