//! The only backend of a model dies under load: what the alerts on refusals and readiness go by says so soon, and all
//! processes name the model and its sub-cluster alike.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{Histogram, MetricFamily};
use prost::Message as _;
use symphony_testkit::{promtool, wait_until};
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// How soon an operator must be able to know. Alerts add an interval of scraping and their `for`.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// The value of a series, by the beginning of its line up to the end of its labels.
fn value(scraped: &str, series: &str) -> Option<f64> {
    scraped.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The value of the series of a metric with all of these labels, on any of the scheduler replicas.
fn of_schedulers(cluster: &TestCluster, metric: &str, labels: &[&str]) -> Result<f64> {
    let mut last = String::new();
    for name in ["scheduler-1", "scheduler-2", "scheduler-3"] {
        last = cluster.metrics_of(name)?;
        let found = last
            .lines()
            .find(|line| line.starts_with(&format!("{metric}{{")) && labels.iter().all(|label| line.contains(label)));
        if let Some(value) = found.and_then(|line| line.rsplit_once(' ')) {
            return Ok(value.1.parse()?);
        }
    }
    anyhow::bail!("no {metric} with {labels:?} in:\n{last}")
}

/// A process's metrics, as Prometheus gets them in protobuf.
fn families_of(cluster: &TestCluster, process: &str) -> Result<Vec<MetricFamily>> {
    let bytes = cluster.protobuf_metrics_of(process)?;
    let (mut rest, mut families) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest)?);
    }
    Ok(families)
}

/// Whether a histogram has native buckets that count what its classic ones count.
fn is_native_too(histogram: &Histogram) -> bool {
    // Deltas between neighbouring buckets; the last classic bucket has all.
    let mut count = 0;
    let counts = histogram.positive_delta.iter().map(|delta| {
        count += delta;
        count
    });
    let all = counts.sum::<i64>() as u64 + histogram.zero_count;
    let classic = histogram.bucket.last().map(|bucket| bucket.cumulative_count);
    let is_native = histogram.schema == 3 && histogram.zero_threshold > 0.0;
    is_native && all == histogram.sample_count && classic == Some(histogram.sample_count)
}

#[test]
fn an_outage_is_seen_in_the_series_that_alerts_go_by() {
    let shape = Shape::emulated(&["pool"]);
    tell("outage", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "pool")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("it serves, and every process names it alike");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load_until_ended("load", &["resnet=40"]).unwrap();
        cluster.wait_for_accepted(accepted + 80).unwrap();
        let frontend = cluster.metrics_of("frontend").unwrap();
        let of_frontend = |series: &str| value(&frontend, series).with_context(|| format!("{series}:\n{frontend}"));
        assert_eq!(of_frontend("symphony_frontend_model_ready{model=\"resnet\",reason=\"\"}").unwrap(), 1.0);
        let slo = of_frontend("symphony_frontend_model_slo_seconds{model=\"resnet\",subcluster=\"pool\"}").unwrap();
        assert_eq!(slo, 0.5);
        let of_model = ["subcluster=\"pool\"", "model=\"resnet\""];
        of_schedulers(cluster, "symphony_dispatch_queued_requests", &of_model).unwrap();
        for metric in ["symphony_dispatch_batch_items_count", "symphony_dispatch_window_used_ratio_count"] {
            assert!(of_schedulers(cluster, metric, &of_model).unwrap() > 0.0, "{metric}");
        }
        let backend = cluster.metrics_of("backend-pool").unwrap();
        let busy = backend.lines().filter(|line| line.starts_with("symphony_backend_gpu_busy_seconds_total{"));
        let busy: Vec<_> = busy.collect();
        assert_eq!(busy.len(), 2, "{backend}");
        for labels in ["backend=\"backend-pool\"", "gpu=\"g", "gpu_kind=\"emulated\"", "subcluster=\"pool\""] {
            assert!(busy.iter().all(|line| line.contains(labels)), "{labels}: {busy:?}");
        }

        phase("Prometheus finds nothing wrong with what any process shows");
        if let Some(promtool) = promtool() {
            for name in ["frontend", "scheduler-1", "backend-pool"] {
                let mut lint = Command::new(&promtool);
                lint.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut lint = lint.spawn().unwrap();
                lint.stdin.take().unwrap().write_all(cluster.metrics_of(name).unwrap().as_bytes()).unwrap();
                let ended = lint.wait_with_output().unwrap();
                let words =
                    [ended.stdout, ended.stderr].map(|ended| String::from_utf8_lossy(&ended).into_owned()).concat();
                assert!(ended.status.success() && words.is_empty(), "{name}: {words}");
            }
        }

        phase("Prometheus gets native histograms beside the classic ones, and each metric of the text");
        let mut filled = BTreeSet::new();
        for process in ["frontend", "scheduler-1", "scheduler-2", "scheduler-3", "backend-pool"] {
            let text = cluster.metrics_of(process).unwrap();
            let families = families_of(cluster, process).unwrap();
            for typed in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
                let (name, _) = typed.split_once(' ').unwrap();
                assert!(families.iter().any(|family| family.name == name), "{process} shows no {name} in protobuf");
            }
            for MetricFamily { name, metric, .. } in &families {
                for histogram in metric.iter().filter_map(|metric| metric.histogram.as_ref()) {
                    assert!(is_native_too(histogram), "{name} of {process}: {histogram:?}");
                    if histogram.sample_count > 0 {
                        filled.insert(name.clone());
                    }
                }
            }
        }
        for name in [
            "symphony_frontend_request_duration_seconds",
            "symphony_frontend_request_batch_items",
            "symphony_dispatch_batch_items",
            "symphony_dispatch_execution_error_ratio",
            "symphony_dispatch_turn_seconds",
            "symphony_dispatch_window_used_ratio",
            "symphony_backend_payload_read_seconds",
        ] {
            assert!(filled.contains(name), "{name} has counted nothing: {filled:?}");
        }

        phase("its only backend is killed");
        cluster.kill("backend-pool").unwrap();
        let refused = "symphony_frontend_requests_refused_total{model=\"resnet\",reason=\"no_gpu\",fault=\"server\"}";
        let seen = wait_until("refusals and readiness", SEEN_WITHIN, || {
            let scraped = cluster.metrics_of("frontend")?;
            let ready = value(&scraped, "symphony_frontend_model_ready{model=\"resnet\",reason=\"no_gpu\"}");
            ensure!(ready == Some(0.0), "it is not said to be unready:\n{scraped}");
            ensure!(value(&scraped, "symphony_frontend_model_ready{model=\"resnet\",reason=\"\"}").is_none());
            value(&scraped, refused).filter(|&refused| refused > 0.0).context("nothing is said to be refused")
        });
        let seen = seen.unwrap();
        wait_until("more refusals", SEEN_WITHIN, || {
            let now = value(&cluster.metrics_of("frontend")?, refused);
            ensure!(now.is_some_and(|now| now > seen + 20.0), "{now:?} after {seen}");
            Ok(())
        })
        .unwrap();

        phase("`top` says it, too");
        let top = cluster.cli(&["top", "--once", "--over-s", "2", "-o", "json"]).ended_with(0).json();
        let model = &top["models"][0];
        assert!(model["refused_rps"].as_f64().is_some_and(|refused| refused > 1.0), "{model}");
        assert_eq!(model["ready"], false, "{model}");

        phase("it comes back");
        cluster.restart("backend-pool").unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.wait_for_metric("frontend", "symphony_frontend_model_ready{model=\"resnet\",reason=\"\"} 1").unwrap();
        let top = cluster.cli(&["top", "--once", "--over-s", "2", "-o", "json"]).ended_with(0).json();
        let model = &top["models"][0];
        let millis = |key: &str| model[key].as_f64().unwrap_or_else(|| panic!("{key}: {model}"));
        assert!(0.0 < millis("p50_ms") && millis("p50_ms") <= millis("p99_ms"), "{model}");
        cluster.end_load(load).unwrap().check_safety().unwrap();
    });
}
