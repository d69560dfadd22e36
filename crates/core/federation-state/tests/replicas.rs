//! Replicas of the group that have held an entry of its log are remembered for ever.

use symphony_federation_state::{Command, FederationState, REPLICAS_MAX, Refusal};

use crate::scene::{Scene, see};

#[test]
fn a_replica_that_was_seen_once_is_never_forgotten() {
    let mut scene = Scene::default();
    let seen = |replica| Command::SeeReplica { replica };
    scene.done(&seen(3));
    scene.done(&seen(3));
    scene.done(&see("a"));
    assert!(scene.state.replicas().iter().eq([&3]));
    assert_eq!(FederationState::restore(&scene.state.snapshot()).as_ref(), Ok(&scene.state));

    let nobody = scene.apply(&seen(0)).unwrap_err();
    assert!(nobody.to_string().contains("expected the id of a replica"), "{nobody}");
    for replica in (4..).take(REPLICAS_MAX - 1) {
        scene.done(&seen(replica));
    }
    assert!(matches!(scene.apply(&seen(1_000)), Err(Refusal::Limit { max: 64, .. })));
    scene.done(&seen(3));
}
