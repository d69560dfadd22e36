//! A backend with `executor = "cuda-gemm"` in a live cluster, on a double of a GPU (`symphony-cuda-double`): the whole
//! path from a client to the calls of the driver, and the driver's errors back to the client. No GPU is involved, and
//! no speed is measured.

use std::time::Duration;

use symphony_config::ExecutorKind;
use symphony_cuda_double::{Control, Double};
use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, Shape, TestCluster, numbers, phase, tell};

/// How often a model is loaded whose profile could not be kept: a busy machine measures nothing well.
const TRIES: u32 = 8;
const NOT_KEPT: &str = "the profile cannot be kept";
const BACKEND: &str = "backend-pool";
/// A backend has ten seconds to leave.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Asks for a model whose batches take long beside what this machine oversleeps; what came of it.
fn ask(cluster: &TestCluster, model: &str) -> ProgramOutput {
    let mut args = vec!["model", "load", model, "--emulated", "--subcluster", "pool", "--gpu-kind", "gpu"];
    args.extend(["--alpha-ms", "5", "--beta-ms", "100", "--batch-max", "1", "--slo-ms", "3000", "--wait-s", "120"]);
    cluster.cli(&args)
}

fn load(cluster: &TestCluster, model: &str) {
    for _ in 1..TRIES {
        let output = ask(cluster, model);
        if output.code == Some(0) {
            return;
        }
        let _ = output.complains(&[NOT_KEPT]);
        let _ = cluster.cli(&["model", "unload", model]).ended_with(0);
    }
    let _ = ask(cluster, model).ended_with(0);
}

/// Waits until a model serves that is loaded by itself; what could not be measured is loaded by hand.
fn comes_by_itself(cluster: &TestCluster, model: &str) {
    if let Err(error) = cluster.wait_until_it_serves(model) {
        assert!(log_of(cluster, BACKEND).contains(NOT_KEPT), "{error:#}");
        let _ = cluster.cli(&["model", "unload", model]).ended_with(0);
        load(cluster, model);
    }
    cluster.one_good_request(model).unwrap();
}

/// A request that is failed by the backend; the answer.
fn a_failure(cluster: &TestCluster, model: &str) -> String {
    let input = serde_json::json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": numbers(3.0) });
    let body = serde_json::json!({ "inputs": [input] });
    let reply = cluster.block_on(async { cluster.rest().infer_in_any_time(model, &body).await }).unwrap();
    assert!(reply.status >= 500, "{reply:?}");
    reply.body
}

fn log_of(cluster: &TestCluster, name: &str) -> String {
    std::fs::read_to_string(cluster.workspace.file(&format!("{name}.err"))).unwrap()
}

#[test]
fn a_backend_on_a_double_of_a_gpu_serves_and_says_what_the_driver_refuses() {
    let mut shape = Shape::emulated(&["pool"]);
    shape.schedulers = 1;
    for backend in &mut shape.backends {
        (backend.executor, backend.gpus) = (ExecutorKind::CudaGemm, 1);
    }
    let outside = Workspace::new("gpu-double-control").unwrap();
    let path = outside.file("control");
    let control = Control::create(&path).unwrap();
    // Products that take long are measured in spite of the machine's other load.
    let double = Double { launch_us: 500.0, ..Double::default() };
    let shape = shape.with_env(double.environment(&path));
    tell("gpu-double", &shape, |cluster| {
        phase("a model is loaded, and every answer is the checksum of its own input");
        load(cluster, "first");
        cluster.wait_until_it_serves("first").unwrap();
        let metrics = cluster.metrics_of(BACKEND).unwrap();
        let executor = "symphony_backend_executor_info{executor=\"cuda-gemm\",provider=\"cuda\",fell_back=\"false\"} 1";
        assert!(metrics.lines().any(|line| line == executor), "{metrics}");
        let running = cluster.spawn_load("load", &["first=5"], 5).unwrap();
        let report = cluster.load_report(running, 5).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("want of memory costs a load and nothing else, and the model comes when another one has gone");
        load(cluster, "second");
        control.fail_allocation(1).unwrap();
        let _ = ask(cluster, "third").ended_with(2).complains(&["out of memory on the device"]);
        cluster.one_good_request("first").unwrap();
        let _ = cluster.cli(&["model", "unload", "second"]).ended_with(0);
        comes_by_itself(cluster, "third");

        phase(
            "a lost device fails one batch and is given no more, and a backend that has no other ends, to be started anew",
        );
        control.lose_device(1).unwrap();
        let answer = a_failure(cluster, "first");
        assert!(answer.contains("gpu_lost"), "{answer}");
        let status = cluster.wait_until_it_ends(BACKEND, ENDS_WITHIN).unwrap();
        assert_eq!(status.code(), Some(1), "{status}");
        let log = log_of(cluster, BACKEND);
        assert!(log.contains("the device is lost") && log.contains("it is to be started anew"), "{log}");
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("started anew it serves again");
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_whole().unwrap();
        comes_by_itself(cluster, "first");
        comes_by_itself(cluster, "third");
    });
}
