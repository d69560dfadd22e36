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

        phase("a name that is none, and one that is no more");
        let _ = symphony(cluster, &["get", "models", "--context", "bleu"]).ended_with(2).complains(&["near are blue"]);
        let _ = symphony(cluster, &["context", "use", "bleu"]).ended_with(2).complains(&["near are blue"]);
        let gone = symphony(cluster, &["context", "delete", "wrong"]).ended_with(0);
        assert!(gone.out.contains("there is no current context"), "{gone:?}");
        let _ = symphony(cluster, &["context", "show"]).ended_with(2).complains(&["no current context"]);
        assert_eq!(
            symphony(cluster, &["context", "show", "blue", "-o", "json"]).ended_with(0).json()["cluster"],
            name.as_str()
        );
    });
}
