//! The leaders of a pipeline's stages die one after the other: what waits at the stage is taken over, and no request is
//! lost or answered twice.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use symphony_executor::item_checksum;
use symphony_protocol::control as pb;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec};
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, phase, tell};
use symphony_types::{DataType, LatencyProfile, Nanos, RequestValue, Signature, TensorSpec, Transforms};

use super::apart;

const SOON: Duration = Duration::from_secs(60);
/// Clients that ask one request after the other.
const CLIENTS: usize = 4;
/// What an emulated detector finds: as many rows, all alike.
const ROWS: usize = 3;

const CONFIG: &str = r#"
platform: "ensemble"
max_batch_size: 2
input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "found" data_type: TYPE_UINT32 dims: [ 3, 1 ] }, { name: "label" data_type: TYPE_UINT32 dims: [ -1, 1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "detect" model_version: -1 input_map { key: "image" value: "x" } output_map { key: "rows" value: "found" } },
    { model_name: "read" model_version: -1 input_map { key: "row" value: "found" } output_map { key: "y" value: "label" } }
  ]
}
"#;
const EXTRAS: &str = r#"
slo_ms = 4000.0
[[edge]]
from = "detect"
to = "read"
for_each = "row"
gamma = 3.0
most = 3
"#;

fn tensor(name: &str, data_type: DataType, item_shape: &[u32]) -> TensorSpec {
    TensorSpec { name: name.into(), data_type, item_shape: item_shape.to_vec() }
}

/// Loads an emulated model, whose outputs repeat the checksum of its input.
fn load(cluster: &TestCluster, name: &str, subcluster: &str, input: TensorSpec, output: TensorSpec) {
    let latency = LatencyProfile::from_line(1.0, 5.0, 32).unwrap();
    let kind = KindProfile { latency, static_memory_bytes: 1 << 20, dynamic_memory_bytes: 1 << 20 };
    let spec = ModelSpec {
        name: name.into(),
        subcluster: subcluster.into(),
        slo: Nanos::from_millis(1000),
        source: ModelSource::Emulated,
        signature: Signature { inputs: vec![input], outputs: vec![output] },
        transforms: Transforms::default(),
        profiles: [("emulated".to_owned(), kind)].into(),
        policy: Default::default(),
        value: RequestValue::ONE,
    };
    let request = pb::LoadModelRequest { spec: Some((&spec).into()), operation_id: String::new() };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.load_model(request).await }
    };
    cluster.block_on(async { cluster.control().call(SOON, call).await }).unwrap();
}

fn body(seed: f32) -> Value {
    json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 16], "data": numbers(seed) }] })
}

fn numbers(seed: f32) -> Vec<f32> {
    (0..16_u8).map(|i| seed + f32::from(i)).collect()
}

/// Whether an answer is that of the whole pipeline to this request.
fn is_right(seed: f32, body: &str) -> bool {
    let bytes: Vec<u8> = numbers(seed).iter().flat_map(|number| number.to_le_bytes()).collect();
    let found = item_checksum([&bytes[..]]);
    let label = item_checksum([&found.to_le_bytes()[..]]);
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let outputs = &body["outputs"];
    outputs[0]["data"] == json!(vec![found; ROWS])
        && outputs[1]["data"] == json!(vec![label; ROWS])
        && outputs[1]["parameters"]["symphony_rows"] == "0.0,0.1,0.2"
}

/// One right answer.
fn answered(cluster: &TestCluster) -> anyhow::Result<()> {
    let reply = cluster.block_on(async { cluster.rest().infer("both", &body(1.0)).await })?;
    anyhow::ensure!(reply.status == 200 && is_right(1.0, &reply.body), "{reply:?}");
    Ok(())
}

/// What clients have seen.
#[derive(Default)]
struct Seen {
    sent: AtomicU64,
    right: AtomicU64,
    refused: AtomicU64,
    wrong: AtomicU64,
    is_over: AtomicBool,
}

/// A client that asks until it is over.
async fn ask(rest: symphony_tests::RestClient, seen: Arc<Seen>, client: usize) {
    let mut seed = client as f32 * 1000.0;
    while !seen.is_over.load(Ordering::Relaxed) {
        seed += 1.0;
        seen.sent.fetch_add(1, Ordering::Relaxed);
        let count = match rest.infer("both", &body(seed)).await {
            Ok(reply) if reply.status == 200 && is_right(seed, &reply.body) => &seen.right,
            Ok(reply) if [429, 503, 504].contains(&reply.status) => &seen.refused,
            other => {
                eprintln!("{other:?}");
                &seen.wrong
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn dead_leaders_of_both_stages_lose_and_double_nothing() {
    tell("pipeline-stage", &Shape::emulated(&["first", "second"]), |cluster| {
        phase("two models in two sub-clusters, and a pipeline of them");
        load(
            cluster,
            "detect",
            "first",
            tensor("image", DataType::Fp32, &[16]),
            tensor("rows", DataType::Uint32, &[3, 1]),
        );
        load(cluster, "read", "second", tensor("row", DataType::Uint32, &[1]), tensor("y", DataType::Uint32, &[1]));
        let dir = cluster.workspace.file("models").join("both");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.pbtxt"), CONFIG).unwrap();
        fs::write(dir.join("pipeline.toml"), EXTRAS).unwrap();
        let _ = cluster.cli(&["pipeline", "load", "both", "--repository", "models", "--wait-s", "120"]).ended_with(0);
        wait_until("the pipeline to answer", SOON, || answered(cluster)).unwrap();
        let metadata = cluster.block_on(async { cluster.rest().get("/v2/models/both").await }).unwrap();
        let metadata: Value = serde_json::from_str(&metadata.body).unwrap();
        assert_eq!((&metadata["platform"], &metadata["outputs"][1]["shape"]), (&json!("ensemble"), &json!([-1, 1])));
        cluster.wait_for_view("leaders that are apart", |view| apart(view).then_some(())).unwrap();

        phase("load on the pipeline");
        let accepted = cluster.accepted().unwrap();
        let seen = Arc::new(Seen::default());
        for client in 0..CLIENTS {
            cluster.spawn(ask(cluster.rest(), Arc::clone(&seen), client));
        }
        cluster.wait_for_accepted(accepted + 50).unwrap();
        for stage in ["second", "first"] {
            phase(&format!("the leader of the {stage} stage is killed, and comes back"));
            let (victim, _) = cluster.subcluster(stage).unwrap().leader.unwrap();
            let process = format!("scheduler-{}", victim.get());
            cluster.kill(&process).unwrap();
            cluster
                .wait_for_view("another leader", |view| {
                    let led = view.subclusters.values().find(|subcluster| subcluster.name == stage)?;
                    led.leader.filter(|(node, _)| *node != victim)
                })
                .unwrap();
            let right = seen.right.load(Ordering::Relaxed);
            wait_until("answers under the new leader", SOON, || {
                anyhow::ensure!(seen.right.load(Ordering::Relaxed) >= right + 50, "{right} by then");
                Ok(())
            })
            .unwrap();
            cluster.restart(&process).unwrap();
            cluster.wait_until_whole().unwrap();
        }

        phase("every request has its one outcome, and no invariant was broken");
        seen.is_over.store(true, Ordering::Relaxed);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        wait_until("the last answers", SOON, || {
            let ended = count(&seen.right) + count(&seen.refused) + count(&seen.wrong);
            anyhow::ensure!(ended == count(&seen.sent), "{ended} of {}", count(&seen.sent));
            Ok(())
        })
        .unwrap();
        assert_eq!(count(&seen.wrong), 0);
        cluster.wait_for_a_balanced_ledger().unwrap();
        let accepted = cluster.accepted().unwrap() - accepted;
        let (sent, right) = (count(&seen.sent), count(&seen.right));
        assert!(
            (right..=sent).contains(&accepted),
            "{accepted} accepted, {right} of {sent} right: stages do not count"
        );
        let metrics = cluster.metrics_of("frontend").unwrap();
        for invariant in ["P1", "P2", "P3", "S3", "F1"] {
            let line = format!("symphony_invariant_violations_total{{invariant=\"{invariant}\"}} 0\n");
            assert!(metrics.contains(&line), "{invariant}");
        }
        let led_to = "symphony_frontend_pipeline_edge_requests_total{pipeline=\"both\",from=\"detect\",to=\"read\"}";
        assert!(metrics.contains(led_to), "{metrics}");
        wait_until("another answer", SOON, || answered(cluster)).unwrap();

        phase("its frontend explains one, which no leader knows");
        let explained = wait_until("a request that was accepted", SOON, || {
            let reply = cluster.block_on(async { cluster.rest().infer("both", &body(1.0)).await })?;
            let id = reply.request_id.context("it was refused")?;
            Ok(cluster.cli(&["explain", &id]).ended_with(0).out)
        });
        let explained = explained.unwrap();
        assert!(
            explained.contains("for pipeline both@1: ") && explained.contains("stage     detect: f"),
            "{explained}"
        );
        let _ = cluster.cli(&["pipeline", "unload", "both"]).ended_with(0);
    });
}
