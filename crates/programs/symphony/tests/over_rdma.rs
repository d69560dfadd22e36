//! A whole cluster between whose processes nothing but RDMA is allowed, for frames and for payloads alike.
//!
//! Told in the virtual machine of `tests/rdma/test.sh`, where each role is another user: so processes of that one host
//! share no memory with one another, as if they were on several.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use symphony_testkit::wait_until;
use symphony_tests::{LoadReport, Shape, TestCluster, phase, tell};

/// Requests per second: the machine's two processors are emulated, and at 20 they had no time left on a busy host.
const LOAD: &str = "resnet=10";
/// Seconds of load in which nothing else happens.
const QUIET_LOAD_S: u32 = 8;
/// The most repetitions, where inputs came late or the machine stood still. One load has to be answered whole, unless
/// the generator lagged in all of them.
const QUIET_LOADS_MAX: u32 = 3;
/// Share of a load's requests whose inputs may come too late.
const LATE_MOST: f64 = 0.1;
/// Seconds of load in whose middle the backend is killed: long enough to come back in.
const LOAD_S: u32 = 16;
/// How long something may take on such a machine.
const SOON: Duration = Duration::from_secs(60);
const BACKEND: &str = "backend-default";
/// The links, by the process that shows them.
const LINKS: [(&str, &str); 5] = [
    ("scheduler-1", "dispatch"),
    ("scheduler-1", "execute"),
    ("frontend", "dispatch"),
    ("frontend", "data"),
    (BACKEND, "data"),
];

/// A cluster of one replica that refuses everything but RDMA.
fn shape() -> Shape {
    let mut shape = Shape::emulated(&["default"]).with("frames.transport=rdma").with("frames.required=true");
    shape.schedulers = 1;
    ["frontend", "backend"].into_iter().fold(shape, |shape, role| {
        shape
            .with(&format!("{role}.payloads.transport=rdma"))
            .with(&format!("{role}.payloads.required=true"))
            .with(&format!("{role}.payloads.pool_mb=16"))
    })
}

/// A metric's value; 0 where it is absent.
fn metric(cluster: &TestCluster, name: &str, series: &str) -> Result<u64> {
    let scraped = cluster.metrics_of(name)?;
    let line = scraped.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(Ok(0), |value| value.parse().with_context(|| format!("{series} of {name} is {value}")))
}

/// What carries the frames of a process's links of one kind: how many of them RDMA, and how many something else.
fn carried(cluster: &TestCluster, name: &str, link: &str) -> Result<(u64, u64)> {
    let by = |transport| {
        metric(cluster, name, &format!("symphony_frame_links{{link=\"{link}\",transport=\"{transport}\"}}"))
    };
    Ok((by("rdma")?, by("tcp")? + by("shared-memory")?))
}

/// Inputs that came to the living backend over RDMA, READ or, where there was nothing to READ in time, by SEND; and in
/// another way.
fn inputs(cluster: &TestCluster) -> Result<([u64; 2], u64)> {
    let by =
        |way: &str| metric(cluster, BACKEND, &format!("symphony_backend_payload_inputs_total{{transport=\"{way}\"}}"));
    Ok(([by("rdma")?, by("rdma-send")?], by("tcp")? + by("shared-memory")?))
}

/// Waits until every link of every process uses RDMA, once links that are being made or ended are gone.
fn wait_for_rdma_everywhere(cluster: &TestCluster) {
    let all = || {
        for (name, link) in LINKS {
            let carried = carried(cluster, name, link)?;
            ensure!(carried.0 >= 1 && carried.1 == 0, "{link} links of {name} over RDMA and otherwise: {carried:?}");
        }
        Ok(())
    };
    wait_until("RDMA for all links", SOON, all).unwrap();
}

/// Checks that nothing was answered twice or with another's answer, and that no request was forgotten. A machine that
/// stands still for seconds lets the generator go before the last answers come.
fn check_safety(report: &LoadReport) -> Result<()> {
    println!("{}; lag {}", report.json["total"], report.json["lag"]);
    let lost = report.number("total", "lost")?;
    if lost == 0.0 || !report.machine_was_busy()? {
        return report.check_safety();
    }
    for key in ["answered_twice", "foreign"] {
        ensure!(report.number("total", key)? == 0.0, "{key}: {}", report.json["total"]);
    }
    Ok(())
}

/// Whether every request of a load was answered, late or not. A few inputs that came too late say how slow the machine
/// is; where its generator lagged, the report says nothing about any request.
fn all_answered(report: &LoadReport) -> Result<bool> {
    let total = &report.json["total"];
    let reasons = |what: &str| total[what].as_object().with_context(|| format!("no {what} in {total}"));
    let failed = reasons("failed")?;
    let all = failed.is_empty() && reasons("dropped")?.is_empty() && total["lost"] == 0;
    let only_inputs = failed.keys().all(|reason| reason == "payload_lost") && total["lost"] == 0;
    let a_few_late_inputs = only_inputs && report.number("total", "bad_rate")? <= LATE_MOST;
    ensure!(all || a_few_late_inputs || report.machine_was_busy()?, "not every request was answered: {}", report.json);
    Ok(all)
}

#[test]
#[ignore = "needs an RDMA device, and users: run by tests/rdma/test.sh"]
fn a_cluster_answers_by_nothing_but_rdma_also_after_its_backend_and_its_frontend_were_killed() {
    tell("rdma", &shape(), |cluster| {
        let mut model = vec!["model", "load", "resnet", "--emulated", "--subcluster", "default"];
        // Batches of few: each input is two READs, and a request of a processor that is emulated takes milliseconds.
        model.extend(["--alpha-ms", "1", "--beta-ms", "5", "--batch-max", "4", "--slo-ms", "2000"]);
        let _ = cluster.cli(&model).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        wait_for_rdma_everywhere(cluster);

        phase("every request of a load is answered, and inputs are READ");
        let ([before, _], _) = inputs(cluster).unwrap();
        let mut lagged = 0;
        let answered = (0..QUIET_LOADS_MAX).any(|number| {
            let load = cluster.spawn_load(&format!("quiet-load-{number}"), &[LOAD], QUIET_LOAD_S).unwrap();
            let report = cluster.load_report(load, QUIET_LOAD_S).unwrap();
            check_safety(&report).unwrap();
            lagged += u32::from(report.machine_was_busy().unwrap());
            all_answered(&report).unwrap()
        });
        println!("a load was answered whole: {answered}; the generator lagged in {lagged}");
        assert!(
            answered || lagged == QUIET_LOADS_MAX,
            "none of {QUIET_LOADS_MAX} loads was answered whole, and the generator lagged in {lagged} of them only"
        );
        let ([read, sent], otherwise) = inputs(cluster).unwrap();
        println!("{} inputs were READ, {sent} came by SEND, {otherwise} otherwise", read - before);
        assert!(read > before && otherwise == 0);
        wait_for_rdma_everywhere(cluster);

        phase("the backend is killed under load, and comes back");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &[LOAD], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 40).unwrap();
        cluster.kill(BACKEND).unwrap();
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("requests are answered again, none of them twice, and again by nothing but RDMA");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        check_safety(&report).unwrap();
        assert!(report.number("total", "good").unwrap() > 0.0);
        cluster.one_good_request("resnet").unwrap();
        wait_for_rdma_everywhere(cluster);
        let ([read, sent], otherwise) = inputs(cluster).unwrap();
        println!("after its restart: {read} inputs were READ, {sent} came by SEND, {otherwise} otherwise");
        assert!(read > 0 && otherwise == 0);
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("the frontend, whose memory is being READ, is killed under load, and comes back");
        let mut load = cluster.spawn_load("cut-load", &[LOAD], LOAD_S).unwrap();
        cluster.wait_for_more(20).unwrap();
        cluster.kill("frontend").unwrap();
        load.kill().unwrap();
        cluster.restart("frontend").unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        wait_for_rdma_everywhere(cluster);

        phase("the same backend READs the inputs of the new boot, and requests are answered, none of them twice");
        let ([before, _], _) = inputs(cluster).unwrap();
        let load = cluster.spawn_load("last-load", &[LOAD], QUIET_LOAD_S).unwrap();
        let report = cluster.load_report(load, QUIET_LOAD_S).unwrap();
        check_safety(&report).unwrap();
        assert!(report.number("total", "good").unwrap() > 0.0);
        let ([read, sent], otherwise) = inputs(cluster).unwrap();
        println!("after the frontend's: {} were READ, {sent} came by SEND, {otherwise} otherwise", read - before);
        assert!(read > before && otherwise == 0);
        wait_for_rdma_everywhere(cluster);
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
