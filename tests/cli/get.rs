//! `symphony get`, as tables and as JSON.

use std::time::Duration;

use serde_json::Value;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// Far longer than the leader of the control group takes to hear of a frontend.
const KNOWN_WITHIN: Duration = Duration::from_secs(120);

fn get(cluster: &TestCluster, what: &str) -> (String, Vec<Value>) {
    let table = cluster.cli(&["get", what]).ended_with(0).out;
    let json = cluster.cli(&["get", what, "-o", "json"]).ended_with(0).json();
    (table, json.as_array().unwrap().clone())
}

/// A row for each element of the JSON, under a header with these words.
#[track_caller]
fn check_table(table: &str, rows: usize, header: &[&str], cells: &[&str]) {
    let lines: Vec<_> = table.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), rows + 1, "{table}");
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>().join(" "), header.join(" "), "{table}");
    cells.iter().for_each(|cell| assert!(table.contains(cell), "`{cell}` is not in\n{table}"));
}

#[test]
fn get_shows_people_and_programs_the_same_cluster() {
    tell("get", &Shape::emulated(&["first", "second"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "first")).ended_with(0);

        phase("models");
        let (table, models) = get(cluster, "models");
        check_table(
            &table,
            1,
            &["ID", "NAME", "SUBCLUSTER", "SLO", "POLICY", "VALUE", "STATE"],
            &["resnet", "first", "500 ms", "ready"],
        );
        let model = &models[0];
        assert_eq!(
            (&model["name"], &model["subcluster"], &model["slo_ms"]),
            (&"resnet".into(), &"first".into(), &500.0.into())
        );
        assert_eq!((&model["ready"], &model["policy"]), (&true.into(), &"auto".into()));

        phase("sub-clusters: each has a leader and two standbys");
        let (table, subclusters) = get(cluster, "subclusters");
        let header =
            ["ID", "NAME", "LEADER", "TOKEN", "STANDBYS", "IDLE", "GPUS", "DEMAND", "GPUS", "WANTED", "POLICY"];
        check_table(&table, 2, &header, &["first", "second"]);
        for subcluster in &subclusters {
            assert!(
                subcluster["token"].as_u64().unwrap() > 0 && subcluster["leader"].as_u64().is_some(),
                "{subcluster}"
            );
            assert_eq!(subcluster["standbys"].as_array().unwrap().len(), 2, "{subcluster}");
        }

        phase("GPUs, with the tokens of their sub-clusters");
        let (table, gpus) = get(cluster, "gpus");
        let header = ["ID", "KIND", "MEMORY", "BACKEND", "SUBCLUSTER", "TOKEN", "STATE"];
        check_table(&table, 4, &header, &["emulated", "4096 MB", "backend-first", "up"]);
        assert!(
            gpus.iter().all(|g| g["up"] == true && g["token"].as_u64() > Some(0) && g["kind"] == "emulated"),
            "{gpus:?}"
        );

        phase("members, one of which leads the control group");
        // A new leader of the control group learns within moments which frontends exist.
        let (table, members) = wait_until("all members to be up", KNOWN_WITHIN, || {
            let (table, members) = get(cluster, "members");
            anyhow::ensure!(members.iter().all(|m| m["up"] == true), "{members:?}");
            Ok((table, members))
        })
        .unwrap();
        check_table(
            &table,
            6,
            &["ROLE", "ID", "NAME", "ADDRESS", "STATE", "DUTY", "LEVEL", "NOTE"],
            &["scheduler", "backend-second", "frontend"],
        );
        assert_eq!(members.iter().filter(|m| m["group"] == "leader").count(), 1, "{members:?}");
        assert!(members.iter().any(|m| m["addr"] == cluster.address("scheduler-2", "control")), "{members:?}");

        phase("epochs grow with the plan; events say why");
        let (table, epochs) = get(cluster, "epochs");
        let header = ["EPOCH", "LOG", "INDEX", "MOVES", "STATUS", "CAUSE", "SUMMARY"];
        let parts = epochs[0]["subclusters"].as_array().unwrap();
        check_table(
            &table,
            1 + parts.len(),
            &header,
            &["in force", "sub-cluster first", "1 model: resnet", "2 GPUs: "],
        );
        let first = parts.iter().find(|part| part["subcluster"] == "first").unwrap();
        assert_eq!(
            (&first["models"], first["gpus"].as_array().map(Vec::len)),
            (&serde_json::json!(["resnet"]), Some(2))
        );
        let _ = cluster.cli(&emulated_model("second", "second")).ended_with(0);
        let (_, later) = get(cluster, "epochs");
        assert!(later[0]["epoch"].as_u64() > epochs[0]["epoch"].as_u64(), "{later:?} after {epochs:?}");
        assert!(later[0]["applied_index"].as_u64() > epochs[0]["applied_index"].as_u64());
        let (table, events) = get(cluster, "events");
        let header = ["LOG", "INDEX", "TIME", "ACTOR", "WHAT", "OPERATION"];
        check_table(&table, events.len(), &header, &["backend-first", "load model resnet", "operator/admin"]);
        let indexes: Vec<_> = events.iter().map(|e| e["index"].as_u64().unwrap()).collect();
        assert!(indexes.is_sorted(), "{indexes:?}");

        phase("one replica alone still answers, if that is good enough");
        let last = cluster.address("scheduler-3", "control");
        let stale = ["get", "models", "--stale", "-o", "json", "--cluster", &last];
        wait_until("it to have heard of all", KNOWN_WITHIN, || {
            let models = cluster.cli(&stale).ended_with(0).json();
            anyhow::ensure!(models.as_array().map(Vec::len) == Some(2), "{models}");
            Ok(())
        })
        .unwrap();
        for name in ["scheduler-1", "scheduler-2"] {
            cluster.kill(name).unwrap();
        }
        let stale = cluster.cli(&stale).ended_with(0).json();
        assert_eq!(stale.as_array().map(Vec::len), Some(2));
        let _ = cluster.cli(&["get", "models", "--cluster", &last]).ended_with(1).complains(&[&last]);

        phase("with a majority again, it answers for all");
        cluster.restart("scheduler-1").unwrap();
        cluster.wait_for_view("a linearizable answer", |view| view.control_leader).unwrap();
    });
}
