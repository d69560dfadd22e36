//! A scheduler replica comes back over an older copy of its disk: a restored volume, a snapshot of its machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use symphony_testkit::wait_until;
use symphony_tests::{emulated_model, phase};

use super::two_subclusters;

const END_WITHIN: Duration = Duration::from_secs(60);

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn an_older_copy_of_a_disk_is_refused_and_costs_nothing_that_was_acknowledged() {
    two_subclusters("rolled-back", |cluster| {
        let view = cluster.view().unwrap();
        let second = cluster.subcluster("second").unwrap();
        let victim = second.leader.unwrap().0;
        let other = view.nodes.keys().find(|&&node| node != victim && view.control_leader != Some(node)).unwrap();
        let (victim, other) = (victim.get(), format!("scheduler-{other}", other = other.get()));
        let name = format!("scheduler-{victim}");
        let (disk, kept) = (cluster.data_dir(&name), cluster.data_dir("copy"));
        let load = cluster.spawn_load_until_ended("load", &["first=20", "second=20"]).unwrap();

        phase("a copy of a replica's disk; it runs, and acknowledges more");
        cluster.stop(&name, END_WITHIN).unwrap();
        copy(&disk, &kept);
        cluster.restart(&name).unwrap();
        cluster.wait_until_whole().unwrap();
        for model in ["third", "fourth", "fifth"] {
            let _ = cluster.cli(&emulated_model(model, "first")).ended_with(0);
        }

        phase("it dies and comes back over the copy: refused, and again without asking anybody");
        cluster.kill(&name).unwrap();
        fs::remove_dir_all(&disk).unwrap();
        copy(&kept, &disk);
        cluster.restart(&name).unwrap();
        assert_eq!(cluster.wait_until_it_ends(&name, END_WITHIN).unwrap().code(), Some(1));
        let log = fs::read(cluster.workspace.file(&format!("{name}.err"))).unwrap();
        let log = String::from_utf8_lossy(&log);
        assert!(log.contains("knows of a later boot"), "it asked before it took part: {log}");
        let words = "older copy of itself";
        cluster.restart(&name).unwrap();
        let (code, log) = cluster.ends_by_itself(&name).unwrap();
        assert!(code == Some(1) && log.contains(words) && log.contains("members replace"), "{code:?} {log}");
        cluster.wait_for_view("it to be down", |view| view.nodes.values().any(|node| !node.up).then_some(())).unwrap();

        phase("the other follower dies as well and comes back: two that are up to date are a quorum");
        cluster.kill(&other).unwrap();
        cluster.restart(&other).unwrap();
        for model in ["first", "second"] {
            cluster.wait_until_it_serves(model).unwrap();
        }
        let models = cluster.view().unwrap().models;
        let loaded = models.values().map(|model| model.spec.name.as_str()).collect::<Vec<_>>();
        for model in ["first", "second", "third", "fourth", "fifth"] {
            assert!(loaded.contains(&model), "{model} of {loaded:?}");
        }
        cluster.end_load(load).unwrap().check_safety().unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("somebody new takes its place");
        cluster.start_joining(4, victim).unwrap();
        let control = cluster.address("scheduler-4", "control");
        let replace = ["members", "replace", &victim.to_string(), "--with", "4", "--control", &control];
        let _ = cluster.cli(&replace).ended_with(0);
        cluster.wait_until_whole().unwrap();
        cluster.one_good_request("second").unwrap();
    });
}

#[test]
fn a_copy_of_the_present_boot_is_told_by_the_leader() {
    two_subclusters("rolled-back-now", |cluster| {
        let (view, raft_leader) = (cluster.view().unwrap(), cluster.view().unwrap().control_leader);
        let victim = view.nodes.keys().find(|&&node| raft_leader != Some(node)).unwrap().get();
        let name = format!("scheduler-{victim}");
        let (disk, kept) = (cluster.data_dir(&name), cluster.data_dir("copy"));

        phase("it is copied while it stands still, as by a snapshot of its machine; it runs on, and acknowledges more");
        cluster.pause(&name).unwrap();
        copy(&disk, &kept);
        cluster.resume(&name).unwrap();
        cluster.wait_until_whole().unwrap();
        for model in ["third", "fourth", "fifth"] {
            let _ = cluster.cli(&emulated_model(model, "first")).ended_with(0);
        }
        let index = cluster.view().unwrap().applied_index;
        cluster
            .wait_for_view("it to have everything", |view| {
                view.group.values().all(|member| member.applied_index >= index).then_some(())
            })
            .unwrap();

        phase("killed, it comes back over the copy: the leader knows what it acknowledged");
        cluster.kill(&name).unwrap();
        fs::remove_dir_all(&disk).unwrap();
        copy(&kept, &disk);
        cluster.restart(&name).unwrap();
        let (code, log) = cluster.ends_by_itself(&name).unwrap();
        assert!(code == Some(1) && log.contains("older copy of its disk"), "{code:?} {log}");
        for model in ["first", "second"] {
            cluster.wait_until_it_serves(model).unwrap();
        }
    });
}

#[test]
fn who_could_ask_nobody_and_is_told_by_no_leader_is_found_when_it_registers() {
    two_subclusters("rolled-back-unasked", |cluster| {
        let view = cluster.view().unwrap();
        let victim = view.nodes.keys().find(|&&node| view.control_leader != Some(node)).unwrap().get();
        let others = (1..=3).filter(|&id| id != victim).map(|id| format!("scheduler-{id}")).collect::<Vec<_>>();
        let name = format!("scheduler-{victim}");
        let (disk, kept) = (cluster.data_dir(&name), cluster.data_dir("copy"));

        phase("a copy from between two boots, and then it is away");
        cluster.stop(&name, END_WITHIN).unwrap();
        copy(&disk, &kept);
        cluster.restart(&name).unwrap();
        cluster.wait_until_whole().unwrap();
        cluster.kill(&name).unwrap();
        fs::remove_dir_all(&disk).unwrap();
        copy(&kept, &disk);

        phase("another term begins: its leader was told nothing by it");
        let leader = cluster.wait_for_view("a leader", |view| view.control_leader).unwrap();
        let leader = format!("scheduler-{}", leader.get());
        cluster.kill(&leader).unwrap();
        cluster.restart(&leader).unwrap();
        cluster.wait_for_view("a leader again", |view| view.control_leader).unwrap();

        phase("it comes back while the others stand still: it can ask nobody, and takes part");
        let log = cluster.workspace.file(&format!("{name}.err"));
        let read = || String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
        let said_before = read().len();
        for other in &others {
            cluster.pause(other).unwrap();
        }
        cluster.restart(&name).unwrap();
        wait_until("it to try to register", END_WITHIN, || {
            let words = read();
            ensure!(words[said_before..].contains("not registered yet"), "{}", &words[said_before..]);
            Ok(())
        })
        .unwrap();

        phase("they go on: its registration shows what it does not know");
        for other in &others {
            cluster.resume(other).unwrap();
        }
        let (code, _) = cluster.ends_by_itself(&name).unwrap();
        let words = read().split_off(said_before);
        assert!(code == Some(1) && words.contains("older copy of its disk"), "{code:?} {words}");
        for earlier in ["knows of a later boot", "has forgotten what it acknowledged"] {
            assert!(!words.contains(earlier), "the registration was not the first to know: {words}");
        }
        for model in ["first", "second"] {
            cluster.wait_until_it_serves(model).unwrap();
        }
    });
}
