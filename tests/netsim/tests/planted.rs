//! Planted faults: some seed finds each as the broken promise, and prints how to see it again.

mod netsim;

use netsim::netsim;

fn found(arguments: &[&str], as_what: &str) {
    let output = netsim(arguments);
    assert_eq!(output.status.code(), Some(1), "it was not found");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("BROKEN: {as_what}")), "found as something else");
    assert!(text.contains("reproduce: cargo run -p symphony-netsim -- "));
}

/// One seed at a time: the first one finds each of these.
fn found_by_seeds(plant: &str, as_what: &str) {
    let one_by_one = ["soak", "--from", "1", "--count", "12", "--jobs", "1"];
    found(&[&one_by_one[..], &["--trouble-s", "8", "--plant", plant]].concat(), as_what);
}

#[test]
fn disks_that_lie() {
    found_by_seeds("lying-disks", "vote: ");
}

#[test]
fn votes_that_are_told_before_they_are_durable() {
    found_by_seeds("votes-not-synced", "vote: ");
}

#[test]
fn backends_that_take_a_stale_token() {
    found(&["story", "stale-leader", "--seed", "1", "--plant", "stale-tokens"], "C7: ");
}

#[test]
fn leads_that_hang_and_are_not_reported() {
    found(&["story", "hung-lead", "--seed", "1", "--plant", "hangs-unreported"], "hang: ");
}

#[test]
fn a_replica_that_stays_silent_after_a_hung_lead() {
    found(&["story", "hung-lead", "--seed", "1", "--plant", "silent-forever"], "I8: ");
}

#[test]
fn commands_that_are_applied_in_another_order() {
    found_by_seeds("disordered-apply", "C6: ");
}

#[test]
fn followers_that_never_campaign_again() {
    // A restarted replica campaigns in any case, and some replica restarts among the drawn troubles.
    found(&["story", "deaf-leader", "--seed", "1", "--plant", "ticks-stay-off"], "gate: ");
}

#[test]
fn reads_that_ask_no_quorum() {
    // In this process's own words: a soak shows the end of the history only. The first such read comes 4.6 s after the
    // first trouble.
    found(&["run", "--seed", "1", "--trouble-s", "5", "--plant", "reads-without-quorum"], "I4: ");
}

#[test]
fn leaders_that_go_on_without_a_quorum_and_followers_that_believe_them() {
    let both = ["--plant", "no-quorum-gate", "--plant", "old-appends-believed"];
    found(&[&["story", "deaf-leader", "--seed", "1"], &both[..]].concat(), "gate: ");
}

/// Either is enough by itself where the leader's messages arrive at once: with only one of them broken, the other one
/// still holds.
#[test]
fn without_the_gate_or_with_old_words_believed_another_leader_is_elected_all_the_same() {
    for plant in ["no-quorum-gate", "old-appends-believed"] {
        for seed in 1..=2 {
            let output = netsim(&["story", "deaf-leader", "--seed", &seed.to_string(), "--plant", plant]);
            assert!(output.status.success(), "seed {seed} with {plant}");
        }
    }
}

#[test]
fn followers_that_believe_old_words_over_a_link_that_hardly_moves() {
    found(&["story", "dripping-leader", "--seed", "1", "--plant", "old-appends-believed"], "loyal: ");
}

#[test]
fn a_replica_that_has_forgotten_what_it_acknowledged_and_votes() {
    found(&["story", "rolled-back-boot", "--seed", "1", "--plant", "forgotten-unnoticed"], "C6: ");
}

#[test]
fn a_replica_over_an_older_copy_that_neither_asks_nor_is_told() {
    let all = ["--plant", "boots-unasked", "--plant", "forgotten-unnoticed", "--plant", "registrations-unread"];
    found(&[&["story", "rolled-back", "--seed", "1"], &all[..]].concat(), "C6: ");
}

/// In the code that a cluster's control group and a federation's top group share.
#[test]
fn empty_disks_that_found_a_group_unasked() {
    found(&["story", "wiped-founders", "--seed", "1", "--plant", "founds-unasked"], "founding: ");
}

#[test]
fn an_empty_disk_that_joins_by_the_word_of_one_that_was_left_behind() {
    found(&["story", "lagging-survivor", "--seed", "2", "--plant", "joins-unasked"], "founding: ");
}

#[test]
fn frontends_that_leave_stage_requests_behind() {
    found_by_seeds("withdraws-forgotten", "P1: ");
}

#[test]
fn frontends_that_tell_no_leader_what_they_withdraw() {
    found_by_seeds("cancels-unsent", "P1: ");
}

#[test]
fn policies_that_order_plans_which_overlap() {
    found_by_seeds("plans-overlap", "policy `");
}

#[test]
fn leads_that_do_not_report_the_fault_of_their_policy() {
    let plant = "policy-faults-unreported";
    found(&["story", "policies-in-turn", "--seed", "1", "--plant", plant], "policy: its fault");
}

/// Over a copy from between two boots each of the first two signs is enough by itself: what others answer at its start,
/// and what its leader says. The third, at registration, may come after it has voted.
#[test]
fn a_replica_over_an_older_copy_ends_when_it_asks_or_is_told() {
    for without in ["boots-unasked", "forgotten-unnoticed"] {
        let plants = ["--plant", without, "--plant", "registrations-unread"];
        let output = netsim(&[&["story", "rolled-back", "--seed", "1"], &plants[..]].concat());
        assert!(output.status.success(), "with {without}");
    }
}
