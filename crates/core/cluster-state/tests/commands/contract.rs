//! What every command keeps. A new one goes through it once, from its own story, as in `skeleton.rs`.

use symphony_cluster_state::{
    ClusterState, Command, HolderState, Outcome, check, check_step, decode_outcome, encode_outcome,
};

use crate::scene::{self, Scene, backend, load, report};

/// `done` can be done in the scene and changes something; `late` is the same command about what is over, such as a
/// former boot.
#[track_caller]
pub(crate) fn keeps_the_contract(scene: &mut Scene, done: &Command, late: &Command) {
    let level = scene.state.level();
    for command in [done, late] {
        // It has a label, may enter the log, and is read from it as it was written.
        assert!(!scene::label(command).is_empty());
        assert_eq!(command.validate(), Ok(()));
        assert_eq!(Command::decode(&command.encode_at(level).unwrap()), Ok(command.clone()));
    }

    // A late command changes nothing, and its proposer gets the reason.
    let refused: Outcome = Err(scene.refused(late));
    assert_eq!(decode_outcome(&encode_outcome(&refused, level)), Ok(refused));

    // A replica that was restored from a snapshot and reads the log comes to the same answer and the same bytes.
    let mut other = ClusterState::restore(&scene.state.snapshot()).unwrap();
    let before = scene.state.clone();
    let effects = scene.done(done);
    assert_ne!(effects, [], "nothing happened that others could hear of");
    let read = Command::decode(&done.encode_at(level).unwrap()).unwrap();
    let applied = other.apply(scene.index, &read);
    assert_eq!(applied.effects, effects);
    assert_eq!(decode_outcome(&encode_outcome(&applied.outcome, level)), Ok(applied.outcome));
    assert_eq!(other.snapshot(), scene.state.snapshot());
    assert_eq!(other.state_hash(), scene.state.state_hash());
    assert_eq!(check(&scene.state), Ok(()));
    assert_eq!(check_step(&before, &scene.state), Ok(()));

    // A proposal whose fate was unknown is made again.
    assert_eq!(scene.done(done), [], "it is done once");
}

#[test]
fn a_report_of_a_backend_keeps_the_contract() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 5, "s", &["cpu"]));
    scene.done(&load("m", "s", &["cpu"]));
    let of_boot = |boot| report(1, 1, boot, HolderState::Ready);
    keeps_the_contract(&mut scene, &of_boot(5), &of_boot(4));
}
