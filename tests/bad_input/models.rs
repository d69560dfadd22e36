//! Models and profiles that cannot be.

use std::time::Duration;

use symphony_executor::digits;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, emulated_model, onnxruntime_is_here, phase, tell};

/// A profile with latencies to be filled in.
fn profile(latency_ms: &str) -> String {
    format!(
        "format = 1\nmodel = \"m\"\n[[inputs]]\nname = \"pixels\"\ndata_type = \"FP32\"\nitem_shape = [64]\n\
         [[outputs]]\nname = \"probabilities\"\ndata_type = \"FP32\"\nitem_shape = [10]\n\
         [[outputs]]\nname = \"label\"\ndata_type = \"INT64\"\nitem_shape = []\n\
         [gpu.cpu]\nmachine = \"here\"\nstatic_memory_bytes = 1000\ndynamic_memory_bytes = 1000\n\
         latency_ms = {latency_ms}\n"
    )
}

#[test]
fn profiles_and_options_that_make_no_sense_are_refused_by_file_key_and_expectation() {
    tell("bad-models", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        for (name, text) in [
            ("falls.toml", profile("[2.0, 1.0, 3.0]")),
            ("empty.toml", profile("[]")),
            ("negative.toml", profile("[-1.0]")),
            ("unknown.toml", profile("[1.0]") + "colour = 1\n"),
            ("text.toml", "this is no TOML".to_owned()),
            ("other-kind.toml", profile("[1.0, 2.0]")),
        ] {
            cluster.workspace.write(name, &text).unwrap();
        }
        let load = |name: &str, rest: &[&str]| {
            let args: Vec<_> = ["model", "load", name, "--slo-ms", "50"].iter().chain(rest).copied().collect();
            cluster.cli(&args)
        };
        // (options, words)
        let refusals: [(&[&str], &[&str]); 13] = [
            (
                &["--emulated", "--profile", "falls.toml"],
                &["falls.toml", "gpu.cpu", "not monotone", "batch 2 takes 1 ms"],
            ),
            (&["--emulated", "--profile", "empty.toml"], &["empty.toml", "gpu.cpu", "expected"]),
            (&["--emulated", "--profile", "negative.toml"], &["negative.toml", "gpu.cpu"]),
            (&["--emulated", "--profile", "unknown.toml"], &["unknown.toml", "colour"]),
            (&["--emulated", "--profile", "text.toml"], &["text.toml"]),
            (&["--emulated", "--profile", "missing.toml"], &["missing.toml", "No such file"]),
            (&["--emulated", "--profile", "other-kind.toml"], &["GPU kind", "emulated"]),
            (&["--emulated", "--alpha-ms=-1", "--beta-ms", "0"], &["alpha"]),
            (&["--emulated", "--alpha-ms", "1"], &["--beta-ms"]),
            (
                &["--alpha-ms", "1", "--beta-ms", "1", "--gpu-kind", "emulated", "--policy", "magic"],
                &["--policy", "magic", "expected one of \"symphony\", \"auto\", \"eager\""],
            ),
            (
                &["--alpha-ms", "1", "--beta-ms", "1", "--policy", "{ name = 'auto', drop = { window = 2 } }"],
                &["--policy", "key `drop.window`: expected a share of the target batch, 0.01 to 1, got 2"],
            ),
            (
                &["--alpha-ms", "1", "--beta-ms", "1", "--policy", "clockwork"],
                &["--policy", "expected one of \"symphony\"", "\"clockwork\"", "`symphony subcluster policy` sets it"],
            ),
            (&["--emulated", "--alpha-ms", "1", "--beta-ms", "1", "--subcluster", "nowhere"], &["nowhere"]),
        ];
        for (options, words) in refusals {
            phase(&options.join(" "));
            let _ = load("bad", options).ended_with(2).complains(words);
        }
        phase("a name that is no name, a name that is taken, an objective of nothing");
        let fine = ["--emulated", "--alpha-ms", "1", "--beta-ms", "5"];
        let _ = load("", &fine).ended_with(2).complains(&["name"]);
        let _ = load("resnet", &fine).ended_with(2).complains(&["resnet"]);
        let zero = ["model", "load", "z", "--slo-ms", "0", "--emulated", "--alpha-ms", "1", "--beta-ms", "5"];
        let _ = cluster.cli(&zero).ended_with(2).complains(&["--slo-ms 0", "expected a positive number"]);
        let long = ["model", "load", "z", "--slo-ms", "3600001", "--emulated", "--alpha-ms", "1", "--beta-ms", "5"];
        let _ = cluster.cli(&long).ended_with(2).complains(&["--slo-ms 3600001", "expected at most 3600000 ms"]);
        let unheard = [&fine[..], &["--value", "4", "--policy", "symphony"]].concat();
        let _ = load("z", &unheard).ended_with(2).complains(&["--value 4", "symphony", "--policy auto"]);
        let _ = cluster.cli(&["model", "unload", "nope"]).ended_with(2).complains(&["nope"]);
        let _ = cluster.cli(&["model", "generate", "lenet", "x.onnx"]).ended_with(2).complains(&["lenet", "resnet50"]);

        phase("a cluster that is not there is a failure, not bad usage");
        let gone = ["get", "models", "--cluster", "127.0.0.1:1"];
        let _ = cluster.cli(&gone).ended_with(1).complains(&["no scheduler replica answered", "127.0.0.1:1"]);
        let _ = cluster.cli(&["get", "models", "--cluster", "no address"]).ended_with(2).complains(&["no address"]);

        let view = cluster.view().unwrap();
        assert_eq!(view.models.len(), 1, "nothing of that was loaded: {view:?}");
        cluster.one_good_request("resnet").unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}

#[test]
fn a_broken_onnx_file_is_named_and_other_models_go_on() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("broken-onnx", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.workspace.write("fine.profile.toml", &profile("[1.0, 2.0, 3.0]")).unwrap();
        std::fs::write(cluster.workspace.file("half.onnx"), &digits::MODEL[..digits::MODEL.len() / 2]).unwrap();
        std::fs::write(cluster.workspace.file("noise.onnx"), [7_u8; 5000]).unwrap();
        std::fs::write(cluster.workspace.file("empty.onnx"), []).unwrap();

        for file in ["half.onnx", "noise.onnx", "empty.onnx", "missing.onnx"] {
            phase(&format!("{file}: neither measured nor loaded, and the file is named"));
            let _ = cluster.cli(&["profile", file, "--batch-max", "2"]).ended_with(2).complains(&[file]);
            let mut load = vec!["model", "load", "broken", "--onnx", file, "--profile", "fine.profile.toml"];
            load.extend(["--slo-ms", "500", "--subcluster", "cpu"]);
            let _ = cluster.cli(&load).ended_with(2).complains(&[
                "model `broken` was not loaded",
                file,
                "model unload broken",
            ]);

            phase("clients are told that it is not ready, not that it does not exist");
            let reply = cluster.block_on(async { cluster.rest().get("/v2/models/broken/ready").await }).unwrap();
            assert_ne!(reply.status, 200, "{reply:?}");
            let shown = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0).json();
            let entry = shown.as_array().unwrap().iter().find(|m| m["name"] == "broken").unwrap().clone();
            assert!(entry["ready"] == false && entry["error"].as_str().is_some_and(|e| e.contains(file)), "{entry}");
            let _ = cluster.cli(&["model", "unload", "broken"]).ended_with(0);
        }

        phase("the backend that refused them serves a good file");
        std::fs::write(cluster.workspace.file("digits.onnx"), digits::MODEL).unwrap();
        let mut load = vec!["model", "load", "digits", "--onnx", "digits.onnx", "--profile", "fine.profile.toml"];
        load.extend(["--slo-ms", "500", "--subcluster", "cpu"]);
        let _ = cluster.cli(&load).ended_with(0);
        cluster.one_good_request("resnet").unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}

#[test]
fn a_batch_that_needs_more_memory_than_its_gpu_has_fails_alone() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("hungry", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        let tensors = "[[inputs]]\nname = \"input\"\ndata_type = \"FP32\"\nitem_shape = [4]\n\
                       [[outputs]]\nname = \"output\"\ndata_type = \"FP32\"\nitem_shape = [4]\n";
        let of_kind = "[gpu.cpu]\nmachine = \"here\"\nstatic_memory_bytes = 1000\ndynamic_memory_bytes = 1000\n";
        let profile = format!("format = 1\nmodel = \"m\"\n{tensors}{of_kind}latency_ms = [100.0, 101.0]\n");
        cluster.workspace.write("hungry.profile.toml", &profile).unwrap();
        // The backend's GPU has 4096 MB.
        std::fs::write(cluster.workspace.file("starving.onnx"), symphony_zoo::hungry(5000 << 20).bytes()).unwrap();
        std::fs::write(cluster.workspace.file("hungry.onnx"), symphony_zoo::hungry_as_asked().bytes()).unwrap();
        let load = |model: &str, file: &str| {
            let command = ["model", "load", model, "--onnx", file, "--profile", "hungry.profile.toml"];
            let options = ["--slo-ms", "2000", "--subcluster", "cpu"];
            cluster.cli(&command.into_iter().chain(options).collect::<Vec<_>>())
        };

        phase("a model that is always beyond it is refused when it is loaded");
        let words = ["`starving` was not loaded", "its largest batch does not fit", "more memory than there is"];
        let _ = load("starving", "starving.onnx").ended_with(2).complains(&words);

        phase(
            "one whose requests decide is loaded, and those that fit are answered, before and after one that does not",
        );
        let _ = load("hungry", "hungry.onnx").ended_with(0);
        let ask = |mb: f32| {
            let numbers = [mb; 4];
            let input = serde_json::json!({ "name": "input", "datatype": "FP32", "shape": [1, 4], "data": numbers });
            let body = serde_json::json!({ "inputs": [input], "parameters": { "symphony_accept_late": true } });
            cluster.block_on(async { cluster.rest().infer_in_any_time("hungry", &body).await }).unwrap()
        };
        // A leader may hear of a model a moment after its frontend.
        wait_until("an answer", Duration::from_secs(120), || {
            let reply = ask(2.0);
            anyhow::ensure!(reply.status == 200, "{reply:?}");
            Ok(())
        })
        .unwrap();
        let refused = ask(5000.0);
        assert_eq!((refused.status, refused.reason().as_str()), (503, "out_of_memory"), "{refused:?}");
        let answered = ask(3.0);
        assert_eq!(answered.status, 200, "{answered:?}");
        assert!(answered.body.contains("3"), "{answered:?}");
        cluster.wait_for_log("backend-cpu", "1 items need more memory than there is for batches").unwrap();
        assert_eq!(cluster.ended().unwrap(), None, "no process has ended");
    });
}
