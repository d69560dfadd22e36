//! A scheduler replica is replaced while the cluster serves.

use std::time::Duration;

use symphony_testkit::wait_until;
use symphony_tests::phase;

use super::two_subclusters;

const LOAD_S: u32 = 12;

#[test]
fn a_new_replica_takes_the_place_of_another_under_load() {
    two_subclusters("members", |cluster| {
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["first=40", "second=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 100).unwrap();
        let victim = cluster.subcluster("first").unwrap().leader.unwrap().0;
        let (going, victim) = (victim.get(), victim.get().to_string());

        phase("a fourth replica takes the place of the leader of the first sub-cluster");
        cluster.start_joining(4, going).unwrap();
        let control = cluster.address("scheduler-4", "control");
        let output = cluster.cli(&["members", "replace", &victim, "--with", "4", "--control", &control]).ended_with(0);
        assert!(output.out.contains("n4") && !output.out.contains(&format!("n{victim},")), "{output:?}");
        wait_until("three voters, the new one caught up", Duration::from_secs(120), || {
            let members = cluster.cli(&["get", "members", "-o", "json"]).ended_with(0).json();
            let groups: Vec<_> = members.as_array().unwrap().iter().filter(|m| m["role"] == "scheduler").collect();
            let voting = groups.iter().filter(|m| m["group"] == "voter" || m["group"] == "leader").count();
            let new = groups.iter().find(|m| m["id"] == "n4");
            let caught_up =
                new.is_some_and(|m| m["up"] == true && m["applied_index"].as_u64() > Some(0) && m["lag"] == 0);
            anyhow::ensure!(groups.len() == 3 && voting == 3 && caught_up, "{members}");
            Ok(())
        })
        .unwrap();

        phase("whoever never was, and whoever is no more, is not removed, and nothing is announced");
        let nobody = cluster.cli(&["members", "remove", "9"]).ended_with(2);
        assert!(nobody.err.contains("n9 is no scheduler replica") && !nobody.err.contains("hands over"), "{nobody:?}");
        let gone = cluster.cli(&["members", "remove", &victim]).ended_with(2);
        assert!(gone.err.contains("was removed already"), "{gone:?}");

        phase("the old one finds itself left out and ends with words");
        let (code, log) = cluster.ends_by_itself(&format!("scheduler-{victim}")).unwrap();
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("was removed from the cluster"), "{log}");
        cluster
            .cli(&["members", "add", &victim, "--control", &control])
            .ended_with(2)
            .complains(&["never given again"]);

        phase("nothing was lost");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        for model in ["first", "second"] {
            report.check_bad_rate(model, 0.05).unwrap();
            cluster.one_good_request(model).unwrap();
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
