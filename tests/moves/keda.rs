//! KEDA's questions, asked of every replica by a real gRPC client: an overloaded sub-cluster wants GPUs.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use symphony_net::{Expected, Role};
use symphony_protocol::externalscaler as pb;
use symphony_protocol::externalscaler::external_scaler_client::ExternalScalerClient;
use symphony_tests::{Shape, TestCluster, phase, tell};
use tonic::transport::{Channel, Endpoint};

use super::gpus::slow;

/// More than one GPU can do, at 20 ms for a request.
const OVERLOAD: &str = "first=90";
const WITHIN: Duration = Duration::from_secs(120);

fn client(cluster: &TestCluster, scheduler: u64) -> ExternalScalerClient<Channel> {
    let address = cluster.address(&format!("scheduler-{scheduler}"), "control");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let net = cluster.net(Role::Operator, "admin");
    ExternalScalerClient::new(net.channel(&endpoint, Expected::named(Role::Scheduler, scheduler.to_string())))
}

fn reference(metadata: &[(&str, &str)]) -> pb::ScaledObjectRef {
    let scaler_metadata: HashMap<_, _> = metadata.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    pb::ScaledObjectRef { name: "first".into(), namespace: "default".into(), scaler_metadata }
}

#[test]
fn every_replica_tells_keda_that_an_overloaded_sub_cluster_wants_gpus() {
    tell("keda", &Shape::emulated(&["first"]), |cluster| {
        let _ = cluster.cli(&slow("first", "first")).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();
        let target = reference(&[("subcluster", "first")]);

        phase("what there is to measure, and what is a mistake");
        cluster.block_on(async {
            let mut scaler = client(cluster, 1);
            let spec = scaler.get_metric_spec(target.clone()).await.unwrap().into_inner().metric_specs;
            assert_eq!((spec[0].metric_name.as_str(), spec[0].target_size), ("symphony-gpus-first", 1));
            let nameless = scaler.get_metric_spec(reference(&[])).await.unwrap_err();
            assert!(nameless.message().contains("subcluster"), "{nameless}");
        });

        phase("an overload");
        let load = cluster.spawn_load_until_ended("load", &[OVERLOAD]).unwrap();
        let give_up = Instant::now() + WITHIN;
        cluster.block_on(async {
            for scheduler in 1..=3 {
                loop {
                    let scaled_object_ref = Some(target.clone());
                    let request =
                        pb::GetMetricsRequest { scaled_object_ref, metric_name: "symphony-gpus-first".into() };
                    let answer = client(cluster, scheduler).get_metrics(request).await;
                    let wanted = answer.as_ref().map_or(0, |answer| answer.get_ref().metric_values[0].metric_value);
                    if wanted > 1 {
                        break;
                    }
                    assert!(Instant::now() < give_up, "scheduler {scheduler} says {answer:?}");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                let active = client(cluster, scheduler).is_active(target.clone()).await.unwrap();
                assert!(active.into_inner().result);
            }
            let mut news = client(cluster, 2).stream_is_active(target.clone()).await.unwrap().into_inner();
            assert!(news.message().await.unwrap().unwrap().result);
        });
        phase("a gRPC library that looks for the host in the certificate, as KEDA's does, is content");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let python = root.join(".cache/venv/bin/python");
        assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());
        let mut keda = Command::new(&python);
        keda.arg(root.join("tests/clients/keda.py")).args(["--identity", "viewer-guest", "--subcluster", "first"]);
        keda.args(["--address", &cluster.address("scheduler-2", "control")]);
        keda.arg("--pki").arg(cluster.workspace.file("pki"));
        let output = keda.stdin(Stdio::null()).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "it is not content:\n{text}");
        for words in ["active: 1", "symphony-gpus-first: ", ", 1 per replica", "streamed: 1", "refused: "] {
            assert!(text.contains(words), "`{words}` is not in\n{text}");
        }

        let shown = cluster.cli(&["get", "subclusters", "-o", "json"]).ended_with(0).json();
        assert!(shown[0]["advice"]["kinds"][0]["target"].as_u64().unwrap() > 1, "{shown}");
        cluster.end_load(load).unwrap().check_safety().unwrap();
    });
}
