//! A frontend dies and comes back; a stopping one drains first.

use std::time::Duration;

use serde_json::Value;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);

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

        phase("it comes back with a new boot");
        cluster.restart("frontend").unwrap();
        cluster
            .wait_for_view("the new boot", |view| {
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
        let status = cluster.stop("frontend", SOON).unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        let _ = wait_for_member(cluster, "frontend", |member| member["left"] == true);
    });
}

/// What operators read of a frontend.
fn member(cluster: &TestCluster, name: &str) -> Value {
    let members = cluster.cli(&["get", "members", "-o", "json"]).ended_with(0).json();
    let all = members.as_array().unwrap();
    let found = all.iter().find(|member| member["role"] == "frontend" && member["name"] == name);
    found.unwrap_or(&Value::Null).clone()
}

/// Waits until what operators read of a frontend is so.
fn wait_for_member(cluster: &TestCluster, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let look = || {
        let member = member(cluster, name);
        anyhow::ensure!(is_so(&member), "{member}");
        Ok(member)
    };
    wait_until(&format!("what is said of {name}"), SOON, look).unwrap()
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
        args.extend(["--lag-p99-ms", "10000", "--lag-max-ms", "20000", "--identity", "frontend-load"]);
        let _ = cluster.cli(&args).ended_with(0);
        let load = wait_for_member(cluster, "load", |load| load["left"] == true && load["up"] == false);
        let is_up = |member: &Value| member["left"] == false && member["up"] == true;
        let other = wait_for_member(cluster, "frontend-2", is_up);
        // In the order in which they came.
        let (load, other) = (load["id"].as_str().unwrap(), other["id"].as_str().unwrap());

        phase("one that is up is not removed, and what is none is not found");
        let remove = |name: &str| cluster.cli(&["members", "remove", name]);
        let _ = remove("frontend-2").ended_with(2).complains(&["takes requests", &format!("symphony drain {other}")]);
        let _ = remove("nobody").ended_with(2).complains(&["no process is named `nobody`", "frontend-2"]);
        let _ = remove("backend-default").ended_with(2).complains(&["needs no removal"]);
        let _ = remove("load").ended_with(0);
        assert!(member(cluster, "load").is_null());
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        let removed = format!("remove frontend {load}");
        assert!(events.out.contains(&removed) && events.out.contains("operator/admin"), "{}", events.out);

        phase("one that crashes is silent, and can be removed once it is to take nothing");
        cluster.kill("frontend-2").unwrap();
        let _ = wait_for_member(cluster, "frontend-2", |silent| {
            assert_eq!(silent["left"], false, "it said nothing");
            silent["up"] == false && silent["silent_s"].as_f64() > Some(1.0)
        });
        let _ = cluster.cli(&["drain", "frontend-2", "--wait-s", "0"]).ended_with(0);
        let _ = cluster.cli(&["members", "remove", "frontend-2"]).ended_with(0);
        assert!(member(cluster, "frontend-2").is_null());

        phase("a forgotten one that still runs ends with words");
        cluster.restart("frontend-2").unwrap();
        let _ = wait_for_member(cluster, "frontend-2", is_up);
        let _ = cluster.cli(&["drain", "frontend-2", "--wait-s", "0"]).ended_with(0);
        let _ = cluster.cli(&["members", "remove", "frontend-2"]).ended_with(0);
        cluster.wait_for_log("frontend-2", "has forgotten frontend frontend-2").unwrap();
    });
}
