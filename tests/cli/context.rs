//! Contexts: a cluster is named once, and tools go by the name.

use std::os::unix::fs::PermissionsExt as _;

use symphony_tests::{ProgramOutput, Shape, TestCluster, emulated_model, phase, run, tell};

/// The program with a file of contexts and nothing else in its environment.
fn symphony(cluster: &TestCluster, args: &[&str]) -> ProgramOutput {
    let file = cluster.workspace.file("contexts/config.toml").display().to_string();
    run(cluster.workspace.path(), &[("SYMPHONY_CONFIG_FILE", &file)], args).unwrap()
}

#[test]
fn a_context_says_where_a_cluster_is_and_who_asks() {
    tell("context", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let (name, addresses) = (cluster.view().unwrap().cluster, cluster.control_addresses().to_owned());
        let set = |context: &str, cluster_name: &str| {
            let pki = cluster.workspace.file("pki").display().to_string();
            let place = ["--schedulers", &addresses, "--pki", &pki, "--cluster-name", cluster_name];
            symphony(cluster, &[&["context", "set", context][..], &place[..]].concat()).ended_with(0)
        };

        phase("the first context is the current one, and tools need nothing else");
        assert!(set("blue", &name).out.contains("the current context is blue"));
        let models = symphony(cluster, &["get", "models", "-o", "json"]).ended_with(0).json();
        assert_eq!(models[0]["name"], "resnet");
        let mode = std::fs::metadata(cluster.workspace.file("contexts/config.toml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        phase("a certificate of another cluster than the context's is refused");
        let _ = set("wrong", "green");
        let wrong = symphony(cluster, &["get", "models", "--context", "wrong"]).ended_with(2);
        let _ = wrong.complains(&["context `wrong` is of cluster `green`", &name]);
        let _ = symphony(cluster, &["context", "use", "wrong"]).ended_with(0);
        let _ = symphony(cluster, &["get", "models"]).ended_with(2);
        let _ = symphony(cluster, &["get", "models", "--context", "blue"]).ended_with(0);

        phase("a context on the command line is stronger than variables, and these than the current one");
        let file = cluster.workspace.file("contexts/config.toml").display().to_string();
        let exported = [
            ("SYMPHONY_CONFIG_FILE", file.as_str()),
            ("SYMPHONY_CLUSTER", "127.0.0.1:1"),
            ("SYMPHONY_CONTEXT", "wrong"),
            ("SYMPHONY_KEY_FILE", "/nowhere/key"),
        ];
        let symphony_with = |args: &[&str]| run(cluster.workspace.path(), &exported, args).unwrap();
        let named = symphony_with(&["get", "ledger", "--context", "blue", "-o", "json"]).ended_with(0).json();
        assert!(named["frontends"].is_array(), "neither the address nor the key of the variables: {named}");
        let used = symphony_with(&["context", "use", "blue"]).ended_with(0);
        let _ = used.complains(&["SYMPHONY_CONTEXT, SYMPHONY_CLUSTER, SYMPHONY_KEY_FILE", "--context blue"]);

        phase("an address on the command line has nothing of the context that a variable names");
        let pki = cluster.workspace.file("pki").display().to_string();
        let elsewhere = ["get", "models", "--cluster", &addresses, "--pki", &pki];
        let _ = symphony_with(&elsewhere).ended_with(0);
        let without = symphony_with(&["get", "models", "--cluster", &addresses]).ended_with(2);
        let _ = without.complains(&["no certificates"]);

        phase("a context without a frontend has none to send a key to");
        let load = ["load", "--model", "resnet=1", "--context", "blue"];
        let _ = symphony(cluster, &load).ended_with(2).complains(&["context `blue` has no frontend-grpc"]);

        phase("a frontend on the command line is one of the context's cluster");
        cluster.wait_until_it_serves("resnet").unwrap();
        let frontend = cluster.address("frontend", "grpc");
        let load =
            ["load", "--model", "resnet=20", "--duration-s", "0.5", "--warmup-s", "0.1", "--frontend", &frontend];
        // The machine may be slow.
        let load = [&load[..], &["--lag-p99-ms", "5000", "--lag-max-ms", "10000", "-o", "json"]].concat();
        let _ = symphony(cluster, &load).ended_with(0);

        phase("a name that is none, and one that is no more");
        let _ = symphony(cluster, &["get", "models", "--context", "bleu"])
            .ended_with(2)
            .complains(&["similar names: blue"]);
        let _ = symphony(cluster, &["context", "use", "bleu"]).ended_with(2).complains(&["similar names: blue"]);
        let _ = symphony(cluster, &["context", "use", "wrong"]).ended_with(0);
        let gone = symphony(cluster, &["context", "delete", "wrong"]).ended_with(0);
        assert!(gone.out.contains("there is no current context"), "{gone:?}");
        let _ = symphony(cluster, &["context", "show"]).ended_with(2).complains(&["no current context"]);
        assert_eq!(
            symphony(cluster, &["context", "show", "blue", "-o", "json"]).ended_with(0).json()["cluster"],
            name.as_str()
        );
    });
}
