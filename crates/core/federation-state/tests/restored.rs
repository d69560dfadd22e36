//! A federation that is founded from a backup.

use symphony_federation_state::{Cause, Command, FederationState, Progress, check, check_step};

use crate::scene::{Scene, load};

/// Far above what the former group can have given.
const ANEW: u64 = 1 << 50;

#[test]
fn it_goes_on_under_numbers_above_all_former_ones() {
    let mut scene = Scene::with_a_model();
    scene.done(&load(2, "n"));
    scene.goes("n", "a");
    scene.goes("n", "b");
    let moves = scene.begins("m", "c", Cause::Operator);
    scene.done(&Command::SeeReplica { replica: 1 });
    let former = scene.state.clone();

    let restored = former.clone().begin_anew(ANEW, 7).unwrap();
    assert_eq!((restored.applied_index(), restored.plan(), restored.largest_number()), (ANEW, ANEW, ANEW));
    assert_eq!(check(&restored), Ok(()));
    assert!(restored.replicas().is_empty(), "they may come over empty disks");
    let moving = restored.models()["m"].moving.as_ref().unwrap();
    assert_eq!((moving.to.as_str(), moving.since), ("c", ANEW), "a call under another id");
    let ended = restored.plans().iter().find(|plan| plan.id == moves).unwrap();
    assert!(matches!(&ended.moves[0].progress, Progress::GivenUp(why) if why.contains("restored")), "{ended:?}");
    let leftovers: Vec<_> = restored.models()["n"].leftovers.iter().collect();
    assert_eq!(leftovers, [(&"a".to_owned(), &ANEW)]);
    assert_eq!(restored.models()["n"].home, former.models()["n"].home, "homes stay");
    let event = restored.events().back().unwrap();
    assert!(event.index == ANEW && event.at_unix_ms == 7 && event.what.contains("restored"), "{event:?}");

    let bytes = restored.snapshot();
    assert!(FederationState::is_snapshot(&bytes) && !FederationState::is_snapshot(b"SYCS"));
    assert_eq!(FederationState::restore(&bytes).unwrap(), restored);
    let mut scene = Scene { state: restored.clone() };
    scene.done(&Command::Loaded { model: "m".into(), since: ANEW });
    assert_eq!(check_step(&restored, &scene.state), Ok(()));
    assert_eq!(scene.home("m"), Some("c"), "it goes on");
}

#[test]
fn a_number_that_is_not_above_the_state_is_refused() {
    let former = Scene::with_a_model().state;
    assert!(former.clone().begin_anew(2, 7).is_err());
    assert!(former.begin_anew(ANEW, 7).is_ok());
}
