//! Backups: their bytes, and the state with which a restored cluster begins.

use proptest::prelude::*;
use symphony_cluster_state::{
    Backup, BackupError, ClusterState, Command, HolderState, IDS_SKIPPED_MIN, NewGroup, Outcome, Reply, check,
    check_step,
};
use symphony_types::{BackendId, NodeId};

use crate::scene::{Scene, backend, backend_down, frontend, load, model_move, node, plan, report, unload};

/// The time of the backups.
const TAKEN: u64 = 1_700_000_000_123;

fn backup(state: &ClusterState) -> Backup {
    Backup {
        cluster: "blue".into(),
        release: "0.1.0".into(),
        taken_at_unix_ms: TAKEN,
        node: NodeId::new(2),
        index: state.applied_index(),
        term: 3,
        state: state.snapshot(),
        confirmed: true,
    }
}

/// Some seconds after the backup was taken.
fn new_group(seconds: u64, replicas: &[u64]) -> NewGroup {
    NewGroup {
        replicas: replicas.iter().copied().map(NodeId::new).collect(),
        at_unix_ms: TAKEN + seconds * 1000,
        ids_skipped: IDS_SKIPPED_MIN,
        chance: 0,
    }
}

/// Two sub-clusters with a model each, which a backend of each holds; a frontend; a model on its way.
fn busy() -> Scene {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 1, "s", &["cpu"]));
    scene.done(&backend("b", 2, "t", &["cpu"]));
    scene.done(&frontend("f", 3));
    for (model, (name, subcluster)) in (1..).zip([("m", "s"), ("n", "t")]) {
        scene.done(&load(name, subcluster, &["cpu"]));
        scene.done(&report(model, model, u64::from(model), HolderState::Ready));
    }
    scene.done(&plan(0, &[model_move(1, 1, 2)]));
    assert_eq!(scene.state.moves_under_way(), 1);
    scene
}

/// What this version of the format wrote is on the disks of its users. A change of layout needs a new version, and this
/// test the bytes of both.
#[test]
fn what_version_1_wrote_is_written_so_and_read() {
    let golden = concat!(
        "5359424b010001009087d6f9480000007374617465000000626c7565ffffffff302e312e30ffffff7b68e5cf8b01000002000000",
        "0000000063000000000000000300000000000000c8ffffff050000000100000000000000",
    );
    let backup = Backup { index: 99, state: b"state".to_vec(), ..backup(&ClusterState::default()) };
    let bytes = backup.encode().unwrap();
    assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), golden);
    assert_eq!(Backup::decode(&bytes), Ok(backup));
}

#[test]
fn what_is_no_backup_is_refused_with_what_was_expected() {
    let bytes = backup(&busy().state).encode().unwrap();
    let refusal = |bytes: &[u8]| Backup::decode(bytes).unwrap_err().to_string();
    assert!(refusal(b"").contains("starts with `SYBK`"));
    assert!(refusal(&bytes[..bytes.len() - 1]).contains("both must agree"), "truncated");
    let mut newer = bytes;
    newer[4] = 2;
    assert!(refusal(&newer).contains("version 2; this release reads version 1"));
    let mut other_state = backup(&busy().state);
    other_state.state[4] = 0xff;
    let refused = other_state.open().unwrap_err().to_string();
    assert!(
        refused.contains("written by release 0.1.0") && refused.contains("this release reads version"),
        "{refused}"
    );
    let lying = Backup { index: 7, ..backup(&busy().state) };
    assert!(matches!(lying.open(), Err(BackupError::Index { said: 7, .. })));
}

proptest! {
    #[test]
    fn a_flipped_bit_is_seen(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = backup(&busy().state).encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Backup::decode(&bytes).is_err());
    }
}

#[test]
fn every_number_and_id_of_the_new_group_is_above_those_of_the_former() {
    let before = busy().state;
    let (mut after, number) = backup(&before).begin_anew("blue", &new_group(60, &[1, 2, 3])).unwrap();
    check(&after).unwrap();
    check_step(&before, &after).unwrap();
    assert_eq!((after.applied_index(), after.epoch().get()), (number, number));
    assert!(after.nodes().is_empty(), "they come over empty disks");
    assert!(after.subclusters().values().all(|s| s.leader.is_none() && s.token.get() == number));
    assert!(after.backends().values().all(|b| !b.up()), "each that runs registers again, under a new token");
    assert!(after.models().values().all(|m| m.holders.is_empty()), "backends say anew what they hold");
    assert_eq!(after.models().len(), 2);
    let event = &after.events().last().unwrap().what;
    assert!(event.contains(&format!("log index {}", before.applied_index())) && event.contains("is lost"), "{event}");

    // The former group goes on after the backup; the new one never gives a number or an id that it may have given.
    let mut former = busy();
    former.done(&backend("c", 9, "u", &["cpu"]));
    let mut index = number;
    let mut done = |command: Command| {
        index += 1;
        let applied = after.apply(index, &command);
        assert!(applied.outcome.is_ok(), "{command:?}: {:?}", applied.outcome);
        applied.outcome
    };
    let _ = done(node(1, 11));
    let again = done(backend("a", 1, "s", &["cpu"]));
    let expected_id = BackendId::new(1);
    assert!(
        matches!(again, Ok(Reply::Backend { backend, token, .. }) if backend == expected_id && token.get() > number)
    );
    let _ = done(report(1, 1, 1, HolderState::Ready));
    let new: Outcome = done(backend("c", 12, "u", &["cpu"]));
    let first = former.state.backends().keys().max().unwrap().get();
    assert!(matches!(new, Ok(Reply::Backend { backend, .. }) if backend.get() > first + 1000));
    let loaded = done(load("o", "s", &["cpu"]));
    assert!(matches!(loaded, Ok(Reply::Model { model, .. }) if model.get() > IDS_SKIPPED_MIN));
    let (_, led) = after.subcluster_named("s").unwrap();
    assert!(led.leader.is_some() && led.token.get() > number);
}

#[test]
fn a_second_restore_of_one_backup_is_above_the_first() {
    let backup = backup(&busy().state);
    let number = |seconds| backup.begin_anew("blue", &new_group(seconds, &[1])).unwrap().1;
    assert!(number(10) + 1_000_000 <= number(11));
    // And so is a backup of the restored group.
    let (restored, first) = backup.begin_anew("blue", &new_group(10, &[1])).unwrap();
    let again = Backup { index: first, term: first, state: restored.snapshot(), ..backup };
    assert!(again.begin_anew("blue", &new_group(20, &[1])).unwrap().1 > first);
    // Its clock was ahead of this one: the time that it takes is named, not that of the backup.
    let clock = again.begin_anew("blue", &new_group(10, &[1])).unwrap_err();
    assert!(matches!(clock, BackupError::Clock { needed_unix_ms: 1_700_000_011_000, .. }), "{clock}");
    assert!(clock.to_string().contains("expected at least 1700000011000"), "{clock}");
    assert!(again.begin_anew("blue", &new_group(11, &[1])).unwrap().1 > first);
}

#[test]
fn two_restores_in_one_second_differ_by_chance_and_stay_exact_in_json() {
    let backup = backup(&busy().state);
    let number = |at_unix_ms, chance| {
        backup.begin_anew("blue", &NewGroup { at_unix_ms, chance, ..new_group(0, &[1]) }).map(|(_, number)| number)
    };
    let [first, second] = [0, 5].map(|chance| number(TAKEN, chance).unwrap());
    assert_eq!(second, first + 5);
    assert_eq!(number(TAKEN, u64::MAX), Ok(first + (1 << 20) - 1), "it stays below those of the next second");
    // The last second before 2^53.
    let last = ((1_u64 << 33) - 2) * 1000;
    assert_eq!(number(last, u64::MAX), Ok((1 << 53) - 1));
    assert!(matches!(number(last + 1000, 0), Err(BackupError::Clock { .. })));
}

#[test]
fn the_wrong_cluster_a_clock_that_is_behind_and_a_removed_replica_are_refused() {
    let before = busy().state;
    let backup = backup(&before);
    let refused = |cluster: &str, new: &NewGroup| backup.begin_anew(cluster, new).unwrap_err();
    let words = refused("green", &new_group(60, &[1])).to_string();
    assert!(words.contains("`blue`") && words.contains("`green`"), "{words}");
    let late = NewGroup { at_unix_ms: TAKEN - 1, ..new_group(0, &[1]) };
    assert!(matches!(refused("blue", &late), BackupError::Clock { .. }));
    let far = NewGroup { at_unix_ms: u64::MAX, ..new_group(0, &[1]) };
    assert!(matches!(refused("blue", &far), BackupError::Clock { .. }));
    let often = NewGroup { ids_skipped: u32::MAX, ..new_group(60, &[1]) };
    assert_eq!(refused("blue", &often), BackupError::NoIdsLeft);

    // Replica 1 is not in the new group: its id is never given again.
    let (after, number) = backup.begin_anew("blue", &new_group(60, &[2, 3])).unwrap();
    assert!(after.removed_nodes().contains(&NodeId::new(1)) && after.removed_nodes().len() == 1);
    let again = Backup { index: number, term: number, state: after.snapshot(), ..backup };
    let refused = again.begin_anew("blue", &new_group(120, &[1, 2])).unwrap_err();
    assert_eq!(refused, BackupError::Removed { node: NodeId::new(1) });
}

#[test]
fn what_was_dead_stays_dead_and_what_was_unloaded_stays_unloaded() {
    let mut scene = busy();
    scene.done(&backend_down(2, 2));
    scene.done(&unload("n"));
    let since = scene.state.backends()[&BackendId::new(2)].down_since;
    let (after, _) = backup(&scene.state).begin_anew("blue", &new_group(60, &[1, 2, 3])).unwrap();
    assert_eq!(after.backends()[&BackendId::new(2)].down_since, since);
    assert!(after.model_named("n").is_none() && after.model_named("m").is_some());
}
