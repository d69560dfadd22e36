//! Roll-outs under load: forward, back, by steps, and what is rolled back.

use std::fs;
use std::time::Duration;

use symphony_executor::default_signature;
use symphony_executor::profile::{GpuProfile, ProfileFile};
use symphony_testkit::wait_until;
use symphony_tests::{ProgramOutput, Shape, TestCluster, phase, tell};
use symphony_types::LatencyProfile;

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);

const SLO_MS: u64 = 500;

/// The repository serves these versions of `m`.
fn serve(cluster: &TestCluster, versions: &[u64]) {
    let versions: Vec<_> = versions.iter().map(u64::to_string).collect();
    let config = format!(
        "backend: \"emulated\" max_batch_size: 32 version_policy {{ specific {{ versions: [ {} ] }} }}
         parameters {{ key: \"slo_ms\" value {{ string_value: \"{SLO_MS}\" }} }}
         parameters {{ key: \"subcluster\" value {{ string_value: \"default\" }} }}",
        versions.join(", ")
    );
    fs::write(cluster.workspace.file("models").join("m/config.pbtxt"), config).unwrap();
}

/// A version with this latency for a batch of one.
fn write_version(cluster: &TestCluster, version: u64, beta_ms: f64) {
    let dir = cluster.workspace.file("models").join("m").join(version.to_string());
    fs::create_dir_all(&dir).unwrap();
    let latency = LatencyProfile::from_line(1.0, beta_ms, 32).unwrap();
    let (machine, raised_batches) = ("here".into(), Vec::new());
    let gpu = GpuProfile { latency, static_memory_bytes: 0, dynamic_memory_bytes: 0, machine, raised_batches };
    let gpus = [("emulated".to_owned(), gpu)].into();
    ProfileFile { model: "m".into(), signature: default_signature(), gpus }.write(&dir.join("profile.toml")).unwrap();
}

fn roll_out(cluster: &TestCluster, more: &[&str]) -> ProgramOutput {
    let models = cluster.workspace.file("models").display().to_string();
    let mut args = vec!["model", "load", "m", "--repository", &models];
    args.extend(more);
    cluster.cli(&args)
}

/// What answers a request that names no version, and one whose header names this one.
fn version_of(cluster: &TestCluster, header: Option<&str>) -> Result<String, u16> {
    let input = serde_json::json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": vec![1.0; 16] });
    // In any time: one version takes nearly all that its SLO allows.
    let parameters = serde_json::json!({ "symphony_exceed_slo": true, "timeout": 20_000_000 });
    let body = serde_json::json!({ "inputs": [input], "parameters": parameters }).to_string();
    let headers: Vec<_> = header.map(|version| ("x-model-version", version)).into_iter().collect();
    let path = "/v2/models/m/infer";
    let reply = cluster.block_on(async { cluster.rest().post_with(path, &headers, body).await }).unwrap();
    if reply.status != 200 {
        return Err(reply.status);
    }
    let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    Ok(body["model_version"].as_str().unwrap().to_owned())
}

/// Requests that the frontend has ended for a model.
fn requests_of(cluster: &TestCluster, model: &str) -> f64 {
    let text = cluster.metrics_of("frontend").unwrap();
    let of = |line: &&str| {
        line.starts_with("symphony_frontend_requests_total") && line.contains(&format!("model=\"{model}\""))
    };
    text.lines().filter(of).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn versions_take_over_from_each_other_and_no_request_fails() {
    tell("rollout", &Shape::emulated(&["default"]).with_repository(), |cluster| {
        fs::create_dir_all(cluster.workspace.file("models").join("m")).unwrap();
        for (version, beta_ms) in [(1, 5.0), (2, 6.0), (3, 480.0)] {
            write_version(cluster, version, beta_ms);
        }
        serve(cluster, &[1]);
        let _ = roll_out(cluster, &[]).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();
        let running = cluster.spawn_load_until_ended("load", &["m=100"]).unwrap();
        cluster.wait_for_more(100).unwrap();

        for version in [2, 1, 2] {
            phase(&format!("version {version} takes over"));
            serve(cluster, &[version]);
            let _ = roll_out(cluster, &[]).ended_with(0);
            assert_eq!(version_of(cluster, None), Ok(version.to_string()));
            let left = cluster
                .wait_for_view("one version", |view| (view.models.len() == 1).then(|| view.traffic.clone()))
                .unwrap();
            assert!(left.is_empty(), "a roll-out leaves no split behind: {left:?}");
        }

        phase("version 1 is tried out beside version 2, gets all in the end, and can be named meanwhile");
        serve(cluster, &[1]);
        let output =
            roll_out(cluster, &["--canary", "20,60", "--canary-step-s", "4", "--canary-bad-max", "0.5"]).ended_with(0);
        for words in ["20 % to version 1, 80 % to version 2", "60 % to version 1, 40 % to version 2", "m@2 is unloaded"]
        {
            assert!(output.err.contains(words), "{words}: {}", output.err);
        }
        phase("its SLO and policy change in place, again and again; so does what the folder says");
        for slo_ms in ["400", "450", "500"] {
            let output = cluster.cli(&["model", "set", "m@1", "--slo-ms", slo_ms, "--value", "2"]).ended_with(0);
            assert_eq!(output.out.trim(), "model m@1 is changed");
            cluster.wait_for_more(50).unwrap();
        }
        let output = roll_out(cluster, &[]).ended_with(0);
        assert!(output.err.contains("m@1 is changed: SLO 500 ms"), "its value is 1 there: {}", output.err);
        let _ = cluster
            .cli(&["model", "set", "m", "--slo-ms", "500"])
            .ended_with(2)
            .complains(&["expected one of its versions: m@1"]);
        let spec = |view: &symphony_protocol::view::View| view.model_named("m@1").map(|(_, model)| model.spec.clone());
        let spec = cluster.wait_for_view("the model", spec).unwrap();
        assert_eq!((spec.slo.as_millis_f64(), spec.value.number()), (500.0, 1.0));
        let _ = cluster
            .cli(&["model", "set", "m@1", "--policy", "symphony", "--value", "4"])
            .ended_with(2)
            .complains(&["looks at no values"]);
        let _ = cluster.cli(&["model", "set", "m@1"]).ended_with(2).complains(&["--slo-ms"]);
        cluster.wait_for_more(100).unwrap();
        let report = cluster.end_load(running).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();

        phase("version 3 is too slow: it is rolled back, and version 1 serves on");
        let running = cluster.spawn_load_until_ended("load-2", &["m=100"]).unwrap();
        cluster.wait_for_more(100).unwrap();
        serve(cluster, &[3]);
        let _ = roll_out(cluster, &["--canary", "20", "--canary-step-s", "600"])
            .ended_with(2)
            .complains(&["version 3 got 20 % of the requests", "it gets none now"]);
        let output = cluster.cli(&["model", "traffic", "m"]).ended_with(0);
        assert_eq!(output.out.trim(), "100 % to version 1");
        assert_eq!((version_of(cluster, None), version_of(cluster, Some("3"))), (Ok("1".into()), Ok("3".into())));
        assert_eq!(version_of(cluster, Some("7")), Err(404));
        assert_eq!(version_of(cluster, Some("latest")), Err(400));

        phase("it gets copies, whose answers nobody sees");
        let before = requests_of(cluster, "m@3");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(requests_of(cluster, "m@3"), before, "it gets nothing");
        let _ = cluster.cli(&["model", "traffic", "m", "1=1", "--shadow", "3=50"]).ended_with(0);
        wait_until("copies at version 3", SOON, || {
            let now = requests_of(cluster, "m@3");
            anyhow::ensure!(now > before + 10.0, "{now} after {before}");
            Ok(())
        })
        .unwrap();
        assert_eq!(version_of(cluster, None), Ok("1".into()));
        let report = cluster.end_load(running).unwrap();
        report.check_safety().unwrap();
        // Some went to version 3.
        assert!(report.number("m", "good").unwrap() > 100.0, "{}", report.json);

        phase("what makes no sense is refused");
        let output = cluster.cli(&["model", "set", "m@1", "--slo-ms", "1"]).ended_with(0);
        assert!(output.err.contains("cannot be met"), "{}", output.err);
        let _ = cluster.cli(&["model", "traffic", "m", "7=1"]).ended_with(2).complains(&["no model is named `m@7`"]);
        let _ = cluster.cli(&["model", "traffic", "m", "1:5"]).ended_with(2).complains(&["expected VERSION=NUMBER"]);
        let _ = cluster
            .cli(&["model", "traffic", "nope"])
            .ended_with(2)
            .complains(&["no model or pipeline is named `nope`"]);
        let _ = roll_out(cluster, &["--canary", "0"]).ended_with(2).complains(&["1..=99"]);
    });
}
