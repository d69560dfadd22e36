//! Models that never end.

use std::time::Duration;

use symphony_testkit::wait_until;
use symphony_tests::{Reply, Shape, onnxruntime_is_here, phase, tell};

/// More than batches may take until they are ended, by much: this machine may be busy.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

#[test]
fn a_model_that_never_ends_is_ended_and_its_backend_goes_on() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("endless", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        let tensors = "[[inputs]]\nname = \"input\"\ndata_type = \"FP32\"\nitem_shape = [4]\n\
                       [[outputs]]\nname = \"output\"\ndata_type = \"FP32\"\nitem_shape = [4]\n";
        let of_kind = "[gpu.cpu]\nmachine = \"here\"\nstatic_memory_bytes = 1000\ndynamic_memory_bytes = 1000\n";
        let profile = format!("format = 1\nmodel = \"m\"\n{tensors}{of_kind}latency_ms = [1.0]\n");
        cluster.workspace.write("endless.profile.toml", &profile).unwrap();
        // With zeros as inputs, as a load has them, one never ends and one does.
        for (file, threshold) in [("always.onnx", -1.0), ("asked.onnx", 0.0)] {
            std::fs::write(cluster.workspace.file(file), symphony_zoo::endless_above(threshold).bytes()).unwrap();
        }
        let load = |model: &str, file: &str| {
            let command = ["model", "load", model, "--onnx", file, "--profile", "endless.profile.toml"];
            let options = ["--slo-ms", "2000", "--subcluster", "cpu"];
            cluster.cli(&command.into_iter().chain(options).collect::<Vec<_>>())
        };
        let ask = |value: f32| -> Reply {
            let data = [value; 4];
            let input = serde_json::json!({ "name": "input", "datatype": "FP32", "shape": [1, 4], "data": data });
            let body = serde_json::json!({ "inputs": [input], "parameters": { "symphony_accept_late": true } });
            cluster.block_on(async { cluster.rest().infer_in_any_time("asked", &body).await }).unwrap()
        };
        let is_answered = || {
            wait_until("an answer", ENDED_WITHIN, || {
                let reply = ask(-1.0);
                anyhow::ensure!(reply.status == 200, "{reply:?}");
                Ok(())
            })
            .unwrap();
        };

        phase("one that never ends, whatever it is given, is not loaded and counted; the next one is loaded");
        let words = ["`always` was not loaded", "its largest batch, of zeros, does not end"];
        let _ = load("always", "always.onnx").ended_with(2).complains(&words);
        cluster.wait_for_metric("backend-cpu", "symphony_backend_models_hung_total 1").unwrap();
        let _ = load("asked", "asked.onnx").ended_with(0);
        is_answered();

        phase("a batch that never ends fails alone, and those after it are answered");
        let reply = ask(1.0);
        assert_ne!(reply.status, 200, "{reply:?}");
        cluster.wait_for_log("backend-cpu", "it may never end").unwrap();
        cluster.wait_for_metric("backend-cpu", "symphony_backend_models_hung_total 2").unwrap();
        is_answered();
        assert_eq!(cluster.ended().unwrap(), None, "no process has ended");
    });
}
