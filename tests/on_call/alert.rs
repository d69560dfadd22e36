//! A Prometheus with the configuration and the rules of deploy/prometheus watches a cluster in which what most alerts
//! are about happens. Within half a minute after an outage one of its alerts fires.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use symphony_net::{Authority, Identity, Role};
use symphony_testkit::{Child, ChildSpec, free_ports, prometheus, wait_until};
use symphony_tests::{RestClient, Shape, TestCluster, emulated_model, phase, tell};

use crate::learning::{AS_GIVEN, set_pace};

const CONFIG: &str = include_str!("../../deploy/prometheus/prometheus.yml");
const RULES: &str = include_str!("../../deploy/prometheus/symphony-alerts.yml");

/// From the outage, not from when a process noticed it.
const FIRES_WITHIN: Duration = Duration::from_secs(30);
/// Scrapes are 5 s apart, and the machine may be busy.
const SOON: Duration = Duration::from_secs(120);
/// What the story waits for in place of minutes: it shows that an alert fires, and promtool's tests when.
const HURRIED_FOR: &str = "5s";

/// An alert, and a label and its value that it must have.
type Alert = (&'static str, &'static str, &'static str);

/// Of a cluster that serves: a backend with a certificate of a day and without shared memory, a GPU of it that fails,
/// and a model whose requests wait for minutes.
const FAULTS: [Alert; 5] = [
    ("SymphonyCertificateExpiresSoon", "job", "symphony-frontend"),
    ("SymphonyCertificateExpiresNow", "job", "symphony-backend"),
    ("SymphonyFramesOverTcp", "job", "symphony-scheduler"),
    ("SymphonyGpusQuarantined", "subcluster", "pool"),
    ("SymphonyQueueGrows", "model", "patient"),
];

struct Outage {
    /// The processes that are killed.
    ends: &'static [&'static str],
    /// What the operator asks for meanwhile; may be nothing.
    command: &'static str,
    /// Says what is missing, within half a minute.
    first: Alert,
    /// Fire as well.
    also: &'static [Alert],
}

const OUTAGES: [Outage; 3] = [
    Outage {
        ends: &["backend-pool"],
        command: "model load never --emulated --alpha-ms 1 --beta-ms 5 --slo-ms 500 --wait-s 0",
        first: ("SymphonyModelUnready", "model", "resnet"),
        also: &[
            ("SymphonyProcessDown", "job", "symphony-backend"),
            ("SymphonyRequestsRefused", "model", "resnet"),
            ("SymphonySloBurnsFast", "model", "resnet"),
            ("SymphonySloBurnsSlowly", "model", "resnet"),
            ("SymphonyModelNeverReady", "model", "never"),
        ],
    },
    Outage {
        ends: &["frontend", "scheduler-3"],
        command: "",
        first: ("SymphonyNoFrontend", "severity", "page"),
        also: &[
            ("SymphonyProcessDown", "job", "symphony-frontend"),
            ("SymphonyQuorumAtRisk", "severity", "page"),
            ("SymphonyReplicaDown", "severity", "ticket"),
        ],
    },
    Outage {
        ends: &["scheduler-2", "scheduler-3"],
        command: "",
        first: ("SymphonyQuorumLost", "severity", "page"),
        also: &[],
    },
];

/// Of a cluster without any scheduler; all of them fire earlier where the leaders were among those killed first.
const LEADERLESS: [Alert; 3] = [
    ("SymphonyProcessDown", "job", "symphony-scheduler"),
    ("SymphonyRaftWithoutLeader", "severity", "page"),
    ("SymphonySubclusterWithoutLeader", "subcluster", "pool"),
];

/// Alerts that only promtool makes fire, and what the story lacks for them.
const NOT_HERE: [(&str, &str); 8] = [
    ("SymphonyInvariantBroken", "a bug"),
    ("SymphonyPlansViolated", "a bug"),
    ("SymphonyReplicaDoesNotApply", "a disk that hangs"),
    ("SymphonyGpuLost", "a driver: emulated GPUs are never lost"),
    ("SymphonyTenantsFileUnusable", "tenants"),
    ("SymphonyFederationWithoutLeader", "a federation"),
    ("SymphonyFederationClusterLost", "a federation"),
    ("SymphonyFederationModelsUnserved", "a federation"),
];

fn fires((name, label, value): Alert, firing: &[Value]) -> bool {
    firing.iter().any(|labels| labels["alertname"] == name && labels[label] == value)
}

/// The rules, with seconds in place of the minutes that something must have lasted.
fn hurried_rules() -> String {
    let hurried = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(time) if time.ends_with('m') => line.replace(time, HURRIED_FOR),
        _ => line.to_owned(),
    };
    RULES.lines().map(hurried).collect::<Vec<_>>().join("\n")
}

struct Prometheus {
    process: Child,
    api: RestClient,
}

impl Prometheus {
    /// With the hosts of the cluster in place of those in the configuration, and without receivers.
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
        files.write("symphony-alerts.yml", &hurried_rules())?;
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

    /// The labels of the alerts that fire, their names among them.
    fn firing(&self, cluster: &TestCluster) -> Result<Vec<Value>> {
        let alerts = self.ask(cluster, "/api/v1/alerts")?;
        let alerts = alerts["alerts"].as_array().context("there is a list of alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing.map(|alert| alert["labels"].clone()).collect())
    }

    /// Waits until each of these alerts has fired.
    fn wait_for(&self, cluster: &TestCluster, alerts: &[Alert], within: Duration) -> Result<()> {
        let mut missing = alerts.to_vec();
        let fired = wait_until("alerts", within, || {
            let firing = self.firing(cluster)?;
            missing.retain(|&alert| !fires(alert, &firing));
            ensure!(missing.is_empty(), "{missing:?} do not fire; these do: {firing:?}");
            Ok(())
        });
        fired.with_context(|| format!("Prometheus says:\n{}", self.process.log_tail()))
    }

    /// Waits until all processes are scraped, the model is seen to be ready, and no outage alerts. What was refused in
    /// one counts for minutes.
    fn wait_until_all_is_up(&self, cluster: &TestCluster) {
        wait_until("Prometheus to find all up", SOON, || {
            let up = self.value(cluster, "sum(up)")?;
            ensure!(up == 5.0, "{up} of 5 processes are scraped");
            ensure!(self.value(cluster, "min(symphony_frontend_model_ready)")? == 1.0, "the model is not ready");
            let firing = self.firing(cluster)?;
            ensure!(OUTAGES.iter().all(|outage| !fires(outage.first, &firing)), "{firing:?} fire");
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error:#}; Prometheus says:\n{}", self.process.log_tail()));
    }
}

/// Alerts of the rules that nothing here causes, and that are not listed as missing.
fn forgotten(rules: &str) -> Vec<&str> {
    let of_outages = OUTAGES.iter().flat_map(|outage| outage.also.iter().chain([&outage.first]));
    let caused = FAULTS.iter().chain(&LEADERLESS).chain(of_outages).map(|(name, ..)| *name);
    let known: Vec<_> = caused.chain(NOT_HERE.iter().map(|(name, _)| *name)).collect();
    let all = rules.split("- alert:").skip(1).filter_map(|rule| rule.split_whitespace().next());
    all.filter(|alert| !known.contains(alert)).collect()
}

#[test]
fn every_alert_is_caused_or_said_not_to_be() {
    assert_eq!(forgotten(RULES), [""; 0]);
    assert_eq!(forgotten("- alert: SymphonyQueueGrows\n- alert: SymphonyNew\n"), ["SymphonyNew"]);
}

#[test]
fn an_outage_alerts_within_half_a_minute() {
    let Some(program) = prometheus() else { return };
    // A quarter of the GPUs may be set aside; it stays so for longer than the story takes.
    let shape = Shape::emulated(&["pool"]).with("backend.executor=emulated").with("backend.pace_file=pace");
    let mut shape = shape.with("scheduler.learning.quarantine_s=1800");
    shape.backends[0].gpus = 4;
    tell("alert", &shape, |cluster| {
        phase("a backend's certificate ends tomorrow, and it has no shared memory for frames");
        let authority = Authority::open(&cluster.workspace.file("pki")).unwrap();
        authority.issue(&Identity::new("test", Role::Backend, "backend-pool").unwrap(), 1).unwrap();
        cluster.kill("backend-pool").unwrap();
        cluster.restart_with("backend-pool", "SYMPHONY__FRAMES__TRANSPORT", "tcp").unwrap();
        let _ = cluster.cli(&emulated_model("resnet", "pool")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("requests for one model wait for minutes, until their batch is full; a GPU fails");
        let mut patient = vec!["model", "load", "patient", "--emulated", "--alpha-ms", "0.01", "--beta-ms", "5"];
        patient.extend(["--batch-max", "4000", "--slo-ms", "600000", "--policy", "symphony"]);
        let _ = cluster.cli(&patient).ended_with(0);
        let load = cluster.spawn_load_until_ended("load", &["resnet=60", "patient=20"]).unwrap();
        // By then it is known how often batches fail, and Prometheus never sees a short queue.
        cluster.wait_for_more(400).unwrap();
        set_pace(cluster, &[(0, "fails")]);
        let prometheus = Prometheus::start(&program, cluster).unwrap();
        prometheus.wait_for(cluster, &FAULTS, SOON).unwrap();
        set_pace(cluster, AS_GIVEN);

        phase("it has taken native histograms, those of decision threads among them");
        for histogram in ["symphony_frontend_request_duration_seconds", "symphony_dispatch_turn_seconds"] {
            wait_until("a native histogram", SOON, || {
                let seen = prometheus.value(cluster, &format!("sum(histogram_count({histogram}))"))?;
                ensure!(seen >= 1.0, "{seen} values in {histogram}");
                Ok(())
            })
            .unwrap();
        }

        let mut load = Some(load);
        let mut ended: &[&str] = &[];
        for Outage { ends, command, first, also } in OUTAGES {
            phase("all is up, and what was missing before alerts no more");
            ended.iter().for_each(|process| cluster.restart(process).unwrap());
            cluster.wait_until_it_serves("resnet").unwrap();
            prometheus.wait_until_all_is_up(cluster);

            phase(&format!("{} is killed", ends.join(" and ")));
            ends.iter().for_each(|process| cluster.kill(process).unwrap());
            let began = Instant::now();
            if !command.is_empty() {
                let _ = cluster.cli(&command.split(' ').collect::<Vec<_>>()).ended_with(0);
            }
            prometheus.wait_for(cluster, &[first], FIRES_WITHIN.saturating_sub(began.elapsed())).unwrap();
            let after = began.elapsed().as_secs_f64();
            eprintln!("{} fires {after:.1} s after the death of {}", first.0, ends.join(" and "));
            prometheus.wait_for(cluster, also, SOON).unwrap();
            // The first outage is one under load.
            drop(load.take());
            ended = ends;
        }

        phase("the last scheduler is killed");
        cluster.kill("scheduler-1").unwrap();
        prometheus.wait_for(cluster, &LEADERLESS, SOON).unwrap();
    });
}
