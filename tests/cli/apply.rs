//! Models that are declared in files: what is so already stays, and what differs changes.

use symphony_tests::{Shape, phase, tell};

fn model(name: &str, slo_ms: u32, more: &str) -> String {
    format!(
        "kind: model\nname: {name}\nemulated: true\nalpha_ms: 1\nbeta_ms: 5\nsubcluster: default\nslo_ms: {slo_ms}\n{more}"
    )
}

#[test]
fn applying_files_twice_changes_nothing_and_what_differs_is_changed_in_place() {
    tell("apply", &Shape::emulated(&["default"]), |cluster| {
        let dir = cluster.workspace.file("declared");
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        let both = [model("resnet@1", 500, ""), model("resnet@2", 500, "")].join("---\n");
        write("resnet.yaml", &both);
        let toml = "[[model]]\nname = \"other\"\nalpha_ms = 1\nbeta_ms = 5\nslo_ms = 300\nsubcluster = \"default\"\n";
        write("other.toml", toml);
        write("notes.txt", "not for the cluster");
        let dir = dir.display().to_string();
        let apply = |more: &[&str]| cluster.cli(&[&["apply", "-f", &dir][..], more].concat());
        let dir_of = |name: &str| cluster.workspace.file(name).display().to_string();
        let loaded = || cluster.cli(&["get", "models", "-o", "json"]).ended_with(0).json();

        phase("a dry run says what would be, and does nothing");
        let dry = apply(&["--dry-run"]).ended_with(0).out;
        assert!(dry.contains("model resnet@1 would be created: load resnet@1"), "{dry}");
        assert_eq!(loaded().as_array().map(Vec::len), Some(0));

        phase("applied, and applied again");
        let out = apply(&[]).ended_with(0).out;
        for name in ["other", "resnet@1", "resnet@2"] {
            assert!(out.contains(&format!("model {name} is created")), "{out}");
        }
        let again = apply(&[]).ended_with(0).out;
        assert_eq!(again.lines().filter(|line| line.ends_with("is unchanged")).count(), 3, "{again}");
        assert!(loaded().as_array().unwrap().iter().all(|model| model["ready"] == true));

        phase("an SLO and a split");
        let split = "---\nkind: model\nname: resnet\ntraffic: { weights: { 1: 95, 2: 5 } }\n";
        write("resnet.yaml", &format!("{}---\n{}{split}", model("resnet@1", 400, ""), model("resnet@2", 500, "")));
        let out = apply(&[]).ended_with(0).out;
        assert!(out.contains("model resnet@1 is changed: change resnet@1: SLO 500 ms to 400 ms"), "{out}");
        assert!(out.contains("model resnet is changed: traffic: 95"), "{out}");
        let shown = cluster.cli(&["model", "traffic", "resnet"]).ended_with(0).out;
        assert!(shown.starts_with("95 % to version 1, 5 % to version 2"), "{shown}");
        let again = apply(&[]).ended_with(0).out;
        assert_eq!(again.lines().filter(|line| line.ends_with("is unchanged")).count(), 4, "{again}");

        phase("the same in an empty cluster, where the split waits for its versions");
        for name in ["resnet", "other"] {
            let _ = cluster.cli(&["model", "unload", name]).ended_with(0);
        }
        write("resnet.yaml", &format!("{split}---\n{}---\n{}", model("resnet@1", 400, ""), model("resnet@2", 500, "")));
        let out = apply(&[]).ended_with(0).out;
        assert!(out.contains("model resnet@2 is created") && out.contains("traffic: 95"), "{out}");

        phase("one mistake anywhere, and nothing is changed");
        write("new.yaml", &model("new", 500, ""));
        write("wrong.yaml", &model("wrong", 500, "slo: 5\n"));
        let _ = apply(&[]).ended_with(2).complains(&["wrong.yaml", "unknown field `slo`", "line 8"]);
        write("wrong.yaml", "kind: model\nname: absent\nslo_ms: 5\n");
        let _ = apply(&[]).ended_with(2).complains(&["nothing is changed", "no model is named `absent`"]);
        write("wrong.yaml", &model("wrong", 500, "").replace("subcluster: default", "subcluster: defualt"));
        let _ = apply(&[]).ended_with(2).complains(&["nothing is changed", "no sub-cluster is named `defualt`"]);
        write("wrong.yaml", &model("wrong", 500, "traffic: { weights: { 7: 1 } }\n"));
        let _ = apply(&["--dry-run"]).ended_with(2).complains(&["version 7 is neither loaded nor declared"]);
        assert!(loaded().as_array().unwrap().iter().all(|model| model["name"] != "new"));

        phase("a split that is declared before one of its versions");
        let first = model("parted", 500, "traffic: { weights: { 1: 1, 2: 1 } }\n");
        std::fs::write(dir_of("parted.yaml"), format!("{first}---\n{}", model("parted@2", 500, ""))).unwrap();
        let parted = cluster.cli(&["apply", "-f", &dir_of("parted.yaml")]).ended_with(0).out;
        assert!(parted.contains("load parted; traffic: 50 % to version 1, 50 % to version 2"), "{parted}");

        phase("tenants are checked, and it is said where they belong");
        let hash = "0".repeat(64);
        write("tenants.toml", &format!("[[tenant]]\nname = \"ann\"\nkeys = [\"sha256:{hash}\"]\n"));
        let tenants = cluster.cli(&["apply", "-f", &format!("{dir}/tenants.toml")]).ended_with(0).out;
        assert!(tenants.contains("tenants ann are valid, and not applied"), "{tenants}");
    });
}
