//! All disks of the schedulers are lost, and a backup is restored. Backends and the frontend run on.

use std::fs;
use std::time::Duration;

use symphony_net::Role;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

use crate::fencing::fake_leader::FakeLeader;

const END_WITHIN: Duration = Duration::from_secs(60);
const SCHEDULERS: [&str; 3] = ["scheduler-1", "scheduler-2", "scheduler-3"];
const BACKEND: &str = "backend-first";

/// The path of a file in the cluster's folder.
fn path(cluster: &TestCluster, name: &str) -> String {
    cluster.workspace.file(name).display().to_string()
}

/// `symphony restore` of that file for the first replica.
fn restore(cluster: &TestCluster, file: &str) -> symphony_tests::ProgramOutput {
    restore_on(cluster, "scheduler-1", file)
}

fn restore_on(cluster: &TestCluster, name: &str, file: &str) -> symphony_tests::ProgramOutput {
    let config = path(cluster, &format!("{name}.toml"));
    cluster.cli(&["restore", "--from", &path(cluster, file), "--config", &config])
}

/// Ends all replicas without a word, and loses their disks.
fn lose_all_disks(cluster: &mut TestCluster) {
    for name in SCHEDULERS {
        cluster.kill(name).unwrap();
    }
    for name in SCHEDULERS {
        fs::remove_dir_all(cluster.data_dir(name)).unwrap();
    }
}

#[test]
fn backends_and_frontends_that_run_on_obey_the_restored_cluster_and_nothing_of_the_former_one() {
    tell("backup", &Shape::emulated(&["first"]), |cluster| {
        let _ = cluster.cli(&emulated_model("first", "first")).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();

        phase("a backup, from one replica or another");
        let file = path(cluster, "cluster.backup");
        let taken = cluster.cli(&["backup", "--to", &file, "-o", "json"]).ended_with(0).json();
        assert!(taken["confirmed"] == true && taken["models"] == serde_json::json!(["first"]), "{taken}");
        let shown = cluster.cli(&["backup", "--show", &file]).ended_with(0);
        assert!(shown.out.contains("1 models") && shown.out.contains("confirmed by a quorum"), "{shown:?}");
        for name in SCHEDULERS {
            let (address, stale) = (cluster.address(name, "control"), path(cluster, &format!("{name}.backup")));
            let _ = cluster.cli(&["backup", "--cluster", &address, "--to", &stale, "--stale"]).ended_with(0);
            let _ = cluster.cli(&["backup", "--cluster", &address, "--to", &stale]).ended_with(0);
        }

        phase("after it another model is loaded, which the restored cluster does not know");
        let _ = cluster.cli(&emulated_model("second", "first")).ended_with(0);
        cluster.wait_until_it_serves("second").unwrap();
        let former = cluster.view().unwrap();
        let (backend, frontend) = (cluster.process_id(BACKEND).unwrap(), cluster.process_id("frontend").unwrap());

        phase("nothing is restored while a scheduler runs, into a directory with data, or from rubbish");
        restore(cluster, "cluster.backup").ended_with(2).complains(&["still takes connections", "n1 (", "n3 ("]);
        for name in SCHEDULERS {
            cluster.kill(name).unwrap();
        }
        restore(cluster, "cluster.backup").ended_with(2).complains(&["is not empty"]);
        for name in SCHEDULERS {
            fs::remove_dir_all(cluster.data_dir(name)).unwrap();
        }
        let mut bytes = fs::read(&file).unwrap();
        bytes[100] ^= 1;
        fs::write(path(cluster, "damaged"), bytes).unwrap();
        restore(cluster, "damaged").ended_with(2).complains(&["damaged", "checksum"]);

        phase("it is restored on one replica; the others start over nothing");
        let output = restore(cluster, "cluster.backup").ended_with(0).out;
        assert!(output.contains("is lost") && output.contains("Start n1 now. Then n2, n3"), "{output}");
        for name in SCHEDULERS {
            cluster.restart(name).unwrap();
        }
        cluster.wait_until_whole().unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        assert_eq!(cluster.process_id(BACKEND).unwrap(), backend, "the backend ran on");
        assert_eq!(cluster.process_id("frontend").unwrap(), frontend, "the frontend ran on");
        let view = cluster.view().unwrap();
        assert_eq!(view.models.values().map(|model| &model.spec.name).collect::<Vec<_>>(), ["first"]);
        assert!(view.events.iter().any(|event| event.what.contains("restored from a backup")), "{:?}", view.events);

        phase("its tokens are above all of the former cluster, whose leaders are fenced");
        let (_, entry) = view.backends.first_key_value().unwrap();
        let (_, before) = former.backends.first_key_value().unwrap();
        let gpu = &entry.gpus[0];
        let (old, new) = (former.gpu_token(before, &before.gpus[0]), view.gpu_token(entry, gpu));
        assert!(new.get() > former.applied_index + 1_000_000, "{new} after {old}");
        let (net, exec) = (cluster.net(Role::Scheduler, "2"), cluster.address(BACKEND, "exec"));
        let promised = cluster.block_on(async {
            let mut leader = FakeLeader::connect(&net, &exec).await;
            leader.seal(entry.subcluster, gpu.id, old).await.promised
        });
        assert!(promised >= new, "the backend keeps its promise to the new leader: {promised} for {old}");
        cluster.one_good_request("first").unwrap();

        phase("it is a cluster like any other: it loads models, and its leader may die");
        let _ = cluster.cli(&emulated_model("third", "first")).ended_with(0);
        cluster.wait_until_it_serves("third").unwrap();
        cluster.kill("scheduler-1").unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        cluster.wait_until_it_serves("third").unwrap();
    });
}

#[test]
fn a_second_restore_from_one_backup_is_obeyed_too_and_who_came_after_the_backup_starts_anew() {
    tell("backup-twice", &Shape::emulated(&["first"]), |cluster| {
        let _ = cluster.cli(&emulated_model("first", "first")).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();
        let file = path(cluster, "cluster.backup");
        let _ = cluster.cli(&["backup", "--to", &file]).ended_with(0);

        phase("the backend gets another boot after the backup");
        assert!(cluster.stop(BACKEND, END_WITHIN).unwrap().success());
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_it_serves("first").unwrap();

        phase("the disks are lost; the restored cluster knows the former boot of the backend, which ends");
        lose_all_disks(cluster);
        let _ = restore(cluster, "cluster.backup").ended_with(0);
        for name in SCHEDULERS {
            cluster.restart(name).unwrap();
        }
        let status = cluster.wait_until_it_ends(BACKEND, END_WITHIN).unwrap();
        assert_eq!(status.code(), Some(1));
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        let once = cluster.subcluster("first").unwrap().token;

        phase("they are lost again, before there was another backup");
        lose_all_disks(cluster);
        // The later of two restores counts, by seconds.
        std::thread::sleep(Duration::from_secs(2));
        let _ = restore(cluster, "cluster.backup").ended_with(0);
        for name in SCHEDULERS {
            cluster.restart(name).unwrap();
        }
        let _ = cluster.wait_until_it_ends(BACKEND, END_WITHIN).unwrap();
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        let twice = cluster.subcluster("first").unwrap().token;
        assert!(twice > once, "{twice} after {once}");

        phase("one that is restored beside a group that exists ends, and the group goes on");
        for name in SCHEDULERS {
            cluster.kill(name).unwrap();
        }
        fs::remove_dir_all(cluster.data_dir("scheduler-2")).unwrap();
        let _ = restore_on(cluster, "scheduler-2", "cluster.backup").ended_with(0);
        for name in SCHEDULERS {
            cluster.restart(name).unwrap();
        }
        let status = cluster.wait_until_it_ends("scheduler-2", END_WITHIN).unwrap();
        assert_eq!(status.code(), Some(1));
        cluster.wait_until_it_serves("first").unwrap();
        let after = cluster.subcluster("first").unwrap().token;
        assert!(
            after >= twice && after.get() - twice.get() < 1 << 20,
            "of the group that was there: {after} after {twice}"
        );
    });
}
