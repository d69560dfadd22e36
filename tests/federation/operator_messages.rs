//! Messages to operators, and errors of wrong configurations.

use symphony_tests::{TestFederation, run};

#[test]
fn mistakes_are_named_and_a_role_gets_no_further_than_its_own() {
    let federation = TestFederation::start("federation-words").unwrap();
    federation.load_model("m", "east", &[]);
    let load = |more: &[&str]| {
        let mut args = vec!["model", "load", "n", "--emulated", "--alpha-ms", "1", "--beta-ms", "5", "--slo-ms", "500"];
        args.extend(more);
        federation.cli(&args)
    };
    load(&["--to-cluster", "north"]).ended_with(2).complains(&["no cluster is named `north`"]);
    let twice = ["model", "load", "m", "--emulated", "--alpha-ms", "1", "--beta-ms", "5", "--slo-ms", "500"];
    federation.cli(&twice).ended_with(2).complains(&["named `m` already"]);
    let to = |model, cluster| federation.cli(&["plan", "move", "--model", model, "--to-cluster", cluster]);
    to("m", "north").ended_with(2).complains(&["no cluster is named `north`"]);
    to("m", "east").ended_with(2).complains(&["at home in east already"]);
    to("nobody", "east").ended_with(2).complains(&["no model of the federation is named `nobody`"]);
    federation.cli(&["get", "models"]).ended_with(2).complains(&["models", "one cluster"]);

    // What is each cluster's own affair: the answer names the cluster, and the command for it.
    let of_east = "--pki PKI-OF-east";
    federation.cli(&["model", "traffic", "m", "1=9"]).ended_with(2).complains(&["each cluster splits", of_east]);
    federation.cli(&["model", "set", "m", "--slo-ms", "100"]).ended_with(2).complains(&["a copy begins with", of_east]);
    let nowhere = federation.cli(&["model", "traffic", "nobody"]).ended_with(2);
    nowhere.complains(&["has `nobody` nowhere", of_east, "--pki PKI-OF-west"]);

    // No cluster can serve it: the status shows that, and nothing else is held up.
    let waits = load(&["--gpu-kind", "h100", "--wait-s", "10"]).ended_with(1);
    waits.complains(&["no profile for any GPU there is (emulated)"]);
    let _ = federation.cli(&["model", "unload", "n"]).ended_with(0);
    let even = federation.cli(&["plan", "now"]).ended_with(0);
    assert!(even.out.contains("models would change clusters"), "{even:?}");

    // What operators asked for and what came of it, and who moves: in the words of a cluster.
    let events = federation.cli(&["get", "events", "-o", "json"]).ended_with(0).json();
    let events = events.as_array().unwrap();
    let event_of = |what: &str| events.iter().find(|event| event["what"] == what && event["actor"].is_string());
    assert_eq!(
        event_of("load model m in cluster east").map(|event| &event["outcome"]),
        Some(&"done".into()),
        "{events:?}"
    );
    assert!(event_of("unload model n").is_some_and(|event| event["operation"].is_string()), "{events:?}");
    assert!(events.iter().any(|event| event["what"] == "model m is at home in east"), "{events:?}");
    let table = federation.cli(&["get", "events"]).ended_with(0).out;
    assert!(table.starts_with("LOG INDEX") && table.lines().count() == events.len() + 1, "{table}");
    let plan = federation.cli(&["plan", "show", "-o", "json"]).ended_with(0).json();
    assert_eq!((&plan["status"], &plan["cause"]), (&"done".into(), &"place".into()), "{plan}");
    assert_eq!((&plan["moves"][0]["what"], &plan["moves"][0]["to"]), (&"model m".into(), &"east".into()), "{plan}");
    assert_eq!(plan["clusters"][0], serde_json::json!({ "cluster": "east", "models": ["m"] }), "{plan}");
    let _ = federation.cli(&["plan", "show", "1"]).ended_with(2).complains(&["there is no plan 1"]);
    let id = plan["id"].to_string();
    let diff = federation.cli(&["plan", "diff", &id, "-o", "json"]).ended_with(0).json();
    assert_eq!(
        diff["clusters"],
        serde_json::json!([{ "cluster": "east", "comes": ["model m"], "goes": [] }]),
        "{diff}"
    );
    let epochs = federation.cli(&["get", "epochs"]).ended_with(0).out;
    assert!(epochs.contains("in force") && epochs.contains("cluster east") && epochs.contains(&id), "{epochs}");

    // Viewers of a cluster may read what its operators did not load; other roles are refused.
    let table = federation.cli(&["get", "clusters"]).ended_with(0);
    assert!(table.out.contains("east") && table.out.contains("answers"), "{table:?}");
    let pki = federation.workspace.file("world-pki").display().to_string();
    let named = format!("--federation={}", federation.addresses());
    let as_frontend = ["model", "unload", "m", "--identity", "frontend-frontend", &named];
    let denied = run(federation.workspace.path(), &[("SYMPHONY_PKI", pki.as_str())], &as_frontend).unwrap();
    denied.ended_with(2).complains(&["may not call Unload", "operator"]);
    federation.one_good_request("m").unwrap();
}

#[test]
fn a_configuration_that_cannot_work_says_why() {
    let workspace = symphony_testkit::Workspace::new("federation-config").unwrap();
    let start_with = |role: &str, text: &str| {
        let file = workspace.write("node.toml", text).unwrap().display().to_string();
        run(workspace.path(), &[], &[role, "--config", &file, "--insecure-dev"]).unwrap().ended_with(2)
    };
    let replica = "[[federation.replica]]\nid = 1\ncontrol = \"127.0.0.1:7501\"\n";
    let cluster = "[[federation.clusters]]\nname = \"east\"\ncontrol = [\"127.0.0.1:7001\"]\n";
    let own = "[federation]\nid = 1\ndata_dir = \"raft\"\n";
    start_with("federation", "").complains(&["federation.replica", "federation.clusters", "federation.data_dir"]);
    start_with("federation", &format!("{own}look_every_ms = 1000\n{replica}{cluster}"))
        .complains(&["federation.look_every_ms", "a constant now (a tenth of unreachable_ms, at most 1000 ms)"]);
    start_with("federation", &format!("{own}{replica}{cluster}{cluster}")).complains(&["`east` is given twice"]);
    start_with("federation", &format!("{own}{replica}{cluster}data = \"127.0.0.1:7201\"\n"))
        .complains(&["only frontends"]);
    start_with("frontend", &format!("[frontend]\nname = \"f\"\n{replica}{cluster}"))
        .complains(&["federation.clusters.0.data", "a port of its own per cluster"]);
    start_with("backend", &format!("{own}{replica}{cluster}")).complains(&["only `symphony federation` and frontends"]);
    let scheduler = "[[cluster.scheduler]]\nid = 1\ncontrol = \"127.0.0.1:1\"\ndispatch = \"127.0.0.1:2\"\nbeat = \"127.0.0.1:3\"\n";
    start_with("federation", &format!("{scheduler}{own}{replica}{cluster}"))
        .complains(&["belongs to no single cluster"]);
}
