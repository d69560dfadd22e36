//! `symphony top`, looked at once while a cluster serves.

use std::time::Duration;

use serde_json::Value;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

const RATE_RPS: f64 = 100.0;
const LOAD_S: u32 = 60;
/// Far longer than load takes to flow over all of the span that is looked at.
const SEEN_WITHIN: Duration = Duration::from_secs(40);

fn top(cluster: &TestCluster) -> Value {
    cluster.cli(&["top", "--once", "-o", "json"]).ended_with(0).json()
}

fn named<'a>(top: &'a Value, table: &str, name: &str) -> &'a Value {
    top[table].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()
}

#[test]
fn top_shows_who_has_how_much_to_do() {
    tell("top", &Shape::emulated(&["busy", "idle"]), |cluster| {
        for (model, subcluster) in [("resnet", "busy"), ("quiet", "idle")] {
            let _ = cluster.cli(&emulated_model(model, subcluster)).ended_with(0);
        }
        let load = cluster.spawn_load("load", &[&format!("resnet={RATE_RPS}")], LOAD_S).unwrap();
        cluster.wait_for_accepted(50).unwrap();

        phase("the load is in the rates of its model and sub-cluster, and nowhere else");
        let seen = wait_until("the whole load to be seen", SEEN_WITHIN, || {
            let seen = top(cluster);
            let rate = named(&seen, "models", "resnet")["rate_rps"].as_f64().unwrap_or(0.0);
            anyhow::ensure!((0.7 * RATE_RPS..1.3 * RATE_RPS).contains(&rate), "{rate} requests per second: {seen}");
            // The leads are young: their first two reports have to come.
            let known = |name: &str| named(&seen, "subclusters", name)["idle_fraction"].is_f64();
            anyhow::ensure!(known("busy") && known("idle"), "not all GPUs are reported of: {seen}");
            Ok(seen)
        })
        .unwrap();
        let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        let (resnet, quiet) = (named(&seen, "models", "resnet"), named(&seen, "models", "quiet"));
        assert!(
            number(resnet, "in_time_rps") <= number(resnet, "rate_rps") && number(resnet, "mean_batch") >= 1.0,
            "{seen}"
        );
        assert_eq!(
            (&quiet["rate_rps"], &quiet["mean_batch"], &quiet["ready"]),
            (&0.0.into(), &Value::Null, &true.into())
        );
        let (busy, idle) = (named(&seen, "subclusters", "busy"), named(&seen, "subclusters", "idle"));
        assert_eq!((&busy["rate_rps"], &busy["gpus"], &busy["models"]), (&resnet["rate_rps"], &2.into(), &1.into()));
        assert!(busy["leader"].is_u64() && busy["queued"].is_u64() && number(busy, "token") > 0.0, "{busy}");
        // A hundred requests of 6 ms each take at most 0.6 of one of two GPUs.
        let idle_share = number(busy, "idle_fraction");
        assert!((0.4..0.999).contains(&idle_share), "{idle_share} of two GPUs idle: {seen}");
        assert_eq!((&idle["rate_rps"], number(idle, "idle_fraction")), (&0.0.into(), 1.0));
        let demand = number(busy, "demand_gpus");
        assert!((0.01..1.0).contains(&demand), "a demand of {demand} GPUs: {seen}");
        assert_eq!(number(idle, "demand_gpus"), 0.0);
        let gpus: Vec<_> = seen["gpus"].as_array().unwrap().iter().filter(|gpu| gpu["subcluster"] == "busy").collect();
        let shares: f64 = gpus.iter().map(|gpu| number(gpu, "busy")).sum();
        assert!((shares / 2.0 - (1.0 - idle_share)).abs() < 1e-9, "{seen}");
        assert!(
            gpus.iter().any(|gpu| number(gpu, "batches_per_s") > 0.0) && gpus.iter().all(|gpu| gpu["state"] == "up"),
            "{seen}"
        );
        assert_eq!(seen["notes"], serde_json::json!([]));

        phase("people see the same; where there is no terminal that is all");
        let table = cluster.cli(&["top", "--over-s", "2"]).ended_with(0).out;
        for cells in [
            "rates of the last 2.",
            "SUBCLUSTER",
            "IDLE GPUS",
            "DEMAND",
            "resnet",
            "quiet",
            "BATCHES /S",
            "backend-busy",
        ] {
            assert!(table.contains(cells), "`{cells}` is not in\n{table}");
        }

        phase("a GPU that is gone is said to be so; a cluster that is gone is an error");
        cluster.kill("backend-idle").unwrap();
        wait_until("the GPUs to be down", SEEN_WITHIN, || {
            let seen = top(cluster);
            let down = |gpu: &&Value| gpu["subcluster"] == "idle" && gpu["state"] == "down" && gpu["busy"].is_null();
            let down = seen["gpus"].as_array().unwrap().iter().filter(down).count();
            anyhow::ensure!(down == 2, "{down} are down: {seen}");
            Ok(())
        })
        .unwrap();
        for name in ["scheduler-1", "scheduler-2", "scheduler-3"] {
            cluster.kill(name).unwrap();
        }
        let _ = cluster.cli(&["top"]).ended_with(1).complains(&["no scheduler replica answered"]);
        let _ = cluster.cli(&["top", "--over-s", "1"]).ended_with(2).complains(&["--over-s"]);
        drop(load);
    });
}
