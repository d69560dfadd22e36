//! `symphony load` over every protocol.

use symphony_tests::{LoadReport, Shape, emulated_model, phase, tell};

#[test]
fn load_over_grpc_rest_and_native_links_loses_nothing() {
    tell("load-protocols", &Shape::emulated(&["default"]), |cluster| {
        phase("a model is loaded; the command waits until it is ready");
        let output = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        assert_eq!(output.out.trim(), "model resnet is ready");
        cluster.wait_until_it_serves("resnet").unwrap();

        let (grpc, rest) = (cluster.address("frontend", "grpc"), cluster.address("frontend", "rest"));
        for (protocol, frontend) in [("grpc", Some(&grpc)), ("rest", Some(&rest)), ("native", None)] {
            phase(&format!("three seconds of load over {protocol}, with answers checked"));
            let mut args = vec!["load", "--model", "resnet=80", "--protocol", protocol, "--duration-s", "3"];
            args.extend(LoadReport::OPTIONS);
            if let Some(frontend) = frontend {
                args.extend(["--frontend", frontend]);
            }
            let output = cluster.cli(&args);
            let report = LoadReport::parse(output.code, &output.out, &output.err).unwrap();
            report.check_safety().unwrap();
            report.check_bad_rate("resnet", 0.1).unwrap();
            assert!(report.number("resnet", "offered").unwrap() > 150.0, "{}", report.json);
            assert!(report.number("resnet", "mean_batch").unwrap() >= 1.0, "{}", report.json);
        }
        phase("a client needs no scheduler, and no certificate of the cluster");
        let stranger = ["load", "--as-client", "--cluster", "127.0.0.1:1", "--pki", "nowhere"];
        for (protocol, frontend) in [("grpc", grpc.as_str()), ("rest", rest.as_str())] {
            let mut args = stranger.to_vec();
            args.extend(["--model", "resnet=80", "--protocol", protocol, "--frontend", frontend, "--duration-s", "1"]);
            args.extend(LoadReport::OPTIONS);
            let output = cluster.cli(&args);
            let report = LoadReport::parse(output.code, &output.out, &output.err).unwrap();
            report.check_safety().unwrap();
            assert!(report.number("resnet", "offered").unwrap() > 40.0, "{}", report.json);
        }
        let mut args = stranger.to_vec();
        args.extend(["--frontend", grpc.as_str(), "--model", "nope=5"]);
        let _ = cluster.cli(&args).ended_with(2).complains(&["--model nope=5: there is no model `nope`"]);
        let mut args = stranger.to_vec();
        args.extend(["--protocol", "native", "--model", "resnet=5"]);
        let _ = cluster.cli(&args).ended_with(2).complains(&["--as-client: expected --protocol grpc or rest"]);
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("who is no frontend is told how to be one, once");
        let mut args = vec!["load", "--model", "resnet=5", "--protocol", "native", "--duration-s", "1"];
        args.extend(["--identity", "operator-admin"]);
        let output =
            cluster.cli(&args).ended_with(2).complains(&["operator admin is no frontend", "--identity frontend-load"]);
        assert_eq!(output.err.matches("is no frontend").count(), 1, "{}", output.err);

        phase("what runs the batches can be scraped");
        let scraped = cluster.metrics_of("backend-default").unwrap();
        let executor = "symphony_backend_executor_info{executor=\"emulated\",provider=\"none\",fell_back=\"false\"} 1";
        assert!(scraped.lines().any(|line| line == executor), "{scraped}");

        phase("a generator that must not lag at all fails, and says so; that is no fault of the cluster");
        let mut args =
            vec!["load", "--model", "resnet=50", "--frontend", &grpc, "--duration-s", "1", "--warmup-s", "0"];
        args.extend(["--lag-p99-ms", "0", "--lag-max-ms", "0"]);
        let _ = cluster.cli(&args).ended_with(1).complains(&["the generator lagged", "allowed 0.0"]);

        phase("what makes no sense is refused");
        let with = |model: &'static str| ["load", "--frontend", &grpc, "--model", model];
        let _ = cluster.cli(&with("resnet")).ended_with(2).complains(&["--model resnet: expected NAME=RPS"]);
        let _ = cluster.cli(&with("resnet=fast")).ended_with(2).complains(&["`fast` is no number"]);
        let _ = cluster.cli(&with("nope=5")).ended_with(2).complains(&["--model nope=5: no such model", "resnet"]);
        let _ = cluster.cli(&with("resnet=-5")).ended_with(2).complains(&["rate", "expected"]);

        phase("an unloaded model is unknown to clients at once, and to the cluster");
        let output = cluster.cli(&["model", "unload", "resnet"]).ended_with(0);
        assert_eq!(output.out.trim(), "model resnet is unloaded");
        cluster.wait_for_view("the model to be gone", |view| view.models.is_empty().then_some(())).unwrap();
        let gone = || {
            let reply = cluster.block_on(async { cluster.rest().get("/v2/models/resnet").await })?;
            anyhow::ensure!(reply.status == 404, "{reply:?}");
            Ok(())
        };
        symphony_testkit::wait_until("404", std::time::Duration::from_secs(120), gone).unwrap();
        let _ = cluster.cli(&["model", "unload", "resnet"]).ended_with(2).complains(&["resnet"]);
    });
}
