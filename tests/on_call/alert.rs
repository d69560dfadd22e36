//! A Prometheus with the configuration and the rules of deploy/prometheus watches a cluster: within half a minute after
//! an outage one of its alerts fires.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use symphony_testkit::{Child, ChildSpec, free_ports, prometheus, wait_until};
use symphony_tests::{RestClient, Shape, TestCluster, emulated_model, phase, tell};

const CONFIG: &str = include_str!("../../deploy/prometheus/prometheus.yml");
const RULES: &str = include_str!("../../deploy/prometheus/symphony-alerts.yml");

/// From the outage, not from when a process noticed it.
const FIRES_WITHIN: Duration = Duration::from_secs(30);
/// Which processes are killed, and the alert that says what is missing then.
const OUTAGES: [(&[&str], &str); 3] = [
    (&["backend-pool"], "SymphonyModelUnready"),
    (&["frontend"], "SymphonyNoFrontend"),
    (&["scheduler-2", "scheduler-3"], "SymphonyQuorumLost"),
];
/// Scrapes are 5 s apart, and the machine may be busy.
const SOON: Duration = Duration::from_secs(120);

struct Prometheus {
    process: Child,
    api: RestClient,
}

impl Prometheus {
    /// With the hosts of the cluster in place of those in the configuration, and nobody to tell.
    fn start(program: &Path, cluster: &TestCluster) -> Result<Self> {
        let schedulers = ["scheduler-1", "scheduler-2", "scheduler-3"];
        let hosts = |names: &[&str]| {
            let listed: Vec<_> = names.iter().map(|name| format!("\"{}\"", cluster.address(name, "metrics"))).collect();
            listed.join(", ")
        };
        let mut config = CONFIG.to_owned();
        for (sample, own) in [
            ("\"frontend-1:8002\"", hosts(&["frontend"])),
            ("\"scheduler-1:7004\", \"scheduler-2:7004\", \"scheduler-3:7004\"", hosts(&schedulers)),
            ("\"backend-1:7104\"", hosts(&["backend-pool"])),
            ("\"localhost:9093\"", String::new()),
        ] {
            ensure!(config.contains(sample), "prometheus.yml has no {sample} any more");
            config = config.replace(sample, &own);
        }
        let files = &cluster.workspace;
        files.write("symphony-alerts.yml", RULES)?;
        let config = files.write("prometheus.yml", &config)?;
        let address = format!("127.0.0.1:{}", free_ports(1)?[0]);
        let args = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", files.file("prometheus").display()),
            format!("--web.listen-address={address}"),
            // It scrapes protobuf then, and takes what is in there.
            "--enable-feature=native-histograms".to_owned(),
        ];
        let process = ChildSpec::new("prometheus", program, args, files.path()).spawn()?;
        Ok(Self { process, api: RestClient::new(&address) })
    }

    fn ask(&self, cluster: &TestCluster, path: &str) -> Result<Value> {
        let reply = cluster.block_on(async { self.api.get(path).await })?;
        ensure!(reply.status == 200, "{path}: {reply:?}");
        Ok(serde_json::from_str::<Value>(&reply.body)?["data"].take())
    }

    /// The value of an expression that has one series.
    fn value(&self, cluster: &TestCluster, expression: &str) -> Result<f64> {
        let result = self.ask(cluster, &format!("/api/v1/query?query={expression}"))?;
        let value = result["result"][0]["value"][1].as_str().with_context(|| format!("{expression}: {result}"))?;
        Ok(value.parse()?)
    }

    /// The names of the alerts that fire.
    fn firing(&self, cluster: &TestCluster) -> Result<BTreeSet<String>> {
        let alerts = self.ask(cluster, "/api/v1/alerts")?;
        let alerts = alerts["alerts"].as_array().context("there is a list of alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing.filter_map(|alert| alert["labels"]["alertname"].as_str()).map(str::to_owned).collect())
    }

    /// Waits until all processes are scraped, the model is seen to be ready, and no outage alerts. What was refused in
    /// one counts for minutes.
    fn wait_until_all_is_up(&self, cluster: &TestCluster) {
        wait_until("Prometheus to find all up", SOON, || {
            let up = self.value(cluster, "sum(up)")?;
            ensure!(up == 5.0, "{up} of 5 processes are scraped");
            ensure!(self.value(cluster, "min(symphony_frontend_model_ready)")? == 1.0, "the model is not ready");
            let firing = self.firing(cluster)?;
            ensure!(OUTAGES.iter().all(|(_, alert)| !firing.contains(*alert)), "{firing:?} fire");
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error:#}; Prometheus says:\n{}", self.process.log_tail()));
    }
}

#[test]
fn an_outage_alerts_within_half_a_minute() {
    let Some(program) = prometheus() else { return };
    tell("alert", &Shape::emulated(&["pool"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "pool")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let prometheus = Prometheus::start(&program, cluster).unwrap();
        prometheus.wait_until_all_is_up(cluster);

        phase("it has taken native histograms");
        cluster.one_good_request("resnet").unwrap();
        wait_until("a native histogram", SOON, || {
            let count = "sum(histogram_count(symphony_frontend_request_duration_seconds))";
            let seen = prometheus.value(cluster, count)?;
            ensure!(seen >= 1.0, "{seen} requests");
            Ok(())
        })
        .unwrap();

        for (ends, alert) in OUTAGES {
            phase(&format!("{} is killed", ends.join(" and ")));
            ends.iter().for_each(|process| cluster.kill(process).unwrap());
            let began = Instant::now();
            wait_until(alert, FIRES_WITHIN, || {
                let firing = prometheus.firing(cluster)?;
                ensure!(firing.contains(alert), "{firing:?} fire");
                Ok(())
            })
            .unwrap();
            eprintln!("{alert} fires {:.1} s after the death of {}", began.elapsed().as_secs_f64(), ends.join(" and "));

            phase("it comes back, and the alert ends");
            ends.iter().for_each(|process| cluster.restart(process).unwrap());
            cluster.wait_until_it_serves("resnet").unwrap();
            prometheus.wait_until_all_is_up(cluster);
        }
    });
}
