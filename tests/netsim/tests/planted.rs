//! Faults that are planted: some seed finds each, as the promise that it breaks, and says how to see it again.

mod netsim;

use netsim::netsim;

fn found(arguments: &[&str], as_what: &str) {
    let output = netsim(arguments);
    assert_eq!(output.status.code(), Some(1), "it was not found");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(&format!("BROKEN: {as_what}")), "found as something else");
    assert!(told.contains("reproduce: cargo run -p symphony-netsim -- "));
}

fn found_by_seeds(plant: &str, from: &str, as_what: &str) {
    found(&["soak", "--from", from, "--count", "12", "--trouble-s", "8", "--plant", plant], as_what);
}

#[test]
fn disks_that_lie() {
    found_by_seeds("lying-disks", "1", "vote: ");
}

#[test]
fn votes_that_are_told_before_they_are_durable() {
    found_by_seeds("votes-not-synced", "1", "vote: ");
}

#[test]
fn backends_that_take_a_stale_token() {
    found(&["story", "stale-leader", "--seed", "1", "--plant", "stale-tokens"], "C7: ");
}

#[test]
fn commands_that_are_applied_in_another_order() {
    found_by_seeds("disordered-apply", "1", "C6: ");
}

#[test]
fn reads_that_ask_no_quorum() {
    // In this process's own words: a soak shows the end of the history only.
    found(&["run", "--seed", "1", "--trouble-s", "8", "--plant", "reads-without-quorum"], "I4: ");
}

#[test]
fn leaders_that_go_on_without_a_quorum() {
    found(&["story", "deaf-leader", "--seed", "1", "--plant", "no-quorum-gate"], "gate: ");
}
