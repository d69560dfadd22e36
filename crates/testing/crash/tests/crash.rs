//! The suite, as often as a build can afford; `symphony-crash --help` says how to run it for hours.

use std::process::Command;

use nix::sys::statvfs::statvfs;

/// What makes and removes small disks by the hundred, and asks no real one to keep anything.
const MODELLED: [&str; 3] = ["power-loss", "damage", "plants"];
/// A file system in memory: of the time for such disks, a third is a real file system's.
const MEMORY: &str = "/dev/shm";
/// Far more than they take at a time.
const ROOM_BYTES: u64 = 1 << 30;

/// Runs `symphony-crash` with these words; it must exit well. Returns its output.
fn suite(words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony-crash"));
    let has_room = || statvfs(MEMORY).is_ok_and(|fs| fs.blocks_available() * fs.fragment_size() >= ROOM_BYTES);
    if MODELLED.iter().any(|what| words.starts_with(what)) && has_room() {
        command.env("TMPDIR", MEMORY);
    }
    let output = command.args(words.split(' ')).output().expect("the suite runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A count of a report in text form.
fn count(text: &str, what: &str) -> u64 {
    let number = text.split(&format!("{what} ")).nth(1).and_then(|rest| rest.split([',', '\n']).next());
    number.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {what} in: {text}"))
}

#[test]
fn power_loss_takes_nothing_from_sled() {
    suite("power-loss --engine sled --cycles 300 --stride 3");
}

#[test]
fn power_loss_takes_nothing_from_redb() {
    suite("power-loss --engine redb --cycles 300 --stride 3");
}

#[test]
fn kills_take_nothing_from_sled() {
    suite("kill --engine sled --cycles 12");
}

#[test]
fn kills_take_nothing_from_redb() {
    suite("kill --engine redb --cycles 12");
}

#[test]
fn failing_and_full_disks_end_the_process_and_take_nothing_from_sled() {
    let text = suite("faults --engine sled --cycles 16");
    assert!(count(&text, "aborted") > 0 && count(&text, "disk fills") > 0, "{text}");
}

#[test]
fn failing_and_full_disks_end_the_process_and_take_nothing_from_redb() {
    let text = suite("faults --engine redb --cycles 16");
    assert!(count(&text, "aborted") > 0 && count(&text, "disk fills") > 0, "{text}");
}

#[test]
fn damage_is_never_served_by_sled() {
    let text = suite("damage --engine sled --cycles 150");
    assert!(count(&text, "refused") > 0, "{text}");
}

#[test]
fn damage_is_never_served_by_redb() {
    let text = suite("damage --engine redb --cycles 150");
    assert!(count(&text, "refused") > 0, "{text}");
}

#[test]
fn logs_that_are_written_and_purged_do_not_grow() {
    let text = suite("soak --entries 30000");
    assert_eq!(text.lines().count(), 2, "both engines: {text}");
}

#[test]
fn a_leader_whose_disk_hangs_is_replaced_while_it_hangs() {
    suite("disk-stall --engine redb --cycles 2");
}

#[test]
fn planted_bugs_are_found_in_sled() {
    assert_eq!(suite("plants --engine sled").matches("BROKEN").count(), 8);
}

#[test]
fn planted_bugs_are_found_in_redb() {
    assert_eq!(suite("plants --engine redb").matches("BROKEN").count(), 7);
}
