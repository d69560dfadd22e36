//! Models and profiles that cannot be.

use symphony_executor::digits;
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
        let refusals: [(&[&str], &[&str]); 11] = [
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
                &["--policy magic", "symphony, auto, eager"],
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
        let unheard = [&fine[..], &["--value", "4"]].concat();
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
            let said = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0).json();
            let entry = said.as_array().unwrap().iter().find(|m| m["name"] == "broken").unwrap().clone();
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
