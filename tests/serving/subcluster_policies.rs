//! A policy decides for a whole sub-cluster: it serves, is changed under load, is led on by another replica, and does
//! no harm when it fails.

use std::process::Command;

use symphony_testkit::Workspace;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// Seconds of load around a change.
const LOAD_S: u32 = 8;
/// What may be late or given up while a policy is changed, a leader dies, or a policy fails.
const BAD_MOST: f64 = 0.5;

fn set(cluster: &TestCluster, policy: &str) {
    let output = cluster.cli(&["subcluster", "policy", "default", policy]).ended_with(0).out;
    assert!(output.contains(policy), "{output}");
}

/// What `get subclusters` says of the policy, and of its failure.
fn shown(cluster: &TestCluster) -> (serde_json::Value, serde_json::Value) {
    let shown = cluster.cli(&["get", "subclusters", "-o", "json"]).ended_with(0).json();
    (shown[0]["policy"].clone(), shown[0]["policy_failed"].clone())
}

/// How often a policy failed, as all replicas counted.
fn policy_faults(cluster: &TestCluster) -> f64 {
    let counted = |name: &str| {
        let page = cluster.metrics_of(name).unwrap();
        let line = page.lines().find(|line| line.starts_with("symphony_dispatch_policy_faults_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    ["scheduler-1", "scheduler-2", "scheduler-3"].into_iter().map(counted).sum()
}

fn serving(cluster: &mut TestCluster) {
    for model in ["m", "n"] {
        let _ = cluster.cli(&emulated_model(model, "default")).ended_with(0);
        cluster.wait_until_it_serves(model).unwrap();
    }
}

/// Load, with something that happens in the middle of it; every request has its one outcome.
fn under_load(cluster: &mut TestCluster, name: &str, happens: impl FnOnce(&mut TestCluster)) {
    let accepted = cluster.accepted().unwrap();
    let load = cluster.spawn_load(name, &["m=40", "n=40"], LOAD_S).unwrap();
    cluster.wait_for_accepted(accepted + 100).unwrap();
    happens(cluster);
    let report = cluster.load_report(load, LOAD_S).unwrap();
    report.check_safety().unwrap();
    report.check_bad_rate("m", BAD_MOST).unwrap();
    report.check_bad_rate("n", BAD_MOST).unwrap();
    cluster.wait_for_a_balanced_ledger().unwrap();
}

#[test]
fn policies_of_a_sub_cluster_serve_are_changed_under_load_and_led_on_after_a_death() {
    tell("subcluster-policies", &Shape::emulated(&["default"]), |cluster| {
        serving(cluster);
        phase("what is no policy for a sub-cluster is refused in words");
        let refused = |policy: &str| cluster.cli(&["subcluster", "policy", "default", policy]).ended_with(2).err;
        assert!(refused("house").contains("\"nexus\""), "{}", refused("house"));
        assert!(refused("eager").contains("decides for each model alone"), "{}", refused("eager"));
        let nowhere = cluster.cli(&["subcluster", "policy", "elsewhere", "nexus"]).ended_with(2).err;
        assert!(nowhere.contains("no sub-cluster is named `elsewhere`"), "{nowhere}");
        assert_eq!(shown(cluster), (serde_json::Value::Null, serde_json::Value::Null));

        phase("each policy takes over from the one before, under load");
        under_load(cluster, "changes", |cluster| {
            for policy in ["nexus", "clockwork", "shepherd", "kairos", "auto", "nexus"] {
                set(cluster, policy);
                cluster.one_good_request("m").unwrap();
            }
        });
        assert_eq!(shown(cluster).0, "nexus");
        assert_eq!(policy_faults(cluster), 0.0, "none of them failed");
        let output = cluster.cli(&["get", "subclusters"]).ended_with(0).out;
        assert!(output.contains("POLICY") && output.contains("nexus"), "{output}");
        let models = cluster.cli(&["get", "models"]).ended_with(0).out;
        assert!(models.contains("auto (nexus decides)"), "{models}");
        let changed = cluster.cli(&["model", "set", "m", "--policy", "eager"]).ended_with(0);
        assert!(changed.err.contains("nexus decides for its sub-cluster"), "{changed:?}");
        let explained = cluster.cli(&["explain", "--batch", "m"]).ended_with(0).out;
        assert!(explained.contains("nexus"), "{explained}");

        phase("its leader dies under load, and the next one decides by the same policy");
        under_load(cluster, "death", |cluster| {
            let before = cluster.subcluster("default").unwrap();
            let (victim, _) = before.leader.unwrap();
            cluster.kill(&format!("scheduler-{}", victim.get())).unwrap();
            let next = cluster.wait_for_view("another leader", |view| {
                let own = view.subclusters.values().next()?;
                own.leader.map(|(node, _)| node).filter(|node| *node != victim)
            });
            let next = format!("scheduler-{}", next.unwrap().get());
            cluster.wait_for_log(&next, "a policy decides for the whole sub-cluster").unwrap();
        });
        assert_eq!(shown(cluster).0, "nexus");
    });
}

#[test]
fn a_users_own_policy_serves_and_one_that_fails_ends_its_lead_in_words_and_loses_nothing() {
    let program = env!("CARGO_BIN_EXE_symphony-policies");
    let shape = Shape::emulated(&["default"]).with_program(program).with("scheduler.tape_dir=tapes");
    tell("own-policies", &shape, |cluster| {
        serving(cluster);
        phase("the example's policy");
        under_load(cluster, "edf", |cluster| set(cluster, "edf"));
        cluster.one_good_request("n").unwrap();
        let of_edf = cluster.subcluster("default").unwrap().token;

        let faults = [
            ("panics", "panicked on n", "panicked at input"),
            ("overlaps", "gave an order that breaks a rule on n", "broke S1"),
            ("hangs", "hung on n", ""),
        ];
        for (policy, words, logged) in faults {
            phase(&format!("a policy that {policy}"));
            let before = cluster.subcluster("default").unwrap();
            under_load(cluster, policy, |cluster| {
                set(cluster, policy);
                let failed = |view: &symphony_protocol::view::View| {
                    let own = view.subclusters.values().next()?.policy.clone()?;
                    own.failed.filter(|failed| failed.contains(words))
                };
                cluster.wait_for_view("its end", failed).unwrap();
                cluster.wait_until_it_serves("m").unwrap();
            });
            let after = cluster.subcluster("default").unwrap();
            assert!(after.token > before.token, "another lead");
            let leader = before.leader.unwrap().0;
            cluster.wait_for_log(&format!("scheduler-{}", leader.get()), logged).unwrap();
            assert_eq!(shown(cluster).0, policy);
            let table = cluster.cli(&["get", "subclusters"]).ended_with(0).out;
            assert!(table.contains(&format!("auto ({policy} {words}")), "{table}");
            let events = cluster.cli(&["get", "events"]).ended_with(0).out;
            assert!(events.contains(&format!("policy {policy} of sub-cluster default")), "{events}");
        }
        phase("what the example's policy decided is decided again, by its program only");
        let files = std::fs::read_dir(cluster.workspace.file("tapes")).unwrap().map(|file| file.unwrap().path());
        let names: Vec<String> = files.map(|path| path.display().to_string()).collect();
        let is_of_edf = |name: &&String| name.contains(&format!("-{of_edf}-")) && name.ends_with("-policy.tape");
        let tape = names.iter().find(is_of_edf).unwrap_or_else(|| panic!("no tape of lead {of_edf}: {names:?}"));
        let _ = cluster.cli(&["replay", tape]).ended_with(2).complains(&["edf"]);
        let again = Command::new(program).args(["replay", tape, "-o", "json"]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
        let replayed = &report["tapes"][0];
        assert!(replayed["same"] == true && replayed["batches"].as_u64().unwrap() > 20, "{report}");

        let faults = policy_faults(cluster);
        assert!(faults >= 3.0, "{faults}");
    });
}

const FEW_REQUESTS: &str = "
    name = 'few'
    duration_s = 1
    warmup_s = 0
    seeds = [1]
    gpu = [{ kind = 'x', count = 1 }]
    model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 500 }]
    workload = { rate_rps = 200, arrival = 'poisson' }";

#[test]
fn a_users_own_policy_that_hangs_ends_a_simulation_in_words() {
    let workspace = Workspace::new("hung-policy").unwrap();
    workspace.write("few.toml", FEW_REQUESTS).unwrap();
    let sim = |policy: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_symphony-policies"));
        let ended =
            program.args(["sim", "few.toml", "--policy", policy]).current_dir(workspace.path()).output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (code, output) = sim("hangs");
    assert_eq!(code, Some(3), "{output}");
    assert!(
        output.contains("policy `hangs` hangs: `step` at input `arrive`") && output.contains("for 10 s"),
        "{output}"
    );
    let (code, output) = sim("panics");
    assert!(code == Some(1) && output.contains("policy `panics` panicked at input `arrive`: planted"), "{output}");
    let (code, output) = sim("edf");
    assert_eq!(code, Some(0), "{output}");
}
