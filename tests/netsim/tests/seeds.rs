//! The seeds that every build has time for. `make sim-soak` goes on from there.

mod netsim;

use netsim::netsim;

#[test]
fn every_promise_is_kept() {
    let output = netsim(&["soak", "--from", "1", "--count", "2", "--trouble-s", "6"]);
    assert!(output.status.success());
}

/// The next seed, which has requests for a pipeline, too: its promises are looked at in both runs.
#[test]
fn the_same_seed_gives_the_same_bytes_twice() {
    let output = netsim(&["soak", "--from", "3", "--count", "1", "--trouble-s", "6", "--twice"]);
    assert!(output.status.success());
}

/// A one-way partition with entries pending: what a deaf leader sends must not keep the others loyal.
#[test]
fn a_leader_that_hears_nobody_stops_acting_and_another_one_is_elected() {
    told_by_seeds("deaf-leader");
}

/// Links out of the leader that hardly move: what arrives was sent long ago, and must not keep the others loyal.
#[test]
fn a_leader_whose_words_only_drip_through_is_replaced() {
    told_by_seeds("dripping-leader");
}

/// A first start at which two of three replicas cannot reach each other for a while.
#[test]
fn two_that_cannot_reach_each_other_found_nothing_until_they_can() {
    told_by_seeds("cut-founding");
}

/// A leader of a sub-cluster that was replaced and does not know it seals again.
#[test]
fn a_backend_does_not_go_back_to_a_leader_that_was_replaced() {
    told_by_seeds("stale-leader");
}

/// A hung lead is given up, and where the control group cannot be reached the heartbeats stop and come back.
#[test]
fn a_lead_that_hangs_is_replaced_also_where_its_replica_hears_nobody() {
    told_by_seeds("hung-lead");
}

/// Clockwork, Nexus, Shepherd and Kairos, and one whose plans overlap.
#[test]
fn a_sub_cluster_loses_no_request_from_one_policy_to_the_next_nor_by_one_at_fault() {
    told_by_seeds("policies-in-turn");
}

/// No acknowledged entry is lost where a replica comes back over a copy of its disk from between two of its boots.
#[test]
fn a_replica_over_an_older_copy_of_its_disk_ends_and_helps_nobody_to_forget() {
    told_by_seeds("rolled-back");
}

/// Nor over a copy from its last boot, which only its leader can recognise.
#[test]
fn a_replica_over_a_copy_of_its_boot_is_told_by_the_leader() {
    told_by_seeds("rolled-back-boot");
}

/// Two disks are lost while all replicas are down: no empty group beside the state of the third.
#[test]
fn two_wiped_replicas_found_nothing_beside_the_third() {
    told_by_seeds("wiped-founders");
}

/// The only one of the others that an empty disk reaches does not know what was agreed with it.
#[test]
fn an_empty_disk_does_not_vote_with_one_that_was_left_behind() {
    told_by_seeds("lagging-survivor");
}

/// An even and an odd seed: where a replica is chosen by that, each is.
fn told_by_seeds(story: &str) {
    for seed in 1..=2 {
        let output = netsim(&["story", story, "--seed", &seed.to_string()]);
        assert!(output.status.success(), "seed {seed}");
    }
}
